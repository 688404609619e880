//! The areas of all nodes as one tree: `/NODE/AREA/path…`.
//!
//! The two upper levels come from the cluster's map and cannot be changed; below, each request goes to the node that
//! has the area, files by channels. What the kernel may believe of attributes and names it believes for [`LEASE`]; what
//! others change is seen after that, and at each open. A node that does not answer is not asked again for a moment, so
//! that it gives errors for its own subtree and holds up nobody else. `docs/semantics.md` says what users are promised.

mod patience;
mod table;

use crate::door::{Allocation, Caller, NewMode, Opened, Place};
use crate::filesystem::FileSystem;
use crate::handles::Handles;
use patience::Patience;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use table::{Spot, Table};
use vazao_client::area::{AreaChanges, AreaClient, Channel, ChannelOptions};
use vazao_client::{
    Asked, Changes, Client, Entry, Error, OpenMode, RenameMode, Result, Seek, SetTime, VolumeSpace,
};
use vazao_meter::Clock;
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Attributes, Code, FileKind, InodeId, Timestamp, limits};

/// How long the kernel may believe names and attributes: local programs of the nodes change them without a word.
const LEASE: Duration = Duration::from_secs(1);

/// Cookies of entries begin behind those of `.` and `..`.
const DOTS: u64 = 2;

struct OpenFile {
    node: String,
    channel: Channel,
    /// Something was written since the last flush.
    is_changed: AtomicBool,
}

/// A directory as it was when it was begun to be read.
#[derive(Default)]
struct Snapshot {
    entries: Mutex<Option<Vec<Entry>>>,
}

