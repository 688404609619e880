//! What the kernel asks for, in the client's terms: one function a request, each one client call or a few.
//!
//! Knows inodes, names and handles; nothing of FUSE's bytes or of the device.

mod finish;
mod locks;
mod xattrs;

use crate::filesystem::arguments::{Allocation, Caller, LockWish, NewMode, Opened, Place};
use crate::filesystem::failures::{Failures, REMEMBERED_NS};
use crate::filesystem::handles::Handles;
use crate::filesystem::listing::{Ahead, Listing, Source, Wanted};
use crate::filesystem::lost::Lost;
use crate::filesystem::privileges::{SET_ID, has_set_id, keeps_set_id, mode_without_set_id};
use crate::filesystem::{FileSystem, Unsent};
use locks::unlock_all;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vazao_client::{
    Asked, Changes, Client, Completion, Error, File, Listed, NamePage, NewInode, Obstacle, OpenMode, Page,
    Readiness, RenameMode, Result, Seek, SendBuffer, SetTime, SharedBytes, Unstored, VolumeSpace, XattrMode,
    interrupt,
};
use vazao_meter::Clock;
use vazao_model::{Attributes, Code, FileKind, InodeId, ids, limits};

struct OpenFile {
    file: File,
    /// Who has locked something through it, and by which of the two calls.
    lock_owners: Mutex<Vec<(u64, bool)>>,
    /// The file may have set-id bits, which a write by an ordinary user must clear.
    set_id: AtomicBool,
    /// The file may have capabilities, which any write must clear.
    has_xattrs: AtomicBool,
    failures: Failures,
}

impl OpenFile {
    fn owners(&self) -> MutexGuard<'_, Vec<(u64, bool)>> {
        self.lock_owners.lock()
    }

    fn locked(&self, owner: u64, is_flock: bool) {
        let mut owners = self.owners();
        if !owners.contains(&(owner, is_flock)) {
            owners.push((owner, is_flock));
        }
    }

    fn forget_owner(&self, owner: u64) {
        self.owners().retain(|other| *other != (owner, false));
    }

    fn take_owners(&self) -> Vec<(u64, bool)> {
        std::mem::take(&mut *self.owners())
    }
}

/// The volume as a file system, for one mount.
pub(crate) struct VolumeFilesystem {
    client: Client,
    clock: Arc<dyn Clock>,
    root: InodeId,
    files: Handles<OpenFile>,
    directories: Handles<Listing>,
    lost: Lost,
    /// Until when any failed read is remembered: writes look for such only before that.
    remembered_until_ns: AtomicU64,
}

fn new_file(caller: Caller, mode: NewMode) -> NewInode {
    let (NewMode { bits: mode, umask }, Caller { uid, gid, .. }) = (mode, caller);
    NewInode { mode, umask, uid, gid, ..NewInode::default() }
}

impl VolumeFilesystem {
    /// A door to `client` whose root is the directory `root`.
    pub(crate) fn new(client: Client, root: InodeId) -> VolumeFilesystem {
        let clock = vazao_meter::clock::system();
        let (files, directories) = (Handles::new(), Handles::new());
        let (lost, remembered_until_ns) = (Lost::default(), AtomicU64::new(0));
        VolumeFilesystem { client, clock, root, files, directories, lost, remembered_until_ns }
    }

    fn file(&self, handle: u64) -> Result<Arc<OpenFile>> {
        self.files.get(handle).ok_or_else(|| Code::BadHandle.into())
    }

    /// Files already open must look again before the next write.
    fn remember_set_id(&self, inode: InodeId) {
        let open = self.files.all();
        open.iter().filter(|f| f.file.inode() == inode).for_each(|f| f.set_id.store(true, Ordering::Relaxed));
    }

    /// The contents were changed, through whichever handle: reads that failed before are tried anew.
    fn forget_failures(&self, inode: InodeId) {
        let until_ns = self.remembered_until_ns.load(Ordering::Relaxed);
        if until_ns == 0 || self.clock.now_ns() > until_ns {
            return;
        }
        let open = self.files.all();
        open.iter().filter(|f| f.file.inode() == inode).for_each(|f| f.failures.forget());
    }

