//! Tests of the real binaries under faults of the machine: loss of power.
//!
//! What `crates/sim` does in one process on disks and clocks of its own, this does to `vazao serve` and `vazao mount`
//! as they are shipped, on file systems of the kernel. Nothing here is part of the product.

mod check;
pub mod clock;
pub mod cluster;
pub mod disk;
pub mod enclosure;
pub mod failure;
pub mod load;
pub mod power;
pub mod tool;
pub mod volume;
