//! How the service behaves.

use rustix::process::{Resource, getrlimit};
use vazao_model::limits::{CHANNEL_LEASE_MS, CHANNELS_MAX_DEFAULT};

/// Fewer cached descriptors than this only make every request open its file again.
const DESCRIPTORS_MIN: usize = 16;

/// Where the system sets no limit.
const DESCRIPTORS_UNLIMITED: usize = 65_536;

/// How the service behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of its node, for error messages and threads.
    pub name: String,
    /// The zone that its node is in; empty: in none.
    pub zone: String,
    /// Threads of each area for work that waits for its file system, and as many for copies; 0: it is done in the
    /// caller's thread, for tests.
    pub threads: usize,
    /// Requests of each area that may wait for a thread.
    pub jobs_max: usize,
    /// Bytes that these may hold.
    pub job_bytes_max: usize,
    /// The same of copies into it.
    pub copy_bytes_max: usize,
    /// Open channels; the next one is refused.
    pub channels_max: usize,
    /// Open files kept for channels; beyond it the one used longest ago is closed, and opened again when needed.
    pub descriptors_max: usize,
    /// Channels of a client silent for this long are closed.
    pub lease_ms: u32,
    /// A random number of this start of the process, by which the metadata service tells it from a copy; 0: none.
    pub run: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: String::new(),
            zone: String::new(),
            threads: 8,
            jobs_max: 4096,
            job_bytes_max: 32 << 20,
            copy_bytes_max: 64 << 20,
            channels_max: CHANNELS_MAX_DEFAULT,
            descriptors_max: descriptors_max(),
            lease_ms: CHANNEL_LEASE_MS,
            run: 0,
        }
    }
}

/// A quarter of what the process may have open: the rest is for connections and for the other roles.
fn descriptors_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let quarter =
        limit.map_or(DESCRIPTORS_UNLIMITED, |limit| usize::try_from(limit / 4).unwrap_or(usize::MAX));
    quarter.clamp(DESCRIPTORS_MIN, DESCRIPTORS_UNLIMITED)
}
