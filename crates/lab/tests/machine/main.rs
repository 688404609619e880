//! The laboratory on this machine: stand-ins for hardware, hosts that part, and measurements through a volume.

mod hosts;
mod partition;
mod volume;
