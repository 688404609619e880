//! Distributions: pure functions between a file's bytes and its objects' bytes.
//!
//! Each maps every file offset to exactly one (slot, object offset) and back, and keeps the order within an object:
//! what lies further back in an object lies further back in the file. A new distribution is a variant here, a number
//! in [`Pattern::number`], and a row in the tests, which compare it with a model that deals out blocks one by one.

use crate::layout::{LayoutError, check_stripe_unit};
use crate::limits;
use std::ops::Range;
use std::sync::Arc;

/// How bytes spread over slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Distribution {
    /// Round robin: `unit_bytes` to each slot in turn, packed without gaps inside each object (PVFS's `simple_stripe`).
    SimpleStripe {
        /// Bytes that go to one slot before the next one's turn.
        unit_bytes: u64,
    },
    /// Each slot in turn takes a strip of its own size (PVFS's `varstrip`).
    VaryingStrips(Strips),
    /// The slots in equal groups: `factor` units for each slot of a group, dealt out round robin within it, before the
    /// next group's turn (PVFS's `twod_stripe`).
    Groups {
        /// Bytes that go to one slot before the next one's turn.
        unit_bytes: u64,
        /// Number of groups; divides the width.
        groups: u32,
        /// Units for each slot of a group in one turn of it.
        factor: u32,
    },
    /// All in one object, on the writer's own machine where that has a data server.
    Local {
        /// It had none: the target was chosen as for any file.
        is_away: bool,
    },
}

/// One turn of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strip {
    /// Whose turn it is.
    pub slot: u32,
    /// Bytes that it takes.
    pub bytes: u64,
}

/// A round of strips, which is repeated until the file's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strips(Arc<Round>);

#[derive(PartialEq, Eq, Debug)]
struct Round {
    strips: Vec<Strip>,
    /// Where each strip begins in the round.
    starts: Vec<u64>,
    /// What its slot has had in the round before it.
    before: Vec<u64>,
    /// Bytes of the round in each slot.
    of_slot: Vec<u64>,
    bytes: u64,
}

/// A distribution as a directory or a user asks for it: what it is of, the units left open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// [`Distribution::SimpleStripe`].
    Stripe,
    /// [`Distribution::VaryingStrips`].
    Strips(Vec<Strip>),
    /// [`Distribution::Groups`].
    Groups {
        /// Number of groups, fewer where there are not so many targets.
        groups: u32,
        /// Units for each slot of a group in one turn of it.
        factor: u32,
    },
    /// [`Distribution::Local`].
    Local,
}

/// A run of bytes that is contiguous both in the file and in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Slot of the layout.
    pub slot: u32,
    /// Where the run starts in the object.
    pub object_offset: u64,
    /// Where the run starts in the file.
    pub file_offset: u64,
    /// Its length.
    pub length: u64,
}

impl Piece {
    /// Where it ends in the file.
    pub fn file_end(&self) -> u64 {
        self.file_offset.saturating_add(self.length)
    }
}

impl Strips {
    /// A round of these strips. Errors: none or too many, a size that [`check_stripe_unit`] refuses, a slot without a
    /// strip.
    pub fn new(strips: Vec<Strip>) -> Result<Strips, LayoutError> {
        if strips.is_empty() || strips.len() > limits::STRIPS_MAX {
            return Err(LayoutError::StripCount(strips.len()));
        }
        let (mut starts, mut before, mut of_slot) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0u64;
        for strip in &strips {
            let slot = strip.slot as usize;
            if slot >= limits::STRIPE_WIDTH_MAX {
                return Err(LayoutError::Width(slot + 1));
            }
            check_stripe_unit(strip.bytes)?;
            of_slot.resize(of_slot.len().max(slot + 1), 0u64);
            starts.push(bytes);
            before.push(of_slot[slot]);
            of_slot[slot] += strip.bytes;
            bytes += strip.bytes;
        }
        if let Some(slot) = of_slot.iter().position(|&bytes| bytes == 0) {
            return Err(LayoutError::SlotWithoutStrip(slot));
        }
        Ok(Strips(Arc::new(Round { strips, starts, before, of_slot, bytes })))
    }

