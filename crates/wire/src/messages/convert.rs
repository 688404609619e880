//! Between the nouns of the model and their messages. What comes from a peer is checked here.

use crate::proto;
use crate::service::Fault;
use std::ops::Range;
use vazao_model::distribution::{Distribution, Pattern, Strip, Strips};
use vazao_model::layout::LayoutError;
use vazao_model::{
    AreaInfo, Attributes, AwayMember, ClusterMap, Code, Epoch, FileKind, Group, GroupAway, GroupId, InodeId,
    Layout, LayoutHint, Node, NodeId, NodeState, ObjectId, Placement, Refusal, Role, Target, TargetId,
    TargetState, Timestamp, zone,
};

/// Version of a layout that older software, which reads simple stripes only, can read.
const LAYOUT_VERSION_STRIPE: u32 = 1;

/// Of one that they would misread, and that software without placement groups can read.
const LAYOUT_VERSION_PATTERN: u32 = 2;

/// Of one with placement groups.
const LAYOUT_VERSION: u32 = 3;

impl From<&Fault> for proto::Failure {
    fn from(fault: &Fault) -> Self {
        Self { code: fault.code.number(), detail: fault.detail.clone(), epoch: fault.epoch }
    }
}

impl From<proto::Failure> for Fault {
    fn from(failure: proto::Failure) -> Self {
        Fault::new(Code::from_number(failure.code), failure.detail).as_of(failure.epoch)
    }
}

impl From<Timestamp> for proto::Timestamp {
    fn from(t: Timestamp) -> Self {
        Self { seconds: t.seconds, nanoseconds: t.nanoseconds }
    }
}

impl From<proto::Timestamp> for Timestamp {
    fn from(t: proto::Timestamp) -> Self {
        Self { seconds: t.seconds, nanoseconds: t.nanoseconds.min(999_999_999) }
    }
}

impl From<&Range<u64>> for proto::Extent {
    fn from(range: &Range<u64>) -> Self {
        Self { start: range.start, length: range.end.saturating_sub(range.start) }
    }
}

impl From<&proto::Extent> for Range<u64> {
    fn from(extent: &proto::Extent) -> Self {
        extent.start..extent.start.saturating_add(extent.length)
    }
}

impl From<&Attributes> for proto::Attributes {
    fn from(a: &Attributes) -> Self {
        Self {
            inode: a.inode.0,
            kind: a.kind.number(),
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            allocated_bytes: a.allocated_bytes,
            links: a.links,
            device: a.device,
            accessed: Some(a.accessed.into()),
            modified: Some(a.modified.into()),
            changed: Some(a.changed.into()),
            version: a.version,
            without_xattrs: a.without_xattrs,
        }
    }
}

impl TryFrom<proto::Attributes> for Attributes {
    type Error = Fault;

    fn try_from(a: proto::Attributes) -> Result<Self, Fault> {
        let kind = FileKind::from_number(a.kind).ok_or_else(|| {
            Fault::new(Code::BadRequest, format!("inode {} of unknown kind {}", a.inode, a.kind))
        })?;
        Ok(Self {
            inode: InodeId(a.inode),
            kind,
            mode: a.mode,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            allocated_bytes: a.allocated_bytes,
            links: a.links,
            device: a.device,
            accessed: a.accessed.unwrap_or_default().into(),
            modified: a.modified.unwrap_or_default().into(),
            changed: a.changed.unwrap_or_default().into(),
            version: a.version,
            without_xattrs: a.without_xattrs,
        })
    }
}

impl From<&Layout> for proto::Layout {
    fn from(l: &Layout) -> Self {
        let pattern = l.distribution.pattern();
        let is_stripe = pattern == Pattern::Stripe;
        let is_away = l.distribution == Distribution::Local { is_away: true };
        Self {
            generation: l.generation,
            distribution: pattern.number(),
            unit_bytes: l.distribution.unit_bytes(),
            groups: l.groups.iter().map(|group| group.0).collect(),
            written_slots: l.written_slots,
            version: match l.groups.iter().all(|group| group.target().is_some()) {
                true if is_stripe => LAYOUT_VERSION_STRIPE,
                true => LAYOUT_VERSION_PATTERN,
                false => LAYOUT_VERSION,
            },
            pattern: (!is_stripe).then(|| proto::Pattern { away: is_away, ..(&pattern).into() }),
            life: if l.life == l.generation { 0 } else { l.life },
        }
    }
}

impl TryFrom<proto::Layout> for Layout {
    type Error = Fault;

