//! Metadata cache fills from answers, and lookups without a request.

use crate::call::settle;
use crate::core::Core;
use crate::metadata_cache::{Change, Thing};
use crate::{Asked, Client, Error, Result};
use std::time::Duration;
use vazao_model::limits::{CACHE_LEASE_MS, NAME_BYTES_MAX};
use vazao_model::{Attributes, Code, FileKind, InodeId, Timestamp};
use vazao_wire::{op, proto};

/// A directory known whole is asked about when less than this is left of its lease.
const WHOLE_RENEWED_BEFORE: Duration = Duration::from_millis(CACHE_LEASE_MS as u64 / 3);

/// False for names that every directory has, and for those that none can have: these are the service's to refuse.
fn is_entry(name: &[u8]) -> bool {
    !matches!(name, b"." | b"..") && name.len() <= NAME_BYTES_MAX
}

/// A name that is being created or removed.
pub(crate) struct Naming {
    parent: InodeId,
    name: Vec<u8>,
    is_directory: bool,
    asked: Asked,
    change: Change,
}

fn attributes_of(inode: Option<&proto::Inode>) -> Option<Attributes> {
    inode?.attributes?.try_into().ok()
}

fn time_of(time: Option<&proto::Timestamp>) -> Option<Timestamp> {
    time.cloned().map(Timestamp::from)
}

impl Core {
    /// Without an interest bit (seat) no entry would be valid, so none is kept.
    fn caches(&self) -> bool {
        self.seat() != 0
    }

    /// Takes over what an answer has shown of an inode.
    pub(crate) fn cache_inode(&self, asked: Asked, inode: Option<&proto::Inode>) -> Option<InodeId> {
        let attributes = attributes_of(inode).filter(|_| self.caches())?;
        self.cache_attributes(asked, &attributes);
        Some(attributes.inode)
    }

    fn cache_attributes(&self, asked: Asked, attributes: &Attributes) {
        self.cache.cache_attributes(asked, attributes);
        // An invalidation by another client ends it for good: a later time of this client's own hides it.
        if attributes.kind == FileKind::Directory
            && let Some(since) = self.cache.whole_if_own(attributes)
            && !self.has_changed(since, attributes.inode)
        {
            self.cache.renew_whole(asked, attributes.inode);
        }
    }

    /// A name has come to a directory or gone from it by this client. Where it cannot be said that no other client has
    /// changed it before, it is not whole any more.
    fn change_whole(&self, parent: InodeId, name: &[u8], is_there: bool, time: Option<Timestamp>) {
        let Some(since) = self.cache.whole_since(parent) else { return };
        if self.is_believable(since, parent, &[]) {
            self.cache.change_whole(parent, name, is_there, time);
        } else {
            self.cache.forget_whole(parent);
        }
    }

    /// True when a directory known whole ought to be asked about, while it still is: only an answer renews that.
    fn is_whole_for_little_longer(&self, directory: InodeId) -> bool {
        let Some(since) = self.cache.whole_since(directory) else { return false };
        let left = self.believable_for(since, directory, &[]);
        left > Duration::ZERO && left < WHOLE_RENEWED_BEFORE
    }

    fn cache_entry(&self, asked: Asked, parent: InodeId, name: &[u8], inode: Option<&proto::Inode>) {
        if let Some(leads) = self.cache_inode(asked, inode) {
            self.cache.cache_name(asked, parent, name, Some(leads));
        }
    }

    /// Takes over what a lookup has shown.
    pub(crate) fn cache_lookup(
        &self,
        asked: Asked,
        parent: InodeId,
        name: &[u8],
        answer: &Result<proto::LookupResponse>,
    ) {
        if !self.caches() || !is_entry(name) {
            return;
        }
        match answer {
            Ok(response) => self.cache_entry(asked, parent, name, response.inode.as_ref()),
            Err(error) if error.code == Code::NotFound => self.cache.cache_name(asked, parent, name, None),
            Err(_) => {}
        }
    }

