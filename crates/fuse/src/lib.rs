//! The FUSE door: translates the kernel's requests into client calls, decides nothing.
//!
//! Three layers, each knowing only the one below. [`mount()`] attaches a mountpoint and starts threads. `kernel`
//! reads requests of the FUSE protocol from the device, and writes answers. `volume` answers them with client calls, in
//! the client's own types, and knows neither the protocol nor the device: another transport of the same requests
//! reuses it unchanged. `areas` stands beside it, behind the same trait (`filesystem`): the tree of all nodes' areas.
//! `kernel_cache` keeps the kernel's caches true, `interrupts` ends requests whose callers are gone.
//! Why the protocol is spoken here and not by a crate is in `docs/decisions/fuse-protocol.md`; what users are promised
//! is in `docs/semantics.md`.

mod areas;
mod filesystem;
mod interrupts;
mod kernel;
mod kernel_cache;
mod mount;
mod null;
mod single;
mod volume;

pub use kernel::handshake::Trial;
pub use mount::{
    Detach, Found, Mount, MountError, MountOptions, Progress, Stage, Uring, find, mount, mount_areas,
    mount_null, mount_single, remount, unmount,
};
pub use single::{SINGLE_NAME, SingleFile};
