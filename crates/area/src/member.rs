//! How a node that only exports areas joins a cluster and reports to it.

use crate::service::AreaService;
use vazao_model::Role;
use vazao_wire::op::RegisterNode;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call, source};

/// What a node learned when it joined; the daemon stores it for the next start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// The cluster; 0: none yet.
    pub cluster_id: u64,
    /// Its id there; 0: none yet.
    pub node: u32,
    /// What the operator of this node should know.
    pub warnings: Vec<String>,
}

impl AreaService {
    /// What other nodes learn of the areas; goes into the node's registration.
    pub fn areas(&self) -> Vec<proto::Area> {
        self.exports().list()
    }

    /// Reports to the metadata service at `meta_address` once, as a node called `name` at `address`. For nodes
    /// without targets; the others put [`AreaService::areas`] into their data server's registration.
    pub fn heartbeat(
        &self,
        transport: &dyn Transport,
        meta_address: &str,
        address: &str,
        roles: &[Role],
        known: &Membership,
        deadline_ns: u64,
    ) -> Result<Membership, Fault> {
        let request = proto::RegisterNodeRequest {
            cluster_id: known.cluster_id,
            node: known.node,
            name: self.shared.options.name.clone(),
            address: address.to_owned(),
            roles: roles.iter().map(|role| *role as u32).collect(),
            targets: Vec::new(),
            areas: self.areas(),
            host: vazao_wire::local::host(),
            run: self.shared.options.run,
            seen: None,
            zone: self.shared.options.zone.clone(),
            source: source(transport, meta_address),
            ..Default::default()
        };
        let response = call::<RegisterNode>(transport, meta_address, &request, deadline_ns)?;
        Ok(Membership { cluster_id: response.cluster_id, node: response.node, warnings: response.warnings })
    }
}
