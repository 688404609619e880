//! What the kernel counts of this process and its machine, read from `/proc`, `/sys` and the routing socket.
//!
//! A source that is missing (a container without `/proc/diskstats`, no permission) gives zeros or `None`, never an
//! error: the bottleneck is then named with less certainty. Ceilings are configured values or those that a driver
//! states; nothing is guessed here.

mod cgroup;
mod devices;
mod interfaces;
mod processor;
mod shaper;

pub use devices::{DiskWatch, DiskWatches, is_local};
pub use interfaces::links;
pub use processor::cpu;

use std::fs;

/// Text of a file of the kernel's, empty where there is none.
fn text(path: impl AsRef<std::path::Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The same for all processes of this machine since its start, different for others (random(4)).
pub fn id() -> String {
    text("/proc/sys/kernel/random/boot_id").trim().to_owned()
}

/// A number that differs between runs of programs on this machine: process and start time.
pub fn instance() -> u64 {
    let stat = text("/proc/self/stat");
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let started: u64 = after.split_ascii_whitespace().nth(19).and_then(|v| v.parse().ok()).unwrap_or(0);
    (u64::from(std::process::id()) << 40) ^ started
}
