//! The FUSE door: translates the kernel's requests into client calls, decides nothing.
//!
//! Three layers, each knowing only the one below. [`mount()`] attaches a mountpoint and starts threads. `kernel`
//! reads requests of the FUSE protocol from the device, and writes answers. `door` answers them with client calls, in
//! the client's own types, and knows neither the protocol nor the device: another transport of the same requests
//! reuses it unchanged. `areas` stands beside it, behind the same trait (`filesystem`): the tree of all nodes' areas.
//! Why the protocol is spoken here and not by a crate is in `docs/decisions/fuse-protocol.md`; what users are promised
//! is in `docs/semantics.md`.

mod appetite;
mod areas;
mod attach;
mod door;
mod dying;
mod failures;
mod filesystem;
mod handles;
mod interrupts;
mod kernel;
mod listing;
mod mount;
mod mountpoint;
mod moves;
mod notices;
mod null;
mod told;
mod transport;

pub use kernel::device::Trial;
pub use mount::{Mount, MountError, MountOptions, Uring, mount, mount_areas, mount_null, remount, unmount};