    fn clear_set_id(&self, inode: InodeId, attributes: Attributes, caller: Caller) -> Result<Attributes> {
        match mode_without_set_id(&attributes, caller) {
            Some(mode) => {
                self.client.set_attributes(inode, &Changes { mode: Some(mode), ..Changes::default() })
            }
            None => Ok(attributes),
        }
    }

    /// Before the contents are changed by who may not keep set-id bits.
    fn drop_set_id(&self, open: &OpenFile, caller: Caller) -> Result<()> {
        if !open.set_id.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let inode = open.file.inode();
        let left = self.client.attributes(inode).and_then(|now| self.clear_set_id(inode, now, caller));
        // What this caller may keep the next one may not.
        if left.as_ref().map_or(true, has_set_id) {
            open.set_id.store(true, Ordering::Relaxed);
        }
        left.map(drop)
    }

    /// Before contents are changed by a request that does not say whether its caller may keep privileges.
    fn drop_privileges(&self, open: &OpenFile, caller: Caller) -> Result<()> {
        if open.set_id.load(Ordering::Relaxed) && !keeps_set_id(caller) {
            self.drop_set_id(open, caller)?;
        }
        self.drop_capability(open)
    }

    fn opened(&self, file: File, attributes: Attributes) -> Opened {
        let set_id = AtomicBool::new(has_set_id(&attributes));
        let has_xattrs = AtomicBool::new(!attributes.without_xattrs);
        Opened {
            handle: self.files.insert(OpenFile {
                file,
                lock_owners: Mutex::default(),
                set_id,
                has_xattrs,
                failures: Failures::default(),
            }),
            attributes,
        }
    }

    fn writing<T>(
        &self,
        handle: u64,
        unprivileged: Option<Caller>,
        work: impl FnOnce(&File) -> Result<T>,
    ) -> Result<T> {
        let open = self.locked_file(handle)?;
        if let Some(caller) = unprivileged {
            self.drop_set_id(&open, caller)?;
        }
        self.drop_capability(&open)?;
        let written = work(&open.file);
        self.forget_failures(open.file.inode());
        written
    }

    /// fcntl(2)'s locks of a file go with any of its descriptors that their process closes.
    fn is_locked(&self, open: &OpenFile) -> bool {
        !open.owners().is_empty() || self.client.locks().has_any(open.file.inode())
    }

    fn reporting(&self, handle: u64, work: fn(&File) -> Result<()>) -> Result<bool> {
        let open = self.file(handle)?;
        let before = open.file.reports();
        let kept = self.give_up_if_lost(&open);
        kept.and_then(|()| work(&open.file)).map(|()| open.file.reports() != before)
    }
}

impl FileSystem for VolumeFilesystem {
    fn asked(&self) -> Asked {
        self.client.asked()
    }

    fn attributes_lease(&self, asked: Asked, inode: InodeId) -> Duration {
        self.client.attributes_lease(asked, inode)
    }

