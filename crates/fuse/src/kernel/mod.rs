//! The FUSE protocol (linux/fuse.h, version 7.31 of it) over `/dev/fuse`: requests in, answers out.
//!
//! `abi` has the numbers, `request` decodes, `reply` encodes, `serve` answers one request by calling the door,
//! `device` reads and writes, `crew` decides which threads do. Only `device` knows the device.

pub(crate) mod abi;
pub(crate) mod crew;
pub(crate) mod device;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
