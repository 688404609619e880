//! How a data server behaves.

use vazao_model::Role;
use vazao_model::limits::{BLOCK_BYTES, BYTES_IN_FLIGHT_MAX, CHUNK_BYTES};

/// A target that this node had, and whose directory is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingTarget {
    /// Its id.
    pub id: u32,
    /// What was given to it when it was formatted.
    pub uuid: u128,
    /// Where it was.
    pub directory: String,
    /// What is found there instead, and what to do, for people.
    pub why: String,
}

/// What is wrong on purpose inside a server, where a simulation is to see that its stories find it. What lies between
/// servers is put in there, on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// The primary of a placement group lets go of a change's blocks before all members have it.
    EarlyUnlock,
    /// A process that starts does not wait for what the one before it may have granted.
    ForgottenGrants,
    /// The primary forgets what a lagging member is known to have missed, and takes it for nothing.
    ForgottenMisses,
    /// A member that lags says that it has lost nothing, whatever has happened to its machine.
    ForgottenPower,
    /// A member whose promotion was asked for does not count until its record comes.
    UncountedPromotion,
}

/// Settings of a data server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name, unique in the cluster.
    pub name: String,
    /// Where it is reached, `host:port`; see `DataService::set_address`.
    pub address: String,
    /// What the node does, as it announces itself.
    pub roles: Vec<Role>,
    /// The cluster its targets must belong to; `None` accepts what the targets say.
    pub cluster_id: Option<u64>,
    /// Everything in the caller's thread, blocking: for simulation.
    pub inline: bool,
    /// Pairs of files kept open, over all targets. A process needs twice as many descriptors.
    pub open_chunks_max: usize,
    /// Space left free on each target; `None` for the larger of 64 MiB and 1 %.
    pub reserve_bytes: Option<u64>,
    /// An epoch with writes is ended after this time.
    pub checkpoint_ms: u64,
    /// Threads for blocking work, a target.
    pub workers: usize,
    /// Requests that may wait for these threads, a target.
    pub queued_requests_max: usize,
    /// Bytes that these requests may hold, a target.
    pub queued_bytes_max: usize,
    /// The machine since its start, as writers name theirs when they ask for a server on it.
    pub host: u64,
    /// The zone that the node is in; empty: in none.
    pub zone: String,
    /// A random number of this start of the process, by which the metadata service tells it from a copy; 0: none, and
    /// copies pass for originals.
    pub run: u64,
    /// Targets of this node whose directories are not there: announced as missing, and refused to those who ask.
    pub missing: Vec<MissingTarget>,
    /// Directories that become new targets by request although others are missing.
    pub meant: Vec<String>,
    /// Largest chunk file. Only tests use another than the default.
    pub chunk_bytes: u64,
    /// Only simulations have one.
    #[doc(hidden)]
    pub defect: Option<Defect>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "data".into(),
            address: String::new(),
            roles: vec![Role::Data],
            cluster_id: None,
            inline: false,
            open_chunks_max: 512,
            reserve_bytes: None,
            // Late enough that the kernel has written most of it by itself.
            checkpoint_ms: 20_000,
            workers: 4,
            queued_requests_max: 256,
            // One connection alone is never refused.
            queued_bytes_max: BYTES_IN_FLIGHT_MAX as usize,
            host: vazao_wire::local::host(),
            zone: String::new(),
            run: 0,
            missing: Vec::new(),
            meant: Vec::new(),
            chunk_bytes: CHUNK_BYTES,
            defect: None,
        }
    }
}

impl Options {
    /// What is wrong with them, if anything is.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.chunk_bytes == 0 || !self.chunk_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Some("chunk_bytes must be a multiple of 64 KiB");
        }
        if self.workers == 0 || self.open_chunks_max == 0 || self.queued_requests_max == 0 {
            return Some("workers, open_chunks_max and queued_requests_max must not be 0");
        }
        None
    }
}
