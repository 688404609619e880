//! Where time went: one account of nanoseconds and events for each cause of waiting.

use crate::counter::Counter;

/// What a thread spent time on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Cause {
    /// Waiting for a disk: reads, writes and syncs of a server's files.
    Disk = 0,
    /// Waiting for bytes to or from a peer's socket.
    Network = 1,
    /// Waiting until a peer allows more requests or bytes in flight.
    Credit = 2,
    /// Waiting for a lock held by another thread.
    Lock = 3,
    /// Working: checksums, encoding, copying, transactions.
    Compute = 4,
    /// Waiting for a commit of the metadata log.
    Commit = 5,
    /// Nothing to do.
    Idle = 6,
}

impl Cause {
    /// All causes, in the order of their accounts.
    pub const ALL: [Cause; 7] =
        [Cause::Disk, Cause::Network, Cause::Credit, Cause::Lock, Cause::Compute, Cause::Commit, Cause::Idle];

    /// Its name in metrics and reports.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Disk => "disk",
            Cause::Network => "network",
            Cause::Credit => "credit",
            Cause::Lock => "lock",
            Cause::Compute => "compute",
            Cause::Commit => "commit",
            Cause::Idle => "idle",
        }
    }
}

/// One table of accounts; a daemon or client has one, shared by its threads.
#[derive(Debug, Default)]
pub struct Accounts {
    spent: [(Counter, Counter); 7],
}

impl Accounts {
    /// An empty table.
    pub const fn new() -> Accounts {
        Accounts { spent: [const { (Counter::new(), Counter::new()) }; 7] }
    }

    /// Charges `nanoseconds` and one event to `cause`.
    pub fn charge(&self, cause: Cause, nanoseconds: u64) {
        let (time, events) = &self.spent[cause as usize];
        time.add(nanoseconds);
        events.add(1);
    }

    /// Nanoseconds charged to `cause` so far.
    pub fn nanoseconds(&self, cause: Cause) -> u64 {
        self.spent[cause as usize].0.get()
    }

    /// Events charged to `cause` so far.
    pub fn events(&self, cause: Cause) -> u64 {
        self.spent[cause as usize].1.get()
    }
}
