//! From a path to an inode: one request for each stretch between symbolic links and `..` of link targets.

use crate::file::FreshInode;
use crate::{Client, Error, Result};
use std::collections::VecDeque;
use vazao_model::ids::ROOT;
use vazao_model::limits::{PATH_BYTES_MAX, SYMLINKS_FOLLOWED_MAX};
use vazao_model::{Attributes, Code, FileKind, InodeId, VolumePath};
use vazao_wire::{op, proto};

/// A walk under way.
struct Walk {
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

impl Client {
    /// The inode at a path; links in the middle are followed, one at the end only with `follow`.
    pub fn resolve(&self, path: &VolumePath, follow: bool) -> Result<Attributes> {
        let left = path.components().iter().cloned().collect();
        let walk = Walk { directory: ROOT, left, links_followed: 0 };
        self.walk(walk, follow).map_err(|e| Error::new(e.code, format!("vz:{path}")).because(&e))
    }

    fn walk(&self, mut walk: Walk, follow: bool) -> Result<Attributes> {
        loop {
            let Some(stop) = self.stretch(&mut walk)? else { return self.attributes(walk.directory) };
            let attributes = &stop.inode.attributes;
            let is_end = walk.left.is_empty();
            if attributes.kind == FileKind::Symlink && (!is_end || follow) {
                walk.enter_link(&stop.inode.contents.unwrap_or_default(), stop.parent)?;
            } else if is_end {
                return Ok(self.core.registry.merge(stop.inode.attributes, stop.asked_at));
            } else if attributes.kind != FileKind::Directory {
                return Err(Code::NotDirectory.into());
            } else {
                walk.directory = attributes.inode;
            }
        }
    }

    /// Walks as far as one request reaches. `None` when nothing was left to walk.
    fn stretch(&self, walk: &mut Walk) -> Result<Option<Stop>> {
        let asked_at = self.core.answers();
        if walk.left.front().is_some_and(|component| component == b"..") {
            walk.left.pop_front();
            let request = proto::LookupRequest { parent: walk.directory.0, name: b"..".to_vec(), seat: 0 };
            let inode = FreshInode::new(self.core.ask::<op::Lookup>(&request)?.inode, asked_at)?;
            return Ok(Some(Stop { inode, asked_at, parent: walk.directory }));
        }
        let components: Vec<Vec<u8>> =
            walk.left.iter().take_while(|component| *component != b"..").cloned().collect();
        if components.is_empty() {
            return Ok(None);
        }
        let request = proto::ResolveRequest { start: walk.directory.0, components };
        let response = self.core.ask::<op::Resolve>(&request)?;
        let walked = (response.walked as usize).clamp(1, request.components.len());
        walk.left.drain(..walked);
        let inode = FreshInode::new(response.inode, asked_at)?;
        Ok(Some(Stop { inode, asked_at, parent: InodeId(response.parent) }))
    }
}

impl Walk {
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
