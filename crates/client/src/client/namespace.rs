//! Namespace calls: one request each, with what this client knows better added to the answers.

use super::removal::Statement;
use super::resolve::Walk;
use crate::cache::is_entry;
use crate::client::{ListNames, NamePage};
use crate::file::{self, FreshInode};
use crate::{
    Asked, Changes, Client, Entry, Error, File, NewInode, OpenMode, Page, RenameMode, Result, SetTime,
    VolumeSpace, XattrMode,
};
use crate::{Convert, Converted};
use std::time::Duration;
use vazao_model::{Attributes, Code, FileKind, InodeId, Layout, LayoutHint, VolumePath};
use vazao_wire::transport::{PendingCall, submit};
use vazao_wire::{op, proto};

/// How often a file is looked for again that others replace meanwhile.
const REPLACED_MAX: usize = 8;

/// How long an open waits before it looks again at an inode that a removal is about to end.
const LEAVING: Duration = Duration::from_millis(1);

/// A name as errors show it.
fn shown(name: &[u8]) -> String {
    format!("'{}'", String::from_utf8_lossy(name))
}

impl Client {
    /// The inode at a path; links in the middle are followed, one at the end only with `follow`.
    pub fn resolve(&self, path: &VolumePath, follow: bool) -> Result<Attributes> {
        let walked = Walk::new(self, path).run(follow);
        walked.map_err(|e| Error::new(e.code, format!("vz:{path}")).because(&e))
    }

    fn merged(&self, inode: Option<proto::Inode>, asked_at: u64) -> Result<Attributes> {
        let fresh = FreshInode::new(inode, asked_at)?;
        Ok(self.core.registry.merge(fresh.attributes, asked_at))
    }

    /// The inode of `name` in `parent`; `.` and `..` are understood.
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attributes> {
        // The seat comes after: what was asked before it was given out is forgotten with its arrival.
        let (asked_at, asked) = (self.core.answers(), self.core.cache.asked());
        let request =
            proto::LookupRequest { parent: parent.0, name: name.to_vec(), seat: self.core.cache.seat() };
        self.looked_up(parent, name, (asked_at, asked), self.core.meta.ask::<op::Lookup>(&request))
    }

    /// Takes over what a lookup has shown. `as_of`: when it was sent, counted in answers and for the memory.
    pub(crate) fn looked_up(
        &self,
        parent: InodeId,
        name: &[u8],
        (asked_at, asked): (u64, Asked),
        answer: Result<proto::LookupResponse>,
    ) -> Result<Attributes> {
        self.core.cache.put_lookup(asked, parent, name, &answer);
        self.merged(answer?.inode, asked_at)
    }

    /// What `stat` shows.
    pub fn attributes(&self, inode: InodeId) -> Result<Attributes> {
        let asked_at = self.core.answers();
        let asked = self.core.cache.asked();
        let request = proto::GetAttributesRequest { inode: inode.0, seat: self.core.cache.seat() };
        let response = self.core.meta.ask::<op::GetAttributes>(&request)?;
        self.core.cache.put_inode(asked, response.inode.as_ref());
        self.merged(response.inode, asked_at)
    }

    /// Changes attributes. A new size cuts or extends the file with zeros; a new time of modification is not
    /// overtaken by writes made before.
    pub fn set_attributes(&self, inode: InodeId, changes: &Changes) -> Result<Attributes> {
        let resized = changes.size.map(|size| self.set_size(inode, size)).transpose()?;
        let rest = Changes { size: None, ..*changes };
        if rest == Changes::default() {
            return resized.map_or_else(|| self.attributes(inode), Ok);
        }
        let open = self.core.registry.find(inode);
        if let (Some(open), true) = (&open, rest.modified.is_some()) {
            file::flush(open, false)?;
        }
        let asked_at = self.core.answers();
        let response = self.core.meta.change::<op::SetAttributes>(set_attributes_request(inode, &rest))?;
        if let Some(open) = &open {
            open.absorb(FreshInode::new(response.inode.clone(), asked_at)?);
        }
        self.merged(response.inode, asked_at)
    }

