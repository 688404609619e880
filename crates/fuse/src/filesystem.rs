//! The interface between the kernel's requests and a file system: the volume, or the areas of all nodes.
//!
//! One `Server` receives the kernel's requests over either transport and answers them through this trait. Its functions
//! are those of [`VolumeFilesystem`], which describes each. A default implementation refuses the operation unless its
//! comment says otherwise.

use crate::listing::Wanted;
use crate::volume::{Allocation, Caller, LockWish, NewMode, Opened, Place, VolumeFilesystem};
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
    fn asked(&self) -> Asked;
    fn attributes_lease(&self, asked: Asked, inode: InodeId) -> Duration;
    fn entry_lease(&self, asked: Asked, place: Place<'_>) -> Duration;
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
    fn set_attributes(&self, inode: InodeId, changes: &Changes, clear_set_id: bool) -> Result<Attributes>;
    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>>;
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
    fn create_file(
        &self,
        place: Place<'_>,
        caller: Caller,
        mode: NewMode,
        exclusive: bool,
        truncate: bool,
    ) -> Result<Opened>;
    fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize>;
    fn write(&self, handle: u64, bytes: &[u8], offset: u64, clear_set_id: bool) -> Result<()>;
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
        clear_set_id: bool,
    ) -> Result<Option<Unsent>> {
        self.write(handle, bytes, offset, clear_set_id).map(|()| None)
    }
    fn append(&self, handle: u64, bytes: &[u8], clear_set_id: bool) -> Result<u64>;
    fn flush(&self, handle: u64) -> Result<bool>;
    fn sync(&self, handle: u64) -> Result<bool>;
    fn release(&self, handle: u64) -> Result<()>;
    fn allocate(&self, handle: u64, range: Range<u64>, mode: Allocation) -> Result<()>;
    fn seek(&self, handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>>;
    fn open_directory(&self, inode: InodeId) -> u64;
    fn read_directory(
        &self,
        inode: InodeId,
        handle: u64,
        cookie: u64,
        wanted: Wanted,
        take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool,
    ) -> Result<()>;
    fn release_directory(&self, handle: u64);
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
    fn cached(&self, _place: Place<'_>) -> Option<(Result<Attributes>, Option<Asked>)> {
        None
    }
    fn cached_attributes(&self, _inode: InodeId) -> Option<(Attributes, Asked)> {
        None
    }
    fn link(&self, _inode: InodeId, _place: Place<'_>) -> Result<Attributes> {
        unsupported("a further name for a file")
    }
    fn create_unnamed(&self, _directory: InodeId, _caller: Caller, _mode: NewMode) -> Result<Opened> {
        unsupported("a file without a name")
    }
    fn copy(&self, _from: u64, _from_offset: u64, _to: u64, _to_offset: u64, _length: u64) -> Result<u64> {
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

impl FileSystem for VolumeFilesystem {
    fn asked(&self) -> Asked {
        VolumeFilesystem::asked(self)
    }
    fn attributes_lease(&self, asked: Asked, inode: InodeId) -> Duration {
        VolumeFilesystem::attributes_lease(self, asked, inode)
    }
    fn entry_lease(&self, asked: Asked, place: Place<'_>) -> Duration {
        VolumeFilesystem::entry_lease(self, asked, place)
    }
    fn now_ns(&self) -> u64 {
        VolumeFilesystem::now_ns(self)
    }
    fn lookup(&self, place: Place<'_>) -> Result<Attributes> {
        VolumeFilesystem::lookup(self, place)
    }
    fn attributes(&self, inode: InodeId, handle: Option<u64>) -> Result<Attributes> {
        VolumeFilesystem::attributes(self, inode, handle)
    }
    fn finds_by_number(&self) -> bool {
        VolumeFilesystem::finds_by_number(self)
    }
    fn find(&self, inode: InodeId) -> Result<Attributes> {
        VolumeFilesystem::find(self, inode)
    }
    fn parent(&self, inode: InodeId) -> Result<Attributes> {
        VolumeFilesystem::parent(self, inode)
    }
    fn set_attributes(&self, inode: InodeId, changes: &Changes, clear_set_id: bool) -> Result<Attributes> {
        VolumeFilesystem::set_attributes(self, inode, changes, clear_set_id)
    }
    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        VolumeFilesystem::read_link(self, inode)
    }
    fn create(
        &self,
        place: Place<'_>,
        caller: Caller,
        kind: FileKind,
        mode: NewMode,
        device: u32,
        contents: &[u8],
    ) -> Result<Attributes> {
        VolumeFilesystem::create(self, place, caller, kind, mode, device, contents)
    }
    fn unlink(&self, place: Place<'_>) -> Result<()> {
        VolumeFilesystem::unlink(self, place)
    }
    fn remove_directory(&self, place: Place<'_>) -> Result<()> {
        VolumeFilesystem::remove_directory(self, place)
    }
    fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<()> {
        VolumeFilesystem::rename(self, from, to, mode)
    }
    fn open(&self, inode: InodeId, mode: OpenMode) -> Result<Opened> {
        VolumeFilesystem::open(self, inode, mode)
    }
    fn create_file(
        &self,
        place: Place<'_>,
        caller: Caller,
        mode: NewMode,
        exclusive: bool,
        truncate: bool,
    ) -> Result<Opened> {
        VolumeFilesystem::create_file(self, place, caller, mode, exclusive, truncate)
    }
    fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        VolumeFilesystem::read(self, handle, buffer, offset)
    }
    fn write(&self, handle: u64, bytes: &[u8], offset: u64, clear_set_id: bool) -> Result<()> {
        VolumeFilesystem::write(self, handle, bytes, offset, clear_set_id)
    }
    fn send_buffer(&self, length: usize) -> SendBuffer {
        VolumeFilesystem::send_buffer(self, length)
    }
    fn write_later(
        &self,
        handle: u64,
        bytes: &[u8],
        memory: Option<(SharedBytes, Range<usize>)>,
        offset: u64,
        clear_set_id: bool,
    ) -> Result<Option<Unsent>> {
        let unsent = VolumeFilesystem::write_later(self, handle, bytes, memory, offset, clear_set_id)?;
        Ok(unsent.map(Unsent::Striped))
    }
    fn append(&self, handle: u64, bytes: &[u8], clear_set_id: bool) -> Result<u64> {
        VolumeFilesystem::append(self, handle, bytes, clear_set_id)
    }
    fn flush(&self, handle: u64) -> Result<bool> {
        VolumeFilesystem::flush(self, handle)
    }
    fn sync(&self, handle: u64) -> Result<bool> {
        VolumeFilesystem::sync(self, handle)
    }
    fn release(&self, handle: u64) -> Result<()> {
        VolumeFilesystem::release(self, handle)
    }
    fn allocate(&self, handle: u64, range: Range<u64>, mode: Allocation) -> Result<()> {
        VolumeFilesystem::allocate(self, handle, range, mode)
    }
    fn seek(&self, handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>> {
        VolumeFilesystem::seek(self, handle, seek, offset)
    }
    fn open_directory(&self, inode: InodeId) -> u64 {
        VolumeFilesystem::open_directory(self, inode)
    }
    fn read_directory(
        &self,
        inode: InodeId,
        handle: u64,
        cookie: u64,
        wanted: Wanted,
        take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool,
    ) -> Result<()> {
        VolumeFilesystem::read_directory(self, inode, handle, cookie, wanted, take)
    }
    fn release_directory(&self, handle: u64) {
        VolumeFilesystem::release_directory(self, handle)
    }
    fn sync_directory(&self) -> Result<()> {
        VolumeFilesystem::sync_directory(self)
    }
    fn space(&self) -> Result<VolumeSpace> {
        VolumeFilesystem::space(self)
    }
    fn begin_end(&self) {
        VolumeFilesystem::begin_end(self)
    }
    fn finish(&self) -> Vec<String> {
        VolumeFilesystem::finish(self)
    }
    fn open_files(&self) -> usize {
        VolumeFilesystem::open_files(self)
    }
    fn unstored_amount(&self) -> (usize, u64) {
        VolumeFilesystem::unstored_amount(self)
    }
    fn unstored(&self) -> Vec<String> {
        VolumeFilesystem::unstored(self)
    }
    fn end_within(&self, left: Duration) {
        VolumeFilesystem::end_within(self, left)
    }
    fn silent_servers(&self) -> Vec<(String, u64)> {
        VolumeFilesystem::silent_servers(self)
    }
    fn is_idle(&self, handle: u64) -> bool {
        VolumeFilesystem::is_idle(self, handle)
    }
    fn can_begin(&self) -> bool {
        VolumeFilesystem::can_begin(self)
    }
    fn begin_create_file(
        &self,
        place: Place<'_>,
        caller: Caller,
        mode: NewMode,
        exclusive: bool,
        then: Completion<(Attributes, File)>,
    ) {
        VolumeFilesystem::begin_create_file(self, place, caller, mode, exclusive, then)
    }
    fn end_create_file(&self, created: (Attributes, File), truncate: bool) -> Result<Opened> {
        VolumeFilesystem::end_create_file(self, created, truncate)
    }
    fn begin_unlink(&self, place: Place<'_>, then: Completion<()>) {
        VolumeFilesystem::begin_unlink(self, place, then)
    }
    fn is_at_hand(&self, handle: u64) -> bool {
        VolumeFilesystem::is_at_hand(self, handle)
    }
    fn takes_at_once(&self, handle: u64, end: u64) -> bool {
        VolumeFilesystem::takes_at_once(self, handle, end)
    }
    fn begin_lookup(&self, place: Place<'_>, then: Completion<Attributes>) {
        VolumeFilesystem::begin_lookup(self, place, then)
    }
    fn begin_open(&self, inode: InodeId, mode: OpenMode, then: Completion<File>) {
        VolumeFilesystem::begin_open(self, inode, mode, then)
    }
    fn end_open(&self, file: File) -> Result<Opened> {
        Ok(VolumeFilesystem::end_open(self, file))
    }
    fn can_begin_flush(&self, handle: u64) -> bool {
        VolumeFilesystem::can_begin_flush(self, handle)
    }
    fn begin_flush(&self, handle: u64, owner: u64, then: Completion<bool>) {
        VolumeFilesystem::begin_flush(self, handle, owner, then)
    }
    fn cached(&self, place: Place<'_>) -> Option<(Result<Attributes>, Option<Asked>)> {
        VolumeFilesystem::cached(self, place)
    }
    fn cached_attributes(&self, inode: InodeId) -> Option<(Attributes, Asked)> {
        VolumeFilesystem::cached_attributes(self, inode)
    }
    fn link(&self, inode: InodeId, place: Place<'_>) -> Result<Attributes> {
        VolumeFilesystem::link(self, inode, place)
    }
    fn create_unnamed(&self, directory: InodeId, caller: Caller, mode: NewMode) -> Result<Opened> {
        VolumeFilesystem::create_unnamed(self, directory, caller, mode)
    }
    fn copy(&self, from: u64, from_offset: u64, to: u64, to_offset: u64, length: u64) -> Result<u64> {
        VolumeFilesystem::copy(self, from, from_offset, to, to_offset, length)
    }
    fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        VolumeFilesystem::get_xattr(self, inode, name)
    }
    fn set_xattr(
        &self,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        clear_set_group: bool,
    ) -> Result<()> {
        VolumeFilesystem::set_xattr(self, inode, name, value, mode, clear_set_group)
    }
    fn list_xattrs(&self, inode: InodeId, caller: Caller) -> Result<Vec<u8>> {
        VolumeFilesystem::list_xattrs(self, inode, caller)
    }
    fn remove_xattr(&self, inode: InodeId, name: &[u8]) -> Result<()> {
        VolumeFilesystem::remove_xattr(self, inode, name)
    }
    fn test_lock(&self, wish: &LockWish) -> Result<Option<Obstacle>> {
        VolumeFilesystem::test_lock(self, wish)
    }
    fn set_lock(&self, wish: &LockWish, waits: bool) -> Result<()> {
        VolumeFilesystem::set_lock(self, wish, waits)
    }
    fn unlock_closed(&self, handle: u64, owner: u64) -> Result<()> {
        VolumeFilesystem::unlock_closed(self, handle, owner)
    }
}
