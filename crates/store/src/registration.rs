//! How a data server joins a cluster and reports to it.

use crate::error::OpenError;
use crate::service::DataService;
use crate::space::Reported;
use crate::target::Target;
use std::sync::{Arc, PoisonError};
use vazao_model::{Code, NodeId, TargetId};
use vazao_wire::op::RegisterNode;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call};

/// Refuses targets that do not belong together, or not here.
pub(crate) fn check_identities(targets: &[Arc<Target>], cluster_id: Option<u64>) -> Result<(), OpenError> {
    let mut expected = cluster_id.unwrap_or(0);
    let mut node = 0;
    for target in targets {
        let identity = target.identity();
        if identity.cluster_id != 0 {
            if expected != 0 && identity.cluster_id != expected {
                let (label, found) = (target.label.clone(), identity.cluster_id);
                return Err(OpenError::OtherCluster { label, found, expected });
            }
            expected = identity.cluster_id;
        }
        if identity.node != 0 {
            if node != 0 && identity.node != node {
                let (label, found) = (target.label.clone(), identity.node);
                return Err(OpenError::OtherNode { label, found, expected: node });
            }
            node = identity.node;
        }
    }
    Ok(())
}

impl DataService {
    /// Sets where the server is reached, once its port is known.
    pub fn set_address(&self, address: &str) {
        *self.address.write().unwrap_or_else(PoisonError::into_inner) = address.to_owned();
    }

    /// The node id it was given; `None` before it joined a cluster.
    pub fn node(&self) -> Option<NodeId> {
        self.targets.iter().map(|t| t.identity().node).find(|&n| n != 0).map(NodeId)
    }

    /// The cluster it belongs to; `None` before it joined one.
    pub fn cluster_id(&self) -> Option<u64> {
        let of_targets = self.targets.iter().map(|t| t.identity().cluster_id).find(|&c| c != 0);
        of_targets.or(self.options.cluster_id)
    }

    /// Ids of its targets, in the order they were given; 0 for those that have none yet.
    pub fn target_ids(&self) -> Vec<TargetId> {
        self.targets.iter().map(|t| t.id()).collect()
    }

    /// What it announces itself with, and repeats as its heartbeat.
    pub fn registration(&self) -> proto::RegisterNodeRequest {
        let target = |target: &Arc<Target>| {
            let Reported { space, reserve_bytes } = target.room.reported();
            let damage = target.damage.counts();
            proto::Target {
                id: target.id().0,
                node: 0,
                state: target.state() as u32,
                capacity_bytes: space.capacity_bytes,
                available_bytes: space.available_bytes,
                trouble: target.trouble(),
                file_system: space.file_system,
                used_bytes: space.used_bytes,
                reserve_bytes,
                corrupt_blocks: damage.corrupt_blocks,
                missing_objects: damage.missing_objects,
            }
        };
        proto::RegisterNodeRequest {
            cluster_id: self.cluster_id().unwrap_or(0),
            node: self.node().map_or(0, |n| n.0),
            name: self.options.name.clone(),
            address: self.address.read().unwrap_or_else(PoisonError::into_inner).clone(),
            roles: self.options.roles.iter().map(|r| *r as u32).collect(),
            targets: self.targets.iter().map(target).collect(),
            areas: Vec::new(),
            host: self.options.host,
        }
    }

    /// Keeps the ids that the metadata service gave. Errors: an answer that does not fit this server, of another
    /// cluster or with other ids than it has; an id that cannot be stored.
    pub fn set_registration(&self, response: &proto::RegisterNodeResponse) -> Result<(), Fault> {
        let refuse = |what: String| Err(Fault::new(Code::BadRequest, format!("registration: {what}")));
        // A target that was added since the request asks for its id with the next one.
        let (asked_min, asked_max) =
            (self.targets.iter().filter(|t| t.id().0 != 0).count(), self.targets.len());
        let has_all = (asked_min.max(1)..=asked_max).contains(&response.targets.len());
        if !has_all || response.cluster_id == 0 || response.node == 0 {
            return refuse(format!("ids for {} of {asked_max} targets", response.targets.len()));
        }
        if let Some(ours) = self.cluster_id().filter(|&ours| ours != response.cluster_id) {
            return refuse(format!("cluster {:016x}, but ours is {ours:016x}", response.cluster_id));
        }
        for (target, &id) in self.targets.iter().zip(&response.targets) {
            let mut identity = target.identity();
            if id == 0 || (identity.id.0 != 0 && identity.id.0 != id) {
                return refuse(format!("{target} is called t{id}"));
            }
            (identity.cluster_id, identity.node, identity.id) =
                (response.cluster_id, response.node, TargetId(id));
            // A failed target keeps reporting, and writes nothing.
            if target.check().is_ok() {
                target.set_identity(identity)?;
            }
        }
        Ok(())
    }

    /// Reports to the metadata service at `meta_address` once. To be called every `limits::HEARTBEAT_MS`.
    pub fn heartbeat(
        &self,
        transport: &dyn Transport,
        meta_address: &str,
        deadline_ns: u64,
    ) -> Result<(), Fault> {
        let response = call::<RegisterNode>(transport, meta_address, &self.registration(), deadline_ns)?;
        self.set_registration(&response)
    }
}
