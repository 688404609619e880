//! Tests of the real binaries under faults of the machine: loss of power, networks that part, clocks that jump,
//! servers that die, freeze or lose their disk.
//!
//! What `crates/sim` does in one process on disks and clocks of its own, this does to `vazao serve` and `vazao mount`
//! as they are shipped, on file systems of the kernel. Nothing here is part of the product.

mod check;
pub mod clock;
pub mod cluster;
mod daemons;
pub mod disk;
pub mod enclosure;
pub mod failure;
pub mod jump;
pub mod load;
pub mod members;
pub mod partition;
pub mod power;
pub mod tool;
mod trial;
pub mod volume;