    /// The strips of a round.
    pub fn as_slice(&self) -> &[Strip] {
        &self.0.strips
    }

    /// Number of slots that they name.
    pub fn width(&self) -> u32 {
        self.0.of_slot.len() as u32
    }

    fn piece_at(&self, offset: u64) -> Piece {
        let round = &*self.0;
        let (turn, within) = (offset / round.bytes, offset % round.bytes);
        let index = round.starts.partition_point(|start| *start <= within) - 1;
        let Strip { slot, bytes } = round.strips[index];
        Piece {
            slot,
            object_offset: turn * round.of_slot[slot as usize] + round.before[index],
            file_offset: turn * round.bytes + round.starts[index],
            length: bytes,
        }
    }

    fn file_offset(&self, slot: u32, object_offset: u64) -> Option<u64> {
        let round = &*self.0;
        let of_slot = *round.of_slot.get(slot as usize)?;
        let (turn, within) = (object_offset / of_slot, object_offset % of_slot);
        let holds = |index: &usize| {
            let start = round.before[*index];
            round.strips[*index].slot == slot && (start..start + round.strips[*index].bytes).contains(&within)
        };
        let index = (0..round.strips.len()).find(holds)?;
        let in_round = round.starts[index] + (within - round.before[index]);
        turn.checked_mul(round.bytes)?.checked_add(in_round)
    }

    fn object_length(&self, slot: u32, size: u64) -> u64 {
        let round = &*self.0;
        let (turns, rest) = (size / round.bytes, size % round.bytes);
        let of_slot = round.of_slot.get(slot as usize).copied().unwrap_or(0);
        let strips = round.strips.iter().zip(&round.starts).filter(|(strip, _)| strip.slot == slot);
        let in_last: u64 = strips.map(|(strip, start)| rest.saturating_sub(*start).min(strip.bytes)).sum();
        turns * of_slot + in_last
    }
}

impl Pattern {
    /// The number of the distribution on the wire and on disk.
    pub fn number(&self) -> u32 {
        match self {
            Pattern::Stripe => 1,
            Pattern::Strips(_) => 2,
            Pattern::Groups { .. } => 3,
            Pattern::Local => 4,
        }
    }

    /// Its name in commands and their output.
    pub fn name(&self) -> &'static str {
        match self {
            Pattern::Stripe => "stripe",
            Pattern::Strips(_) => "strips",
            Pattern::Groups { .. } => "groups",
            Pattern::Local => "local",
        }
    }

    /// Refuses parameters that no distribution could be made of.
    pub fn check(&self) -> Result<(), LayoutError> {
        match self {
            Pattern::Stripe | Pattern::Local => Ok(()),
            Pattern::Strips(strips) => Strips::new(strips.clone()).map(|_| ()),
            Pattern::Groups { groups, factor } => check_groups(*groups, *factor),
        }
    }
}

fn check_groups(groups: u32, factor: u32) -> Result<(), LayoutError> {
    let is_good = (1..=limits::STRIPE_WIDTH_MAX as u32).contains(&groups)
        && (1..=limits::GROUP_FACTOR_MAX).contains(&factor);
    if is_good { Ok(()) } else { Err(LayoutError::Groups { groups, factor }) }
}

impl Distribution {
    /// What it is, without units.
    pub fn pattern(&self) -> Pattern {
        match self {
            Distribution::SimpleStripe { .. } => Pattern::Stripe,
            Distribution::VaryingStrips(strips) => Pattern::Strips(strips.as_slice().to_vec()),
            Distribution::Groups { groups, factor, .. } => {
                Pattern::Groups { groups: *groups, factor: *factor }
            }
            Distribution::Local { .. } => Pattern::Local,
        }
    }