    /// Caches what a listing with attributes has shown; without them the service keeps no interest.
    pub(crate) fn cache_listing(&self, asked: Asked, directory: InodeId, response: &proto::ListResponse) {
        if !self.caches() {
            return;
        }
        for entry in &response.entries {
            let attributes = entry.attributes.and_then(|shown| Attributes::try_from(shown).ok());
            if let Some(attributes) = attributes {
                self.cache_attributes(asked, &attributes);
                self.cache.cache_name(asked, directory, &entry.name, Some(attributes.inode));
            }
        }
    }

    /// Creates, and remembers what came of it.
    pub(crate) fn create_name(&self, request: proto::CreateRequest) -> Result<proto::CreateResponse> {
        let naming = self.begin_create_name(&request);
        let outcome = self.send_change::<op::Create>(request, self.deadline_ns());
        self.end_create_name(naming, outcome)
    }

    /// Announces that a name is about to be created.
    pub(crate) fn begin_create_name(&self, request: &proto::CreateRequest) -> Naming {
        let is_directory = FileKind::from_number(request.kind) == Some(FileKind::Directory);
        self.begin_naming(request.parent, &request.name, is_directory)
    }

    fn begin_naming(&self, parent: u64, name: &[u8], is_directory: bool) -> Naming {
        let (parent, name) = (InodeId(parent), name.to_vec());
        // A subdirectory is a link more or less; a file changes the directory's times only.
        let directory = if is_directory { Thing::Inode(parent) } else { Thing::Times(parent) };
        let asked = self.asked();
        let change = self.cache.begin(vec![Thing::Name(parent, name.clone()), directory]);
        Naming { parent, name, is_directory, asked, change }
    }

    /// Remembers what came of a creation.
    pub(crate) fn end_create_name(
        &self,
        naming: Naming,
        outcome: Result<proto::CreateResponse>,
    ) -> Result<proto::CreateResponse> {
        let Naming { parent, name, is_directory, asked, change } = naming;
        let answer = outcome.as_ref().ok();
        if let Some(answer) = answer.filter(|answer| !answer.created) {
            // It was there, and only opened.
            change.refused();
            self.cache_entry(asked, parent, &name, answer.inode.as_ref());
            return outcome;
        }
        let time = answer.and_then(|answer| time_of(answer.parent_changed.as_ref()));
        let settled = settle(self, change, asked, time, &outcome);
        if let (Some(answer), true) = (answer, self.caches()) {
            self.change_whole(parent, &name, true, time);
            if let Some(asked) = settled {
                self.cache_entry(asked, parent, &name, answer.inode.as_ref());
            }
            if let Some(made) = attributes_of(answer.inode.as_ref()).filter(|_| is_directory) {
                self.cache.cache_empty(asked, &made);
            }
        }
        outcome
    }

    /// Unlinks, and forgets what that has changed.
    pub(crate) fn remove_name(&self, request: proto::UnlinkRequest) -> Result<proto::UnlinkResponse> {
        let naming = self.begin_remove_name(&request);
        let outcome = self.send_change::<op::Unlink>(request, self.deadline_ns());
        self.end_remove_name(naming, outcome)
    }

    /// Announces that a name is about to be removed.
    pub(crate) fn begin_remove_name(&self, request: &proto::UnlinkRequest) -> Naming {
        self.begin_naming(request.parent, &request.name, request.directory)
    }

    /// Forgets what a removal has changed.
    pub(crate) fn end_remove_name(
        &self,
        naming: Naming,
        outcome: Result<proto::UnlinkResponse>,
    ) -> Result<proto::UnlinkResponse> {
        let Naming { parent, name, is_directory, asked, change } = naming;
        let answer = outcome.as_ref().ok();
        let time = answer.and_then(|answer| time_of(answer.parent_changed.as_ref()));
        // That the name is gone is not taken over: the server keeps no note of whom it has told that by a removal.
        settle(self, change, asked, time, &outcome);
        if let Some(answer) = answer {
            self.change_whole(parent, &name, false, time);
            self.touched(InodeId(answer.inode));
            if is_directory {
                self.cache.forget_whole(InodeId(answer.inode));
            }
        }
        outcome
    }

    /// An answer has told which inode a change touched: what was asked about it before is out of date.
    fn touched(&self, inode: InodeId) {
        self.cache.begin(vec![Thing::Inode(inode)]).done(self.asked(), None);
    }

