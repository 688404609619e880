//! Answers one request: decoded request in, door called, answer encoded.

use super::abi::{self, open_flag};
use super::in_flight::InFlight;
use super::locks::{self, LockWaiters};
use super::nodes::Nodes;
use super::outcome::{Failure, Outcome};
use super::reply::{DirectoryEntry, Reply, Shown};
use super::request::{Forgotten, Header, Request, SetAttributes};
use crate::filesystem::FileSystem;
use crate::filesystem::arguments::{Caller, NewMode, Opened, Place};
use crate::filesystem::listing::Wanted;
use crate::filesystem::privileges::is_asked_by_kernel;
use crate::interrupts::Interrupts;
use crate::kernel_cache::mappings::Mappings;
use crate::kernel_cache::notices::Notices;
use crate::kernel_cache::notifier::Notifier;
use crate::kernel_cache::readdirplus::ReaddirplusPolicies;
use crate::kernel_cache::second_walks::SecondWalks;
use crate::kernel_cache::told::Told;
use std::sync::Arc;
use std::time::Duration;
use vazao_client::{Asked, Error, Listed, Listener, OpenMode, RenameMode, Seek, SendBuffer};
use vazao_model::{Attributes, Code, FileKind, InodeId};

/// How long the kernel may believe what it was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timeouts {
    pub(crate) attributes: Duration,
    pub(crate) entries: Duration,
}

/// A file that is replaced so often between the look at its name and the opening is not looked for any more.
const REPLACED_MAX: usize = 64;

/// Answers the requests of one mount.
pub(crate) struct Server {
    pub(crate) door: Box<dyn FileSystem>,
    pub(crate) nodes: Nodes,
    pub(crate) timeouts: Timeouts,
    pub(crate) told: Arc<Told>,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) interrupts: Interrupts,
    pub(crate) lock_waiters: LockWaiters,
    pub(crate) readdirplus: ReaddirplusPolicies,
    pub(crate) second_walks: SecondWalks,
    pub(crate) mappings: Mappings,
    /// Requests that have been begun and not answered yet.
    pub(crate) in_flight: InFlight,
}

impl Server {
    /// Memory to receive writes in.
    pub(crate) fn send_buffer(&self, length: usize) -> SendBuffer {
        self.door.send_buffer(length)
    }

