//! Stand-ins for hardware that is not there: hosts, links and slow disks on one Linux machine, for tests and
//! experiments.
//!
//! A [`Network`] makes hosts as network namespaces joined by a bridge, each with a rate and a delay of its own, and
//! further sites of them beyond a [`Line`]; a [`SlowDisk`] is a file system whose device carries a bounded rate; a
//! [`CpuLimit`] bounds the processors of a process. Whatever is made is written to a ledger under [`RUN_DIRECTORY`]
//! before it is made, and undone from there and from nowhere else: when the value is dropped, or, after its process was
//! killed, by [`sweep`]. Nothing is ever removed for what its name looks like. Everything here needs root.
//!
//! This does not imitate hardware in detail: a slow disk has no seeks, and a link has no errors but lost frames.

mod cgroup;
mod cpu_limit;
mod delay;
mod error;
mod forwarder;
mod ledger;
mod line;
mod link;
mod namespace;
mod network;
mod probe;
mod slow_disk;
mod tool;
mod undo;

pub use cpu_limit::CpuLimit;
pub use delay::{Delay, DelayBy};
pub use error::Error;
pub use ledger::{RUN_DIRECTORY, sweep};
pub use line::{Carried, Line};
pub use link::{BitsPerSecond, TCP_PAYLOAD_SHARE};
pub use network::{HOSTS_MAX, Host, Network};
pub use slow_disk::SlowDisk;