    fn set_size(&self, inode: InodeId, size: u64) -> Result<Attributes> {
        if let Some(open) = self.core.registry.find(inode) {
            return file::set_length(&open, size).map(|()| open.known_attributes());
        }
        let file = self.open_file(inode, OpenMode { write: true, ..OpenMode::default() })?;
        let cut = file.set_length(size).map(|()| file.known_attributes());
        let closed = file.close();
        closed.and(cut)
    }

    /// Any kind of inode; for a file to be written, [`Client::create_file`] saves a round trip.
    pub fn create(&self, parent: InodeId, name: &[u8], new: &NewInode) -> Result<Attributes> {
        let asked_at = self.core.answers();
        let response = self.send_create(parent, name, new, true)?;
        self.merged(response.inode, asked_at)
    }

    /// Creates and opens for reading and writing. Without `exclusive` an existing file is opened as it is.
    pub fn create_file(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode,
        exclusive: bool,
    ) -> Result<(Attributes, File)> {
        let _opening = self.core.opens.begin();
        let asked_at = self.core.answers();
        let response = self.send_create(parent, name, new, exclusive)?;
        self.open_created(response, asked_at)
    }

    /// Opens what an answer says was created, or was there.
    pub(crate) fn open_created(
        &self,
        response: proto::CreateResponse,
        asked_at: u64,
    ) -> Result<(Attributes, File)> {
        let fresh = FreshInode::new(response.inode, asked_at)?;
        let mode = OpenMode { read: true, write: true, truncate: false };
        let attributes = fresh.attributes.clone();
        if (response.created || fresh.is_complete())
            && let Some(file) = File::open(&self.core, fresh, mode)
        {
            return Ok((self.core.registry.merge(attributes, asked_at), file));
        }
        let file = self.open_file(attributes.inode, mode)?;
        Ok((self.core.registry.merge(attributes, asked_at), file))
    }

    /// Creates and opens a file without a name in a directory, which [`Client::link`] may give it one in. It ends with
    /// its last handle otherwise.
    pub fn create_unnamed(&self, parent: InodeId, new: &NewInode) -> Result<(Attributes, File)> {
        let _opening = self.core.opens.begin();
        let asked_at = self.core.answers();
        let request = proto::CreateRequest { unnamed: true, ..create_request(parent, b"", new, true) };
        let response = self.core.meta.change::<op::Create>(request)?;
        let fresh = FreshInode::new(response.inode, asked_at)?;
        let attributes = fresh.attributes.clone();
        let mode = OpenMode { read: true, write: true, truncate: false };
        let overtaken = || Error::new(Code::Stale, format!("{} ended as it began", attributes.inode));
        let file = File::open(&self.core, fresh, mode).ok_or_else(overtaken)?;
        Ok((attributes, file))
    }

    fn send_create(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode,
        exclusive: bool,
    ) -> Result<proto::CreateResponse> {
        let request = create_request(parent, name, new, exclusive);
        self.core.meta.create_name(request)
    }

    /// Opens a regular file.
    pub fn open_file(&self, inode: InodeId, mode: OpenMode) -> Result<File> {
        if mode.truncate {
            let file = self.open_file(inode, OpenMode { write: true, truncate: false, ..mode })?;
            file.set_length(0)?;
            return Ok(file);
        }
        loop {
            let _opening = self.core.opens.begin();
            if let Some(file) = File::open(&self.core, self.look(inode)?, mode) {
                return Ok(file);
            }
            if self.core.registry.is_leaving(inode) {
                self.core.context.clock.sleep(LEAVING);
            }
        }
    }

    /// Opens the regular file at a path, and shows what it is. One that another client replaces between the look at the
    /// name and the opening is looked for again.
    pub fn open_path(&self, path: &VolumePath, mode: OpenMode) -> Result<(Attributes, File)> {
        let mut tries = 1;
        loop {
            let attributes = self.resolve(path, true)?;
            match self.open_file(attributes.inode, mode) {
                Err(error) if error.code == Code::Stale && tries < REPLACED_MAX => tries += 1,
                outcome => return outcome.map(|file| (attributes, file)),
            }
        }
    }

