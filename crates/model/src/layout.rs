//! Where a file's bytes lie: written down in full with each file, never derived.

use crate::distribution::{Distribution, Pattern};
use crate::ids::GroupId;
use crate::limits;
use crate::zone::Placement;

/// The layout of a striped file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Which of the file's lives (see [`crate::ObjectId`]).
    pub generation: u32,
    /// How bytes spread over the slots.
    pub distribution: Distribution,
    /// The placement group of each slot. Never empty, at most [`limits::STRIPE_WIDTH_MAX`].
    pub groups: Vec<GroupId>,
    /// Bit `n` is set once slot `n` has an object: a missing object there is then loss, not a hole.
    pub written_slots: u64,
    /// The generation of the first layout of this life of the file: a converted file has a new generation with the same
    /// bytes, one that was cut to nothing a new life.
    pub life: u32,
}

/// What a directory asks of the layouts of files created in it. Zero means "as the parent or the volume has it".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LayoutHint {
    /// Bytes that go to one target before the next one's turn.
    pub stripe_unit_bytes: u64,
    /// Number of targets; capped at those that are there.
    pub width: u32,
    /// How they take turns; `None` inherits.
    pub pattern: Option<Pattern>,
    /// Which targets are taken; `None` inherits.
    pub placement: Option<Placement>,
    /// Copies on different hosts, up to [`crate::cluster::membership::COPIES_MAX`].
    pub copies: u32,
}

/// Why a layout was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// Checksum blocks must not straddle targets.
    #[error("stripe unit {0} is not a multiple of 64 KiB between 64 KiB and 1 GiB")]
    StripeUnit(u64),
    /// No group, or more than a mask can hold.
    #[error("stripe width {0} is not between 1 and 64")]
    Width(usize),
    /// A distribution written by a newer version.
    #[error("unknown distribution {0}")]
    Distribution(u32),
    /// No strips, or more than are looked through for each request.
    #[error("{0} strips are not between 1 and {max}", max = limits::STRIPS_MAX)]
    StripCount(usize),
    /// It would never get any bytes.
    #[error("slot {0} has no strip: name every slot from 0 to the last one")]
    SlotWithoutStrip(usize),
    /// Beyond what offsets can be computed with.
    #[error("{groups} groups with factor {factor}: between 1 and 64 groups, and a factor from 1 to {max}",
        max = limits::GROUP_FACTOR_MAX)]
    Groups {
        /// Number of groups.
        groups: u32,
        /// Units a slot in one turn.
        factor: u32,
    },
    /// Strips name other slots, groups are not of one size, or a local file has several targets.
    #[error("the distribution does not fit a width of {0}")]
    OtherWidth(usize),
}

impl Layout {
    /// A simple stripe over `groups`.
    pub fn striped(generation: u32, unit_bytes: u64, groups: Vec<GroupId>) -> Result<Layout, LayoutError> {
        Layout::new(generation, Distribution::SimpleStripe { unit_bytes }, groups)
    }

    /// A layout that nothing has been written under yet.
    pub fn new(
        generation: u32,
        distribution: Distribution,
        groups: Vec<GroupId>,
    ) -> Result<Layout, LayoutError> {
        let layout = Layout { generation, distribution, groups, written_slots: 0, life: generation };
        layout.check()?;
        Ok(layout)
    }

    /// Refuses what could not be served; called on everything that comes from the network or the disk.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.groups.is_empty() || self.groups.len() > limits::STRIPE_WIDTH_MAX {
            return Err(LayoutError::Width(self.groups.len()));
        }
        self.distribution.check(self.groups.len())
    }

    /// True when both hold the same bytes, one of them converted from the other.
    pub fn is_same_life(&self, other: &Layout) -> bool {
        self.life == other.life
    }

    /// Number of slots.
    pub fn width(&self) -> u32 {
        self.groups.len() as u32
    }

    /// True when slot `slot` has been written.
    pub fn is_written(&self, slot: u32) -> bool {
        slot < 64 && self.written_slots & (1 << slot) != 0
    }
}

/// Checks a stripe unit.
pub fn check_stripe_unit(unit_bytes: u64) -> Result<(), LayoutError> {
    let block = limits::BLOCK_BYTES as u64;
    if unit_bytes < block || unit_bytes > limits::STRIPE_UNIT_BYTES_MAX || !unit_bytes.is_multiple_of(block) {
        return Err(LayoutError::StripeUnit(unit_bytes));
    }
    Ok(())
}
