//! The FUSE protocol (linux/fuse.h, version 7.31 of it) over `/dev/fuse`: requests in, answers out.
//!
//! `abi` has the numbers, `request` decodes, `reply` encodes, `serve` answers one request by calling the door, `device`
//! reads and writes, `lent` has the memory that writes keep, `worker_pool` decides which threads read the device,
//! `begun` has asynchronous requests. `uring` has the same requests come over io_uring, with the memory and the system
//! calls of
//! `ring`. Only `device`, `worker_pool`, `uring` and `ring` know how requests travel.

pub(crate) mod abi;
pub(crate) mod asynchronous;
pub(crate) mod device;
pub(crate) mod lent;
pub(crate) mod locks;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod ring;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
pub(crate) mod uring;
pub(crate) mod worker_pool;
