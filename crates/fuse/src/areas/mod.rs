//! The areas of all nodes as one tree: `/NODE/AREA/path…`.
//!
//! The two upper levels come from the cluster's map and cannot be changed; below, each request goes to the node that
//! has the area, files by channels. The kernel may cache attributes and names for [`LEASE`]; changes by others are seen
//! after that, and at each open. A node that does not answer is not asked again for a moment (circuit breaker), so that
//! it gives errors for its own subtree and delays no other. `docs/semantics.md` says what users are promised.

mod circuit_breaker;
mod listing;
mod open_files;
mod requests;
mod servers;
mod table;
#[cfg(test)]
mod tests;
mod upper;
mod walks;
mod xattrs;

use crate::filesystem::arguments::{Allocation, Caller, NewMode, Opened, Place};
use crate::filesystem::handles::Handles;
use crate::filesystem::listing::Wanted;
use crate::filesystem::lost::Lost;
use crate::filesystem::privileges::{has_set_id, keeps_set_id};
use crate::filesystem::{FileSystem, Unsent};
use listing::Listing;
use open_files::OpenFiles;
use parking_lot::Mutex;
use servers::Servers;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use table::{Seen, Spot, Table};
use vazao_client::area::{AreaChanges, AreaClient, Channel, ChannelOptions, FileIdentity};
use vazao_client::{
    Asked, Changes, Client, Error, Listed, OpenMode, RenameMode, Result, Seek, SetTime, SharedBytes,
    VolumeSpace, XattrMode,
};
use vazao_meter::Clock;
use vazao_model::{Attributes, Code, FileKind, InodeId, Timestamp, limits};
use walks::Walks;

/// How long the kernel may believe names and attributes: local programs of the nodes change them without a word.
const LEASE: Duration = Duration::from_secs(1);

/// All areas as a file system.
pub(crate) struct Areas {
    client: Client,
    clock: Arc<dyn Clock>,
    root: InodeId,
    table: Mutex<Table>,
    walks: Walks,
    servers: Servers,
    files: OpenFiles,
    directories: Handles<Listing>,
    lost: Lost,
    born: Timestamp,
}

fn fixed(what: &str) -> Error {
    Error::new(Code::NotPermitted, format!("{what}: nodes and areas of the tree are not made here"))
}

impl Areas {
    /// All areas of `client`'s cluster under the inode number `root`.
    pub(crate) fn new(client: Client, root: InodeId) -> Areas {
        let clock = vazao_meter::clock::system();
        let wall_ns = clock.wall_ns();
        let (seconds, nanoseconds) = ((wall_ns / 1_000_000_000) as i64, (wall_ns % 1_000_000_000) as u32);
        Areas {
            servers: Servers::new(client.clone(), Arc::clone(&clock)),
            files: OpenFiles::new(&client),
            client,
            clock,
            root,
            table: Mutex::new(Table::new(root)),
            walks: Walks::default(),
            directories: Handles::new(),
            lost: Lost::default(),
            born: Timestamp { seconds, nanoseconds },
        }
    }

    fn spot(&self, inode: InodeId) -> Result<Arc<Spot>> {
        self.table.lock().spot(inode).ok_or_else(|| Code::NotFound.into())
    }

    /// A place in an area, where changes may be made.
    fn within(&self, place: Place<'_>) -> Result<Spot> {
        let directory = self.spot(place.directory)?;
        match directory.area.is_empty() {
            true => Err(fixed(&String::from_utf8_lossy(place.name))),
            false => Ok(directory.below(place.name)),
        }
    }

    /// What the kernel is about to be shown under a name: with the tree's own number, which counts.
    fn entered(&self, spot: &Spot, attributes: Attributes, identity: Option<FileIdentity>) -> Attributes {
        let is_linked = attributes.kind == FileKind::File && attributes.links > 1;
        let seen = identity.map(|identity| Seen { identity, is_linked });
        let inode = self.table.lock().enter(spot, seen);
        Attributes { inode, ..attributes }
    }

    /// A walk went through a directory to what lies in it.
    fn walked(&self, directory: InodeId, shown: &Attributes) {
        if shown.kind == FileKind::Directory {
            self.table.lock().walked(directory, shown.inode);
        }
    }

