//! Areas of other nodes: names, and channels into their files.
//!
//! An [`AreaClient`] speaks to one area of one node, straight, never through the metadata service, which only tells
//! where the node is. A [`Reference`] is a value of the client: the server knows nothing of it and nothing is sent when
//! one is made. A [`Channel`] is an open remote file.

mod channel;
mod lease;
mod nodes;
mod reference;
mod write_behind;

pub use channel::{Channel, ChannelOptions, PendingRead};
pub(crate) use nodes::Nodes;
pub use reference::{FileIdentity, Reference};
pub use write_behind::{Unsent, WriteBackTracker, WriteBehindBuffer, Writer};

use crate::{Client, RenameMode, Result, XattrMode};
use lease::Lease;
use std::sync::Arc;
use vazao_model::limits::AREA_BELOW_MAX;
use vazao_model::{AreaInfo, Attributes, Code, FileKind, Timestamp, origin};
use vazao_wire::{op, proto};

/// An entry of a directory of an area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AreaEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its inode on its own file system.
    pub inode: u64,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing continues after it.
    pub cookie: u64,
    /// Its attributes, where asked for.
    pub attributes: Option<Attributes>,
}

/// A page of a directory of an area, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AreaPage {
    /// Entries in the file system's order.
    pub entries: Vec<AreaEntry>,
    /// True when there are none after these.
    pub end: bool,
}

/// Changes of attributes; `None` leaves as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AreaChanges {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Length; cuts or extends with zeros.
    pub size: Option<u64>,
    /// Time of last read.
    pub accessed: Option<Timestamp>,
    /// Time of last change of contents.
    pub modified: Option<Timestamp>,
}

/// Space of the file system that an area lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AreaSpace {
    /// Its size.
    pub capacity_bytes: u64,
    /// What the daemon's user may still fill.
    pub available_bytes: u64,
}

/// One area of one node. Cheap to clone; usable from any number of threads.
#[derive(Clone)]
pub struct AreaClient {
    nodes: Arc<Nodes>,
    node: Arc<str>,
    area: Arc<str>,
    lease: Arc<Lease>,
}

impl std::fmt::Debug for AreaClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AreaClient({}:/{})", self.node, self.area)
    }
}

impl Client {
    /// The area `area` of the node `node`. Sends no request: an area that is not there fails when it is used.
    pub fn area(&self, node: &str, area: &str) -> AreaClient {
        let nodes = Arc::clone(&self.core.nodes);
        let lease = Arc::new(Lease::new(Arc::clone(&nodes), node));
        AreaClient { nodes, node: node.into(), area: area.into(), lease }
    }

    /// Writes to files of areas that are answered before their nodes have them: none so far.
    pub fn writes_behind(&self) -> Arc<WriteBackTracker> {
        Arc::new(WriteBackTracker::new(Arc::clone(&self.core.nodes)))
    }

    /// What a node exports.
    pub fn areas(&self, node: &str) -> Result<Vec<AreaInfo>> {
        let response = self.core.nodes.ask_node::<op::ListAreas>(node, &proto::ListAreasRequest {})?;
        Ok(response.areas.into_iter().map(AreaInfo::from).collect())
    }

    /// Where a node's daemon is: `host:port`. A name that the map does not have is looked for again.
    pub fn node_address(&self, node: &str) -> Result<String> {
        self.core.nodes.node_address(node, self.core.nodes.context.deadline_ns())
    }

    /// Asks a node for something that may be repeated, until it is answered or the deadline of calls has passed.
    pub fn ask_node<O: vazao_wire::Operation>(
        &self,
        node: &str,
        request: &O::Request,
    ) -> Result<O::Response> {
        self.core.nodes.ask_node::<O>(node, request)
    }

    /// What carries this client's requests.
    pub fn transport(&self) -> Arc<dyn vazao_wire::transport::Transport> {
        Arc::clone(&self.core.nodes.context.transport)
    }
}

impl AreaClient {
    /// A path of this area, to be kept or given to others.
    pub fn reference(&self, path: &[u8]) -> Reference {
        Reference::new(&self.node, &self.area, path)
    }

