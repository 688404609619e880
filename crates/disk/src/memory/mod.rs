//! A disk in memory for tests and simulation: it loses power, dies and fails on purpose, the same way for each seed.
//!
//! What is promised is exactly what POSIX promises, and no more:
//! - Contents written since a file's last `sync` may survive power loss in whole, in parts or not at all, each
//!   write for itself, so a later write may survive an earlier one.
//! - A name created, renamed or removed since its directory's last `sync_directory` may be there or not; within
//!   one directory the changes survive in order. A rename is never half done.
//! - A new file may survive with its name but without its contents.
//! - After a failed `sync` the unsynced contents may be lost though a later `sync` succeeds, as on Linux.
//!
//! It is not a model of one file system: ext4 and XFS are kinder, and code that is right here is right there.

mod contents;
mod fault;
mod file;
mod tree;

#[cfg(test)]
mod tests;

pub use fault::Operations;

use crate::{Disk, DiskEntry, DiskFile, Open, Space};
use fault::{Access, Faults};
use file::MemoryFile;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tree::Tree;

/// Capacity until [`MemoryDisk::set_capacity`] sets another; files are sparse, so it costs no memory.
const CAPACITY_BYTES_DEFAULT: u64 = 1 << 40;

/// EIO: what a handle answers after the machine or process that opened it is gone.
const GONE: i32 = 5;

/// A handle to a disk in memory. Clones are handles to the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
    /// The life this handle belongs to, when it is one process's view (see [`MemoryDisk::boot`]).
    life: Option<u64>,
}

#[derive(Debug)]
struct Shared {
    /// Counts crashes and kills. Every operation holds it for reading, so that none is under way during a crash.
    life: RwLock<u64>,
    tree: Mutex<Tree>,
    faults: Faults,
    random: Mutex<StdRng>,
    used_bytes: AtomicU64,
    capacity_bytes: AtomicU64,
    handles: AtomicU64,
    /// Counts losses of power.
    crashes: AtomicU64,
}