    /// What the kernel is to be shown under a name.
    fn look_up(&self, spot: &Spot) -> Result<Attributes> {
        let known = self.table.lock().number(spot);
        let (attributes, identity) = self.stat_settled(spot)?;
        let shown = self.entered(spot, attributes, Some(identity));
        if known == Some(shown.inode) || self.files.shared(shown.inode).is_none() {
            return Ok(shown);
        }
        // A further name of a file that is open by another one: what is in flight to that was not waited for.
        match self.stat_settled(spot) {
            Ok((attributes, _)) => Ok(Attributes { inode: shown.inode, ..attributes }),
            Err(error) => {
                self.table.lock().forget(shown.inode, 1);
                Err(error)
            }
        }
    }

    /// The root or a node.
    fn upper(&self, inode: InodeId) -> Attributes {
        upper::attributes(inode, self.born)
    }

    /// The places in the root or in a node, with their names.
    fn upper_names(&self, spot: &Spot) -> Vec<(Arc<str>, Spot)> {
        // An older map has to do where the metadata service does not answer.
        let map = self.client.refresh_map().unwrap_or_else(|_| self.client.map());
        upper::names(&map, spot)
    }

    /// One of these places, to be shown.
    fn upper_lookup(&self, directory: &Spot, name: &[u8]) -> Result<Attributes> {
        let found = self.upper_names(directory).into_iter().find(|(found, _)| found.as_bytes() == name);
        let (_, spot) = found.ok_or(Error::from(Code::NotFound))?;
        if spot.area.is_empty() {
            let inode = self.table.lock().enter(&spot, None);
            return Ok(self.upper(inode));
        }
        let (attributes, identity) = self.servers.stat(&spot)?;
        Ok(self.entered(&spot, attributes, Some(identity)))
    }

    fn change_xattrs(
        &self,
        inode: InodeId,
        change: impl FnOnce(&AreaClient, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let spot = self.spot(inode)?;
        if spot.area.is_empty() {
            return Err(Error::new(
                Code::NotPermitted,
                "nodes and areas of the tree have no attributes to set",
            ));
        }
        let _changing = self.walks.changing();
        let outcome = self.servers.ask_area(&spot, |area| change(area, &spot.path));
        self.changed(inode);
        outcome
    }
}

/// A time to set in the area's terms.
fn time(time: Option<SetTime>, clock: &dyn Clock) -> Option<Timestamp> {
    let wall_ns = clock.wall_ns();
    time.map(|time| match time {
        SetTime::At(at) => at,
        SetTime::Now => Timestamp {
            seconds: (wall_ns / 1_000_000_000) as i64,
            nanoseconds: (wall_ns % 1_000_000_000) as u32,
        },
    })
}

impl FileSystem for Areas {
    fn asked(&self) -> Asked {
        self.client.asked()
    }

    fn attributes_lease(&self, asked: Asked, _inode: InodeId) -> Duration {
        self.lease(asked)
    }

