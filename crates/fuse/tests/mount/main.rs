//! Real mounts over a real cluster in this process. On a machine without `/dev/fuse` these tests fail, unless
//! `VAZAO_TEST_NO_FUSE=1` says that this is known.

mod acls;
mod appends;
mod asynchronous;
mod attributes;
mod cluster;
mod consistency;
mod contents;
mod differential;
mod faults;
mod holes;
mod locks;
mod mountpoints;
mod names;
mod programs;
mod shared_files;
mod signals;
mod watcher;
