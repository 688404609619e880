//! How far targets lag behind the other members of their placement groups, for people: which bytes lack copies, how
//! many are still to be compared, how fast that goes, and what limits it. Estimates.

use crate::ids::{NodeId, TargetId};

/// What the time of catching up goes into, as the primary of a group sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum CatchUpWait {
    /// Reading what the primary has.
    OwnDisk = 1,
    /// Hashing it there.
    OwnCpu = 2,
    /// Reading what the lagging target has, or writing what differs.
    TheirDisk = 3,
    /// All else that its server does before it answers: hashing, and waiting for a thread.
    TheirCpu = 4,
    /// Requests and answers on their way between the two.
    Network = 5,
    /// Making way for programs: they use the same blocks, or change files of the group.
    Programs = 6,
}

impl CatchUpWait {
    /// Number of them.
    pub const COUNT: usize = 6;

    /// All of them, in the order of their numbers.
    pub const ALL: [CatchUpWait; CatchUpWait::COUNT] = [
        CatchUpWait::OwnDisk,
        CatchUpWait::OwnCpu,
        CatchUpWait::TheirDisk,
        CatchUpWait::TheirCpu,
        CatchUpWait::Network,
        CatchUpWait::Programs,
    ];

    /// The one with this number, if there is one.
    pub fn from_number(number: u32) -> Option<CatchUpWait> {
        CatchUpWait::ALL.into_iter().find(|wait| *wait as u32 == number)
    }

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            CatchUpWait::OwnDisk => "own_disk",
            CatchUpWait::OwnCpu => "own_cpu",
            CatchUpWait::TheirDisk => "their_disk",
            CatchUpWait::TheirCpu => "their_cpu",
            CatchUpWait::Network => "network",
            CatchUpWait::Programs => "programs",
        }
    }

    /// True for what is the lagging target's own, whichever primary waits for it.
    pub fn is_theirs(self) -> bool {
        matches!(self, CatchUpWait::TheirDisk | CatchUpWait::TheirCpu)
    }
}

/// What most of the time of catching up goes into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CatchUpLimit {
    /// That.
    pub wait: CatchUpWait,
    /// The node of the primary that waits; of what is the lagging target's own: of no one.
    pub primary: Option<NodeId>,
    /// How much of the time, 0 to 100.
    pub percent: u32,
}

/// Bytes that lack copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShortBytes {
    /// The copies that there are.
    pub copies: u32,
    /// Those that there are to be.
    pub of: u32,
    /// Bytes of the objects, each counted once, by their lengths.
    pub bytes: u64,
}

/// A target that lags, over all of its groups of which anything is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaggingTarget {
    /// Its id.
    pub target: TargetId,
    /// In so many groups.
    pub groups: u32,
    /// Their bytes, those with the fewest copies first.
    pub short: Vec<ShortBytes>,
    /// Those of them that have not been compared yet.
    pub left_bytes: u64,
    /// Compared in the last seconds.
    pub bytes_per_second: u64,
    /// Until all are, at that rate; `None`: none were compared lately.
    pub left_ms: Option<u64>,
    /// `None`: nothing has most of the time.
    pub limit: Option<CatchUpLimit>,
}

impl LaggingTarget {
    /// Bytes of all its groups.
    pub fn bytes(&self) -> u64 {
        self.short.iter().fold(0, |sum, short| sum.saturating_add(short.bytes))
    }
}