    fn try_from(l: proto::Layout) -> Result<Self, Fault> {
        if !(LAYOUT_VERSION_STRIPE..=LAYOUT_VERSION).contains(&l.version) {
            let detail = format!(
                "layout of version {}; this program knows {LAYOUT_VERSION_STRIPE} to {LAYOUT_VERSION}: \
                 use the version of Vazão that wrote it, or a newer one",
                l.version
            );
            return Err(Fault::new(Code::VersionMismatch, detail));
        }
        let layout = Layout {
            generation: l.generation,
            distribution: distribution(l.distribution, l.unit_bytes, l.pattern)?,
            groups: l.groups.into_iter().map(GroupId).collect(),
            written_slots: l.written_slots,
            life: if l.life == 0 { l.generation } else { l.life },
        };
        layout.check().map_err(refused)?;
        Ok(layout)
    }
}

/// A distribution of a newer version is not damage: clients of that version can read it.
fn refused(error: LayoutError) -> Fault {
    let code = match error {
        LayoutError::Distribution(_) => Code::VersionMismatch,
        _ => Code::BadRequest,
    };
    Fault::new(code, error.to_string())
}

fn distribution(
    number: u32,
    unit_bytes: u64,
    pattern: Option<proto::Pattern>,
) -> Result<Distribution, Fault> {
    let pattern = pattern.unwrap_or_default();
    match number {
        1 => Ok(Distribution::SimpleStripe { unit_bytes }),
        2 => Strips::new(strips(&pattern)).map(Distribution::VaryingStrips).map_err(refused),
        3 => Ok(Distribution::Groups { unit_bytes, groups: pattern.groups, factor: pattern.factor }),
        4 => Ok(Distribution::Local { is_away: pattern.away }),
        other => Err(refused(LayoutError::Distribution(other))),
    }
}

fn strips(pattern: &proto::Pattern) -> Vec<Strip> {
    pattern.strips.iter().map(|strip| Strip { slot: strip.slot, bytes: strip.bytes }).collect()
}

impl From<&Pattern> for proto::Pattern {
    fn from(pattern: &Pattern) -> Self {
        let message = Self { distribution: pattern.number(), ..Self::default() };
        match pattern {
            Pattern::Stripe | Pattern::Local => message,
            Pattern::Strips(strips) => {
                let strip = |strip: &Strip| proto::Strip { slot: strip.slot, bytes: strip.bytes };
                Self { strips: strips.iter().map(strip).collect(), ..message }
            }
            Pattern::Groups { groups, factor } => Self { groups: *groups, factor: *factor, ..message },
        }
    }
}

impl TryFrom<&proto::Pattern> for Pattern {
    type Error = Fault;

    fn try_from(message: &proto::Pattern) -> Result<Self, Fault> {
        let pattern = match message.distribution {
            1 => Pattern::Stripe,
            2 => Pattern::Strips(strips(message)),
            3 => Pattern::Groups { groups: message.groups, factor: message.factor },
            4 => Pattern::Local,
            other => return Err(refused(LayoutError::Distribution(other))),
        };
        pattern.check().map_err(refused)?;
        Ok(pattern)
    }
}

impl From<LayoutHint> for proto::LayoutHint {
    fn from(h: LayoutHint) -> Self {
        let pattern = h.pattern.as_ref().map(Into::into);
        let placement = h.placement.as_ref().map(Into::into);
        Self { stripe_unit_bytes: h.stripe_unit_bytes, width: h.width, pattern, placement, copies: h.copies }
    }
}

impl TryFrom<proto::LayoutHint> for LayoutHint {
    type Error = Fault;

    fn try_from(h: proto::LayoutHint) -> Result<Self, Fault> {
        let pattern = h.pattern.as_ref().map(Pattern::try_from).transpose()?;
        let placement = h.placement.as_ref().map(Placement::try_from).transpose()?;
        let (stripe_unit_bytes, width, copies) = (h.stripe_unit_bytes, h.width, h.copies);
        Ok(Self { stripe_unit_bytes, width, pattern, placement, copies })
    }
}

impl From<&Placement> for proto::Placement {
    fn from(placement: &Placement) -> Self {
        let (kind, zone) = match placement {
            Placement::Everywhere => (1, ""),
            Placement::NearWriter => (2, ""),
            Placement::Zone(zone) => (3, zone.as_str()),
        };
        Self { kind, zone: zone.to_owned() }
    }
}

impl TryFrom<&proto::Placement> for Placement {
    type Error = Fault;

    fn try_from(message: &proto::Placement) -> Result<Self, Fault> {
        match message.kind {
            1 => Ok(Placement::Everywhere),
            2 => Ok(Placement::NearWriter),
            3 => match zone::check_name(&message.zone) {
                Ok(()) => Ok(Placement::Zone(message.zone.clone())),
                Err(why) => Err(Fault::new(Code::BadRequest, why)),
            },
            other => Err(Fault::new(Code::VersionMismatch, format!("unknown placement {other}"))),
        }
    }
}

