//! A file system of nothing: it keeps names in memory, throws away what is written and reads zeros.
//!
//! What a workload reaches on it is what the kernel's interface and this door allow; no file system behind them can be
//! faster. It is there to be measured (`vazao lab nullfs`), so it leaves out what no benchmark asks for: links,
//! renaming, attributes other than length and mode.

use crate::filesystem::FileSystem;
use crate::filesystem::arguments::{Allocation, Caller, NewMode, Opened, Place};
use crate::filesystem::handles::Handles;
use crate::filesystem::listing::Wanted;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_client::{Asked, Changes, Error, Listed, OpenMode, RenameMode, Result, Seek, SetTime, VolumeSpace};
use vazao_meter::Clock;
use vazao_model::{Attributes, Code, FileKind, InodeId, Timestamp};

/// How long the kernel may believe names and attributes: what libfuse offers unless told otherwise, so that other
/// empty file systems compare.
const LEASE: Duration = Duration::from_secs(1);

/// Cookies of entries begin behind those of `.` and `..`.
const DOTS: u64 = 2;

/// What `df` shows, in bytes: nothing is ever stored.
const CAPACITY_BYTES: u64 = 1 << 40;

#[derive(Default)]
struct Tree {
    nodes: HashMap<InodeId, Attributes>,
    directories: HashMap<InodeId, Directory>,
}

#[derive(Default)]
struct Directory {
    parent: InodeId,
    names: HashMap<Box<[u8]>, (u64, InodeId)>,
    /// The names by the cookies they were given when they came.
    by_cookie: BTreeMap<u64, (Box<[u8]>, InodeId)>,
}

/// The file system.
pub(crate) struct Null {
    clock: Arc<dyn Clock>,
    next: AtomicU64,
    tree: Mutex<Tree>,
    files: Handles<InodeId>,
}

impl Null {
    /// An empty one whose root is `root`.
    pub(crate) fn new(root: InodeId) -> Null {
        let (clock, next) = (vazao_meter::clock::system(), AtomicU64::new(root.0 + DOTS + 1));
        let null = Null { clock, next, tree: Mutex::default(), files: Handles::new() };
        let top = null.new_node(root, FileKind::Directory, Caller { uid: 0, gid: 0, thread: 0 }, 0o777);
        let mut tree = null.tree();
        tree.nodes.insert(root, top);
        tree.directories.insert(root, Directory { parent: root, ..Directory::default() });
        drop(tree);
        null
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock()
    }

    fn new_node(&self, inode: InodeId, kind: FileKind, caller: Caller, mode: u32) -> Attributes {
        let wall_ns = self.clock.wall_ns();
        let now = Timestamp {
            seconds: (wall_ns / 1_000_000_000) as i64,
            nanoseconds: (wall_ns % 1_000_000_000) as u32,
        };
        Attributes {
            inode,
            kind,
            mode,
            uid: caller.uid,
            gid: caller.gid,
            links: 1 + u32::from(kind == FileKind::Directory),
            accessed: now,
            modified: now,
            changed: now,
            without_xattrs: true,
            ..Attributes::default()
        }
    }

    fn enter(&self, place: Place<'_>, new: Attributes) -> Result<Attributes> {
        let mut tree = self.tree();
        let directory = tree.directories.get_mut(&place.directory).ok_or(Code::NotDirectory)?;
        if directory.names.contains_key(place.name) {
            return Err(Code::Exists.into());
        }
        let cookie = new.inode.0;
        directory.names.insert(place.name.into(), (cookie, new.inode));
        directory.by_cookie.insert(cookie, (place.name.into(), new.inode));
        if new.kind == FileKind::Directory {
            let below = Directory { parent: place.directory, ..Directory::default() };
            tree.directories.insert(new.inode, below);
        }
        tree.nodes.insert(new.inode, new.clone());
        Ok(new)
    }

    fn remove(&self, place: Place<'_>) -> Result<()> {
        let mut tree = self.tree();
        let directory = tree.directories.get_mut(&place.directory).ok_or(Code::NotDirectory)?;
        let (cookie, inode) = directory.names.remove(place.name).ok_or(Code::NotFound)?;
        directory.by_cookie.remove(&cookie);
        tree.nodes.remove(&inode);
        tree.directories.remove(&inode);
        Ok(())
    }

    fn stat(&self, inode: InodeId) -> Result<Attributes> {
        Ok(self.tree().nodes.get(&inode).cloned().ok_or(Code::NotFound)?)
    }

    fn file(&self, handle: u64) -> Result<InodeId> {
        self.files.get(handle).map(|inode| *inode).ok_or_else(|| Code::BadHandle.into())
    }

