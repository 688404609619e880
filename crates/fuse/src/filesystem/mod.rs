//! The interface between the kernel's requests and a file system: the volume, or the areas of all nodes.
//!
//! One `Server` receives the kernel's requests over either transport and answers them through this trait. A default
//! implementation refuses the operation unless its comment says otherwise.

pub(crate) mod arguments;
pub(crate) mod failures;
pub(crate) mod handles;
pub(crate) mod listing;
pub(crate) mod lost;
pub(crate) mod privileges;

use arguments::{Allocation, Caller, LockWish, NewMode, Opened, Place};
use listing::Wanted;
use std::ops::Range;
use std::time::Duration;
use vazao_client::{
    Asked, Changes, Completion, Error, File, Listed, Obstacle, OpenMode, Readiness, RenameMode, Result, Seek,
    SendBuffer, SharedBytes, VolumeSpace, XattrMode,
};
use vazao_model::{Attributes, Code, FileKind, InodeId};

/// What is still to be sent of a write that has been answered. Dropping it sends it.
#[derive(Debug)]
#[expect(dead_code, reason = "they work when they are dropped")]
pub(crate) enum Unsent {
    /// To data servers.
    Striped(vazao_client::Unsent),
    /// To a node.
    Area(vazao_client::area::Unsent),
}