impl From<&Target> for proto::Target {
    fn from(t: &Target) -> Self {
        Self {
            id: t.id.0,
            node: t.node.0,
            state: t.state as u32,
            capacity_bytes: t.capacity_bytes,
            available_bytes: t.available_bytes,
            trouble: t.trouble.clone(),
            file_system: t.file_system,
            used_bytes: t.used_bytes,
            reserve_bytes: t.reserve_bytes,
            corrupt_blocks: t.corrupt_blocks,
            missing_objects: t.missing_objects,
            repaired: t.repaired,
            uuid: Vec::new(),
            directory: t.directory.clone(),
            incarnation: t.incarnation,
            found: t.found,
            found_seconds: t.found_seconds,
            is_meant: false,
            is_unreported: t.is_unreported,
        }
    }
}

impl From<proto::Target> for Target {
    fn from(t: proto::Target) -> Self {
        Self {
            id: TargetId(t.id),
            node: NodeId(t.node),
            state: TargetState::from_number(t.state),
            capacity_bytes: t.capacity_bytes,
            available_bytes: t.available_bytes,
            trouble: t.trouble,
            file_system: t.file_system,
            used_bytes: t.used_bytes,
            reserve_bytes: t.reserve_bytes,
            corrupt_blocks: t.corrupt_blocks,
            missing_objects: t.missing_objects,
            repaired: t.repaired,
            directory: t.directory,
            incarnation: t.incarnation,
            found: t.found,
            found_seconds: t.found_seconds,
            is_unreported: t.is_unreported,
        }
    }
}

impl From<&Refusal> for proto::Refusal {
    fn from(r: &Refusal) -> Self {
        let Refusal { name, address, why, ago_ms } = r.clone();
        Self { name, address, why, ago_ms }
    }
}

impl From<proto::Refusal> for Refusal {
    fn from(r: proto::Refusal) -> Self {
        let proto::Refusal { name, address, why, ago_ms } = r;
        Self { name, address, why, ago_ms }
    }
}

impl From<&Node> for proto::Node {
    fn from(n: &Node) -> Self {
        Self {
            id: n.id.0,
            name: n.name.clone(),
            address: n.address.clone(),
            roles: n.roles.iter().map(|r| *r as u32).collect(),
            state: n.state as u32,
            silent_ms: n.silent_ms,
            areas: n.areas.iter().map(Into::into).collect(),
            zone: n.zone.clone(),
        }
    }
}

impl From<&AreaInfo> for proto::Area {
    fn from(a: &AreaInfo) -> Self {
        Self { name: a.name.clone(), read_only: a.read_only, trouble: a.trouble.clone() }
    }
}

impl From<proto::Area> for AreaInfo {
    fn from(a: proto::Area) -> Self {
        Self { name: a.name, read_only: a.read_only, trouble: a.trouble }
    }
}

impl From<proto::Node> for Node {
    fn from(n: proto::Node) -> Self {
        Self {
            id: NodeId(n.id),
            name: n.name,
            address: n.address,
            roles: n.roles.into_iter().filter_map(Role::from_number).collect(),
            state: if n.state == NodeState::Up as u32 { NodeState::Up } else { NodeState::Silent },
            silent_ms: n.silent_ms,
            areas: n.areas.into_iter().map(Into::into).collect(),
            zone: n.zone,
        }
    }
}

impl From<&ClusterMap> for proto::ClusterMap {
    fn from(m: &ClusterMap) -> Self {
        Self {
            cluster_id: m.cluster_id,
            epoch: m.epoch.0,
            nodes: m.nodes.iter().map(Into::into).collect(),
            targets: m.targets.iter().map(Into::into).collect(),
            refusals: m.refusals.iter().map(Into::into).collect(),
            trouble: m.trouble.clone(),
            groups: m.groups.iter().map(Into::into).collect(),
            away: m.away.iter().map(Into::into).collect(),
            lagging: m.lagging.iter().map(Into::into).collect(),
        }
    }
}

impl From<&GroupAway> for proto::GroupAway {
    fn from(a: &GroupAway) -> Self {
        let member = |m: &AwayMember| proto::AwayMember {
            target: m.target.0,
            leaving: m.is_leaving,
            ago_ms: m.ago_ms,
        };
        Self { id: a.id.0, copies: a.copies, members: a.members.iter().map(member).collect() }
    }
}

impl From<proto::GroupAway> for GroupAway {
    fn from(a: proto::GroupAway) -> Self {
        let member = |m: proto::AwayMember| AwayMember {
            target: TargetId(m.target),
            is_leaving: m.leaving,
            ago_ms: m.ago_ms,
        };
        Self { id: GroupId(a.id), copies: a.copies, members: a.members.into_iter().map(member).collect() }
    }
}

impl From<&Group> for proto::Group {
    fn from(g: &Group) -> Self {
        let members = g.members.iter().map(|target| target.0).collect();
        Self { id: g.id.0, epoch: g.epoch, members, agreed: g.is_agreed }
    }
}

