//! Changes of names, each with what the cache takes over from its answer.

use super::MetaService;
use super::call::settle;
use crate::Result;
use crate::cache::{Asked, Change, Thing, attributes_of};
use vazao_model::{FileKind, InodeId, Timestamp};
use vazao_wire::{op, proto};

/// A name that is being created or removed.
pub(crate) struct Naming {
    parent: InodeId,
    name: Vec<u8>,
    is_directory: bool,
    asked: Asked,
    change: Change,
}

fn time_of(time: Option<&proto::Timestamp>) -> Option<Timestamp> {
    time.cloned().map(Timestamp::from)
}

impl MetaService {
    /// Creates, and remembers what came of it.
    pub(crate) fn create_name(&self, request: proto::CreateRequest) -> Result<proto::CreateResponse> {
        let naming = self.begin_create_name(&request);
        let outcome = self.send_change::<op::Create>(request, self.context.deadline_ns());
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
        let asked = self.cache.asked();
        let change = self.cache.entries.begin(vec![Thing::Name(parent, name.clone()), directory]);
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
            self.cache.put_entry(asked, parent, &name, answer.inode.as_ref());
            return outcome;
        }
        let time = answer.and_then(|answer| time_of(answer.parent_changed.as_ref()));
        let settled = settle(self, change, asked, time, &outcome);
        if let (Some(answer), true) = (answer, self.cache.caches()) {
            self.cache.change_whole(parent, &name, true, time);
            if let Some(asked) = settled {
                self.cache.put_entry(asked, parent, &name, answer.inode.as_ref());
            }
            if let Some(made) = attributes_of(answer.inode.as_ref()).filter(|_| is_directory) {
                self.cache.entries.cache_empty(asked, &made);
            }
        }
        outcome
    }

    /// Unlinks, and forgets what that has changed.
    pub(crate) fn remove_name(&self, request: proto::UnlinkRequest) -> Result<proto::UnlinkResponse> {
        let naming = self.begin_remove_name(&request);
        let outcome = self.send_change::<op::Unlink>(request, self.context.deadline_ns());
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
            self.cache.change_whole(parent, &name, false, time);
            self.touched(InodeId(answer.inode));
            if is_directory {
                self.cache.entries.forget_whole(InodeId(answer.inode));
            }
        }
        outcome
    }

    /// An answer has told which inode a change touched: what was asked about it before is out of date.
    fn touched(&self, inode: InodeId) {
        self.cache.entries.begin(vec![Thing::Inode(inode)]).done(self.cache.asked(), None);
    }

    /// Links, and remembers what came of it.
    pub(crate) fn link_name(&self, request: proto::LinkRequest) -> Result<proto::LinkResponse> {
        let (parent, name) = (InodeId(request.parent), request.name.clone());
        let things = vec![
            Thing::Name(parent, name.clone()),
            Thing::Inode(parent),
            Thing::Inode(InodeId(request.inode)),
        ];
        let (asked, change) = (self.cache.asked(), self.cache.entries.begin(things));
        let outcome = self.send_change::<op::Link>(request, self.context.deadline_ns());
        let settled = settle(self, change, asked, None, &outcome);
        if let Ok(answer) = &outcome {
            self.cache.change_whole(parent, &name, true, None);
            if let Some(asked) = settled {
                self.cache.put_entry(asked, parent, &name, answer.inode.as_ref());
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
        let (asked, change) = (self.cache.asked(), self.cache.entries.begin(things));
        let outcome = self.send_change::<op::Rename>(request, self.context.deadline_ns());
        settle(self, change, asked, None, &outcome);
        if is_exchange {
            // The answer names one of the two inodes only, and a directory among them has another parent now.
            self.cache.entries.forget_all();
        }
        if let Ok(answer) = &outcome {
            [answer.inode, answer.replaced].into_iter().filter(|&id| id != 0).for_each(|id| {
                self.touched(InodeId(id));
            });
            // Two names of one file stay as they were; which case it was the answer does not say.
            [from, to, InodeId(answer.replaced)]
                .into_iter()
                .for_each(|id| self.cache.entries.forget_whole(id));
        }
        outcome
    }
}