    fn wrote(&self, handle: u64, end: u64) -> Result<()> {
        let inode = self.file(handle)?;
        if let Some(node) = self.tree().nodes.get_mut(&inode) {
            node.size = node.size.max(end);
        }
        Ok(())
    }

    /// Entries after `cookie`, as many as `take` takes.
    fn list(&self, inode: InodeId, cookie: u64, take: &mut dyn FnMut(&Listed<'_>) -> bool) -> Result<()> {
        let tree = self.tree();
        let directory = tree.directories.get(&inode).ok_or(Code::NotDirectory)?;
        let kind = FileKind::Directory;
        let dot = |cookie, name, inode| Listed { kind, name, inode, cookie, attributes: None };
        let dots = [dot(1, &b"."[..], inode), dot(DOTS, b"..", directory.parent)];
        if !dots.iter().filter(|entry| entry.cookie > cookie).all(&mut *take) {
            return Ok(());
        }
        for (number, (name, inode)) in directory.by_cookie.range(cookie.max(DOTS) + 1..) {
            let kind = tree.nodes.get(inode).map_or(FileKind::File, |node| node.kind);
            let entry = Listed { kind, name, inode: *inode, cookie: *number, attributes: None };
            if !take(&entry) {
                break;
            }
        }
        Ok(())
    }
}

fn unsupported<T>(what: &str) -> Result<T> {
    Err(Error::new(Code::Unsupported, format!("{what}: not in a file system of nothing")))
}

impl FileSystem for Null {
    fn asked(&self) -> Asked {
        Asked::default()
    }
    fn attributes_lease(&self, _asked: Asked, _inode: InodeId) -> Duration {
        LEASE
    }
    fn entry_lease(&self, _asked: Asked, _place: Place<'_>) -> Duration {
        LEASE
    }
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
    fn lookup(&self, place: Place<'_>) -> Result<Attributes> {
        let tree = self.tree();
        let directory = tree.directories.get(&place.directory).ok_or(Code::NotDirectory)?;
        let (_, inode) = directory.names.get(place.name).ok_or(Code::NotFound)?;
        Ok(tree.nodes.get(inode).cloned().ok_or(Code::NotFound)?)
    }
    fn attributes(&self, inode: InodeId, _handle: Option<u64>) -> Result<Attributes> {
        self.stat(inode)
    }
    fn cached(&self, place: Place<'_>) -> Option<(Result<Attributes>, Option<Asked>)> {
        // Not found is said without a time, as a file system would that is not told of names that come.
        let found = self.lookup(place);
        let asked = found.is_ok().then(|| self.asked());
        Some((found, asked))
    }
    fn cached_attributes(&self, inode: InodeId) -> Option<(Attributes, Asked)> {
        self.stat(inode).ok().map(|attributes| (attributes, self.asked()))
    }
    fn set_attributes(
        &self,
        inode: InodeId,
        changes: &Changes,
        _caller: Caller,
        _clear_set_id: bool,
    ) -> Result<Attributes> {
        let mut tree = self.tree();
        let node = tree.nodes.get_mut(&inode).ok_or(Code::NotFound)?;
        node.size = changes.size.unwrap_or(node.size);
        node.mode = changes.mode.unwrap_or(node.mode);
        if let Some(SetTime::At(time)) = changes.modified {
            node.modified = time;
        }
        Ok(node.clone())
    }
    fn read_link(&self, _inode: InodeId) -> Result<Vec<u8>> {
        unsupported("symbolic links")
    }
    fn create(
        &self,
        place: Place<'_>,
        caller: Caller,
        kind: FileKind,
        mode: NewMode,
        _device: u32,
        _contents: &[u8],
    ) -> Result<Attributes> {
        let inode = InodeId(self.next.fetch_add(1, Ordering::Relaxed));
        self.enter(place, self.new_node(inode, kind, caller, mode.bits & !mode.umask))
    }
    fn unlink(&self, place: Place<'_>) -> Result<()> {
        self.remove(place)
    }
    fn remove_directory(&self, place: Place<'_>) -> Result<()> {
        let found = self.lookup(place)?;
        if self.tree().directories.get(&found.inode).is_some_and(|below| !below.names.is_empty()) {
            return Err(Code::NotEmpty.into());
        }
        self.remove(place)
    }
    fn rename(&self, _from: Place<'_>, _to: Place<'_>, _mode: RenameMode) -> Result<()> {
        unsupported("renaming")
    }
    fn open(&self, inode: InodeId, _mode: OpenMode) -> Result<Opened> {
        Ok(Opened { attributes: self.stat(inode)?, handle: self.files.insert(inode) })
    }
    fn create_file(
        &self,
        place: Place<'_>,
        caller: Caller,
        mode: NewMode,
        exclusive: bool,
        _truncate: bool,
    ) -> Result<Opened> {
        let attributes = match self.create(place, caller, FileKind::File, mode, 0, &[]) {
            Err(error) if error.code == Code::Exists && !exclusive => self.lookup(place)?,
            created => created?,
        };
        Ok(Opened { handle: self.files.insert(attributes.inode), attributes })
    }
    fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let size = self.stat(self.file(handle)?)?.size;
        let count = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        buffer[..count].fill(0);
        Ok(count)
    }
    fn write(&self, handle: u64, bytes: &[u8], offset: u64, _unprivileged: Option<Caller>) -> Result<()> {
        self.wrote(handle, offset.saturating_add(bytes.len() as u64))
    }
    fn append(&self, handle: u64, bytes: &[u8], _unprivileged: Option<Caller>) -> Result<u64> {
        let end = self.stat(self.file(handle)?)?.size;
        self.wrote(handle, end.saturating_add(bytes.len() as u64)).map(|()| end)
    }
    fn is_idle(&self, _handle: u64) -> bool {
        true
    }
    fn flush(&self, _handle: u64) -> Result<bool> {
        Ok(false)
    }
    fn sync(&self, _handle: u64) -> Result<bool> {
        Ok(false)
    }
    fn release(&self, handle: u64) -> Result<()> {
        self.files.remove(handle).map(drop).ok_or_else(|| Code::BadHandle.into())
    }
    fn allocate(&self, handle: u64, range: Range<u64>, mode: Allocation, _caller: Caller) -> Result<()> {
        if mode.keep_size { Ok(()) } else { self.wrote(handle, range.end) }
    }
    fn seek(&self, _handle: u64, _seek: Seek, _offset: u64) -> Result<Option<u64>> {
        unsupported("looking for holes")
    }
    fn open_directory(&self, _inode: InodeId) -> u64 {
        0
    }
    fn read_directory(
        &self,
        inode: InodeId,
        _handle: u64,
        cookie: u64,
        _wanted: Wanted,
        take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool,
    ) -> Result<()> {
        // Names alone, also for a kernel that would take attributes: it asks for those by themselves.
        self.list(inode, cookie, &mut |entry| take(entry, Asked::default()))
    }
    fn release_directory(&self, _handle: u64) {}
    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }
    fn space(&self) -> Result<VolumeSpace> {
        let inodes = self.tree().nodes.len() as u64;
        Ok(VolumeSpace {
            capacity_bytes: CAPACITY_BYTES,
            available_bytes: CAPACITY_BYTES,
            used_bytes: 0,
            inodes,
        })
    }
    fn finish(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_and_contents_are_not() {
        let null = Null::new(InodeId(1));
        let caller = Caller { uid: 1, gid: 2, thread: 0 };
        let mode = NewMode { bits: 0o666, umask: 0o022 };
        let place = Place { directory: InodeId(1), name: b"a" };
        let opened = null.create_file(place, caller, mode, true, false).expect("it is new");
        assert_eq!((opened.attributes.mode, opened.attributes.uid), (0o644, 1));
        assert_eq!(null.create_file(place, caller, mode, true, false).map_err(|e| e.code), Err(Code::Exists));
        null.write(opened.handle, b"bytes", 3, None).expect("it is open");
        let mut buffer = [1; 10];
        assert_eq!(null.read(opened.handle, &mut buffer, 0), Ok(8));
        assert_eq!(buffer[..8], [0; 8]);
        let mut names = Vec::new();
        let mut take = |entry: &Listed<'_>, _: Asked| {
            names.push(entry.name.to_vec());
            true
        };
        // The kernel's first request for names is one with attributes.
        null.read_directory(InodeId(1), 0, 0, Wanted::Attributes(10), &mut take).expect("a directory");
        assert_eq!(names, [&b"."[..], b"..", b"a"]);
        null.unlink(place).expect("it is there");
        assert_eq!(null.lookup(place).map_err(|e| e.code), Err(Code::NotFound));
    }

    #[test]
    fn a_directory_with_names_in_it_stays() {
        let null = Null::new(InodeId(1));
        let caller = Caller { uid: 0, gid: 0, thread: 0 };
        let mode = NewMode { bits: 0o755, umask: 0 };
        let top = Place { directory: InodeId(1), name: b"d" };
        let made = null.create(top, caller, FileKind::Directory, mode, 0, &[]).expect("it is new");
        let below = Place { directory: made.inode, name: b"e" };
        null.create(below, caller, FileKind::File, mode, 0, &[]).expect("it is new");
        assert_eq!(null.remove_directory(top).map_err(|e| e.code), Err(Code::NotEmpty));
        null.unlink(below).and_then(|()| null.remove_directory(top)).expect("it is empty");
    }
}