    fn entry_lease(&self, asked: Asked, _place: Place<'_>) -> Duration {
        self.lease(asked)
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn lookup(&self, place: Place<'_>) -> Result<Attributes> {
        let directory = self.spot(place.directory)?;
        if directory.area.is_empty() {
            return self.upper_lookup(&directory, place.name);
        }
        let spot = directory.below(place.name);
        let found = self.look_up_walk(place).unwrap_or_else(|| self.look_up(&spot));
        match &found {
            Ok(attributes) => self.walked(place.directory, attributes),
            Err(error) if error.code == Code::NotFound => self.table.lock().removed(&spot),
            Err(_) => {}
        }
        found
    }

    fn cached(&self, place: Place<'_>) -> Option<(Result<Attributes>, Option<Asked>)> {
        self.cached_walk(place)
    }

    fn attributes(&self, inode: InodeId, handle: Option<u64>) -> Result<Attributes> {
        match handle.filter(|&handle| self.files.get(handle).is_ok()) {
            Some(handle) => {
                let attributes = self.with_settled(handle, Channel::stat)?;
                Ok(Attributes { inode, ..attributes })
            }
            None => {
                let spot = self.spot(inode)?;
                if spot.area.is_empty() {
                    return Ok(self.upper(inode));
                }
                let (attributes, _) = self.stat_settled(&spot)?;
                Ok(Attributes { inode, ..attributes })
            }
        }
    }

    fn set_attributes(
        &self,
        inode: InodeId,
        changes: &Changes,
        caller: Caller,
        clear_set_id: bool,
    ) -> Result<Attributes> {
        let spot = self.spot(inode)?;
        if spot.area.is_empty() {
            return Err(fixed("changing attributes"));
        }
        let _changing = self.walks.changing();
        let (now, _) = self.servers.stat(&spot)?;
        let keeps_owner =
            changes.uid.is_none_or(|uid| uid == now.uid) && changes.gid.is_none_or(|gid| gid == now.gid);
        if !keeps_owner {
            let why =
                "owners of an area's files stay: they belong to its daemon's user, or to the area's owner";
            return Err(Error::new(Code::NotPermitted, why));
        }
        let modified = match changes.size {
            // Changing the length does that.
            Some(_) => changes.modified.filter(|time| *time != SetTime::Now),
            None => changes.modified,
        };
        let changes = AreaChanges {
            mode: changes.mode.map(|mode| mode & 0o7777),
            size: changes.size,
            accessed: time(changes.accessed, &*self.clock),
            modified: time(modified, &*self.clock),
        };
        let attributes = self.servers.ask_area(&spot, |area| {
            // A write that arrives later would be cut off in vain, or change the times that were set.
            self.files.settle(inode);
            area.set_attributes(&spot.path, &changes)
        });
        self.changed(inode);
        let mut attributes = attributes?;
        if clear_set_id {
            attributes = self.without_set_id(&spot, attributes, caller)?;
        } else if has_set_id(&attributes) {
            // Files already open must look again before the next write.
            self.files.shared(inode).iter().for_each(|shared| shared.may_have_set_id());
        }
        Ok(Attributes { inode, ..attributes })
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let spot = self.spot(inode)?;
        self.servers.ask_area(&spot, |area| area.read_link(&spot.path))
    }

    fn create(
        &self,
        place: Place<'_>,
        caller: Caller,
        kind: FileKind,
        mode: NewMode,
        _device: u32,
        contents: &[u8],
    ) -> Result<Attributes> {
        let spot = self.within(place)?;
        let _changing = self.walks.changing();
        let bits = mode.bits & !mode.umask;
        let attributes = match kind {
            FileKind::Directory => {
                self.servers.ask_area(&spot, |area| area.make_directory(&spot.path, bits))?
            }
            FileKind::Symlink => self.servers.ask_area(&spot, |area| area.symlink(&spot.path, contents))?,
            FileKind::File => {
                let Opened { handle, attributes } = self.create_file(place, caller, mode, true, false)?;
                self.release(handle)?;
                return Ok(attributes);
            }
            _ => return Err(Error::new(Code::Unsupported, "devices, pipes and sockets: not in areas")),
        };
        // What was known under this name is gone, or it could not have been made.
        self.table.lock().removed(&spot);
        let shown = self.entered(&spot, attributes, None);
        self.walked(place.directory, &shown);
        Ok(shown)
    }

    fn unlink(&self, place: Place<'_>) -> Result<()> {
        let spot = self.within(place)?;
        let _changing = self.walks.changing();
        self.servers.ask_area(&spot, |area| {
            self.settle_place(&spot);
            area.remove(&spot.path)
        })?;
        self.table.lock().removed(&spot);
        Ok(())
    }

    fn remove_directory(&self, place: Place<'_>) -> Result<()> {
        let spot = self.within(place)?;
        let _changing = self.walks.changing();
        self.servers.ask_area(&spot, |area| area.remove_directory(&spot.path))?;
        self.table.lock().removed(&spot);
        Ok(())
    }

    fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<()> {
        let (from, to) = (self.within(from)?, self.within(to)?);
        if (&from.node, &from.area) != (&to.node, &to.area) {
            return Err(Error::new(Code::CrossDevice, "from one area to another: copy and remove"));
        }
        let _changing = self.walks.changing();
        self.servers.ask_area(&from, |area| {
            self.settle_place(&from);
            self.settle_place(&to);
            area.rename(&from.path, &to.path, mode)
        })?;
        self.table.lock().renamed(&from, &to, mode == RenameMode::Exchange);
        Ok(())
    }

    fn open(&self, inode: InodeId, mode: OpenMode) -> Result<Opened> {
        let spot = self.spot(inode)?;
        // The kernel reads the rest of a page that is written in part.
        let both = ChannelOptions { read: true, write: mode.write, ..ChannelOptions::default() };
        let (channel, attributes) = match self.open_channel(&spot, Some(inode), &both) {
            Err(error) if error.code == Code::AccessDenied && mode.write && !mode.read => {
                self.open_channel(&spot, Some(inode), &ChannelOptions { read: false, ..both })?
            }
            other => other?,
        };
        let attributes = Attributes { inode, ..attributes };
        Ok(self.opened(&spot, channel, attributes))
    }

    fn create_file(
        &self,
        place: Place<'_>,
        _caller: Caller,
        mode: NewMode,
        exclusive: bool,
        truncate: bool,
    ) -> Result<Opened> {
        let spot = self.within(place)?;
        let _changing = self.walks.changing();
        let mode = mode.bits & !mode.umask & 0o777;
        let options = ChannelOptions {
            read: true,
            write: true,
            create: true,
            exclusive,
            truncate,
            mode,
            identity: None,
        };
        let (channel, attributes) = self.open_channel(&spot, None, &options)?;
        let attributes = self.entered(&spot, attributes, Some(channel.identity()));
        Ok(self.opened(&spot, channel, attributes))
    }

    fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let open = self.files.get(handle)?;
        let range = offset..offset.saturating_add(buffer.len() as u64);
        self.servers.ask(&open.node, || {
            open.shared.behind.settle_range(&range);
            open.writer.channel().read_at(buffer, offset)
        })
    }

