//! How a node tells the metadata service of itself: targets, areas, or both.

use super::files;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tracing::warn;
use vazao_area::{AreaService, Membership};
use vazao_model::Role;
use vazao_store::DataService;
use vazao_wire::op::RegisterNode;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call};

/// What a node has besides areas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Targets, which keep the node's id.
    WithTargets,
    /// The metadata service, to which it is known by itself.
    WithMetadata,
    /// Nothing: its id is kept in `member.json`.
    AreasOnly,
}

/// `member.json`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Member {
    cluster_id: u64,
    node: u32,
}

/// A node's registration.
pub(crate) struct Register {
    place: Place,
    file: PathBuf,
    address: String,
    roles: Vec<Role>,
    member: Member,
    /// The metadata service was told of areas, and has to be told when there are none any more.
    told_areas: bool,
}

impl Register {
    pub(crate) fn new(place: Place, directory: PathBuf, address: String, roles: Vec<Role>) -> Register {
        let file = directory.join("member.json");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let member = match place {
            Place::AreasOnly => serde_json::from_str(&text).unwrap_or_default(),
            _ => Member::default(),
        };
        Register { place, file, address, roles, member, told_areas: false }
    }

    /// Registers once.
    pub(crate) fn once(
        &mut self,
        data: Option<&DataService>,
        area: &AreaService,
        transport: &dyn Transport,
        metadata: &str,
        deadline_ns: u64,
    ) -> Result<(), Fault> {
        let areas = area.areas();
        let has_areas = !areas.is_empty();
        if self.place == Place::WithMetadata && !has_areas && !self.told_areas {
            return Ok(());
        }
        let mut roles = self.roles.clone();
        if has_areas && !roles.contains(&Role::Area) {
            roles.push(Role::Area);
        }
        match data {
            Some(data) => {
                let mut request = data.registration();
                request.roles = roles.iter().map(|role| *role as u32).collect();
                request.areas = areas;
                let response = call::<RegisterNode>(transport, metadata, &request, deadline_ns)?;
                data.set_registration(&response)?;
            }
            None => {
                let known = Membership { cluster_id: self.member.cluster_id, node: self.member.node };
                let joined =
                    area.heartbeat(transport, metadata, &self.address, &roles, known, deadline_ns)?;
                self.keep(joined);
            }
        }
        self.told_areas = has_areas;
        Ok(())
    }

    /// Keeps the id for the next start. Without it the node is found again by its name, only later.
    fn keep(&mut self, joined: Membership) {
        let member = Member { cluster_id: joined.cluster_id, node: joined.node };
        if self.place != Place::AreasOnly || member == self.member {
            return;
        }
        self.member = member;
        let text = serde_json::to_string(&member).unwrap_or_default();
        if let Err(failure) = files::replace(&self.file, &format!("{text}\n")) {
            let problem = failure.message().unwrap_or_default().to_owned();
            warn!(problem, "the node's id could not be kept");
        }
    }
}
