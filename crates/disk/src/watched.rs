//! A decorator that counts what is waited for: reads, writes and syncs of the disk below it.
//!
//! Reads that refuse to wait are not counted, names and lengths neither: they come from memory or are rare. It changes
//! nothing about what it passes on.

use crate::{Disk, DiskEntry, DiskFile, Open, Space};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vazao_meter::Cause;
use vazao_meter::machine::DiskWatch;

/// A disk whose waiting is counted.
pub struct WatchedDisk {
    below: Arc<dyn Disk>,
    watch: Arc<DiskWatch>,
}

impl WatchedDisk {
    /// Counts what is waited for at `below` in `watch`.
    pub fn new(below: Arc<dyn Disk>, watch: Arc<DiskWatch>) -> WatchedDisk {
        WatchedDisk { below, watch }
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let below = self.below.open(path, how)?;
        Ok(Arc::new(WatchedFile { below, watch: Arc::clone(&self.watch) }))
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.below.create_directory(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.below.remove(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn list(&self, path: &str) -> io::Result<Vec<DiskEntry>> {
        self.below.list(path)
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.watch.during(Cause::DiskSync, || self.below.sync_directory(path)).0
    }

    fn space(&self) -> io::Result<Space> {
        self.below.space()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.watch.during(Cause::DiskSync, || self.below.sync_all()).0
    }

    fn check_place(&self) -> io::Result<()> {
        self.below.check_place()
    }

    fn boot_id(&self) -> u64 {
        self.below.boot_id()
    }
}

struct WatchedFile {
    below: Arc<dyn DiskFile>,
    watch: Arc<DiskWatch>,
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.watch.during(Cause::DiskRead, || self.below.read_at(buffer, offset)).0
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.below.read_cached_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.watch.during(Cause::DiskWrite, || self.below.write_at(bytes, offset)).0
    }

    fn length(&self) -> io::Result<u64> {
        self.below.length()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.below.allocated_bytes()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.below.set_length(length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.below.punch_hole(offset, length)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.below.next_data(offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.watch.during(Cause::DiskSync, || self.below.sync()).0
    }

    fn start_write_back(&self, offset: u64, length: u64) {
        self.watch.during(Cause::DiskWrite, || self.below.start_write_back(offset, length));
    }

    fn drop_cached(&self, offset: u64, length: u64) -> bool {
        self.below.drop_cached(offset, length)
    }

    fn is_named(&self) -> io::Result<bool> {
        self.below.is_named()
    }

    fn descriptor(&self) -> Option<OwnedFd> {
        self.below.descriptor()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.below.try_lock()
    }
}
