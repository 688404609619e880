//! From a path to an inode: one request for each stretch between symbolic links and `..` of link targets.

use crate::file::FreshInode;
use crate::{Client, Result};
use std::collections::VecDeque;
use vazao_model::ids::ROOT;
use vazao_model::limits::{PATH_BYTES_MAX, SYMLINKS_FOLLOWED_MAX};
use vazao_model::{Attributes, Code, FileKind, InodeId, VolumePath};
use vazao_wire::{op, proto};

/// A walk under way.
pub(super) struct Walk<'a> {
    client: &'a Client,
    directory: InodeId,
    left: VecDeque<Vec<u8>>,
    links_followed: usize,
}

/// Where a stretch of a walk ended.
struct Stop {
    inode: FreshInode,
    asked_at: u64,
    parent: InodeId,
}

impl Walk<'_> {
    /// The walk from the root along a path.
    pub(super) fn new<'a>(client: &'a Client, path: &VolumePath) -> Walk<'a> {
        Walk { client, directory: ROOT, left: path.components().iter().cloned().collect(), links_followed: 0 }
    }

    /// Walks to the end; a link there is followed only with `follow`.
    pub(super) fn run(mut self, follow: bool) -> Result<Attributes> {
        loop {
            let Some(stop) = self.stretch()? else { return self.client.attributes(self.directory) };
            let attributes = &stop.inode.attributes;
            let is_end = self.left.is_empty();
            if attributes.kind == FileKind::Symlink && (!is_end || follow) {
                self.enter_link(&stop.inode.contents.unwrap_or_default(), stop.parent)?;
            } else if is_end {
                return Ok(self.client.core.registry.merge(stop.inode.attributes, stop.asked_at));
            } else if attributes.kind != FileKind::Directory {
                return Err(Code::NotDirectory.into());
            } else {
                self.directory = attributes.inode;
            }
        }
    }

    /// Walks as far as one request reaches. `None` when nothing was left to self.
    fn stretch(&mut self) -> Result<Option<Stop>> {
        let core = &self.client.core;
        let asked_at = core.answers();
        if self.left.front().is_some_and(|component| component == b"..") {
            self.left.pop_front();
            let request = proto::LookupRequest { parent: self.directory.0, name: b"..".to_vec(), seat: 0 };
            let inode = FreshInode::new(core.meta.ask::<op::Lookup>(&request)?.inode, asked_at)?;
            return Ok(Some(Stop { inode, asked_at, parent: self.directory }));
        }
        let components: Vec<Vec<u8>> =
            self.left.iter().take_while(|component| *component != b"..").cloned().collect();
        if components.is_empty() {
            return Ok(None);
        }
        let request = proto::ResolveRequest { start: self.directory.0, components };
        let response = core.meta.ask::<op::Resolve>(&request)?;
        let walked = (response.walked as usize).clamp(1, request.components.len());
        self.left.drain(..walked);
        let inode = FreshInode::new(response.inode, asked_at)?;
        Ok(Some(Stop { inode, asked_at, parent: InodeId(response.parent) }))
    }

    /// Goes on with a link's target, seen from the directory it lies in.
    fn enter_link(&mut self, target: &[u8], parent: InodeId) -> Result<()> {
        self.links_followed += 1;
        if self.links_followed > SYMLINKS_FOLLOWED_MAX {
            return Err(Code::Loop.into());
        }
        if target.len() > PATH_BYTES_MAX {
            return Err(Code::NameTooLong.into());
        }
        self.directory = if target.starts_with(b"/") { ROOT } else { parent };
        let parts = target.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".");
        for part in parts.rev() {
            self.left.push_front(part.to_vec());
        }
        Ok(())
    }
}