    fn entry_lease(&self, asked: Asked, place: Place<'_>) -> Duration {
        self.client.entry_lease(asked, place.directory, place.name)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn lookup(&self, place: Place<'_>) -> Result<Attributes> {
        self.client.lookup(place.directory, place.name)
    }

    fn attributes(&self, inode: InodeId, handle: Option<u64>) -> Result<Attributes> {
        match handle.and_then(|handle| self.files.get(handle)) {
            Some(open) => open.file.attributes(),
            None => self.client.attributes(inode),
        }
    }

    fn finds_by_number(&self) -> bool {
        self.root == ids::ROOT
    }

    fn find(&self, inode: InodeId) -> Result<Attributes> {
        let found = self.client.attributes(inode)?;
        if found.links > 0 { Ok(found) } else { Err(Code::Stale.into()) }
    }

    fn parent(&self, inode: InodeId) -> Result<Attributes> {
        self.find(self.client.list_names(inode, 0, 1)?.parent())
    }

    fn set_attributes(
        &self,
        inode: InodeId,
        changes: &Changes,
        caller: Caller,
        clear_set_id: bool,
    ) -> Result<Attributes> {
        let mut changes = *changes;
        if changes.size.is_some() {
            // truncate(2) comes with "modified now", which changing the length does.
            changes.modified = changes.modified.filter(|time| *time != SetTime::Now);
        }
        let answer = self.client.set_attributes(inode, &changes);
        if changes.size.is_some() {
            self.forget_failures(inode);
        }
        let attributes = answer?;
        if changes.mode.is_some_and(|mode| mode & SET_ID != 0) {
            self.remember_set_id(inode);
        }
        let owner_changed = changes.uid.is_some() || changes.gid.is_some();
        if clear_set_id || (owner_changed && changes.mode.is_none()) {
            return self.clear_set_id(inode, attributes, caller);
        }
        Ok(attributes)
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.client.read_link(inode)
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
        let Caller { uid, gid, .. } = caller;
        let NewMode { bits: mode, umask } = mode;
        let new = NewInode { kind, mode, uid, gid, device, contents: contents.to_vec(), umask };
        self.client.create(place.directory, place.name, &new)
    }

    fn unlink(&self, place: Place<'_>) -> Result<()> {
        self.client.unlink(place.directory, place.name)
    }

    fn remove_directory(&self, place: Place<'_>) -> Result<()> {
        self.client.remove_directory(place.directory, place.name)
    }

    fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<()> {
        self.client.rename(from.directory, from.name, to.directory, to.name, mode)
    }

    fn open(&self, inode: InodeId, mode: OpenMode) -> Result<Opened> {
        self.end_open(self.client.open_file(inode, mode)?)
    }

    fn forget_names(&self, inode: InodeId) {
        self.client.forget_names(inode);
    }

    fn create_file(
        &self,
        place: Place<'_>,
        caller: Caller,
        mode: NewMode,
        exclusive: bool,
        truncate: bool,
    ) -> Result<Opened> {
        let created =
            self.client.create_file(place.directory, place.name, &new_file(caller, mode), exclusive)?;
        self.end_create_file(created, truncate)
    }

    fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let open = self.locked_file(handle)?;
        let range = offset..offset.saturating_add(buffer.len() as u64);
        let began_ns = self.clock.now_ns();
        if let Some(error) = open.failures.repeated(&range, began_ns) {
            return Err(error);
        }
        let read = open.file.read_at(buffer, offset);
        if let Err(error) = &read {
            let now_ns = self.clock.now_ns();
            open.failures.note(range, error, began_ns, now_ns);
            self.remembered_until_ns.fetch_max(now_ns + REMEMBERED_NS, Ordering::Relaxed);
        }
        read
    }

    fn write(&self, handle: u64, bytes: &[u8], offset: u64, unprivileged: Option<Caller>) -> Result<()> {
        self.writing(handle, unprivileged, |file| file.write_at(bytes, offset))
    }

    fn send_buffer(&self, length: usize) -> SendBuffer {
        self.client.send_buffer(length)
    }

    fn write_later(
        &self,
        handle: u64,
        bytes: &[u8],
        memory: Option<(SharedBytes, Range<usize>)>,
        offset: u64,
        unprivileged: Option<Caller>,
    ) -> Result<Option<Unsent>> {
        let unsent = self.writing(handle, unprivileged, |file| match memory {
            Some((memory, range)) => file.write_shared_later(&memory, range, offset),
            None => file.write_later(bytes, offset),
        })?;
        Ok(unsent.map(Unsent::Striped))
    }

    fn append(&self, handle: u64, bytes: &[u8], unprivileged: Option<Caller>) -> Result<u64> {
        self.writing(handle, unprivileged, |file| file.append(bytes))
    }

    fn flush(&self, handle: u64) -> Result<bool> {
        let is_locked = self.files.get(handle).is_some_and(|open| self.is_locked(&open));
        match is_locked {
            // The next holder must see what was written under the locks, also by a process that was killed.
            true => interrupt::uninterruptible(|| self.reporting(handle, File::flush_under_lock)),
            false => self.reporting(handle, File::flush),
        }
    }

