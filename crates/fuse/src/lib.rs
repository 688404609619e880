//! The FUSE door: translates the kernel's requests into client calls, decides nothing.
//!
//! Three layers, each knowing only the one below. [`mount()`] attaches a mountpoint and starts threads. `kernel`
//! reads requests of the FUSE protocol from the device, and writes answers. `door` answers them with client calls, in
//! the client's own types, and knows neither the protocol nor the device: another transport of the same requests
//! reuses it unchanged. `areas` stands beside it, behind the same trait (`filesystem`): the tree of all nodes' areas.
//! Why the protocol is spoken here and not by a crate is in `docs/decisions/fuse-protocol.md`; what users are promised
//! is in `docs/semantics.md`.

mod areas;
mod attach;
mod dying;
mod failures;
mod filesystem;
mod handles;
mod interrupts;
mod kernel;
mod listing;
mod lost;
mod mount;
mod mountpoint;
mod moves;
mod notices;
mod null;
mod progress;
mod readdirplus;
mod single;
mod told;
mod transport;
mod volume;

pub use attach::Detach;
pub use kernel::device::Trial;
pub use mount::{
    Found, Mount, MountError, MountOptions, Uring, find, mount, mount_areas, mount_null, mount_single,
    remount, unmount,
};
pub use progress::{Progress, Stage};
pub use single::{SINGLE_NAME, SingleFile};
