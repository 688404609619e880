//! How a node tells the metadata service of itself: targets, areas, or both.

use super::memory::{KnownTarget, Memory, MemoryFile};
use std::path::PathBuf;
use std::sync::Arc;
use vazao_area::{AreaService, Membership};
use vazao_model::limits::NODE_SILENT_MS;
use vazao_model::{Code, Knowledge, Role};
use vazao_store::DataService;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::Transport;

/// A refusal that may pass is final after this: until then a predecessor that hangs can count as up, with its name and
/// its targets.
const REFUSED_NS_MAX: u64 = (NODE_SILENT_MS as u64 + 2_000) * 1_000_000;

/// A metadata service that is still starting, or that asks whether a predecessor is gone, is no trouble before this.
const SOON_NS: u64 = 3_000_000_000;

/// Tells refusals that pass from those that never will.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    was_member: bool,
    since_ns: Option<u64>,
    unready_since_ns: Option<u64>,
}

impl Refusals {
    /// Whether a registration that ended at `now_ns` with `code`, `None` where it succeeded, makes all further ones
    /// useless. A node that was a member once goes on serving those who know it, unless another process is that member
    /// now: two would serve different bytes under one name.
    pub(crate) fn is_final(&mut self, code: Option<Code>, now_ns: u64) -> bool {
        self.was_member |= code.is_none();
        if code == Some(Code::InUse) {
            return true;
        }
        if self.was_member || !code.is_some_and(is_refusal) {
            self.since_ns = None;
            return false;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        code != Some(Code::Invalid) || now_ns.saturating_sub(since_ns) > REFUSED_NS_MAX
    }

    /// Whether to retry at once, without a message.
    pub(crate) fn is_soon(&mut self, code: Option<Code>, now_ns: u64) -> bool {
        if code != Some(Code::Unavailable) {
            self.unready_since_ns = None;
            return false;
        }
        let since_ns = *self.unready_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) < SOON_NS
    }
}