/// A file system that the kernel's requests are put to.
pub(crate) trait FileSystem: Send + Sync {
    /// To be taken before a call whose answer the kernel will believe for a while.
    fn asked(&self) -> Asked;
    fn attributes_lease(&self, asked: Asked, inode: InodeId) -> Duration;
    fn entry_lease(&self, asked: Asked, place: Place<'_>) -> Duration;
    /// The time of the mount's clock.
    fn now_ns(&self) -> u64;
    fn lookup(&self, place: Place<'_>) -> Result<Attributes>;
    fn attributes(&self, inode: InodeId, handle: Option<u64>) -> Result<Attributes>;
    /// Whether [`FileSystem::find`] and [`FileSystem::parent`] are there: numbers of inodes are the same for ever, and
    /// everything that has one may be reached.
    fn finds_by_number(&self) -> bool {
        false
    }
    /// An inode that the kernel has forgotten. Fails with `Stale` when it has no name any more.
    fn find(&self, _inode: InodeId) -> Result<Attributes> {
        unsupported("an inode by its number")
    }
    /// The directory above such a directory.
    fn parent(&self, _inode: InodeId) -> Result<Attributes> {
        unsupported("the parent of a directory")
    }
    /// Changes attributes. `clear_set_id`: the caller may not keep set-id bits while the length changes.
    fn set_attributes(
        &self,
        inode: InodeId,
        changes: &Changes,
        caller: Caller,
        clear_set_id: bool,
    ) -> Result<Attributes>;
    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>>;
    /// Creates an inode of any kind; `contents` is a link's target.
    fn create(
        &self,
        place: Place<'_>,
        caller: Caller,
        kind: FileKind,
        mode: NewMode,
        device: u32,
        contents: &[u8],
    ) -> Result<Attributes>;
    fn unlink(&self, place: Place<'_>) -> Result<()>;
    fn remove_directory(&self, place: Place<'_>) -> Result<()>;
    fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<()>;
    fn open(&self, inode: InodeId, mode: OpenMode) -> Result<Opened>;
    /// Names that led to this inode lead elsewhere, or nowhere: they are to be asked for again.
    fn forget_names(&self, _inode: InodeId) {}
    /// Creates and opens a file; with `truncate`, one that is there already is emptied.
    fn create_file(
        &self,
        place: Place<'_>,
        caller: Caller,
        mode: NewMode,
        exclusive: bool,
        truncate: bool,
    ) -> Result<Opened>;
    fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize>;
    fn write(&self, handle: u64, bytes: &[u8], offset: u64, unprivileged: Option<Caller>) -> Result<()>;
    /// Memory to receive writes in.
    fn send_buffer(&self, length: usize) -> SendBuffer {
        vec![0; length].into()
    }
    /// A write of which a part may be left to be done after the answer, by dropping what is returned. `memory`: where
    /// the bytes lie, when they may be kept there.
    fn write_later(
        &self,
        handle: u64,
        bytes: &[u8],
        _memory: Option<(SharedBytes, Range<usize>)>,
        offset: u64,
        unprivileged: Option<Caller>,
    ) -> Result<Option<Unsent>> {
        self.write(handle, bytes, offset, unprivileged).map(|()| None)
    }
    /// Writes at the end of the file; returns where that was.
    fn append(&self, handle: u64, bytes: &[u8], unprivileged: Option<Caller>) -> Result<u64>;
    /// A descriptor of the file is being closed: what it wrote goes out, and errors of it come back.
    /// True when that changed attributes.
    fn flush(&self, handle: u64) -> Result<bool>;
    /// [`FileSystem::flush`], durable.
    fn sync(&self, handle: u64) -> Result<bool>;
    /// The last descriptor is gone.
    fn release(&self, handle: u64) -> Result<()>;
    /// fallocate(2). Space is not reserved, only asked about: a plain call fails when there is too little of it.
    fn allocate(&self, handle: u64, range: Range<u64>, mode: Allocation, caller: Caller) -> Result<()>;
    /// Where data or a hole begins; `None`: nowhere before the end.
    fn seek(&self, handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>>;
    fn open_directory(&self, inode: InodeId) -> u64;
    /// Gives the entries after `cookie` to `take` until it says false, with the moment they are shown as of.
    fn read_directory(
        &self,
        inode: InodeId,
        handle: u64,
        cookie: u64,
        wanted: Wanted,
        take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool,
    ) -> Result<()>;
    fn release_directory(&self, handle: u64);
    /// fsync(2) of a directory.
    fn sync_directory(&self) -> Result<()>;
    fn space(&self) -> Result<VolumeSpace>;
    /// The kernel has nothing more to ask: all that is still at work, and what follows, is over within one deadline.
    fn begin_end(&self) {}
    /// Closes everything. What could not be stored since [`FileSystem::begin_end`], a line for each file.
    fn finish(&self) -> Vec<String>;
    /// Number of open files.
    fn open_files(&self) -> usize {
        0
    }
    /// What is not stored yet: number of files, and of bytes.
    fn unstored_amount(&self) -> (usize, u64) {
        (0, 0)
    }
    /// The same, a line for each file.
    fn unstored(&self) -> Vec<String> {
        Vec::new()
    }
    /// All calls that begin from now on are over within `left`.
    fn end_within(&self, _left: Duration) {}
    /// Servers that have not answered for so many seconds.
    fn silent_servers(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
    /// Whether inode numbers are kept for as long as the kernel knows them. Then each number that is returned for a
    /// name (by a lookup, a creation, a link, or a listing with attributes) counts as shown once.
    /// [`FileSystem::forget`] takes the count back: on the kernel's FORGET, or when the answer could not be delivered.
    fn counts_names(&self) -> bool {
        false
    }
    /// Numbers that were shown, and how often, are forgotten.
    fn forget(&self, _forgotten: &mut dyn Iterator<Item = (InodeId, u64)>) {}
    /// True when [`FileSystem::flush`] and [`FileSystem::release`] have nothing to do that takes time.
    fn is_idle(&self, _handle: u64) -> bool {
        false
    }
    /// True when [`FileSystem::read`] takes no time.
    fn is_at_hand(&self, _handle: u64) -> bool {
        false
    }
    /// True when [`FileSystem::write`] up to `end` takes no time.
    fn takes_at_once(&self, _handle: u64, _end: u64) -> bool {
        false
    }
    /// Whether asynchronous calls exist here: the functions below, which do not block.
    fn can_begin(&self) -> bool {
        false
    }
    /// What [`FileSystem::create_file`] begins with, as an asynchronous call.
    fn begin_create_file(
        &self,
        _place: Place<'_>,
        _caller: Caller,
        _mode: NewMode,
        _exclusive: bool,
        then: Completion<(Attributes, File)>,
    ) {
        then(Readiness::Ready(unsupported("a creation in two steps")));
    }
    /// What [`FileSystem::create_file`] ends with.
    fn end_create_file(&self, _created: (Attributes, File), _truncate: bool) -> Result<Opened> {
        unsupported("a creation in two steps")
    }
    /// [`FileSystem::unlink`], as an asynchronous call.
    fn begin_unlink(&self, _place: Place<'_>, then: Completion<()>) {
        then(Readiness::Ready(unsupported("a removal in two steps")));
    }
    /// [`FileSystem::lookup`], as an asynchronous call.
    fn begin_lookup(&self, _place: Place<'_>, then: Completion<Attributes>) {
        then(Readiness::Ready(unsupported("a lookup in two steps")));
    }
    /// What [`FileSystem::open`] begins with, as an asynchronous call.
    fn begin_open(&self, _inode: InodeId, _mode: OpenMode, then: Completion<File>) {
        then(Readiness::Ready(unsupported("an open in two steps")));
    }
    /// What [`FileSystem::open`] ends with.
    fn end_open(&self, _file: File) -> Result<Opened> {
        unsupported("an open in two steps")
    }
    /// Whether [`FileSystem::begin_flush`] is there for this handle as it is, and does not wait.
    fn can_begin_flush(&self, _handle: u64) -> bool {
        false
    }
    /// [`FileSystem::flush`] and [`FileSystem::unlock_closed`], as an asynchronous call.
    fn begin_flush(&self, _handle: u64, _owner: u64, then: Completion<bool>) {
        then(Readiness::Ready(unsupported("a flush in two steps")));
    }
    /// [`FileSystem::lookup`] without asking, and as of when; `None` when that cannot be said.
    fn cached(&self, _place: Place<'_>) -> Option<(Result<Attributes>, Option<Asked>)> {
        None
    }
    /// [`FileSystem::attributes`] without asking, and as of when; `None` when that cannot be said.
    fn cached_attributes(&self, _inode: InodeId) -> Option<(Attributes, Asked)> {
        None
    }
    fn link(&self, _inode: InodeId, _place: Place<'_>) -> Result<Attributes> {
        unsupported("a further name for a file")
    }
    /// Creates and opens a file without a name (`O_TMPFILE`).
    fn create_unnamed(&self, _directory: InodeId, _caller: Caller, _mode: NewMode) -> Result<Opened> {
        unsupported("a file without a name")
    }
    /// copy_file_range(2); returns how many bytes.
    fn copy(&self, _from: (u64, u64), _to: (u64, u64), _length: u64, _caller: Caller) -> Result<u64> {
        unsupported("copying within the file system")
    }
    fn get_xattr(&self, _inode: InodeId, _name: &[u8]) -> Result<Vec<u8>> {
        unsupported("extended attributes")
    }
    fn set_xattr(
        &self,
        _inode: InodeId,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
        _clear_set_group: bool,
    ) -> Result<()> {
        unsupported("extended attributes")
    }
    fn list_xattrs(&self, _inode: InodeId, _caller: Caller) -> Result<Vec<u8>> {
        unsupported("extended attributes")
    }
    fn remove_xattr(&self, _inode: InodeId, _name: &[u8]) -> Result<()> {
        unsupported("extended attributes")
    }
    fn test_lock(&self, _wish: &LockWish) -> Result<Option<Obstacle>> {
        unsupported("locks")
    }
    fn set_lock(&self, _wish: &LockWish, _waits: bool) -> Result<()> {
        unsupported("locks")
    }
    fn unlock_closed(&self, _handle: u64, _owner: u64) -> Result<()> {
        Ok(())
    }
}

fn unsupported<T>(what: &str) -> Result<T> {
    Err(Error::new(Code::Unsupported, format!("{what}: not in this mount")))
}
