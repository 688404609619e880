//! The side of areas: files of other nodes, by channels. Paths are whole references, `NODE:/AREA/path`.

use super::tree::{Found, Identity, Origin, Owner, Sink, Source, Tree, up};
use crate::failure::{Failure, Outcome};
use crate::location::place::at;
use crate::location::show;
use std::hash::{DefaultHasher, Hash, Hasher};
use vazao_client::area::{AreaChanges, AreaClient, Channel, ChannelOptions, Reference};
use vazao_client::{Client, RenameMode};
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Code, FileKind};

/// A write goes in several requests at once: before the end of what has arrived so much may be missing.
const UNSURE_BYTES: u64 = 1 << 20;

/// Files of areas.
pub(crate) struct AreaTree {
    client: Client,
}

impl AreaTree {
    /// The areas that `client` reaches.
    pub(crate) fn new(client: Client) -> AreaTree {
        AreaTree { client }
    }

    fn named(&self, path: &[u8]) -> Outcome<(AreaClient, Reference)> {
        let reference = Reference::parse(path)?;
        Ok((self.client.area(&reference.node, &reference.area), reference))
    }

    fn on<T>(
        &self,
        path: &[u8],
        work: impl FnOnce(&AreaClient, &[u8]) -> vazao_client::Result<T>,
    ) -> Outcome<T> {
        let (area, reference) = self.named(path)?;
        at(&reference, work(&area, &reference.path))
    }
}

/// Inodes of two nodes may have the same numbers.
fn number_of(node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    hasher.finish()
}

impl Tree for AreaTree {
    fn find(&self, path: &[u8], follow: bool) -> Outcome<Option<Found>> {
        let (area, reference) = self.named(path)?;
        let (a, identity) = match area.stat_identified(&reference.path, follow) {
            // An area that is not there is an error; a path in one is not.
            Err(error) if error.code == Code::NotFound && area.stat(b"", true).is_ok() => return Ok(None),
            other => at(&reference, other)?,
        };
        Ok(Some(Found {
            identity: Identity::Area(number_of(&reference.node), identity.device, identity.inode),
            kind: a.kind,
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            accessed: a.accessed,
            modified: a.modified,
        }))
    }

    fn origin(&self, path: &[u8]) -> Outcome<Option<Origin>> {
        let (area, reference) = self.named(path)?;
        match area.origin(&reference.path) {
            Err(error) if error.code == Code::NotFound && area.stat(b"", true).is_ok() => Ok(None),
            other => at(&reference, other).map(Some),
        }
    }

    fn above(&self, path: &[u8]) -> Outcome<Option<Vec<u8>>> {
        // What is above an area's root is its node's own.
        Ok(up(path, 1))
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Vec<Vec<u8>>) -> Outcome) -> Outcome {
        let mut cookie = 0;
        loop {
            let page = self.on(path, |area, path| area.list(path, cookie, LIST_ENTRIES_MAX, false))?;
            let last = page.entries.last().map(|entry| entry.cookie);
            each(page.entries.into_iter().map(|entry| entry.name).collect())?;
            match last {
                Some(last) if !page.end => cookie = last,
                _ => return Ok(()),
            }
        }
    }

    fn real_path(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        let why = "is a symbolic link; name the file that it leads to, or remove it";
        Err(Failure::new(format!("{}: {why}", self.show(path))))
    }

    fn read_link(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        self.on(path, |area, path| area.read_link(path))
    }

    fn open(&self, path: &[u8]) -> Outcome<Box<dyn Source>> {
        let channel = self.on(path, |area, path| area.open(path, &ChannelOptions::default()))?;
        let (_, reference) = self.named(path)?;
        Ok(Box::new(AreaFile { channel, reference }))
    }

    fn create(&self, path: &[u8], mode: u32) -> Outcome<Box<dyn Sink>> {
        let options =
            ChannelOptions { write: true, create: true, exclusive: true, mode, ..ChannelOptions::default() };
        let channel = self.on(path, |area, path| area.open(path, &options))?;
        let (_, reference) = self.named(path)?;
        Ok(Box::new(AreaFile { channel, reference }))
    }

    fn reopen(&self, path: &[u8]) -> Outcome<Option<(Box<dyn Sink>, u64)>> {
        let Some(found) = self.find(path, false)? else { return Ok(None) };
        let options = ChannelOptions { write: true, ..ChannelOptions::default() };
        let channel = self.on(path, |area, path| area.open(path, &options))?;
        let (_, reference) = self.named(path)?;
        Ok(Some((Box::new(AreaFile { channel, reference }), found.size.saturating_sub(UNSURE_BYTES))))
    }

    fn open_stream(&self, path: &[u8]) -> Outcome<Box<dyn Sink>> {
        let why = "fifos and devices of other nodes are not written into";
        Err(Failure::new(format!("{}: {why}", self.show(path))))
    }

    fn make_directory(&self, path: &[u8], mode: u32) -> Outcome {
        let (area, reference) = self.named(path)?;
        match area.make_directory(&reference.path, mode) {
            Err(error) if error.code == Code::Exists => {
                let there = at(&reference, area.stat(&reference.path, true))?;
                match there.kind {
                    FileKind::Directory => Ok(()),
                    _ => at(&reference, Err(error)),
                }
            }
            other => at(&reference, other).map(drop),
        }
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Outcome {
        self.on(path, |area, path| area.symlink(path, target)).map(drop)
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Outcome {
        let (_, to) = self.named(to)?;
        let (area, from) = self.named(from)?;
        at(&to, area.rename(&from.path, &to.path, RenameMode::Replace))
    }

    fn remove(&self, path: &[u8]) -> Outcome {
        self.on(path, |area, path| area.remove(path))
    }

    fn may_write(&self, _path: &[u8], _there: &Found) -> bool {
        // The node's daemon acts as its own user, and says so itself.
        true
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> Outcome {
        let changes = AreaChanges { mode: Some(mode), ..AreaChanges::default() };
        self.on(path, |area, path| area.set_attributes(path, &changes)).map(drop)
    }

    fn set_owner(&self, _path: &[u8], _like: &Found) -> Outcome<Owner> {
        Ok(Owner::Refused)
    }

    fn set_times(&self, path: &[u8], like: &Found) -> Outcome {
        let changes = AreaChanges {
            accessed: Some(like.accessed),
            modified: Some(like.modified),
            ..AreaChanges::default()
        };
        self.on(path, |area, path| area.set_attributes(path, &changes)).map(drop)
    }

    fn show(&self, path: &[u8]) -> String {
        show(path)
    }
}

/// An open file of an area.
struct AreaFile {
    channel: Channel,
    reference: Reference,
}

impl Source for AreaFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Outcome<usize> {
        at(&self.reference, self.channel.read_at(buffer, offset))
    }

    fn length(&self) -> Outcome<u64> {
        Ok(at(&self.reference, self.channel.stat())?.size)
    }

    fn next_data(&self, offset: u64) -> Outcome<Option<(u64, u64)>> {
        Ok(Some((offset, u64::MAX)))
    }

    fn may_hide_holes(&self) -> bool {
        true
    }
}

impl Sink for AreaFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Outcome {
        at(&self.reference, self.channel.write_at(bytes, offset))
    }

    fn finish(self: Box<Self>, length: u64) -> Outcome {
        let AreaFile { channel, reference } = *self;
        if at(&reference, channel.stat())?.size != length {
            at(&reference, channel.set_length(length))?;
        }
        at(&reference, channel.sync())?;
        at(&reference, channel.close())
    }
}
