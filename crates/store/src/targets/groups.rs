//! The placement groups of a server: which of its targets holds which.

use crate::service::DataService;
use crate::targets::Target;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// The groups with a member here, as the metadata service has told them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Of the membership that was told; 0: none yet.
    epoch: u64,
    /// Everything that was told with it was kept. Where that is not so, it is to be told again.
    is_whole: bool,
    /// Random number of the metadata service's process that told it: another one may have metadata from a backup, whose
    /// epochs are those of other memberships.
    told_by: u64,
    /// Anything was told since this server started.
    is_told: bool,
    members: HashMap<GroupId, TargetId>,
    /// Those of them whose members agree on a record.
    agreed: HashSet<GroupId>,
}

/// What a server knows of a placement group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// It was told of no groups yet: it may well hold this one.
    NotTold,
    /// It was told of its groups, and this is none of them.
    NotMine,
    /// This target of its own is the group's member.
    Member(TargetId),
}

impl Groups {
    /// Those of `told` that have one of `targets` as a member. `is_whole`: no target of this server is missing there.
    pub(crate) fn new(
        (epoch, is_whole): (u64, bool),
        told_by: u64,
        told: &[proto::Group],
        targets: &[TargetId],
    ) -> Groups {
        let member_here = |group: &proto::Group| {
            let member = targets.iter().find(|target| group.members.contains(&target.0))?;
            Some((GroupId(group.id), *member))
        };
        let members = told.iter().filter_map(member_here).collect();
        let agreed = told.iter().filter(|group| group.agreed).map(|group| GroupId(group.id)).collect();
        Groups { epoch, is_whole, told_by, is_told: true, members, agreed }
    }

    /// What is known of a group.
    pub(crate) fn lookup(&self, group: GroupId) -> Lookup {
        match self.members.get(&group) {
            Some(target) => Lookup::Member(*target),
            None if self.is_told => Lookup::NotMine,
            None => Lookup::NotTold,
        }
    }

    /// The target here of a group whose members agree on a record; `None`: there is no such group here.
    pub(crate) fn agreed_member(&self, group: GroupId) -> Option<TargetId> {
        self.agreed.contains(&group).then(|| self.members.get(&group).copied()).flatten()
    }

    /// The epoch of which a metadata service with this random number need not tell again; 0: it has to tell all.
    pub(crate) fn known_epoch(&self, service: u64) -> u64 {
        if self.told_by == service && self.is_whole { self.epoch } else { 0 }
    }

    /// The epoch by which it is answered which groups are here; 0: nothing was told yet.
    pub(crate) fn told_epoch(&self) -> u64 {
        self.epoch
    }
}

impl DataService {
    /// The target that an address names, or that holds its placement group, when it can be used.
    pub(crate) fn addressed(&self, address: &proto::ObjectAddress) -> Result<&Arc<Target>, Fault> {
        if address.target != 0 || address.group == 0 {
            return self.target(address.target);
        }
        let group = GroupId(address.group);
        // A member that lags is in no map: the primary knows it.
        if address.forward.is_some()
            && let Some(target) = self.leases.member(group)
        {
            return self.target(target.0);
        }
        let (found, epoch) = {
            let groups = self.groups.read();
            (groups.lookup(group), groups.told_epoch())
        };
        match found {
            Lookup::Member(target) => self.target(target.0),
            Lookup::NotMine => {
                // Clients come to a member that does not count with an old map.
                if self.leases.member(group).is_none() {
                    self.unknown_groups.note(group);
                }
                Err(Fault::new(Code::WrongTarget, format!("placement group {group}")).as_of(epoch))
            }
            // Not known is not refused: the caller would look for a newer map, and there is none.
            Lookup::NotTold => {
                let text = format!(
                    "placement group {group}: the metadata service has not told this server its groups since it started"
                );
                Err(Fault::new(Code::Unavailable, text))
            }
        }
    }
}