impl Shared {
    /// Takes part in the present life, unless the caller's `life` is over.
    fn alive(&self, life: Option<u64>) -> io::Result<RwLockReadGuard<'_, u64>> {
        let now = self.life.read();
        match life {
            Some(life) if life != *now => Err(io::Error::from_raw_os_error(GONE)),
            _ => Ok(now),
        }
    }

    /// Ends this life; `at_the_end` runs while no operation is under way.
    fn end_life(&self, at_the_end: impl FnOnce()) {
        let mut life = self.life.write();
        *life += 1;
        at_the_end();
    }

    /// Takes `bytes` of the capacity. Errors: `StorageFull`.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let capacity = self.capacity_bytes.load(Ordering::Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| bytes == 0 || sum <= capacity);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::from_raw_os_error(28)), // ENOSPC
        }
    }

    fn release(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Ranges of files are copied in pieces of this size.
const COPY_BYTES: u64 = 1 << 20;

fn copy_directory(from: &MemoryDisk, to: &MemoryDisk, directory: &str) -> io::Result<()> {
    for entry in from.list(directory)? {
        let path =
            if directory.is_empty() { entry.name.clone() } else { format!("{directory}/{}", entry.name) };
        if entry.is_directory {
            to.create_directory(&path)?;
            copy_directory(from, to, &path)?;
        } else {
            copy_file(&*from.open(&path, Open::ReadOnly)?, &*to.open(&path, Open::Create)?)?;
        }
    }
    Ok(())
}

fn copy_file(from: &dyn DiskFile, to: &dyn DiskFile) -> io::Result<()> {
    let mut position = 0;
    while let Some(data) = from.next_data(position)? {
        let end = data.end.min(data.start + COPY_BYTES);
        let mut bytes = vec![0; (end - data.start) as usize];
        let read = from.read_at(&mut bytes, data.start)?;
        to.write_at(&bytes[..read], data.start)?;
        position = end;
    }
    to.set_length(from.length()?)
}

impl MemoryDisk {
    /// An empty disk whose accidents are determined by `seed`.
    pub fn new(seed: u64) -> MemoryDisk {
        let shared = Shared {
            life: RwLock::new(0),
            tree: Mutex::new(Tree::new()),
            faults: Faults::default(),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            used_bytes: AtomicU64::new(0),
            capacity_bytes: AtomicU64::new(CAPACITY_BYTES_DEFAULT),
            handles: AtomicU64::new(0),
            crashes: AtomicU64::new(0),
        };
        MemoryDisk { shared: Arc::new(shared), life: None }
    }

    /// The disk as one process sees it: this handle, its clones and its files all fail with EIO from the next
    /// `crash` or `kill` on. A handle from `new` outlives both; leftover threads of a killed server should not have it.
    pub fn boot(&self) -> MemoryDisk {
        let life = *self.shared.life.read();
        MemoryDisk { shared: self.shared.clone(), life: Some(life) }
    }

    /// Power loss. Open handles fail with EIO from here on; what was not synced may be lost.
    pub fn crash(&self) {
        self.shared.end_life(|| {
            let mut random = self.shared.random.lock();
            let mut tree = self.shared.tree.lock();
            tree.crash(&mut random);
            let mut used_bytes = 0;
            tree.for_each_file(&mut |_, inode| used_bytes += inode.crash(&mut random));
            self.shared.used_bytes.store(used_bytes, Ordering::Relaxed);
            self.shared.crashes.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// The process dies and the machine goes on: nothing is lost, but open handles fail with EIO and locks are free.
    pub fn kill(&self) {
        self.shared.end_life(|| {
            let mut used_bytes = 0;
            self.shared.tree.lock().for_each_file(&mut |_, inode| used_bytes += inode.close_all());
            self.shared.used_bytes.store(used_bytes, Ordering::Relaxed);
        });
    }

    /// A copy of everything that can be read now, as a backup or another disk has it: durable, and without locks.
    pub fn image(&self) -> io::Result<MemoryDisk> {
        let image = MemoryDisk::new(0);
        copy_directory(self, &image, "")?;
        image.sync_all()?;
        Ok(image)
    }

    /// Lets `count` more operations succeed; all after them fail with `kind` until [`MemoryDisk::clear_faults`].
    pub fn fail_after(&self, count: u64, kind: io::ErrorKind) {
        self.shared.faults.fail_after(count, kind);
    }

    /// Fails writes, length changes and syncs of files whose path contains `path_part`, as well as changes of names.
    pub fn fail_writes(&self, path_part: &str, kind: io::ErrorKind) {
        self.shared.faults.fail_path(Access::Write, path_part, kind);
    }

    /// Fails reads of files whose path contains `path_part`.
    pub fn fail_reads(&self, path_part: &str, kind: io::ErrorKind) {
        self.shared.faults.fail_path(Access::Read, path_part, kind);
    }

    /// Fails syncs of files and directories whose path contains `path_part`. Unsynced contents may then be lost.
    pub fn fail_syncs(&self, path_part: &str, kind: io::ErrorKind) {
        self.shared.faults.fail_path(Access::Sync, path_part, kind);
    }

    /// Takes back all `fail_…`.
    pub fn clear_faults(&self) {
        self.shared.faults.clear();
    }

    /// Makes syncs of files whose path contains `path_part` wait, as those of a disk that is slow, until
    /// [`MemoryDisk::release_syncs`].
    pub fn hold_syncs(&self, path_part: &str) {
        self.shared.faults.hold_syncs(Some(path_part));
    }

    /// Lets held syncs go on.
    pub fn release_syncs(&self) {
        self.shared.faults.hold_syncs(None);
    }

    /// Waits until a sync is being held.
    pub fn await_held_sync(&self) {
        self.shared.faults.await_held();
    }

    /// Makes the disk hang (`true`): whatever needs it waits, until it answers again (`false`). What is in memory can
    /// still be read without waiting, and open files can be asked for their lengths.
    pub fn set_hanging(&self, hangs: bool) {
        self.shared.faults.set_hanging(hangs);
    }

    /// Operations that wait because the disk hangs, or because syncs are held.
    pub fn held_operations(&self) -> u64 {
        self.shared.faults.holding()
    }

    /// Makes [`Disk::check_place`] fail, as if the directory had been removed or replaced.
    pub fn set_replaced(&self, is_replaced: bool) {
        self.shared.faults.set_replaced(is_replaced);
    }

    /// Gives the disk another size; writes that need more fail with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.capacity_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Makes `read_cached_at` answer `None` (`false`) or read (`true`, as at the start).
    pub fn set_cached(&self, cached: bool) {
        self.shared.faults.set_cached(cached);
    }

    /// Damages one byte of a file as a failing medium would: silently, below the page cache, and for good.
    /// `xor` is what it is changed with; 0 would change nothing. Errors: `NotFound`, `InvalidInput` past the end.
    pub fn corrupt(&self, path: &str, offset: u64, xor: u8) -> io::Result<()> {
        let added_bytes = self.shared.tree.lock().file(path)?.corrupt(offset, xor)?;
        self.shared.used_bytes.fetch_add(added_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Operations since the disk was made, failed ones included.
    pub fn operations(&self) -> Operations {
        self.shared.faults.operations()
    }

    /// Runs an operation on names: alive, not failing, with the tree locked.
    fn on_tree<T>(
        &self,
        access: Access,
        path: &str,
        act: impl FnOnce(&mut Tree, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        self.shared.faults.wait_while_hanging();
        let life = self.shared.alive(self.life)?;
        self.shared.faults.check(access, path)?;
        act(&mut self.shared.tree.lock(), *life)
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let access = if matches!(how, Open::Create | Open::CreateNew) { Access::Write } else { Access::Read };
        self.on_tree(access, path, |tree, life| {
            let inode = tree.open(path, how)?;
            let number = self.shared.handles.fetch_add(1, Ordering::Relaxed);
            let file = MemoryFile::new(self.shared.clone(), inode, path, life, number, how != Open::ReadOnly);
            Ok(Arc::new(file) as Arc<dyn DiskFile>)
        })
    }

    fn create_directory(&self, path: &str) -> io::Result<()> {
        self.on_tree(Access::Write, path, |tree, _| tree.create_directory(path))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.on_tree(Access::Write, path, |tree, _| {
            self.shared.release(tree.remove(path)?.lose_name());
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.on_tree(Access::Write, from, |tree, _| {
            self.shared.release(tree.rename(from, to)?.map_or(0, |replaced| replaced.lose_name()));
            Ok(())
        })
    }

    fn list(&self, path: &str) -> io::Result<Vec<DiskEntry>> {
        self.on_tree(Access::Read, path, |tree, _| tree.list(path))
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        self.on_tree(Access::Sync, path, |tree, _| tree.sync_directory(path))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.shared.faults.wait_while_hanging();
        let _life = self.shared.alive(self.life)?;
        let mut tree = self.shared.tree.lock();
        let mut outcome = Ok(());
        tree.for_each_file(&mut |path, inode| {
            let fault = self.shared.faults.check(Access::Sync, path);
            let synced = inode.sync(fault, &mut self.shared.random.lock());
            outcome = std::mem::replace(&mut outcome, Ok(())).and(synced);
        });
        outcome?;
        self.shared.faults.check(Access::Sync, "")?;
        tree.sync();
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.shared.faults.wait_while_hanging();
        drop(self.shared.alive(self.life)?);
        let capacity_bytes = self.shared.capacity_bytes.load(Ordering::Relaxed);
        let used_bytes = self.shared.used_bytes.load(Ordering::Relaxed);
        let available_bytes = capacity_bytes.saturating_sub(used_bytes);
        Ok(Space { capacity_bytes, available_bytes, used_bytes, file_system: 0 })
    }

    fn check_place(&self) -> io::Result<()> {
        self.shared.faults.wait_while_hanging();
        drop(self.shared.alive(self.life)?);
        match self.shared.faults.is_replaced() {
            false => Ok(()),
            true => Err(io::Error::new(io::ErrorKind::NotFound, "the directory was replaced")),
        }
    }

    fn boot_id(&self) -> u64 {
        self.shared.crashes.load(Ordering::Relaxed) + 1
    }
}