    /// A regular file as an open shows it.
    pub(crate) fn look(&self, inode: InodeId) -> Result<FreshInode> {
        let as_of = (self.core.answers(), self.core.cache.asked());
        let request = self.open_request(inode);
        self.seen_to_open(inode, as_of, self.core.meta.ask::<op::Open>(&request))
    }

    pub(crate) fn open_request(&self, inode: InodeId) -> proto::OpenRequest {
        let (seat, session) = (self.core.cache.seat(), self.core.meta.session.id());
        proto::OpenRequest { once: None, inode: inode.0, truncate: false, seat, session }
    }

    /// Takes over what an open has shown. `as_of`: when it was sent, counted in answers and for the memory.
    pub(crate) fn seen_to_open(
        &self,
        inode: InodeId,
        (asked_at, asked): (u64, Asked),
        answer: Result<proto::OpenResponse>,
    ) -> Result<FreshInode> {
        if answer.as_ref().is_err_and(|error| error.code == Code::Stale) {
            // Another client has replaced it, and the invalidation is under way: cached names that lead to it are
            // stale.
            self.core.cache.entries.forget_all();
        }
        let inode_message = answer?.inode;
        self.core.cache.put_inode(asked, inode_message.as_ref());
        let fresh = FreshInode::new(inode_message, asked_at)?;
        if fresh.attributes.links == 0 && self.core.registry.find(inode).is_none() {
            // The metadata service does not know yet that this client has closed it.
            self.core.cache.entries.forget_all();
            let detail = format!("{inode} was removed since its name was looked up");
            return Err(Error::new(Code::Stale, detail));
        }
        match fresh.attributes.kind {
            FileKind::File => Ok(fresh),
            FileKind::Directory => Err(Error::new(Code::IsDirectory, inode.to_string())),
            FileKind::Symlink => Err(Error::new(Code::Loop, format!("{inode} is a symbolic link"))),
            _ => Err(Error::new(Code::Unsupported, format!("{inode} has no contents to open"))),
        }
    }