/// True for an answer that this node's own request decided: the same one is refused again. What the disks of the
/// metadata service decided, or a defect of it, is mended while this node asks. Where a node does not have that role,
/// another of the addresses may.
fn is_refusal(code: Code) -> bool {
    let is_of_its_disks = matches!(
        code,
        Code::Io | Code::Corrupt | Code::TargetFailed | Code::Hung | Code::NoSpace | Code::ReadOnly
    );
    let is_of_its_own =
        matches!(code, Code::Internal | Code::Cancelled | Code::Interrupted | Code::Unsupported);
    code.knowledge() == Knowledge::Decided && !is_of_its_disks && !is_of_its_own
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

/// A node's registration.
pub(crate) struct Register {
    place: Place,
    memory: Arc<MemoryFile>,
    address: String,
    roles: Vec<Role>,
    /// The metadata service knows of areas, and has to be notified when there are none any more.
    told_areas: bool,
}

impl Register {
    pub(crate) fn new(place: Place, memory: Arc<MemoryFile>, address: String, roles: Vec<Role>) -> Register {
        Register { place, memory, address, roles, told_areas: false }
    }

    /// Registers once. Returns what the operator should know.
    pub(crate) fn once(
        &mut self,
        data: Option<&DataService>,
        area: &AreaService,
        transport: &dyn Transport,
        metadata: &str,
        deadline_ns: u64,
    ) -> Result<Vec<String>, Fault> {
        let areas = area.areas();
        let has_areas = !areas.is_empty();
        if self.place == Place::WithMetadata && !has_areas && !self.told_areas {
            return Ok(Vec::new());
        }
        let mut roles = self.roles.clone();
        if has_areas && !roles.contains(&Role::Area) {
            roles.push(Role::Area);
        }
        let warnings = match data {
            Some(data) => {
                let complete = |request: &mut proto::RegisterNodeRequest| {
                    request.roles = roles.iter().map(|role| *role as u32).collect();
                    request.areas.clone_from(&areas);
                };
                let registered = data.heartbeat_with(transport, metadata, deadline_ns, &complete)?;
                self.memory.keep(|memory| remember(memory, data));
                registered.warnings
            }
            None => {
                let known = self.known();
                let joined =
                    area.heartbeat(transport, metadata, &self.address, &roles, &known, deadline_ns)?;
                self.keep(&joined);
                joined.warnings
            }
        };
        self.told_areas = has_areas;
        Ok(warnings)
    }

    /// What a node without targets says that it is. One with the metadata service is known to that by its name.
    fn known(&self) -> Membership {
        if self.place != Place::AreasOnly {
            return Membership::default();
        }
        let Memory { cluster_id, node, .. } = self.memory.get();
        Membership { cluster_id, node, ..Membership::default() }
    }

    /// Keeps the id for the next start. Without it the node is found again by its name, only later.
    fn keep(&self, joined: &Membership) {
        if self.place == Place::AreasOnly {
            let (cluster_id, node) = (joined.cluster_id, joined.node);
            self.memory.keep(|memory| (memory.cluster_id, memory.node) = (cluster_id, node));
        }
    }
}

/// Notes which targets the node has now, those that are missing included: the next start asks for all of them.
fn remember(memory: &mut Memory, data: &DataService) {
    memory.cluster_id = data.cluster_id().unwrap_or(memory.cluster_id);
    memory.node = data.node().map_or(memory.node, |node| node.0);
    let known = |target: proto::Target| {
        let uuid = u128::from_be_bytes(target.uuid.try_into().ok()?);
        let directory = PathBuf::from(target.directory);
        (target.id != 0).then_some(KnownTarget { id: target.id, uuid, directory })
    };
    memory.targets = data.registration().targets.into_iter().filter_map(known).collect();
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

    /// A node that ends for what would have passed by itself stays away until it is started again by hand.
    #[test]
    fn no_node_ends_for_what_may_pass_and_each_does_for_what_its_request_decided() {
        for &code in Code::ALL {
            let mut refusals = Refusals::default();
            let (first, last) =
                (refusals.is_final(Some(code), 0), refusals.is_final(Some(code), REFUSED_NS_MAX + 1));
            assert!(last || !first, "{code:?}");
            assert!(!last || code.knowledge() == Knowledge::Decided, "{code:?}");
            let is_of_a_disk =
                matches!(code, Code::Io | Code::Corrupt | Code::TargetFailed | Code::Hung | Code::NoSpace);
            assert!(!last || !is_of_a_disk && code != Code::Internal, "{code:?}");
            let mut member = Refusals::default();
            assert!(!member.is_final(None, 0));
            assert_eq!(member.is_final(Some(code), 1), code == Code::InUse, "{code:?}");
        }
        let ends = |code| Refusals::default().is_final(Some(code), 0);
        let at_once = [Code::NotPermitted, Code::BadRequest, Code::Unauthenticated, Code::VersionMismatch];
        assert!(at_once.into_iter().all(ends));
    }

    #[test]
    fn a_metadata_service_that_went_away_in_between_is_asked_anew() {
        let mut refusals = Refusals::default();
        assert!(!refusals.is_final(Some(Code::Invalid), 0));
        assert!(!refusals.is_final(Some(Code::Disconnected), 1_000));
        assert!(!refusals.is_final(Some(Code::Invalid), REFUSED_NS_MAX + 1));
    }

    #[test]
    fn a_copy_ends_at_once_and_so_does_a_member_whose_place_another_one_has_taken() {
        assert!(Refusals::default().is_final(Some(Code::InUse), 0));
        assert!(Refusals::default().is_final(Some(Code::NotPermitted), 0));
        let mut refusals = Refusals::default();
        assert!(!refusals.is_final(None, 0));
        assert!(!refusals.is_final(Some(Code::NotPermitted), 1) && refusals.is_final(Some(Code::InUse), 2));
    }

    #[test]
    fn a_service_that_is_not_ready_is_no_trouble_for_a_moment() {
        let mut refusals = Refusals::default();
        assert!(refusals.is_soon(Some(Code::Unavailable), 1_000));
        assert!(!refusals.is_soon(Some(Code::Unreachable), 2_000));
        assert!(refusals.is_soon(Some(Code::Unavailable), 3_000));
        assert!(!refusals.is_soon(Some(Code::Unavailable), 3_000 + SOON_NS));
    }

    #[test]
    fn a_node_that_was_a_member_goes_on_serving() {
        let mut refusals = Refusals::default();
        assert!(!refusals.is_final(None, 0));
        assert!(!refusals.is_final(Some(Code::Unauthenticated), 1_000));
    }
}
