//! An NFS server in user space (NFS-Ganesha) on a host of the laboratory, and a client (libnfs), to compare with.
//!
//! Both are Debian packages: `nfs-ganesha-vfs`, `rpcbind` and `libnfs13`. The client's library is loaded when it is
//! needed, so that the program itself does not ask for it. The client makes one call at a time and has no cache, as
//! the laboratory's readers and writers.

mod libnfs;
mod server;

pub(crate) use libnfs::{File, Session};
pub(crate) use server::Server;