    /// The stripe unit as written down; 0 for a distribution without one.
    pub fn unit_bytes(&self) -> u64 {
        match self {
            Distribution::SimpleStripe { unit_bytes } | Distribution::Groups { unit_bytes, .. } => {
                *unit_bytes
            }
            Distribution::VaryingStrips(_) | Distribution::Local { .. } => 0,
        }
    }

    /// The longest run that goes to one slot before another one's turn.
    pub fn strip_bytes_max(&self) -> u64 {
        match self {
            Distribution::VaryingStrips(strips) => {
                strips.as_slice().iter().map(|strip| strip.bytes).max().unwrap_or(u64::MAX)
            }
            Distribution::Local { .. } => u64::MAX,
            _ => self.unit_bytes(),
        }
    }

    /// Refuses parameters that the other functions could not work with over `width` slots.
    pub fn check(&self, width: usize) -> Result<(), LayoutError> {
        match self {
            Distribution::SimpleStripe { unit_bytes } => check_stripe_unit(*unit_bytes),
            Distribution::VaryingStrips(strips) if strips.width() as usize != width => {
                Err(LayoutError::OtherWidth(width))
            }
            Distribution::VaryingStrips(_) => Ok(()),
            Distribution::Groups { unit_bytes, groups, factor } => {
                check_stripe_unit(*unit_bytes)?;
                check_groups(*groups, *factor)?;
                let fits = width.is_multiple_of(*groups as usize);
                if fits { Ok(()) } else { Err(LayoutError::OtherWidth(width)) }
            }
            Distribution::Local { .. } if width != 1 => Err(LayoutError::OtherWidth(width)),
            Distribution::Local { .. } => Ok(()),
        }
    }

    /// The whole strip that holds the file's byte `offset`, over `width` slots.
    pub fn piece_at(&self, offset: u64, width: u32) -> Piece {
        match self {
            Distribution::SimpleStripe { unit_bytes } => {
                let unit = offset / unit_bytes;
                Piece {
                    slot: (unit % u64::from(width)) as u32,
                    object_offset: unit / u64::from(width) * unit_bytes,
                    file_offset: unit * unit_bytes,
                    length: *unit_bytes,
                }
            }
            Distribution::VaryingStrips(strips) => strips.piece_at(offset),
            Distribution::Groups { unit_bytes, groups, factor } => {
                let (members, factor) = (u64::from(width / groups), u64::from(*factor));
                let unit = offset / unit_bytes;
                let turn_units = members * factor;
                let (turn, in_turn) = (unit / turn_units, unit % turn_units);
                let (round, group) = (turn / u64::from(*groups), turn % u64::from(*groups));
                Piece {
                    slot: (group * members + in_turn % members) as u32,
                    object_offset: (round * factor + in_turn / members) * unit_bytes,
                    file_offset: unit * unit_bytes,
                    length: *unit_bytes,
                }
            }
            Distribution::Local { .. } => {
                Piece { slot: 0, object_offset: 0, file_offset: 0, length: u64::MAX }
            }
        }
    }

    /// The slot and object offset of the file's byte `offset`, over `width` slots.
    pub fn locate(&self, offset: u64, width: u32) -> (u32, u64) {
        let piece = self.piece_at(offset, width);
        (piece.slot, piece.object_offset + (offset - piece.file_offset))
    }

    /// The file offset of byte `object_offset` of slot `slot`; the inverse of [`Distribution::locate`].
    /// `None` where no file offset of 64 bits maps there.
    pub fn file_offset(&self, slot: u32, object_offset: u64, width: u32) -> Option<u64> {
        match self {
            Distribution::SimpleStripe { unit_bytes } => {
                let row = object_offset / unit_bytes;
                let unit = row.checked_mul(u64::from(width))?.checked_add(u64::from(slot))?;
                unit.checked_mul(*unit_bytes)?.checked_add(object_offset % unit_bytes)
            }
            Distribution::VaryingStrips(strips) => strips.file_offset(slot, object_offset),
            Distribution::Groups { unit_bytes, groups, factor } => {
                let (members, factor) = (u64::from(width / groups), u64::from(*factor));
                let (group, member) = (u64::from(slot) / members, u64::from(slot) % members);
                let row = object_offset / unit_bytes;
                let turn = (row / factor).checked_mul(u64::from(*groups))?.checked_add(group)?;
                let in_turn = row % factor * members + member;
                let unit = turn.checked_mul(members * factor)?.checked_add(in_turn)?;
                unit.checked_mul(*unit_bytes)?.checked_add(object_offset % unit_bytes)
            }
            Distribution::Local { .. } => (slot == 0).then_some(object_offset),
        }
    }