    fn sync(&self, handle: u64) -> Result<bool> {
        self.reporting(handle, File::sync)
    }

    fn release(&self, handle: u64) -> Result<()> {
        let open = self.files.remove(handle).ok_or(Error::from(Code::BadHandle))?;
        if open.owners().is_empty() {
            return self.close(open);
        }
        // The next holder must see what was written under the locks.
        let flushed = self.give_up_if_lost(&open).and_then(|()| open.file.flush_under_lock());
        let unlocked = self.unlock_released(&open);
        flushed.and(self.close(open)).and(unlocked)
    }

    fn allocate(&self, handle: u64, range: Range<u64>, mode: Allocation, caller: Caller) -> Result<()> {
        let open = self.locked_file(handle)?;
        if range.end > limits::FILE_BYTES_MAX {
            return Err(Code::TooLarge.into());
        }
        self.drop_privileges(&open, caller)?;
        let missing = range.end.saturating_sub(open.file.attributes()?.size);
        if missing > 0 && !mode.zero && missing > self.client.space()?.available_bytes {
            return Err(Code::NoSpace.into());
        }
        let zeroed = if mode.zero { open.file.zero(range.clone()) } else { Ok(()) };
        let is_long_enough = missing == 0 || mode.keep_size;
        let outcome =
            zeroed.and_then(|()| if is_long_enough { Ok(()) } else { open.file.set_length(range.end) });
        self.forget_failures(open.file.inode());
        outcome
    }

