//! The FUSE protocol (linux/fuse.h, version 7.31 of it) over `/dev/fuse`: requests in, answers out.
//!
//! `abi` has the numbers, `request` decodes, `reply` encodes, `serve` answers one request by calling the file system,
//! `answer` leads a request from its bytes to its answer, and `outcome` says what has become of it. `handshake` is a
//! mount's first request. `device` receives and sends, `receive` is what each thread does over it, `asynchronous` has
//! requests answered without a waiting thread, and `in_flight` counts them; `lent` has the memory that writes keep,
//! `worker_pool` decides which threads read the device. `uring` has the same requests come over io_uring, with the
//! memory and the system calls of `ring`. Only `device`, `receive`, `asynchronous`, `worker_pool`, `uring` and `ring`
//! know how requests travel.

pub(crate) mod abi;
mod answer;
mod asynchronous;
pub(crate) mod device;
pub(crate) mod handshake;
pub(crate) mod in_flight;
mod lent;
pub(crate) mod locks;
pub(crate) mod nodes;
mod outcome;
pub(crate) mod receive;
mod reply;
mod request;
mod ring;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
pub(crate) mod uring;
pub(crate) mod worker_pool;