    /// A further name for an inode.
    pub fn link(&self, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<Attributes> {
        let request =
            proto::LinkRequest { once: None, inode: inode.0, parent: parent.0, name: name.to_vec() };
        let asked_at = self.core.answers();
        let response = self.core.meta.link_name(request)?;
        if let Some(open) = self.core.registry.find(inode).filter(|open| open.is_unlinked()) {
            open.mark_named();
        }
        self.merged(response.inode, asked_at)
    }

    /// Removes a name that is not a directory's. A file that is open somewhere lives on until its last close.
    pub fn unlink(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        let statement = Statement::about(self, parent, name)?;
        let request = unlink_request(parent, name, statement.held_inode);
        self.unlinked(statement, self.core.meta.remove_name(request))
    }

    /// Takes over what a removal has answered.
    pub(crate) fn unlinked(&self, said: Statement, outcome: Result<proto::UnlinkResponse>) -> Result<()> {
        let response = outcome?;
        if response.links == 0 {
            said.ended(&self.core, InodeId(response.inode));
        }
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        let (parent, name) = (parent.0, name.to_vec());
        let request = proto::UnlinkRequest { once: None, parent, name, directory: true, held_inode: 0 };
        self.core.meta.remove_name(request).map(|_| ())
    }

    /// Moves a name, in one transaction.
    pub fn rename(
        &self,
        parent: InodeId,
        name: &[u8],
        new_parent: InodeId,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let said = match mode {
            RenameMode::Replace => Some(Statement::about(self, new_parent, new_name)?),
            RenameMode::NoReplace | RenameMode::Exchange => None,
        };
        let held = said.as_ref().map_or(0, |said| said.held_inode);
        let request = proto::RenameRequest {
            once: None,
            parent: parent.0,
            name: name.to_vec(),
            new_parent: new_parent.0,
            new_name: new_name.to_vec(),
            mode: match mode {
                RenameMode::Replace => 0,
                RenameMode::NoReplace => 1,
                RenameMode::Exchange => 2,
            },
            held: (held != 0).then_some(held).into_iter().collect(),
        };
        let response = self.core.meta.rename_name(request)?;
        if response.replaced != 0
            && response.replaced_links == 0
            && let Some(said) = said
        {
            said.ended(&self.core, InodeId(response.replaced));
        }
        Ok(())
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let request =
            proto::OpenRequest { inode: inode.0, seat: self.core.cache.seat(), ..Default::default() };
        let fresh = FreshInode::new(self.core.meta.ask::<op::Open>(&request)?.inode, 0)?;
        if fresh.attributes.kind != FileKind::Symlink {
            return Err(Error::new(Code::Invalid, format!("{inode} is not a symbolic link")));
        }
        Ok(fresh.contents.unwrap_or_default())
    }

    /// A page of a directory after `cookie` (0: from the start), of at most `limit` entries.
    pub fn list(&self, directory: InodeId, cookie: u64, limit: u32, with_attributes: bool) -> Result<Page> {
        let (asked_at, asked) = (self.core.answers(), self.core.cache.asked());
        let request = proto::ListRequest {
            directory: directory.0,
            cookie,
            limit,
            with_attributes,
            seat: self.core.cache.seat(),
        };
        let response = self.core.meta.ask::<op::List>(&request)?;
        self.core.cache.put_listing(asked, directory, &response);
        self.page(response, asked_at, asked)
    }

    /// A page of names, as [`Client::list`] has them, in one piece.
    pub fn list_names(&self, directory: InodeId, cookie: u64, limit: u32) -> Result<NamePage> {
        let asked = self.core.cache.asked();
        NamePage::new(self.core.meta.ask::<ListNames>(&names_request(directory, cookie, limit))?, asked)
    }

    /// [`Client::list_names`] that does not wait for it.
    pub fn begin_list_names(&self, directory: InodeId, cookie: u64, limit: u32) -> PendingPage {
        let request = names_request(directory, cookie, limit);
        let (core, asked, deadline_ns) =
            (&self.core, self.core.cache.asked(), self.core.context.deadline_ns());
        core.context.counters.metadata.requests.add(1);
        let call = submit::<ListNames>(
            &*core.context.transport,
            core.context.meta_address(),
            &request,
            &[],
            deadline_ns,
        );
        PendingPage { client: self.clone(), call, asked, directory, cookie, limit }
    }

    fn page(&self, response: proto::ListResponse, asked_at: u64, asked: Asked) -> Result<Page> {
        let entries: Result<Vec<Entry>> =
            response.entries.into_iter().map(|entry| self.entry(entry, asked_at)).collect();
        Ok(Page { entries: entries?, end: response.end, parent: InodeId(response.parent), asked })
    }

    fn entry(&self, entry: proto::DirectoryEntry, asked_at: u64) -> Result<Entry> {
        let unknown = || {
            Error::new(Code::BadRequest, format!("{} has unknown kind {}", shown(&entry.name), entry.kind))
        };
        let kind = FileKind::from_number(entry.kind).ok_or_else(unknown)?;
        let attributes = entry.attributes.map(Attributes::try_from).transpose()?;
        Ok(Entry {
            kind,
            name: entry.name,
            inode: InodeId(entry.inode),
            cookie: entry.cookie,
            attributes: attributes.map(|attributes| self.core.registry.merge(attributes, asked_at)),
        })
    }

    /// What an inode is, under the name that all ways to it give ([`vazao_model::origin`]).
    pub fn origin(&self, inode: InodeId) -> Vec<u8> {
        vazao_model::origin::of_volume(self.map().cluster_id, inode)
    }

    /// The value of an extended attribute.
    pub fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        let request = proto::GetXattrRequest { inode: inode.0, name: name.to_vec() };
        self.core.meta.ask::<op::GetXattr>(&request).map(|response| response.value)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, inode: InodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.set_xattr_as(inode, name, value, mode, false)
    }

    /// [`Client::set_xattr`]; `clear_set_group`: with an access control list the set-group-id bit goes, as its setter
    /// may not keep it.
    pub fn set_xattr_as(
        &self,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        clear_set_group: bool,
    ) -> Result<()> {
        let mode = match mode {
            XattrMode::Either => 0,
            XattrMode::Create => 1,
            XattrMode::Replace => 2,
        };
        let (name, value) = (name.to_vec(), value.to_vec());
        let request =
            proto::SetXattrRequest { once: None, inode: inode.0, name, value, mode, clear_set_group };
        self.core.meta.change::<op::SetXattr>(request).map(|_| ())
    }