    /// Answers what can be answered from memory, at once; `None` for everything else.
    pub(crate) fn answer_quickly(
        &self,
        header: &Header,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Option<Outcome> {
        let inode = self.nodes.inode(header.node);
        match *request {
            Request::Lookup { .. } if self.second_walks.is_under_way(header.thread) => None,
            Request::Lookup { name } => {
                self.readdirplus.looked_up(inode, header.thread);
                self.cached(Place { directory: inode, name }, reply)
            }
            Request::GetAttributes { .. } => self.cached_attributes(inode, reply),
            Request::OpenDirectory => {
                reply.put_open_out(self.door.open_directory(inode), 0);
                Some(Ok(()))
            }
            Request::ReleaseDirectory { handle } => {
                self.door.release_directory(handle);
                Some(Ok(()))
            }
            Request::Read { handle, offset, length } if self.door.is_at_hand(handle) => {
                Some(self.read(handle, offset, length, reply))
            }
            Request::Write { handle, offset, bytes, kill_set_id, appends: false }
                if self.door.takes_at_once(handle, offset.saturating_add(bytes.len() as u64)) =>
            {
                let written = self.door.write(handle, bytes, offset, kill_set_id.then(|| caller(header)));
                reply.put_length_out(bytes.len() as u32);
                Some(written.map_err(Failure::from))
            }
            Request::Flush { handle, .. } => self.door.is_idle(handle).then_some(Ok(())),
            Request::Release { handle } if self.door.is_idle(handle) => {
                Some(self.release(handle).map_err(Failure::from))
            }
            Request::GetXattr { name, .. } if is_asked_by_kernel(name) && self.has_no_xattrs(inode) => {
                Some(Err(Error::from(Code::NoAttribute).into()))
            }
            _ => None,
        }
    }

    /// The kernel has forgotten nodes.
    pub(crate) fn forget(&self, header: &Header, forgotten: &Forgotten<'_>) {
        let numbers = forgotten.iter(header.node).map(|(node, count)| (self.nodes.inode(node), count));
        self.door.forget(&mut { numbers });
    }

    /// The kernel sends no more requests, and no caller waits for an answer.
    pub(crate) fn end(&self) {
        if !self.interrupts.is_over() {
            self.door.begin_end();
            self.interrupts.end();
        }
    }

    /// What an answer shows does not reach the kernel.
    pub(crate) fn take_back(&self, reply: &mut Reply) {
        self.door.forget(&mut reply.entered.drain(..).map(|inode| (inode, 1)));
    }

    fn note_entered(&self, inode: InodeId, reply: &mut Reply) {
        if self.door.counts_names() {
            reply.entered.push(inode);
        }
    }

    /// Answers `request` into `reply`. [`Request::Forget`] and [`Request::Interrupt`] must
    /// not be answered and do not come here.
    pub(crate) fn answer(&self, header: &Header, request: Request<'_>, reply: &mut Reply) -> Outcome {
        let call = header.call();
        if request.can_be_given_up() {
            return self.interrupts.during(call, || self.work(header, request, reply));
        }
        if matches!(request, Request::Release { .. } | Request::ReleaseDirectory { .. }) {
            // These have no waiter.
            return self.work(header, request, reply);
        }
        self.interrupts.writing(call, || self.work(header, request, reply))
    }

    fn work(&self, header: &Header, request: Request<'_>, reply: &mut Reply) -> Outcome {
        reply.asked = self.door.asked();
        let inode = self.nodes.inode(header.node);
        let place = |name| Place { directory: inode, name };
        match request {
            Request::Lookup { name } if self.second_walks.is_under_way(header.thread) => {
                self.lookup_again(header.thread, place(name), reply)
            }
            Request::Lookup { name } => self.lookup(place(name), reply),
            Request::LookupNumber => self.unnamed_entry(&self.door.find(inode)?, reply),
            Request::LookupParent => self.unnamed_entry(&self.door.parent(inode)?, reply),
            Request::GetAttributes { handle } => self.get_attributes(inode, handle, reply),
            Request::SetAttributes(set) => self.set_attributes(header, &set, reply),
            Request::ReadLink => {
                reply.put(&self.door.read_link(inode)?);
                Ok(())
            }
            Request::Unlink { name } => Ok(self.door.unlink(place(name))?),
            Request::RemoveDirectory { name } => Ok(self.door.remove_directory(place(name))?),
            Request::Rename { name, new_node, new_name, mode } => {
                let to = Place { directory: self.nodes.inode(new_node), name: new_name };
                let (old, new) = ((inode, name.to_vec()), (to.directory, new_name.to_vec()));
                let is_exchange = mode == RenameMode::Exchange;
                let work = || self.door.rename(place(name), to, mode);
                Ok(self.notices.renaming(old, new, is_exchange, work)?)
            }
            Request::Link { node, name } => {
                self.entry(place(name), self.door.link(self.nodes.inode(node), place(name))?, reply)
            }
            Request::Space => {
                reply.put_space_out(self.door.space()?);
                Ok(())
            }
            Request::TestLock(wish) => locks::test(&*self.door, &wish, reply),
            Request::SetLock { wish, waits } => {
                self.lock_waiters.set(&*self.door, &self.notices, &wish, waits)
            }
            Request::Ioctl => Err(Failure::Errno(abi::errno::NOT_A_TERMINAL)),
            Request::Init(_) | Request::Destroy | Request::Forget(_) | Request::Interrupt { .. } => Ok(()),
            Request::NotImplemented => Err(Failure::Errno(abi::errno::NOT_IMPLEMENTED)),
            Request::Unsupported => Err(Error::from(Code::Unsupported).into()),
            creating @ (Request::Symlink { .. }
            | Request::MakeNode { .. }
            | Request::MakeDirectory { .. }) => self.create(header, creating, reply),
            xattr @ (Request::SetXattr { .. }
            | Request::GetXattr { .. }
            | Request::ListXattrs { .. }
            | Request::RemoveXattr { .. }) => self.xattr(header, inode, xattr, reply),
            directory @ (Request::OpenDirectory
            | Request::ReadDirectory { .. }
            | Request::SyncDirectory
            | Request::ReleaseDirectory { .. }) => self.directory(header, directory, reply),
            file => self.file(header, inode, file, reply),
        }
    }

    /// What is shown of an inode under a name: `None` where no name is shown with it.
    fn shown<'a>(
        &self,
        place: Option<Place<'_>>,
        attributes: &'a Attributes,
        asked: Asked,
    ) -> Result<Shown<'a>, Failure> {
        let node = self.nodes.node(attributes.inode).ok_or_else(|| {
            Error::new(Code::Internal, format!("{} lies outside of the mounted directory", attributes.inode))
        })?;
        let lease = self.door.attributes_lease(asked, attributes.inode);
        let attribute_timeout = lease.min(self.timeouts.attributes);
        let entry_timeout = place.map_or(Duration::ZERO, |place| self.entry_timeout(place, asked));
        let believed_ns = u64::try_from(attribute_timeout.as_nanos()).unwrap_or(u64::MAX);
        let xattr_less_until_ns =
            attributes.without_xattrs.then(|| self.door.now_ns().saturating_add(believed_ns));
        self.told.show(attributes.inode, attributes.version, xattr_less_until_ns);
        Ok(Shown { node, attributes, attribute_timeout, entry_timeout })
    }

    fn entry_timeout(&self, place: Place<'_>, asked: Asked) -> Duration {
        self.door.entry_lease(asked, place).min(self.timeouts.entries)
    }

    /// What is known of a name without asking.
    fn cached(&self, place: Place<'_>, reply: &mut Reply) -> Option<Outcome> {
        let (known, asked) = self.door.cached(place)?;
        Some(match asked {
            Some(asked) => {
                reply.asked = asked;
                self.found(place, known, reply)
            }
            // The kernel would not hear of it when the name comes, and asks again each time.
            None => known.map(drop).map_err(Failure::from),
        })
    }

    fn lookup(&self, place: Place<'_>, reply: &mut Reply) -> Outcome {
        match self.cached(place, reply) {
            Some(outcome) => outcome,
            None => self.found(place, self.door.lookup(place), reply),
        }
    }

    /// A look-up of a second walk: a file is opened, too, so that it is there when the kernel comes to open it.
    fn lookup_again(&self, thread: u32, place: Place<'_>, reply: &mut Reply) -> Outcome {
        for _ in 0..REPLACED_MAX {
            reply.asked = self.door.asked();
            let found = self.door.lookup(place);
            let Some(inode) = found.as_ref().ok().filter(|it| it.kind == FileKind::File).map(|it| it.inode)
            else {
                return self.found(place, found, reply);
            };
            match self.door.open(inode, OpenMode { read: true, ..OpenMode::default() }) {
                Ok(opened) if opened.attributes.links > 0 => {
                    self.let_go(self.second_walks.hold(thread, inode, opened.handle));
                    return self.found(place, found, reply);
                }
                Ok(opened) => self.let_go(Some(opened.handle)),
                Err(error) if error.code == Code::Stale => {}
                // What is wrong with it the open itself will say.
                Err(_) => return self.found(place, found, reply),
            }
            self.door.forget_names(inode);
        }
        Err(Error::from(Code::Stale).into())
    }

    /// Releases what was held for second walks.
    fn let_go(&self, handles: impl IntoIterator<Item = u64>) {
        for handle in handles {
            if let Err(error) = self.door.release(handle) {
                tracing::debug!(%error, "a file that was held for a moment");
            }
        }
    }

    /// What was held for walks that did not come to an open.
    pub(crate) fn expire_second_walks(&self) {
        self.let_go(self.second_walks.expire(self.door.now_ns()));
    }

    /// A request that failed: the kernel walks the path again when an inode is gone.
    pub(super) fn failed(&self, header: &Header, failure: &Failure) {
        let walks_again = matches!(
            header.operation,
            abi::OPEN | abi::GETATTR | abi::SETATTR | abi::GETXATTR | abi::LISTXATTR
        );
        if walks_again && matches!(failure, Failure::Client(error) if error.code == Code::Stale) {
            let gone = self.nodes.inode(header.node);
            self.let_go(self.second_walks.begin(header.thread, gone, self.door.now_ns()));
        }
    }

    pub(super) fn found(
        &self,
        place: Place<'_>,
        found: Result<Attributes, Error>,
        reply: &mut Reply,
    ) -> Outcome {
        match found {
            Ok(attributes) => self.entry(place, attributes, reply),
            Err(error) if error.code == Code::NotFound => {
                let timeout = self.entry_timeout(place, reply.asked);
                if timeout.is_zero() {
                    return Err(error.into());
                }
                reply.put_no_entry_out(timeout);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn entry(&self, place: Place<'_>, attributes: Attributes, reply: &mut Reply) -> Outcome {
        self.note_entered(attributes.inode, reply);
        reply.put_entry_out(self.shown(Some(place), &attributes, reply.asked)?);
        Ok(())
    }

    /// An inode that is shown without a name.
    fn unnamed_entry(&self, attributes: &Attributes, reply: &mut Reply) -> Outcome {
        reply.put_entry_out(self.shown(None, attributes, reply.asked)?);
        Ok(())
    }

    fn attributes(&self, attributes: Attributes, reply: &mut Reply) -> Outcome {
        reply.put_attributes_out(self.shown(None, &attributes, reply.asked)?);
        Ok(())
    }

    fn cached_attributes(&self, inode: InodeId, reply: &mut Reply) -> Option<Outcome> {
        let (known, asked) = self.door.cached_attributes(inode)?;
        reply.asked = asked;
        Some(self.attributes(known, reply))
    }

    fn get_attributes(&self, inode: InodeId, handle: Option<u64>, reply: &mut Reply) -> Outcome {
        match self.cached_attributes(inode, reply) {
            Some(outcome) => outcome,
            None => self.attributes(self.door.attributes(inode, handle)?, reply),
        }
    }

    fn set_attributes(&self, header: &Header, set: &SetAttributes, reply: &mut Reply) -> Outcome {
        let inode = self.nodes.inode(header.node);
        let attributes = self.door.set_attributes(inode, &set.changes, caller(header), set.kill_set_id)?;
        self.attributes(attributes, reply)
    }

    fn create(&self, header: &Header, request: Request<'_>, reply: &mut Reply) -> Outcome {
        let (name, kind, mode, device, contents) = match request {
            Request::Symlink { name, target } => {
                (name, FileKind::Symlink, NewMode { bits: 0o777, umask: 0 }, 0, target)
            }
            Request::MakeNode { name, kind, mode, device } => (name, kind, mode, device, &[][..]),
            Request::MakeDirectory { name, mode } => (name, FileKind::Directory, mode, 0, &[][..]),
            _ => return Err(Failure::Errno(abi::errno::NOT_IMPLEMENTED)),
        };
        let place = Place { directory: self.nodes.inode(header.node), name };
        let attributes = self.door.create(place, caller(header), kind, mode, device, contents)?;
        self.entry(place, attributes, reply)
    }

    fn file(&self, header: &Header, inode: InodeId, request: Request<'_>, reply: &mut Reply) -> Outcome {
        match request {
            Request::Open { flags } => self.open(header, inode, flags, reply),
            Request::Create { name, flags, mode } => {
                let place = Place { directory: inode, name };
                let (exclusive, truncate) =
                    (flags & open_flag::EXCLUSIVE != 0, flags & open_flag::TRUNCATE != 0);
                let opened = self.door.create_file(place, caller(header), mode, exclusive, truncate)?;
                self.created(place, opened, flags, reply)
            }
            Request::CreateUnnamed { flags, mode } => {
                let opened = self.door.create_unnamed(inode, caller(header), mode)?;
                self.unnamed_entry(&opened.attributes, reply)?;
                self.note_mappable(opened.handle, opened.attributes.inode, flags);
                reply.put_open_out(opened.handle, 0);
                Ok(())
            }
            Request::Read { handle, offset, length } => self.read(handle, offset, length, reply),
            Request::Write { handle, offset, bytes, kill_set_id, appends } => {
                let unprivileged = kill_set_id.then(|| caller(header));
                if appends {
                    self.append(inode, handle, bytes, offset, unprivileged)?;
                } else if reply.afterwards.is_possible() {
                    let memory = reply.afterwards.memory_of(bytes);
                    let unsent = self.door.write_later(handle, bytes, memory, offset, unprivileged)?;
                    reply.afterwards.leave(unsent);
                } else {
                    self.door.write(handle, bytes, offset, unprivileged)?;
                }
                reply.put_length_out(bytes.len() as u32);
                Ok(())
            }
            Request::Flush { handle, lock_owner } => {
                let flushed = self.reported(header.node, self.door.flush(handle));
                flushed.and(self.door.unlock_closed(handle, lock_owner).map_err(Failure::from))
            }
            Request::Sync { handle } => self.reported(header.node, self.door.sync(handle)),
            Request::Release { handle } => Ok(self.release(handle)?),
            Request::Seek { handle, offset, seek } => {
                let found = self.seek(header, handle, seek, offset)?;
                reply.put_u64(found.ok_or(Failure::Errno(abi::errno::NO_SUCH_ADDRESS))?);
                Ok(())
            }
            Request::Copy { from, from_offset, to, to_offset, length } => {
                let (from, to) = ((from, from_offset), (to, to_offset));
                let copied = self.door.copy(from, to, length, caller(header))?;
                reply.put_length_out(u32::try_from(copied).unwrap_or(u32::MAX));
                Ok(())
            }
            Request::Allocate { handle, range, mode } => {
                Ok(self.door.allocate(handle, range, mode, caller(header))?)
            }
            _ => Err(Failure::Errno(abi::errno::NOT_IMPLEMENTED)),
        }
    }

    fn read(&self, handle: u64, offset: u64, length: u32, reply: &mut Reply) -> Outcome {
        let count = self.door.read(handle, reply.space(length as usize), offset)?;
        reply.keep(count);
        Ok(())
    }

    pub(super) fn created(&self, place: Place<'_>, opened: Opened, flags: u32, reply: &mut Reply) -> Outcome {
        self.note_mappable(opened.handle, opened.attributes.inode, flags);
        self.entry(place, opened.attributes, reply)?;
        reply.put_open_out(opened.handle, if passes_pages(flags) { abi::FOPEN_DIRECT_IO } else { 0 });
        Ok(())
    }

    /// Shared mappings that can be stored into need an open file that can be read and written.
    fn note_mappable(&self, handle: u64, inode: InodeId, flags: u32) {
        if flags & open_flag::ACCESS_MASK == open_flag::READ_WRITE {
            self.mappings.opened(handle, inode);
        }
    }

    fn release(&self, handle: u64) -> Result<(), Error> {
        self.mappings.released(handle);
        self.door.release(handle)
    }

    /// Where data or a hole begins. What programs have stored into a hole through a mapping is data, too; where it is
    /// not known in time whether they have, everything is.
    fn seek(&self, header: &Header, handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>, Error> {
        let inode = self.nodes.inode(header.node);
        let is_known = !self.mappings.may_be_mapped(inode)
            || self.mappings.write_back(&self.notifier, header.node, offset);
        if is_known {
            return self.door.seek(handle, seek, offset);
        }
        let size = self.door.attributes(inode, Some(handle))?.size;
        let found = if seek == Seek::Data { offset } else { size };
        Ok((offset < size).then_some(found))
    }

    /// After a report of what was written, time of change and space in use are others than the kernel was shown.
    pub(super) fn reported(&self, node: u64, outcome: Result<bool, Error>) -> Outcome {
        if !matches!(outcome, Ok(false)) {
            self.notifier.invalidate_attributes(node);
        }
        outcome.map(drop).map_err(Failure::from)
    }

    /// Writes at the end. Where that is not where the kernel took it to be, because another mount has appended, what
    /// the kernel knows of the file is wrong.
    fn append(
        &self,
        inode: InodeId,
        handle: u64,
        bytes: &[u8],
        expected: u64,
        unprivileged: Option<Caller>,
    ) -> Outcome {
        let offset = self.door.append(handle, bytes, unprivileged)?;
        if offset != expected {
            self.notices.inode_changed(inode, true);
        }
        Ok(())
    }

    /// Open, with what close-to-open asks for: see [`Told`].
    fn open(&self, header: &Header, inode: InodeId, flags: u32, reply: &mut Reply) -> Outcome {
        let ended = self.second_walks.end(header.thread, inode);
        let opened = self.door.open(inode, open_mode(flags));
        self.let_go(ended.held);
        self.opened(header.node, opened?, flags, ended.may_be_nameless, reply)
    }

    pub(super) fn opened(
        &self,
        node: u64,
        opened: Opened,
        flags: u32,
        may_be_nameless: bool,
        reply: &mut Reply,
    ) -> Outcome {
        let Opened { handle, attributes } = opened;
        let inode = self.nodes.inode(node);
        if attributes.links == 0 && !may_be_nameless {
            self.door.release(handle)?;
            self.door.forget_names(inode);
            return Err(Error::from(Code::Stale).about(inode).into());
        }
        self.note_mappable(handle, inode, flags);
        let mut open_flags = if open_mode(flags).write { 0 } else { abi::FOPEN_NOFLUSH };
        if passes_pages(flags) {
            open_flags |= abi::FOPEN_DIRECT_IO;
        }
        if self.told.is_current(inode, attributes.version) {
            open_flags |= abi::FOPEN_KEEP_CACHE;
        } else {
            self.notifier.invalidate_attributes(node);
        }
        reply.put_open_out(handle, open_flags);
        Ok(())
    }

    fn directory(&self, header: &Header, request: Request<'_>, reply: &mut Reply) -> Outcome {
        let inode = self.nodes.inode(header.node);
        match request {
            Request::OpenDirectory => reply.put_open_out(self.door.open_directory(inode), 0),
            Request::ReadDirectory { handle, cookie, length, with_attributes } => {
                let limit = length as usize;
                let wanted = self.wanted(header, cookie, with_attributes);
                let mut left = wanted.entries_max();
                let take = &mut |entry: &Listed<'_>, asked: Asked| {
                    reply.asked = asked;
                    let fits = left > 0 && self.put_entry(inode, entry, with_attributes, limit, reply);
                    left -= usize::from(fits);
                    fits
                };
                self.door.read_directory(inode, handle, cookie, wanted, take)?;
                // Not the request that only finds the end.
                if !with_attributes && reply.length() > 0 {
                    self.readdirplus.goes_on_without(inode, header.thread);
                }
            }
            Request::SyncDirectory => self.door.sync_directory()?,
            Request::ReleaseDirectory { handle } => self.door.release_directory(handle),
            _ => return Err(Failure::Errno(abi::errno::NOT_IMPLEMENTED)),
        }
        Ok(())
    }

    /// What a request for entries is given: attributes where the kernel wants them, of as many entries as the one who
    /// lists is likely to look at.
    fn wanted(&self, header: &Header, cookie: u64, with_attributes: bool) -> Wanted {
        match (with_attributes, cookie) {
            (true, 0) => Wanted::Attributes(self.readdirplus.first_entries(header.thread)),
            (true, _) => {
                self.readdirplus.goes_on_with_attributes(header.thread);
                Wanted::Attributes(usize::MAX)
            }
            (false, _) => Wanted::Names,
        }
    }

    fn put_entry(
        &self,
        directory: InodeId,
        entry: &Listed<'_>,
        with_attributes: bool,
        limit: usize,
        reply: &mut Reply,
    ) -> bool {
        let listed =
            DirectoryEntry { inode: entry.inode.0, cookie: entry.cookie, kind: entry.kind, name: entry.name };
        // An entry whose inode is gone, or cannot be shown, is listed without attributes: looking it up says why.
        let place = Place { directory, name: entry.name };
        let shown = entry.attributes.and_then(|a| self.shown(Some(place), a, reply.asked).ok());
        let is_shown = shown.is_some() && with_attributes;
        let fits = reply.put_directory_entry(listed, with_attributes.then_some(shown), limit);
        if fits && is_shown {
            self.note_entered(entry.inode, reply);
        }
        fits
    }

    /// True for as long as the kernel may believe so as well.
    fn has_no_xattrs(&self, inode: InodeId) -> bool {
        self.told.is_without_xattrs(inode, self.door.now_ns())
    }

    fn xattr(&self, header: &Header, inode: InodeId, request: Request<'_>, reply: &mut Reply) -> Outcome {
        let (value, length) = match request {
            Request::SetXattr { name, value, mode, clear_set_group } => {
                self.told.forget_xattrs(inode, self.door.now_ns());
                return Ok(self.door.set_xattr(inode, name, value, mode, clear_set_group)?);
            }
            Request::RemoveXattr { name } => return Ok(self.door.remove_xattr(inode, name)?),
            Request::GetXattr { name, .. } if is_asked_by_kernel(name) && self.has_no_xattrs(inode) => {
                return Err(Error::from(Code::NoAttribute).into());
            }
            Request::GetXattr { name, length } => (self.door.get_xattr(inode, name)?, length),
            Request::ListXattrs { length } => (self.door.list_xattrs(inode, caller(header))?, length),
            _ => return Err(Failure::Errno(abi::errno::NOT_IMPLEMENTED)),
        };
        // A length of 0 asks how long the value is.
        if length == 0 {
            reply.put_length_out(value.len() as u32);
        } else if value.len() <= length as usize {
            reply.put(&value);
        } else {
            return Err(Error::from(Code::Range).into());
        }
        Ok(())
    }
}

pub(super) fn caller(header: &Header) -> Caller {
    Caller { uid: header.uid, gid: header.gid, thread: header.thread }
}

/// What a file is opened for.
pub(super) fn open_mode(flags: u32) -> OpenMode {
    let access = flags & open_flag::ACCESS_MASK;
    OpenMode {
        read: access != open_flag::WRITE_ONLY,
        write: access == open_flag::WRITE_ONLY || access == open_flag::READ_WRITE,
        // The kernel asks for that by itself, once it has checked that it may be.
        truncate: false,
    }
}

/// True for a file whose reads and writes shall pass the kernel's pages.
///
/// One that is open for appending: where its writes go is not known before they are made, and pages would keep them in
/// the wrong place. And one that is open for writing only: the kernel would fill pages that this file cannot read,
/// which costs more than all the rest of a write's way to the mount (docs/decisions/writes-past-pages.md).
fn passes_pages(flags: u32) -> bool {
    let access = flags & open_flag::ACCESS_MASK;
    access == open_flag::WRITE_ONLY || (flags & open_flag::APPEND != 0 && access == open_flag::READ_WRITE)
}