impl From<proto::Group> for Group {
    fn from(g: proto::Group) -> Self {
        let members = g.members.into_iter().map(TargetId).collect();
        Self { id: GroupId(g.id), epoch: g.epoch, members, is_agreed: g.agreed }
    }
}

impl From<proto::ClusterMap> for ClusterMap {
    fn from(m: proto::ClusterMap) -> Self {
        Self {
            cluster_id: m.cluster_id,
            epoch: Epoch(m.epoch),
            nodes: m.nodes.into_iter().map(Into::into).collect(),
            targets: m.targets.into_iter().map(Into::into).collect(),
            refusals: m.refusals.into_iter().map(Into::into).collect(),
            trouble: m.trouble,
            groups: m.groups.into_iter().map(Into::into).collect(),
            away: m.away.into_iter().map(Into::into).collect(),
            lagging: m.lagging.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<&proto::ObjectAddress> for ObjectId {
    fn from(o: &proto::ObjectAddress) -> Self {
        Self {
            inode: InodeId(o.inode),
            generation: o.generation,
            slot: o.slot,
            group: GroupId(o.group).shared(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_of_a_newer_version_or_without_targets_is_refused() {
        let layout = Layout::striped(3, 65536, vec![GroupId(1), GroupId(2)]).expect("valid");
        let message = proto::Layout::from(&layout);
        assert_eq!(Layout::try_from(message.clone()).expect("valid"), layout);
        let future = Layout::try_from(proto::Layout { version: 4, ..message.clone() }).expect_err("refused");
        assert_eq!(future.code, Code::VersionMismatch);
        let unknown = Layout::try_from(proto::Layout { distribution: 5, ..message.clone() });
        assert_eq!(unknown.expect_err("refused").code, Code::VersionMismatch);
        assert!(Layout::try_from(proto::Layout { groups: vec![], ..message.clone() }).is_err());
        assert!(Layout::try_from(proto::Layout { unit_bytes: 1000, ..message }).is_err());
    }

    #[test]
    fn what_placement_groups_lack_survives_the_wire() {
        let member = |target, is_leaving, ago_ms| AwayMember { target: TargetId(target), is_leaving, ago_ms };
        let members = vec![member(3, false, 72_000), member(4, true, 0)];
        let away = vec![GroupAway { id: GroupId(GroupId::FIRST + 7), copies: 3, members }];
        let map = ClusterMap { away, ..ClusterMap::default() };
        assert_eq!(ClusterMap::from(proto::ClusterMap::from(&map)), map);
    }

    #[test]
    fn placements_survive_the_wire_and_unknown_ones_are_refused() {
        for placement in [Placement::Everywhere, Placement::NearWriter, Placement::Zone("rio".to_owned())] {
            let hint = LayoutHint { placement: Some(placement), ..LayoutHint::default() };
            assert_eq!(LayoutHint::try_from(proto::LayoutHint::from(hint.clone())).expect("valid"), hint);
        }
        let refused = |kind, zone: &str| {
            Placement::try_from(&proto::Placement { kind, zone: zone.to_owned() }).expect_err("refused").code
        };
        assert_eq!((refused(4, ""), refused(0, "")), (Code::VersionMismatch, Code::VersionMismatch));
        assert_eq!((refused(3, ""), refused(3, "a/b")), (Code::BadRequest, Code::BadRequest));
    }

    #[test]
    fn layouts_and_hints_of_every_distribution_survive_the_wire() {
        let strips = vec![Strip { slot: 1, bytes: 65536 }, Strip { slot: 0, bytes: 131_072 }];
        let all = [
            (2, Distribution::SimpleStripe { unit_bytes: 65536 }, 1),
            (GroupId::FIRST + 1, Distribution::SimpleStripe { unit_bytes: 65536 }, 3),
            (2, Distribution::VaryingStrips(Strips::new(strips).expect("valid")), 2),
            (4, Distribution::Groups { unit_bytes: 65536, groups: 2, factor: 3 }, 2),
            (1, Distribution::Local { is_away: true }, 2),
        ];
        for (last, distribution, version) in all {
            let pattern = distribution.pattern();
            let groups = (last - (last.min(4) - 1)..=last).map(GroupId).collect();
            let layout = Layout { life: 5, ..Layout::new(7, distribution, groups).expect("valid") };
            let message = proto::Layout::from(&layout);
            assert_eq!(message.version, version, "programs that know stripes only must not misread others");
            assert_eq!(Layout::try_from(message).expect("valid"), layout);
            let (pattern, placement) = (Some(pattern), None);
            let hint = LayoutHint { stripe_unit_bytes: 65536, width: 0, pattern, placement, copies: 2 };
            assert_eq!(LayoutHint::try_from(proto::LayoutHint::from(hint.clone())).expect("valid"), hint);
        }
    }
}