    /// The names of all extended attributes.
    pub fn list_xattrs(&self, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        let request = proto::ListXattrsRequest { inode: inode.0 };
        self.core.meta.ask::<op::ListXattrs>(&request).map(|response| response.names)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, inode: InodeId, name: &[u8]) -> Result<()> {
        let request = proto::RemoveXattrRequest { once: None, inode: inode.0, name: name.to_vec() };
        self.core.meta.change::<op::RemoveXattr>(request).map(|_| ())
    }

    /// Where a file's bytes lie; `None` while its contents are inline.
    pub fn layout(&self, inode: InodeId) -> Result<Option<Layout>> {
        let request = proto::GetAttributesRequest { inode: inode.0, seat: 0 };
        let response = self.core.meta.ask::<op::GetAttributes>(&request)?;
        Ok(FreshInode::new(response.inode, 0)?.layout)
    }

    /// The hint set on a directory, and the one in effect.
    pub fn layout_hint(&self, inode: InodeId) -> Result<(LayoutHint, LayoutHint)> {
        let request = proto::GetLayoutHintRequest { inode: inode.0 };
        let response = self.core.meta.ask::<op::GetLayoutHint>(&request)?;
        let own = response.hint.unwrap_or_default().try_into()?;
        Ok((own, response.effective.unwrap_or_default().try_into()?))
    }

    /// The zone that a file was to lie in when it got its layout, and where no target had room. `None`: it lies where
    /// it was to.
    pub fn zone_missed(&self, inode: InodeId) -> Result<Option<String>> {
        let request = proto::GetLayoutHintRequest { inode: inode.0 };
        let zone = self.core.meta.ask::<op::GetLayoutHint>(&request)?.zone_missed;
        Ok(Some(zone).filter(|zone| !zone.is_empty()))
    }

    /// Sets distribution, stripe unit, width, placement and copies for files created below a directory, or for a file
    /// without data. Copies lie on different machines. Errors: there are not so many.
    pub fn set_layout_hint(&self, inode: InodeId, hint: LayoutHint) -> Result<()> {
        self.send_layout_hint(inode, hint, false)
    }

    /// The same for trying out: from then on copies may lie on several nodes of one machine, in the whole volume.
    pub fn set_layout_hint_with_nodes_as_hosts(&self, inode: InodeId, hint: LayoutHint) -> Result<()> {
        self.send_layout_hint(inode, hint, true)
    }

    fn send_layout_hint(&self, inode: InodeId, hint: LayoutHint, nodes_are_hosts: bool) -> Result<()> {
        let hint = Some(hint.into());
        let request = proto::SetLayoutHintRequest { once: None, inode: inode.0, hint, nodes_are_hosts };
        self.core.meta.change::<op::SetLayoutHint>(request).map(|_| ())
    }

    /// What `df` shows.
    pub fn space(&self) -> Result<VolumeSpace> {
        let response = self.core.meta.ask::<op::Space>(&proto::SpaceRequest {})?;
        Ok(VolumeSpace {
            capacity_bytes: response.capacity_bytes,
            available_bytes: response.available_bytes,
            used_bytes: response.used_bytes,
            inodes: response.inodes,
        })
    }

    /// Makes all metadata changes answered so far durable.
    pub fn sync(&self) -> Result<()> {
        self.core.meta.ask::<op::Sync>(&proto::SyncRequest {}).map(|_| ())
    }
}

/// A page of names on its way.
pub struct PendingPage {
    client: Client,
    call: PendingCall<ListNames>,
    asked: Asked,
    directory: InodeId,
    cookie: u64,
    limit: u32,
}

impl std::fmt::Debug for PendingPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PendingPage({} after {})", self.directory, self.cookie)
    }
}

impl PendingPage {
    /// Waits for it. Where the request failed it is made again, as often as any other.
    pub fn wait(self) -> Result<NamePage> {
        match self.call.wait() {
            Ok((names, _)) => NamePage::new(names, self.asked),
            Err(_) => self.client.list_names(self.directory, self.cookie, self.limit),
        }
    }
}

fn names_request(directory: InodeId, cookie: u64, limit: u32) -> proto::ListRequest {
    proto::ListRequest { directory: directory.0, cookie, limit, with_attributes: false, seat: 0 }
}