    fn write(&self, handle: u64, bytes: &[u8], offset: u64, unprivileged: Option<Caller>) -> Result<()> {
        self.write_later(handle, bytes, None, offset, unprivileged).map(drop)
    }

    fn write_later(
        &self,
        handle: u64,
        bytes: &[u8],
        memory: Option<(SharedBytes, Range<usize>)>,
        offset: u64,
        unprivileged: Option<Caller>,
    ) -> Result<Option<Unsent>> {
        let open = self.writing(handle, unprivileged)?;
        let taken = self.tell_writer(&open, || match memory {
            Some((memory, range)) => open.writer.write_shared_later(memory, range, offset),
            None => open.writer.write_later(bytes, offset),
        });
        Ok(taken?.map(Unsent::Area))
    }

    fn append(&self, handle: u64, bytes: &[u8], unprivileged: Option<Caller>) -> Result<u64> {
        let open = self.writing(handle, unprivileged)?;
        let appended = self.ask_writer(&open, || {
            open.writer.settle_file()?;
            let channel = open.writer.channel();
            let end = channel.stat()?.size;
            channel.write_at(bytes, end).map(|()| end)
        });
        self.changed(open.inode);
        appended
    }

    fn flush(&self, handle: u64) -> Result<bool> {
        let open = self.files.get(handle)?;
        // Nothing is asked of a node for a file that has nothing in flight: closing it cannot fail.
        if !open.writer.is_idle() {
            self.ask_writer(&open, || open.writer.settle_closed())?;
        }
        Ok(open.take_changed())
    }

    fn sync(&self, handle: u64) -> Result<bool> {
        let open = self.files.get(handle)?;
        self.ask_writer(&open, || {
            open.writer.settle_file()?;
            open.writer.channel().sync()
        })?;
        Ok(open.take_changed())
    }

    fn release(&self, handle: u64) -> Result<()> {
        let open = self.files.remove(handle).ok_or(Error::from(Code::BadHandle))?;
        // A call under way keeps it; its end closes it. A node that is silent closes it by its lease.
        self.released(&open)
    }