/// All areas as a file system.
pub(crate) struct Areas {
    client: Client,
    clock: Arc<dyn Clock>,
    root: InodeId,
    table: Mutex<Table>,
    clients: Mutex<HashMap<(String, String), AreaClient>>,
    patience: Patience,
    files: Handles<OpenFile>,
    directories: Handles<Snapshot>,
    born: Timestamp,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            client,
            clock,
            root,
            table: Mutex::new(Table::new(root)),
            clients: Mutex::default(),
            patience: Patience::default(),
            files: Handles::new(),
            directories: Handles::new(),
            born: Timestamp { seconds, nanoseconds },
        }
    }

    fn spot(&self, inode: InodeId) -> Result<Spot> {
        locked(&self.table).spot(inode).ok_or_else(|| Code::NotFound.into())
    }

    /// A place in an area, where changes may be made.
    fn within(&self, place: Place<'_>) -> Result<Spot> {
        let directory = self.spot(place.directory)?;
        match directory.area.is_empty() {
            true => Err(fixed(&String::from_utf8_lossy(place.name))),
            false => Ok(directory.below(place.name)),
        }
    }

    fn area(&self, spot: &Spot) -> AreaClient {
        let mut clients = locked(&self.clients);
        let key = (spot.node.clone(), spot.area.clone());
        clients.entry(key).or_insert_with(|| self.client.area(&spot.node, &spot.area)).clone()
    }

    /// Asks a node, unless it is silent.
    fn ask<T>(&self, node: &str, question: impl FnOnce() -> Result<T>) -> Result<T> {
        self.patience.ask(&*self.clock, node, question)
    }

    fn ask_area<T>(&self, spot: &Spot, question: impl FnOnce(&AreaClient) -> Result<T>) -> Result<T> {
        let area = self.area(spot);
        self.ask(&spot.node, || question(&area))
    }

    /// What a place is shown as: with the tree's own number.
    fn shown(&self, spot: &Spot, attributes: Attributes) -> Attributes {
        let inode = locked(&self.table).number(spot);
        Attributes { inode, without_xattrs: true, ..attributes }
    }

    /// The root or a node.
    fn upper(&self, spot: &Spot) -> Attributes {
        let inode = locked(&self.table).number(spot);
        let uid = rustix::process::getuid().as_raw();
        Attributes {
            inode,
            kind: FileKind::Directory,
            mode: 0o555,
            uid,
            gid: rustix::process::getgid().as_raw(),
            links: 2,
            accessed: self.born,
            modified: self.born,
            changed: self.born,
            without_xattrs: true,
            ..Attributes::default()
        }
    }

    fn stat(&self, spot: &Spot) -> Result<Attributes> {
        if spot.area.is_empty() {
            return Ok(self.upper(spot));
        }
        let attributes = self.ask_area(spot, |area| area.stat(&spot.path, false))?;
        Ok(self.shown(spot, attributes))
    }

    /// The places in the root or in a node, by the cluster's map.
    fn upper_names(&self, spot: &Spot) -> Vec<Spot> {
        // An older map has to do where the metadata service does not answer.
        let map = self.client.refresh_map().unwrap_or_else(|_| self.client.map());
        let of_node = |node: &vazao_model::Node| match spot.node.is_empty() {
            true => vec![Spot { node: node.name.clone(), ..Spot::default() }],
            false => {
                let place = |area: &str| Spot { area: area.to_owned(), ..spot.clone() };
                node.areas.iter().map(|area| place(&area.name)).collect()
            }
        };
        let wanted = |node: &&vazao_model::Node| match spot.node.is_empty() {
            true => !node.areas.is_empty(),
            false => node.name == spot.node,
        };
        map.nodes.iter().filter(wanted).flat_map(of_node).collect()
    }

    fn upper_lookup(&self, directory: &Spot, name: &[u8]) -> Result<Attributes> {
        let last = |spot: &Spot| if spot.area.is_empty() { spot.node.clone() } else { spot.area.clone() };
        let found = self.upper_names(directory).into_iter().find(|spot| last(spot).as_bytes() == name);
        self.stat(&found.ok_or(Error::from(Code::NotFound))?)
    }

    /// All entries of a directory.
    fn entries(&self, spot: &Spot) -> Result<Vec<Entry>> {
        if spot.area.is_empty() {
            let listed = self.upper_names(spot).into_iter().map(|below| {
                let name = if below.area.is_empty() { &below.node } else { &below.area };
                // An area's own attributes are asked for when it is looked at: its node may be silent.
                let attributes = below.area.is_empty().then(|| self.upper(&below));
                let inode = locked(&self.table).number(&below);
                let name = name.clone().into_bytes();
                Entry { name, inode, kind: FileKind::Directory, cookie: 0, attributes }
            });
            return Ok(listed.collect());
        }
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.ask_area(spot, |area| area.list(&spot.path, cookie, LIST_ENTRIES_MAX, true))?;
            let last = page.entries.last().map(|entry| entry.cookie);
            for listed in page.entries {
                let below = spot.below(&listed.name);
                let inode = locked(&self.table).number(&below);
                let attributes = listed.attributes.map(|attributes| self.shown(&below, attributes));
                entries.push(Entry { name: listed.name, inode, kind: listed.kind, cookie: 0, attributes });
            }
            match last {
                Some(last) if !page.end && last != cookie => cookie = last,
                _ => return Ok(entries),
            }
        }
    }

    fn file(&self, handle: u64) -> Result<Arc<OpenFile>> {
        self.files.get(handle).ok_or_else(|| Code::BadHandle.into())
    }

    fn with_file<T>(&self, handle: u64, work: impl FnOnce(&Channel) -> Result<T>) -> Result<T> {
        let open = self.file(handle)?;
        self.ask(&open.node, || work(&open.channel))
    }

    fn changing<T>(&self, handle: u64, work: impl FnOnce(&Channel) -> Result<T>) -> Result<T> {
        self.file(handle)?.is_changed.store(true, Ordering::Relaxed);
        self.with_file(handle, work)
    }

    fn open_channel(&self, spot: &Spot, options: &ChannelOptions) -> Result<Opened> {
        let channel = self.ask_area(spot, |area| area.open(&spot.path, options))?;
        let attributes = self.ask(&spot.node, || channel.stat())?;
        let open = OpenFile { node: spot.node.clone(), channel, is_changed: AtomicBool::new(false) };
        Ok(Opened { handle: self.files.insert(open), attributes: self.shown(spot, attributes) })
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
        let directory = self.spot(place.directory)?;
        if directory.area.is_empty() {
            return self.upper_lookup(&directory, place.name);
        }
        let spot = directory.below(place.name);
        let found = self.stat(&spot);
        if found.as_ref().is_err_and(|error| error.code == Code::NotFound) {
            locked(&self.table).removed(&spot);
        }
        found
    }

    fn attributes(&self, inode: InodeId, handle: Option<u64>) -> Result<Attributes> {
        match handle.filter(|&handle| self.files.get(handle).is_some()) {
            Some(handle) => {
                let attributes = self.with_file(handle, Channel::stat)?;
                Ok(Attributes { inode, without_xattrs: true, ..attributes })
            }
            None => self.stat(&self.spot(inode)?),
        }
    }

    fn set_attributes(&self, inode: InodeId, changes: &Changes, _clear: bool) -> Result<Attributes> {
        let spot = self.spot(inode)?;
        if spot.area.is_empty() {
            return Err(fixed("changing attributes"));
        }
        let now = self.stat(&spot)?;
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
        let attributes = self.ask_area(&spot, |area| area.set_attributes(&spot.path, &changes))?;
        Ok(self.shown(&spot, attributes))
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let spot = self.spot(inode)?;
        self.ask_area(&spot, |area| area.read_link(&spot.path))
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
        let bits = mode.bits & !mode.umask;
        let attributes = match kind {
            FileKind::Directory => self.ask_area(&spot, |area| area.make_directory(&spot.path, bits))?,
            FileKind::Symlink => self.ask_area(&spot, |area| area.symlink(&spot.path, contents))?,
            FileKind::File => {
                let Opened { handle, attributes } = self.create_file(place, caller, mode, true, false)?;
                self.release(handle)?;
                attributes
            }
            _ => return Err(Error::new(Code::Unsupported, "devices, pipes and sockets: not in areas")),
        };
        Ok(self.shown(&spot, attributes))
    }

    fn unlink(&self, place: Place<'_>) -> Result<()> {
        let spot = self.within(place)?;
        self.ask_area(&spot, |area| area.remove(&spot.path))?;
        locked(&self.table).removed(&spot);
        Ok(())
    }

    fn remove_directory(&self, place: Place<'_>) -> Result<()> {
        let spot = self.within(place)?;
        self.ask_area(&spot, |area| area.remove_directory(&spot.path))?;
        locked(&self.table).removed(&spot);
        Ok(())
    }

    fn rename(&self, from: Place<'_>, to: Place<'_>, mode: RenameMode) -> Result<()> {
        let (from, to) = (self.within(from)?, self.within(to)?);
        if (&from.node, &from.area) != (&to.node, &to.area) {
            return Err(Error::new(Code::CrossDevice, "from one area to another: copy and remove"));
        }
        self.ask_area(&from, |area| area.rename(&from.path, &to.path, mode))?;
        locked(&self.table).renamed(&from, &to, mode == RenameMode::Exchange);
        Ok(())
    }

    fn open(&self, inode: InodeId, mode: OpenMode) -> Result<Opened> {
        let spot = self.spot(inode)?;
        // The kernel reads the rest of a page that is written in part.
        let both = ChannelOptions { read: true, write: mode.write, ..ChannelOptions::default() };
        match self.open_channel(&spot, &both) {
            Err(error) if error.code == Code::AccessDenied && mode.write && !mode.read => {
                self.open_channel(&spot, &ChannelOptions { read: false, ..both })
            }
            other => other,
        }
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
        self.open_channel(&spot, &options)
    }

    fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.with_file(handle, |channel| channel.read_at(buffer, offset))
    }

    fn write(&self, handle: u64, bytes: &[u8], offset: u64, _clear_set_id: bool) -> Result<()> {
        self.changing(handle, |channel| channel.write_at(bytes, offset))
    }

    fn append(&self, handle: u64, bytes: &[u8], _clear_set_id: bool) -> Result<u64> {
        self.changing(handle, |channel| {
            let end = channel.stat()?.size;
            channel.write_at(bytes, end).map(|()| end)
        })
    }

    fn flush(&self, handle: u64) -> Result<bool> {
        // What was written is with the node already.
        Ok(self.file(handle)?.is_changed.swap(false, Ordering::Relaxed))
    }

    fn sync(&self, handle: u64) -> Result<bool> {
        self.with_file(handle, Channel::sync)?;
        self.flush(handle)
    }

    fn release(&self, handle: u64) -> Result<()> {
        let open = self.files.remove(handle).ok_or(Error::from(Code::BadHandle))?;
        // A call under way keeps it; its end closes it. A node that is silent closes it by its lease.
        drop(open);
        Ok(())
    }

    fn allocate(&self, handle: u64, range: Range<u64>, mode: Allocation) -> Result<()> {
        if mode.zero {
            return Err(Error::new(Code::Unsupported, "zeroing a range: not in areas"));
        }
        if range.end > limits::FILE_BYTES_MAX {
            return Err(Code::TooLarge.into());
        }
        self.changing(handle, |channel| match channel.stat()?.size < range.end && !mode.keep_size {
            true => channel.set_length(range.end),
            false => Ok(()),
        })
    }

    fn seek(&self, handle: u64, seek: Seek, offset: u64) -> Result<Option<u64>> {
        // All is data, with the one hole that every file ends in (lseek(2)).
        let size = self.with_file(handle, Channel::stat)?.size;
        let found = if seek == Seek::Data { offset } else { size };
        Ok((offset < size).then_some(found))
    }

    fn open_directory(&self, _inode: InodeId) -> u64 {
        self.directories.insert(Snapshot::default())
    }

    fn read_directory(
        &self,
        inode: InodeId,
        handle: u64,
        cookie: u64,
        _with_attributes: bool,
        take: &mut dyn FnMut(&Entry, Asked) -> bool,
    ) -> Result<()> {
        let snapshot = self.directories.get(handle).ok_or(Error::from(Code::BadHandle))?;
        let asked = self.client.asked();
        let mut entries = locked(&snapshot.entries);
        if cookie == 0 || entries.is_none() {
            *entries = Some(self.with_dots(inode)?);
        }
        let listed = entries.iter().flatten().enumerate();
        for (at, entry) in listed.skip(usize::try_from(cookie).unwrap_or(usize::MAX)) {
            if !take(&Entry { cookie: at as u64 + 1, ..entry.clone() }, asked) {
                break;
            }
        }
        Ok(())
    }

    fn release_directory(&self, handle: u64) {
        self.directories.remove(handle);
    }

    fn sync_directory(&self) -> Result<()> {
        // Names are with the node's file system, as those of its local programs.
        Ok(())
    }

    fn space(&self) -> Result<VolumeSpace> {
        // Each area lies on a file system of its own; a sum of them would be nobody's space.
        Ok(VolumeSpace::default())
    }

    fn finish(&self) -> Result<()> {
        self.directories.drain();
        self.files.drain();
        self.client.clone().close()
    }
}

impl Areas {
    /// The entries of a directory with `.` and `..` before them.
    fn with_dots(&self, inode: InodeId) -> Result<Vec<Entry>> {
        let spot = self.spot(inode)?;
        let mut parent = spot.clone();
        match (parent.path.iter().rposition(|&byte| byte == b'/'), parent.path.is_empty()) {
            (Some(slash), _) => parent.path.truncate(slash),
            (None, false) => parent.path.clear(),
            (None, true) if !parent.area.is_empty() => parent.area.clear(),
            (None, true) => parent.node.clear(),
        }
        let above = if inode == self.root { self.root } else { locked(&self.table).number(&parent) };
        let dot = |name: &[u8], inode| Entry {
            name: name.to_vec(),
            inode,
            kind: FileKind::Directory,
            cookie: 0,
            attributes: None,
        };
        let mut entries = Vec::with_capacity(DOTS as usize);
        entries.extend([dot(b".", inode), dot(b"..", above)]);
        entries.extend(self.entries(&spot)?);
        Ok(entries)
    }
}