pub(crate) fn unlink_request(parent: InodeId, name: &[u8], held_inode: u64) -> proto::UnlinkRequest {
    proto::UnlinkRequest { once: None, parent: parent.0, name: name.to_vec(), directory: false, held_inode }
}

pub(crate) fn create_request(
    parent: InodeId,
    name: &[u8],
    new: &NewInode,
    exclusive: bool,
) -> proto::CreateRequest {
    proto::CreateRequest {
        once: None,
        parent: parent.0,
        name: name.to_vec(),
        kind: new.kind.number(),
        mode: new.mode,
        uid: new.uid,
        gid: new.gid,
        device: new.device,
        contents: new.contents.clone(),
        exclusive,
        umask: new.umask,
        unnamed: false,
    }
}

fn set_attributes_request(inode: InodeId, changes: &Changes) -> proto::SetAttributesRequest {
    let at = |time: Option<SetTime>| match time {
        Some(SetTime::At(time)) => Some(time.into()),
        _ => None,
    };
    proto::SetAttributesRequest {
        once: None,
        inode: inode.0,
        mode: changes.mode,
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        accessed: at(changes.accessed),
        modified: at(changes.modified),
        accessed_now: changes.accessed == Some(SetTime::Now),
        modified_now: changes.modified == Some(SetTime::Now),
    }
}

impl Client {
    /// Forgets all names that led to an inode: the next look at them asks. It looks at every cached name.
    pub fn forget_names(&self, inode: InodeId) {
        self.core.cache.entries.forget_names(inode);
    }

    /// Where a name leads, without asking, and as of when that is known. `None` when it is not, or may have changed.
    /// Without a time it must not be cached further: a directory is known whole, but no request has asked about
    /// this name in it, so that there is no invalidation when it comes.
    pub fn cached(&self, parent: InodeId, name: &[u8]) -> Option<(Result<Attributes>, Option<Asked>)> {
        let core = &self.core;
        if !core.cache.caches() || !is_entry(name) {
            return None;
        }
        if let Some((leads, asked)) = core.cache.entries.cached_name(parent, name)
            && core.cache.is_believable(asked, parent, name)
        {
            let Some(inode) = leads else { return Some((Err(absent(name)), Some(asked))) };
            let (attributes, shown) = self.cached_attributes(inode)?;
            return Some((Ok(attributes), Some(asked.older(shown))));
        }
        // A change of a name changes the times of its directory.
        let asked = core.cache.entries.cached_absence(parent, name)?;
        core.cache.is_believable(asked, parent, &[]).then(|| (Err(absent(name)), None))
    }

    /// What `stat` shows, without asking, and as of when.
    pub fn cached_attributes(&self, inode: InodeId) -> Option<(Attributes, Asked)> {
        let core = &self.core;
        // Of an open file more is known, and it changes without being announced here.
        if !core.cache.caches() || core.registry.find(inode).is_some() {
            return None;
        }
        let (attributes, asked) = core.cache.entries.cached_attributes(inode)?;
        if attributes.kind == FileKind::Directory && core.cache.is_whole_for_little_longer(inode) {
            return None;
        }
        core.cache.is_believable(asked, inode, &[]).then_some((attributes, asked))
    }

    /// Gives a file another layout; readers and writers go on meanwhile. `progress` is told how many bytes are copied
    /// so far, several times a second where a rate is kept to; when it returns false the conversion is given up.
    /// Errors: `InUse` when the file is written to all the time, or another client converts it; `VersionMismatch` while
    /// a client is here that knows no conversions; those of reading and writing. Then the file is as it was.
    pub fn convert(
        &self,
        inode: InodeId,
        how: &Convert,
        progress: &dyn Fn(u64) -> bool,
    ) -> Result<Converted> {
        let mode = OpenMode { read: true, write: true, truncate: false };
        let file = self.open_file(inode, mode)?;
        let done = file.convert(how, progress)?;
        file.close().map(|()| done)
    }
}

fn absent(name: &[u8]) -> Error {
    Error::new(Code::NotFound, format!("'{}'", String::from_utf8_lossy(name)))
}