    /// Links, and remembers what came of it.
    pub(crate) fn link_name(&self, request: proto::LinkRequest) -> Result<proto::LinkResponse> {
        let (parent, name) = (InodeId(request.parent), request.name.clone());
        let things = vec![
            Thing::Name(parent, name.clone()),
            Thing::Inode(parent),
            Thing::Inode(InodeId(request.inode)),
        ];
        let (asked, change) = (self.asked(), self.cache.begin(things));
        let outcome = self.send_change::<op::Link>(request, self.deadline_ns());
        let settled = settle(self, change, asked, None, &outcome);
        if let Ok(answer) = &outcome {
            self.change_whole(parent, &name, true, None);
            if let Some(asked) = settled {
                self.cache_entry(asked, parent, &name, answer.inode.as_ref());
            }
        }
        outcome
    }

    /// Renames, and forgets what that has changed.
    pub(crate) fn rename_name(&self, request: proto::RenameRequest) -> Result<proto::RenameResponse> {
        let (from, to) = (InodeId(request.parent), InodeId(request.new_parent));
        let is_exchange = request.mode == 2;
        let mut things = vec![
            Thing::Name(from, request.name.clone()),
            Thing::Name(to, request.new_name.clone()),
            Thing::Inode(from),
            Thing::Inode(to),
        ];
        // A thing named twice would overlap with itself.
        things.dedup();
        let (asked, change) = (self.asked(), self.cache.begin(things));
        let outcome = self.send_change::<op::Rename>(request, self.deadline_ns());
        settle(self, change, asked, None, &outcome);
        if is_exchange {
            // The answer names one of the two inodes only, and a directory among them has another parent now.
            self.cache.forget_all();
        }
        if let Ok(answer) = &outcome {
            [answer.inode, answer.replaced].into_iter().filter(|&id| id != 0).for_each(|id| {
                self.touched(InodeId(id));
            });
            // Two names of one file stay as they were; which case it was the answer does not say.
            [from, to, InodeId(answer.replaced)].into_iter().for_each(|id| self.cache.forget_whole(id));
        }
        outcome
    }

    fn is_believable(&self, asked: Asked, inode: InodeId, name: &[u8]) -> bool {
        self.believable_for(asked, inode, name) > Duration::ZERO
    }
}

impl Client {
    /// Forgets all names that led to an inode: the next look at them asks. It looks at every cached name.
    pub fn forget_names(&self, inode: InodeId) {
        self.core.cache.forget_names(inode);
    }

    /// Where a name leads, without asking, and as of when that is known. `None` when it is not, or may have changed.
    /// Without a time it must not be cached further: a directory is known whole, but no request has asked about
    /// this name in it, so that there is no invalidation when it comes.
    pub fn cached(&self, parent: InodeId, name: &[u8]) -> Option<(Result<Attributes>, Option<Asked>)> {
        let core = &self.core;
        if !core.caches() || !is_entry(name) {
            return None;
        }
        if let Some((leads, asked)) = core.cache.cached_name(parent, name)
            && core.is_believable(asked, parent, name)
        {
            let Some(inode) = leads else { return Some((Err(absent(name)), Some(asked))) };
            let (attributes, shown) = self.cached_attributes(inode)?;
            return Some((Ok(attributes), Some(asked.older(shown))));
        }
        // A change of a name changes the times of its directory.
        let asked = core.cache.cached_absence(parent, name)?;
        core.is_believable(asked, parent, &[]).then(|| (Err(absent(name)), None))
    }

    /// What `stat` shows, without asking, and as of when.
    pub fn cached_attributes(&self, inode: InodeId) -> Option<(Attributes, Asked)> {
        let core = &self.core;
        // Of an open file more is known, and it changes without being announced here.
        if !core.caches() || core.registry.find(inode).is_some() {
            return None;
        }
        let (attributes, asked) = core.cache.cached_attributes(inode)?;
        if attributes.kind == FileKind::Directory && core.is_whole_for_little_longer(inode) {
            return None;
        }
        core.is_believable(asked, inode, &[]).then_some((attributes, asked))
    }
}

fn absent(name: &[u8]) -> Error {
    Error::new(Code::NotFound, format!("'{}'", String::from_utf8_lossy(name)))
}