    fn seek(&self, handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>> {
        self.file(handle)?.file.seek(seek, offset)
    }

    fn open_directory(&self, inode: InodeId) -> u64 {
        self.directories.insert(Listing::new(inode, inode == self.root))
    }

    fn read_directory(
        &self,
        inode: InodeId,
        handle: u64,
        cookie: u64,
        wanted: Wanted,
        take: &mut dyn FnMut(&Listed<'_>, Asked) -> bool,
    ) -> Result<()> {
        let listing = self.directories.get(handle).ok_or(Error::from(Code::BadHandle))?;
        listing.read(cookie, wanted, &Pages { client: &self.client, directory: inode }, take)
    }

    fn release_directory(&self, handle: u64) {
        self.directories.remove(handle);
    }

    fn sync_directory(&self) -> Result<()> {
        self.client.sync()
    }

    fn space(&self) -> Result<VolumeSpace> {
        self.client.space()
    }

    fn begin_end(&self) {
        self.lost.begin();
        self.client.end_within(self.client.deadline());
    }

    fn finish(&self) -> Vec<String> {
        self.close_all()
    }

    fn open_files(&self) -> usize {
        self.files.len()
    }

    fn unstored_amount(&self) -> (usize, u64) {
        let unstored = self.client.unstored();
        (unstored.len(), unstored.iter().map(Unstored::bytes).sum())
    }

    fn unstored(&self) -> Vec<String> {
        self.client.unstored().iter().map(Unstored::to_string).collect()
    }

    fn end_within(&self, left: Duration) {
        self.client.end_within(left);
    }

    fn silent_servers(&self) -> Vec<(String, u64)> {
        self.client.silent_servers()
    }

    fn is_idle(&self, handle: u64) -> bool {
        self.files.get(handle).is_some_and(|open| !self.is_locked(&open) && open.file.is_idle())
    }

    fn is_at_hand(&self, handle: u64) -> bool {
        self.files.get(handle).is_some_and(|open| open.file.is_at_hand())
    }

    fn takes_at_once(&self, handle: u64, end: u64) -> bool {
        let is_plain = |open: &OpenFile| {
            !open.set_id.load(Ordering::Relaxed) && !open.has_xattrs.load(Ordering::Relaxed)
        };
        self.files.get(handle).is_some_and(|open| is_plain(&open) && open.file.takes_at_once(end))
    }

    fn can_begin(&self) -> bool {
        self.client.can_begin()
    }

    fn begin_create_file(
        &self,
        place: Place<'_>,
        caller: Caller,
        mode: NewMode,
        exclusive: bool,
        then: Completion<(Attributes, File)>,
    ) {
        let new = new_file(caller, mode);
        self.client.begin_create_file(place.directory, place.name, &new, exclusive, then);
    }

    fn end_create_file(&self, created: (Attributes, File), truncate: bool) -> Result<Opened> {
        let (mut attributes, file) = created;
        if truncate && attributes.size > 0 {
            file.set_length(0)?;
            self.forget_failures(file.inode());
            attributes = file.attributes()?;
        }
        Ok(self.opened(file, attributes))
    }

    fn begin_unlink(&self, place: Place<'_>, then: Completion<()>) {
        self.client.begin_unlink(place.directory, place.name, then);
    }

    fn begin_lookup(&self, place: Place<'_>, then: Completion<Attributes>) {
        self.client.begin_lookup(place.directory, place.name, then);
    }

    fn begin_open(&self, inode: InodeId, mode: OpenMode, then: Completion<File>) {
        self.client.begin_open_file(inode, mode, then);
    }

    fn end_open(&self, file: File) -> Result<Opened> {
        let attributes = file.known_attributes();
        Ok(self.opened(file, attributes))
    }

    fn can_begin_flush(&self, handle: u64) -> bool {
        self.files.get(handle).is_some_and(|open| !self.is_locked(&open) && open.file.can_begin_flush())
    }

    fn begin_flush(&self, handle: u64, owner: u64, then: Completion<bool>) {
        let open = match self.file(handle) {
            Ok(open) => open,
            Err(error) => return then(Readiness::Ready(Err(error))),
        };
        open.forget_owner(owner);
        let (place, before) = (open.place(owner, false), open.file.reports());
        let (client, looking, flushed) = (self.client.clone(), self.client.clone(), Arc::clone(&open));
        open.file.begin_flush(Box::new(move |early| {
            // Its process may have locked it meanwhile.
            let is_quick = move |_: &Result<()>| !looking.locks().has(place);
            let end = move |written| {
                let stored = flushed.file.end_flush(written);
                stored.and(unlock_all(&client, place)).map(|()| flushed.file.reports() != before)
            };
            then(early.and_then(is_quick, end));
        }));
    }

    fn cached(&self, place: Place<'_>) -> Option<(Result<Attributes>, Option<Asked>)> {
        self.client.cached(place.directory, place.name)
    }

    fn cached_attributes(&self, inode: InodeId) -> Option<(Attributes, Asked)> {
        self.client.cached_attributes(inode)
    }

    fn link(&self, inode: InodeId, place: Place<'_>) -> Result<Attributes> {
        self.client.link(inode, place.directory, place.name)
    }

    fn create_unnamed(&self, directory: InodeId, caller: Caller, mode: NewMode) -> Result<Opened> {
        let (attributes, file) = self.client.create_unnamed(directory, &new_file(caller, mode))?;
        Ok(self.opened(file, attributes))
    }

    fn copy(&self, from: (u64, u64), to: (u64, u64), length: u64, caller: Caller) -> Result<u64> {
        let ((from, from_offset), (to, to_offset)) = (from, to);
        let (source, open) = (self.file(from)?, self.file(to)?);
        self.drop_privileges(&open, caller)?;
        let copied = open.file.copy_from(&source.file, from_offset, to_offset, length);
        self.forget_failures(open.file.inode());
        copied
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

/// The pages of a directory.
struct Pages<'a> {
    client: &'a Client,
    directory: InodeId,
}

impl Source for Pages<'_> {
    fn fetch(&self, after: u64, limit: u32) -> Result<Page> {
        self.client.list(self.directory, after, limit, true)
    }

    fn fetch_names(&self, after: u64, limit: u32) -> Result<NamePage> {
        self.client.list_names(self.directory, after, limit)
    }

    fn ahead(&self, after: u64, limit: u32) -> Ahead {
        let pending = self.client.begin_list_names(self.directory, after, limit);
        Box::new(move || pending.wait())
    }
}
