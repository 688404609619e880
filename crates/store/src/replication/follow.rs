//! What a member does with a request for an object of its group: it serves, it leads, or it follows the primary.

use super::change::{Touched, WHOLE};
use super::{Key, List};
use crate::latest::outdated;
use crate::lease::{View, moment};
use crate::service::DataService;
use std::ops::Range;
use std::sync::{Arc, Weak};
use vazao_model::{Code, GroupId};
use vazao_wire::messages::members::group_members;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// What a changing request is to this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// The object has one copy, here: it is changed and nothing more.
    Alone,
    /// It came from the primary: it is changed here, in the primary's order.
    Follow,
    /// It came from a client: the primary has all members change it.
    Lead,
}

/// An object with several copies that is being read; none: it has one.
pub(crate) struct StillReadable(Option<(Arc<DataService>, proto::ObjectAddress)>);

impl StillReadable {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.0.as_ref().map_or(Ok(()), |(service, address)| service.may_read(Some(address)))
    }
}

impl DataService {
    /// What a request with this address is to this server. Of one from the primary its `touched` bytes are listed.
    /// Errors: it comes from another epoch; this member knows of no record yet.
    pub(crate) fn duty(
        &self,
        address: Option<&proto::ObjectAddress>,
        touched: impl FnOnce() -> Vec<Range<u64>>,
    ) -> Result<Duty, Fault> {
        let Some(address) = address.filter(|address| address.group != 0) else { return Ok(Duty::Alone) };
        let group = GroupId(address.group);
        let Some(forward) = &address.forward else {
            return Ok(if self.agreed(group).is_some() { Duty::Lead } else { Duty::Alone });
        };
        let key = self.member_of(group)?;
        self.check_forward(key, forward)?;
        if forward.number != 0 {
            let (object, ranges) = (crate::ops::object(address)?, touched());
            let mut table = self.replication.table.lock();
            table.lists.entry(key).or_default().note(forward, Touched { object, ranges });
        }
        Ok(Duty::Follow)
    }

    /// The member of this server in a group whose members agree on a record. `None`: in no such group.
    pub(crate) fn agreed(&self, group: GroupId) -> Option<Key> {
        self.groups.read().agreed_member(group).map(|target| (target, group))
    }

    /// The member of this server in a group whose members another one of them knows. Errors: this server knows of none;
    /// it asks for its groups.
    pub(super) fn member_of(&self, group: GroupId) -> Result<Key, Fault> {
        let no_member = || {
            self.unknown_groups.note(group);
            Fault::new(Code::WrongTarget, format!("placement group {group}"))
        };
        Ok((self.leases.member(group).ok_or_else(no_member)?, group))
    }

    /// What a member knows of its group. Errors: nothing yet; it asks for its groups.
    pub(super) fn view(&self, key: Key) -> Result<View, Fault> {
        let unknown = || {
            self.unknown_groups.note(key.1);
            let text = format!("placement group {}: {} has not been told its members yet", key.1, key.0);
            Fault::new(Code::Unavailable, text)
        };
        self.leases.view(key, moment(&**self.shell.clock())).ok_or_else(unknown)
    }

    /// Refuses what the primary of another epoch sends, or of an earlier stream.
    pub(super) fn check_forward(&self, key: Key, forward: &proto::Forward) -> Result<(), Fault> {
        let sent = (forward.epoch, forward.stream);
        self.check_sender(key, forward.epoch, forward.record.as_ref())?;
        let known = self.leases.latest.hear(key, forward.epoch, forward.stream);
        if sent == known { Ok(()) } else { Err(outdated(key.1, sent, known)) }
    }

    /// Takes the record that came along, and refuses what the primary of another epoch asks.
    pub(super) fn check_sender(
        &self,
        key: Key,
        epoch: u64,
        record: Option<&proto::GroupMembers>,
    ) -> Result<(), Fault> {
        if let Some(record) = record {
            self.leases.learn(key.0, key.1, record);
        }
        let view = self.view(key)?;
        if !view.is_member {
            let text = format!("placement group {}: this process of {} is not in its record", key.1, key.0);
            return Err(Fault::new(Code::Unavailable, text));
        }
        match view.epoch == epoch {
            true => Ok(()),
            false => Err(outdated(key.1, (epoch, 0), (view.epoch, 0))),
        }
    }

    /// Refuses to read an object for which this member does not hold the leases of all others, or as a primary that has
    /// not evened out yet what was under way before it.
    pub(crate) fn may_read(&self, address: Option<&proto::ObjectAddress>) -> Result<(), Fault> {
        let Some((address, key)) =
            address.and_then(|address| Some((address, self.agreed(GroupId(address.group))?)))
        else {
            return Ok(());
        };
        self.target(key.0.0)?.restores.check_finished(crate::ops::object(address)?)?;
        let view = self.view(key)?;
        let is_ready =
            !view.is_primary || self.replication.table.lock().led.get(&key).is_some_and(|led| led.is_ready);
        if view.may_serve && is_ready {
            return Ok(());
        }
        let text =
            format!("placement group {}: {} holds no leases at the moment; read another copy", key.1, key.0);
        Err(Fault::new(Code::Unavailable, text))
    }

    /// What a read asks once more before its answer leaves: a copy that was cut off meanwhile is none.
    pub(crate) fn may_still_read(&self, address: Option<&proto::ObjectAddress>) -> StillReadable {
        let of = address.filter(|address| self.agreed(GroupId(address.group)).is_some());
        let service = of.and_then(|_| self.replication.service.get()).and_then(Weak::upgrade);
        StillReadable(service.zip(of.cloned()))
    }

    /// [`DataService::duty`] of each object of a request that removes, seals or makes durable.
    pub(crate) fn follow_all(&self, objects: &[proto::ObjectAddress]) -> Result<(), Fault> {
        objects.iter().try_for_each(|object| self.duty(Some(object), || vec![WHOLE]).map(drop))
    }

    /// The changes of a group that this member cannot say are the same everywhere.
    pub(crate) fn unconfirmed(
        &self,
        request: &proto::CollectUnconfirmedRequest,
    ) -> Result<proto::CollectUnconfirmedResponse, Fault> {
        let group = GroupId(request.group);
        let key = self.member_of(group)?;
        // From here on nothing that the primary before this one has sent is carried out.
        self.check_sender(key, request.epoch, request.record.as_ref())?;
        let table = self.replication.table.lock();
        Ok(table.lists.get(&key).map(List::told).unwrap_or_default())
    }

    /// The record that a member knows, as it goes along with what it sends.
    pub(super) fn record(&self, key: Key) -> Option<proto::GroupMembers> {
        self.leases.record(key).map(|record| group_members(key.1, &record))
    }
}

impl List {
    /// Takes note of a change that the primary has sent, and forgets those that are the same everywhere.
    fn note(&mut self, forward: &proto::Forward, touched: Touched) {
        self.changes = self.changes.split_off(&forward.confirmed);
        self.changes.insert(forward.number, touched);
        self.last = self.last.max(forward.number);
        self.epoch = forward.epoch;
    }

    fn told(&self) -> proto::CollectUnconfirmedResponse {
        let told = |(&number, touched): (&u64, &Touched)| proto::Unconfirmed {
            number,
            inode: touched.object.inode.0,
            generation: touched.object.generation,
            slot: touched.object.slot,
            ranges: touched
                .ranges
                .iter()
                .map(|it| proto::TouchedRange { start: it.start, end: it.end })
                .collect(),
        };
        proto::CollectUnconfirmedResponse {
            changes: self.changes.iter().map(told).collect(),
            last: self.last,
        }
    }
}