    /// The attributes of a path. A symbolic link at its end is followed where `follow` says so and it stays within the
    /// area.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Attributes> {
        self.stat_identified(path, follow).map(|(attributes, _)| attributes)
    }

    /// The same with what tells the file from later ones of its name.
    pub fn stat_identified(&self, path: &[u8], follow: bool) -> Result<(Attributes, FileIdentity)> {
        let (area, path) = (self.area.to_string(), path.to_vec());
        let request = proto::AreaStatRequest { area, path, follow, ..Default::default() };
        let response = self.ask::<op::AreaStat>(&request)?;
        let identity = response.identity.unwrap_or_default().into();
        Ok((attributes(response.attributes)?, identity))
    }

    /// The attributes of a directory, and of those further down that `below` leads through, as far as they are there:
    /// at most [`AREA_BELOW_MAX`](vazao_model::limits::AREA_BELOW_MAX), and none from a node of an older version.
    pub fn stat_below(&self, path: &[u8], below: &[u8]) -> Result<(Attributes, Vec<Attributes>)> {
        let (area, path, below) = (self.area.to_string(), path.to_vec(), below.to_vec());
        let request = proto::AreaStatRequest { area, path, follow: false, below };
        let response = self.ask::<op::AreaStat>(&request)?;
        let below = response.below.into_iter().take(AREA_BELOW_MAX).map(|found| attributes(Some(found)));
        Ok((attributes(response.attributes)?, below.collect::<Result<_>>()?))
    }

    /// A page of a directory, from `cookie` on; 0 begins.
    pub fn list(&self, path: &[u8], cookie: u64, limit: u32, with_attributes: bool) -> Result<AreaPage> {
        let (area, path) = (self.area.to_string(), path.to_vec());
        let request = proto::AreaListRequest { area, path, cookie, limit, with_attributes };
        let response = self.ask::<op::AreaList>(&request)?;
        let entries = response.entries.into_iter().map(entry).collect::<Result<_>>()?;
        Ok(AreaPage { entries, end: response.end })
    }

    /// Makes a directory. The node's own umask applies.
    pub fn make_directory(&self, path: &[u8], mode: u32) -> Result<Attributes> {
        let (area, path, nonce) = (self.area.to_string(), path.to_vec(), self.nodes.nonce());
        let request = proto::AreaMakeDirectoryRequest { area, path, mode, nonce };
        attributes(self.ask::<op::AreaMakeDirectory>(&request)?.attributes)
    }

    /// Removes a file, a link or whatever else is no directory.
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        self.remove_kind(path, false)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &[u8]) -> Result<()> {
        self.remove_kind(path, true)
    }

    fn remove_kind(&self, path: &[u8], directory: bool) -> Result<()> {
        let (area, path, nonce) = (self.area.to_string(), path.to_vec(), self.nodes.nonce());
        let request = proto::AreaRemoveRequest { area, path, directory, nonce };
        self.ask::<op::AreaRemove>(&request).map(drop)
    }

    /// Gives a file or directory a new name within the area.
    pub fn rename(&self, path: &[u8], new_path: &[u8], mode: RenameMode) -> Result<()> {
        let request = proto::AreaRenameRequest {
            area: self.area.to_string(),
            path: path.to_vec(),
            new_path: new_path.to_vec(),
            mode: match mode {
                RenameMode::Replace => 0,
                RenameMode::NoReplace => 1,
                RenameMode::Exchange => 2,
            },
            nonce: self.nodes.nonce(),
        };
        self.ask::<op::AreaRename>(&request).map(drop)
    }

    /// Gives what lies at a path a further name within the area. Returns its attributes, and what tells it from others.
    pub fn link(&self, path: &[u8], new_path: &[u8]) -> Result<(Attributes, FileIdentity)> {
        let (area, path, new_path) = (self.area.to_string(), path.to_vec(), new_path.to_vec());
        let request = proto::AreaLinkRequest { area, path, new_path, nonce: self.nodes.nonce() };
        let response = self.ask::<op::AreaLink>(&request)?;
        let identity = response.identity.unwrap_or_default().into();
        Ok((attributes(response.attributes)?, identity))
    }

    /// An extended attribute, of a symbolic link itself where the path ends in one.
    pub fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        let (area, path, name) = (self.area.to_string(), path.to_vec(), name.to_vec());
        Ok(self.ask::<op::AreaGetXattr>(&proto::AreaGetXattrRequest { area, path, name })?.value)
    }

    /// What a path leads to, links followed, under the name that all ways to it give ([`vazao_model::origin`]).
    pub fn origin(&self, path: &[u8]) -> Result<Vec<u8>> {
        match self.get_xattr(path, origin::ATTRIBUTE) {
            Err(error) if matches!(error.code, Code::Unsupported | Code::NoAttribute) => {
                let (_, identity) = self.stat_identified(path, true)?;
                Ok(origin::of_node(&self.node, identity.device, identity.inode))
            }
            other => other,
        }
    }

    /// Sets an extended attribute, if the daemon's user may.
    pub fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let request = proto::AreaSetXattrRequest {
            area: self.area.to_string(),
            path: path.to_vec(),
            name: name.to_vec(),
            value: value.to_vec(),
            mode: match mode {
                XattrMode::Either => 0,
                XattrMode::Create => 1,
                XattrMode::Replace => 2,
            },
            nonce: self.nodes.nonce(),
        };
        self.ask::<op::AreaSetXattr>(&request).map(drop)
    }

    /// The names of all extended attributes that the daemon's user sees.
    pub fn list_xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let request = proto::AreaListXattrsRequest { area: self.area.to_string(), path: path.to_vec() };
        Ok(self.ask::<op::AreaListXattrs>(&request)?.names)
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, path: &[u8], name: &[u8]) -> Result<()> {
        let (area, path, name) = (self.area.to_string(), path.to_vec(), name.to_vec());
        let nonce = self.nodes.nonce();
        let request = proto::AreaRemoveXattrRequest { area, path, name, nonce };
        self.ask::<op::AreaRemoveXattr>(&request).map(drop)
    }

    /// Where a symbolic link points.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let request = proto::AreaReadLinkRequest { area: self.area.to_string(), path: path.to_vec() };
        Ok(self.ask::<op::AreaReadLink>(&request)?.target)
    }

    /// Makes a symbolic link. It may point anywhere, but is only followed within the area.
    pub fn symlink(&self, path: &[u8], target: &[u8]) -> Result<Attributes> {
        let (area, path, nonce) = (self.area.to_string(), path.to_vec(), self.nodes.nonce());
        let request = proto::AreaSymlinkRequest { area, path, target: target.to_vec(), nonce };
        attributes(self.ask::<op::AreaSymlink>(&request)?.attributes)
    }

    /// Changes attributes. A symbolic link at the end of the path is not followed.
    pub fn set_attributes(&self, path: &[u8], changes: &AreaChanges) -> Result<Attributes> {
        let request = proto::AreaSetAttributesRequest {
            area: self.area.to_string(),
            path: path.to_vec(),
            mode: changes.mode,
            size: changes.size,
            accessed: changes.accessed.map(Into::into),
            modified: changes.modified.map(Into::into),
        };
        attributes(self.ask::<op::AreaSetAttributes>(&request)?.attributes)
    }

    /// Space of the file system that the area lies on.
    pub fn space(&self) -> Result<AreaSpace> {
        let response = self.ask::<op::AreaSpace>(&proto::AreaSpaceRequest { area: self.area.to_string() })?;
        let proto::AreaSpaceResponse { capacity_bytes, available_bytes } = response;
        Ok(AreaSpace { capacity_bytes, available_bytes })
    }

    /// Opens a file for random access.
    pub fn open(&self, path: &[u8], options: &ChannelOptions) -> Result<Channel> {
        Channel::open(self.clone(), path, options)
    }

    /// Keeps the channels open; only for clients without a thread of their own, every
    /// [`vazao_model::limits::CHANNEL_LEASE_MS`] / 4 or sooner.
    pub fn tick(&self) -> Result<()> {
        self.lease.renew()
    }

    fn ask<O: vazao_wire::Operation>(&self, request: &O::Request) -> Result<O::Response> {
        self.nodes.ask_node::<O>(&self.node, request)
    }
}

fn attributes(attributes: Option<proto::Attributes>) -> Result<Attributes> {
    Ok(Attributes::try_from(attributes.unwrap_or_default())?)
}

fn entry(entry: proto::DirectoryEntry) -> Result<AreaEntry> {
    Ok(AreaEntry {
        kind: FileKind::from_number(entry.kind).unwrap_or_default(),
        name: entry.name,
        inode: entry.inode,
        cookie: entry.cookie,
        attributes: entry.attributes.map(Attributes::try_from).transpose()?,
    })
}
