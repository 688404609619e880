//! Calls whose callers go on with something else: lookups, opens, creates and removals.

use super::namespace::{create_request, unlink_request};
use super::removal::Statement;
use crate::meta::{Completion, Readiness, begin_ask, begin_change};
use crate::{Client, File, NewInode, OpenMode, Result};
use std::sync::Arc;
use vazao_model::{Attributes, InodeId};
use vazao_wire::{op, proto};

impl Client {
    /// Whether the calls that follow would not even wait to be sent.
    pub fn can_begin(&self) -> bool {
        self.core.context.transport.is_tended(self.core.context.meta_address())
    }

    /// [`Client::lookup`] without standing still for the answer.
    pub fn begin_lookup(&self, parent: InodeId, name: &[u8], then: Completion<Attributes>) {
        let as_of = (self.core.answers(), self.core.cache.asked());
        let request =
            proto::LookupRequest { parent: parent.0, name: name.to_vec(), seat: self.core.cache.seat() };
        let (client, name) = (self.clone(), name.to_vec());
        begin_ask::<op::Lookup>(&self.core.meta, request, move |early| {
            then(early.map(move |answer| client.looked_up(parent, &name, as_of, answer)));
        });
    }

    /// [`Client::open_file`] without standing still for the answer.
    pub fn begin_open_file(&self, inode: InodeId, mode: OpenMode, then: Completion<File>) {
        let client = self.clone();
        if mode.truncate {
            return then(Readiness::blocking(move || client.open_file(inode, mode)));
        }
        let opening = self.core.opens.begin();
        let as_of = (self.core.answers(), self.core.cache.asked());
        let request = self.open_request(inode);
        begin_ask::<op::Open>(&self.core.meta, request, move |early| {
            let seen = client.clone();
            let early = early.map(move |answer| seen.seen_to_open(inode, as_of, answer));
            then(match early {
                Readiness::Ready(Err(error)) => Readiness::Ready(Err(error)),
                Readiness::Ready(Ok(fresh)) => match File::open(&client.core, fresh, mode) {
                    Some(file) => Readiness::Ready(Ok(file)),
                    None => Readiness::blocking(move || client.open_file(inode, mode)),
                },
                Readiness::Blocking(rest) => Readiness::blocking(move || {
                    // Until then it is under way.
                    let _opening = opening;
                    match File::open(&client.core, rest()?, mode) {
                        Some(file) => Ok(file),
                        None => client.open_file(inode, mode),
                    }
                }),
            });
        });
    }

    /// [`Client::create_file`] without standing still for the answer.
    pub fn begin_create_file(
        &self,
        parent: InodeId,
        name: &[u8],
        new: &NewInode,
        exclusive: bool,
        then: Completion<(Attributes, File)>,
    ) {
        let opening = self.core.opens.begin();
        let asked_at = self.core.answers();
        let request = create_request(parent, name, new, exclusive);
        let naming = self.core.meta.begin_create_name(&request);
        let client = self.clone();
        begin_change::<op::Create>(&self.core.meta, request, move |early| {
            let core = Arc::clone(&client.core);
            let early = early.map(move |outcome| core.meta.end_create_name(naming, outcome));
            // What was there before may be in use, and has to be asked about.
            let is_quick = |outcome: &Result<proto::CreateResponse>| {
                outcome.as_ref().map_or(true, |answer| answer.created)
            };
            let open = move |outcome: Result<_>| {
                // Until then it is under way.
                let _opening = opening;
                client.open_created(outcome?, asked_at)
            };
            then(early.and_then(is_quick, open));
        });
    }

    /// [`Client::unlink`] without standing still for the answer.
    pub fn begin_unlink(&self, parent: InodeId, name: &[u8], then: Completion<()>) {
        let client = self.clone();
        let Some(said) = Statement::cached(self, parent, name) else {
            let name = name.to_vec();
            return then(Readiness::blocking(move || client.unlink(parent, &name)));
        };
        let request = unlink_request(parent, name, said.held_inode);
        let naming = self.core.meta.begin_remove_name(&request);
        begin_change::<op::Unlink>(&self.core.meta, request, move |early| {
            let core = Arc::clone(&client.core);
            let early = early.map(move |outcome| core.meta.end_remove_name(naming, outcome));
            then(early.map(move |outcome| client.unlinked(said, outcome)));
        });
    }
}
