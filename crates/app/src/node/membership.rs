//! How a node tells the metadata service of itself: targets, areas, or both.

use super::files;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tracing::warn;
use vazao_area::{AreaService, Membership};
use vazao_model::limits::NODE_SILENT_MS;
use vazao_model::{Code, Role};
use vazao_store::DataService;
use vazao_wire::op::RegisterNode;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call};

/// A refusal that may pass is final after this: until then a predecessor that has just stopped can count as up, with
/// its name and its targets.
const REFUSED_NS_MAX: u64 = (NODE_SILENT_MS as u64 + 2_000) * 1_000_000;

/// Tells refusals that pass from those that never will.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    was_member: bool,
    since_ns: Option<u64>,
}

impl Refusals {
    /// Whether a registration that ended at `now_ns` with `code`, `None` where it succeeded, makes all further ones
    /// useless. Never for a node that was a member once: it goes on serving those who know it.
    pub(crate) fn is_final(&mut self, code: Option<Code>, now_ns: u64) -> bool {
        self.was_member |= code.is_none();
        let refused = matches!(
            code,
            Some(Code::Invalid | Code::BadRequest | Code::Unauthenticated | Code::VersionMismatch)
        );
        if self.was_member || !refused {
            self.since_ns = None;
            return false;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        code != Some(Code::Invalid) || now_ns.saturating_sub(since_ns) > REFUSED_NS_MAX
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_still_taken_may_pass_and_a_wrong_key_will_not() {
        let mut refusals = Refusals::default();
        assert!(!refusals.is_final(Some(Code::Unreachable), 0));
        assert!(!refusals.is_final(Some(Code::Invalid), 1_000));
        assert!(!refusals.is_final(Some(Code::Invalid), 1_000 + REFUSED_NS_MAX));
        assert!(refusals.is_final(Some(Code::Invalid), 1_001 + REFUSED_NS_MAX));
        assert!(Refusals::default().is_final(Some(Code::Unauthenticated), 0));
    }

    #[test]
    fn a_metadata_service_that_went_away_in_between_is_asked_anew() {
        let mut refusals = Refusals::default();
        assert!(!refusals.is_final(Some(Code::Invalid), 0));
        assert!(!refusals.is_final(Some(Code::Disconnected), 1_000));
        assert!(!refusals.is_final(Some(Code::Invalid), REFUSED_NS_MAX + 1));
    }

    #[test]
    fn a_node_that_was_a_member_goes_on_serving() {
        let mut refusals = Refusals::default();
        assert!(!refusals.is_final(None, 0));
        assert!(!refusals.is_final(Some(Code::Unauthenticated), 1_000));
    }
}
