//! The placement groups of a server: which of its targets holds which.

use crate::service::DataService;
use crate::target::Target;
use std::collections::HashMap;
use std::sync::Arc;
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// The groups with a member here, as the metadata service has told them.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Of the membership that was told; 0: none yet.
    pub(crate) epoch: u64,
    members: HashMap<GroupId, TargetId>,
}

impl Groups {
    /// Those of `told` that have one of `targets` as a member.
    pub(crate) fn new(epoch: u64, told: &[proto::Group], targets: &[TargetId]) -> Groups {
        let member_here = |group: &proto::Group| {
            let member = targets.iter().find(|target| group.members.contains(&target.0))?;
            Some((GroupId(group.id), *member))
        };
        Groups { epoch, members: told.iter().filter_map(member_here).collect() }
    }
}

impl DataService {
    /// The target that an address names, or that holds its placement group, when it can be used.
    pub(crate) fn addressed(&self, address: &proto::ObjectAddress) -> Result<&Arc<Target>, Fault> {
        if address.target != 0 || address.group == 0 {
            return self.target(address.target);
        }
        let group = GroupId(address.group);
        let member = self.groups.read().members.get(&group).copied();
        let unknown = || Fault::new(Code::WrongTarget, format!("placement group {group}"));
        self.target(member.ok_or_else(unknown)?.0)
    }
}
