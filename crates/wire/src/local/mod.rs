//! The local door: a Unix socket by which a data server hands the descriptors of an object's files to a client on the
//! same machine, which then reads them without the server (docs/decisions/short-circuit.md), and by which a client
//! lends a server the memory that it writes from (docs/decisions/lent-memory.md).
//!
//! The frames and the mutual proof of the cluster key are those of TCP, one request at a time. A descriptor is good
//! for as long as the connection it came over lives: its end is how a client learns that the server is gone.

mod memory;
mod server;
mod talk;
#[cfg(test)]
mod tests;
mod visit;

pub use memory::{LentBuffer, LentMemory};
pub use server::{LocalServer, LocalService};
pub use visit::{Handed, Visit};

/// Longest message of a request through the door: an object's address and a number.
const REQUEST_BYTES_MAX: usize = 512;

/// Longest answer: a few numbers, or a fault for people.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Descriptors that one answer carries: those of a chunk and of its sidecar.
const DESCRIPTORS: usize = 2;

/// Identifies this boot of this machine: two processes with the same number share one kernel and its page cache. 0:
/// not known. The second half of the kernel's random boot id (random(4)).
pub fn host() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).skip(16).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}
