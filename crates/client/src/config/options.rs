//! How a client behaves.

use vazao_model::limits::DEADLINE_MS_DEFAULT;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Deadline of each call, retries included.
    pub deadline_ms: u32,
    /// Bytes written but not yet acknowledged by data servers, over all files.
    pub dirty_bytes_max: usize,
    /// The same for one file. Less is in use where servers are near: what keeps them busy and stays in the processor's
    /// cache. This much fills 1 Gb/s over a round trip of 100 ms.
    pub dirty_bytes_per_file_max: usize,
    /// Bytes read ahead of one reader, likewise.
    pub read_ahead_bytes_max: usize,
    /// Bytes read ahead over all readers; beyond it each reads ahead a single request.
    pub read_ahead_total_bytes_max: usize,
    /// Connections to each server: as many threads use it at once without sharing one.
    pub connections_max: usize,
    /// Read objects on data servers of this machine from their files, without the server, and reach its metadata
    /// service by a Unix socket.
    pub short_circuit: bool,
    /// Renew the session from a thread of the client's own. Without it the owner has to call
    /// [`crate::Client::tick`] every [`vazao_model::limits::HEARTBEAT_MS`].
    pub background: bool,
    /// Decides the jitter of retries; 0 takes a random one.
    pub seed: u64,
    /// The machine since its start: files of the distribution `local` go to a data server that names the same one.
    pub host: u64,
    /// The zone that the client is in: files of directories placed near their writer go to targets of it. Empty: none.
    pub zone: String,
    /// Host and process, for people who look at sessions. Empty: found out.
    pub name: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            deadline_ms: DEADLINE_MS_DEFAULT,
            dirty_bytes_max: 64 << 20,
            dirty_bytes_per_file_max: 32 << 20,
            read_ahead_bytes_max: 32 << 20,
            read_ahead_total_bytes_max: 64 << 20,
            connections_max: 8,
            short_circuit: true,
            background: true,
            seed: 0,
            host: vazao_wire::local::host(),
            zone: String::new(),
            name: String::new(),
        }
    }
}

/// `process 1234 on host`, as far as `/proc` tells.
pub(crate) fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim_end())
}
