//! Where time went: one account of nanoseconds and events for each cause of waiting.

use crate::counter::Counter;

/// What a thread spent time on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Cause {
    /// Waiting for a disk with other things than the ones below: names, lengths, removal.
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
    /// Waiting until a disk has read.
    DiskRead = 7,
    /// Waiting until a disk, or the memory in front of it, has taken a write.
    DiskWrite = 8,
    /// Waiting until a disk has made durable what was written.
    DiskSync = 9,
    /// Waiting until a socket takes more bytes.
    Send = 10,
}

/// Number of causes.
const CAUSES: usize = 11;

impl Cause {
    /// All causes, in the order of their accounts.
    pub const ALL: [Cause; CAUSES] = [
        Cause::Disk,
        Cause::Network,
        Cause::Credit,
        Cause::Lock,
        Cause::Compute,
        Cause::Commit,
        Cause::Idle,
        Cause::DiskRead,
        Cause::DiskWrite,
        Cause::DiskSync,
        Cause::Send,
    ];

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
            Cause::DiskRead => "disk_read",
            Cause::DiskWrite => "disk_write",
            Cause::DiskSync => "disk_sync",
            Cause::Send => "send",
        }
    }
}

/// One table of accounts; a daemon or client has one, shared by its threads.
#[derive(Debug, Default)]
pub struct Accounts {
    spent: [(Counter, Counter); CAUSES],
}

impl Accounts {
    /// An empty table.
    pub const fn new() -> Accounts {
        Accounts { spent: [const { (Counter::new(), Counter::new()) }; CAUSES] }
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