    fn allocate(&self, handle: u64, range: Range<u64>, mode: Allocation, caller: Caller) -> Result<()> {
        if mode.zero {
            return Err(Error::new(Code::Unsupported, "zeroing a range: not in areas"));
        }
        if range.end > limits::FILE_BYTES_MAX {
            return Err(Code::TooLarge.into());
        }
        let open = self.writing(handle, (!keeps_set_id(caller)).then_some(caller))?;
        let allocated = self.ask_writer(&open, || {
            open.writer.settle_file()?;
            let channel = open.writer.channel();
            match channel.stat()?.size < range.end && !mode.keep_size {
                true => channel.set_length(range.end),
                false => Ok(()),
            }
        });
        self.changed(open.inode);
        allocated
    }

    fn seek(&self, handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>> {
        // All is data, with the one hole that every file ends in (lseek(2)).
        let size = self.with_settled(handle, Channel::stat)?.size;
        let found = if seek == Seek::Data { offset } else { size };
        Ok((offset < size).then_some(found))
    }

    fn open_directory(&self, _inode: InodeId) -> u64 {
        self.directories.insert(Listing::default())
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
        self.list(&listing, inode, cookie, wanted.with_attributes(), take)
    }

    fn release_directory(&self, handle: u64) {
        self.directories.remove(handle);
    }

    fn sync_directory(&self) -> Result<()> {
        // Names are with the node's file system, as those of its local programs.
        Ok(())
    }

    fn space(&self) -> Result<VolumeSpace> {
        // Each area lies on a file system of its own, so a sum of their space means nothing. The inodes in use are
        // those that the kernel knows at the moment.
        let inodes = self.table.lock().len() as u64;
        Ok(VolumeSpace { inodes, ..VolumeSpace::default() })
    }

    fn link(&self, inode: InodeId, place: Place<'_>) -> Result<Attributes> {
        let (from, to) = (self.spot(inode)?, self.within(place)?);
        if (&from.node, &from.area) != (&to.node, &to.area) {
            return Err(Error::new(Code::CrossDevice, "a name in another area: copy instead"));
        }
        let _changing = self.walks.changing();
        let (attributes, identity) = self.servers.ask_area(&to, |area| {
            // The kernel takes the size that comes back for the file's.
            self.files.settle(inode);
            area.link(&from.path, &to.path)
        })?;
        let same = self.table.lock().link(inode, &to, identity);
        Ok(match same {
            Some(inode) => Attributes { inode, ..attributes },
            None => self.entered(&to, attributes, Some(identity)),
        })
    }

    fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        xattrs::get(&self.servers, &*self.spot(inode)?, name)
    }

    fn set_xattr(
        &self,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        _clear_set_group: bool,
    ) -> Result<()> {
        self.change_xattrs(inode, |area, path| area.set_xattr(path, name, value, mode))
    }

    fn list_xattrs(&self, inode: InodeId, caller: Caller) -> Result<Vec<u8>> {
        xattrs::list(&self.servers, &*self.spot(inode)?, caller.uid)
    }

    fn remove_xattr(&self, inode: InodeId, name: &[u8]) -> Result<()> {
        self.change_xattrs(inode, |area, path| area.remove_xattr(path, name))
    }

    fn counts_names(&self) -> bool {
        true
    }

    fn forget(&self, forgotten: &mut dyn Iterator<Item = (InodeId, u64)>) {
        let mut table = self.table.lock();
        forgotten.for_each(|(inode, count)| table.forget(inode, count));
    }

    fn open_files(&self) -> usize {
        self.files.len()
    }

    fn begin_end(&self) {
        self.lost.begin();
        self.client.end_within(self.client.deadline());
    }

    fn end_within(&self, left: Duration) {
        self.client.end_within(left);
    }

    fn silent_servers(&self) -> Vec<(String, u64)> {
        self.client.silent_servers()
    }

    fn finish(&self) -> Vec<String> {
        self.begin_end();
        self.directories.drain();
        for open in self.files.drain() {
            // What is lost has been noted.
            let _ = self.released(&open);
        }
        let closed = self.client.clone().close();
        let mut lost = self.lost.take();
        lost.extend(closed.err().map(|error| error.to_string()));
        lost
    }
}