    /// The pieces of the file range `[offset, offset + length)` in file order.
    /// With one slot, neighbouring units join into one piece.
    pub fn pieces(&self, offset: u64, length: u64, width: u32) -> Pieces<'_> {
        let end = offset.saturating_add(length);
        Pieces { distribution: self, width, position: offset, end }
    }

    /// The ranges of the file that `range` of slot `slot`'s object stands for, joined where they touch. `None` when
    /// there are more than `count_max`.
    pub fn file_ranges(
        &self,
        slot: u32,
        range: &Range<u64>,
        width: u32,
        count_max: usize,
    ) -> Option<Vec<Range<u64>>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut position = range.start;
        while position < range.end {
            let Some(start) = self.file_offset(slot, position, width) else { break };
            let left = range.end - position;
            let in_strip = self.piece_at(start, width).file_end() - start;
            let length = if width == 1 { left } else { left.min(in_strip) };
            let end = start.saturating_add(length);
            let count = ranges.len();
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ if count == count_max => return None,
                _ => ranges.push(start..end),
            }
            position = position.checked_add(length)?;
        }
        Some(ranges)
    }

    /// Length that slot `slot`'s object has when the file is `size` bytes long and has no holes; which is also where
    /// in the object the first byte at or after file offset `size` lies that is the slot's.
    pub fn object_length(&self, slot: u32, size: u64, width: u32) -> u64 {
        match self {
            Distribution::SimpleStripe { unit_bytes } => {
                round_robin(size, *unit_bytes, u64::from(width), u64::from(slot))
            }
            Distribution::VaryingStrips(strips) => strips.object_length(slot, size),
            Distribution::Groups { unit_bytes, groups, factor } => {
                let (members, factor) = (u64::from(width / groups), u64::from(*factor));
                let (group, member) = (u64::from(slot) / members, u64::from(slot) % members);
                let turn_bytes = unit_bytes * factor * members;
                let round_bytes = turn_bytes * u64::from(*groups);
                let in_turn = (size % round_bytes).saturating_sub(group * turn_bytes).min(turn_bytes);
                size / round_bytes * factor * unit_bytes + round_robin(in_turn, *unit_bytes, members, member)
            }
            Distribution::Local { .. } => size,
        }
    }
}

/// Bytes that member `member` of `members` has when `size` bytes were dealt out to them in turn.
fn round_robin(size: u64, unit_bytes: u64, members: u64, member: u64) -> u64 {
    let row_bytes = unit_bytes.saturating_mul(members);
    let in_last = (size % row_bytes).saturating_sub(member * unit_bytes).min(unit_bytes);
    size / row_bytes * unit_bytes + in_last
}

/// Iterator over [`Distribution::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    distribution: &'a Distribution,
    width: u32,
    position: u64,
    end: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.position >= self.end {
            return None;
        }
        let strip = self.distribution.piece_at(self.position, self.width);
        let left = self.end - self.position;
        let in_strip = self.position - strip.file_offset;
        let length = if self.width == 1 { left } else { left.min(strip.length - in_strip) };
        let object_offset = strip.object_offset + in_strip;
        let piece = Piece { slot: strip.slot, object_offset, file_offset: self.position, length };
        self.position += length;
        Some(piece)
    }
}

#[cfg(test)]
#[path = "distribution_tests.rs"]
mod tests;
