//! Between the nouns of the model and their messages. What comes from a peer is checked here.

use crate::proto;
use crate::service::Fault;
use vazao_model::distribution::Distribution;
use vazao_model::{
    AreaInfo, Attributes, ClusterMap, Code, Epoch, FileKind, InodeId, Layout, LayoutHint, Node, NodeId,
    NodeState, ObjectId, Role, Target, TargetId, TargetState, Timestamp,
};

const LAYOUT_VERSION: u32 = 1;

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
        Self {
            generation: l.generation,
            distribution: l.distribution.number(),
            unit_bytes: l.distribution.unit_bytes(),
            targets: l.targets.iter().map(|t| t.0).collect(),
            written_slots: l.written_slots,
            version: LAYOUT_VERSION,
        }
    }
}

impl TryFrom<proto::Layout> for Layout {
    type Error = Fault;

    fn try_from(l: proto::Layout) -> Result<Self, Fault> {
        if l.version != LAYOUT_VERSION {
            return Err(Fault::new(Code::VersionMismatch, format!("layout of version {}", l.version)));
        }
        let refuse = |e: vazao_model::layout::LayoutError| Fault::new(Code::BadRequest, e.to_string());
        let layout = Layout {
            generation: l.generation,
            distribution: Distribution::from_number(l.distribution, l.unit_bytes).map_err(refuse)?,
            targets: l.targets.into_iter().map(TargetId).collect(),
            written_slots: l.written_slots,
        };
        layout.check().map_err(refuse)?;
        Ok(layout)
    }
}

impl From<LayoutHint> for proto::LayoutHint {
    fn from(h: LayoutHint) -> Self {
        Self { stripe_unit_bytes: h.stripe_unit_bytes, width: h.width }
    }
}

impl From<proto::LayoutHint> for LayoutHint {
    fn from(h: proto::LayoutHint) -> Self {
        Self { stripe_unit_bytes: h.stripe_unit_bytes, width: h.width }
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
        }
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
        }
    }
}

impl From<proto::ClusterMap> for ClusterMap {
    fn from(m: proto::ClusterMap) -> Self {
        Self {
            cluster_id: m.cluster_id,
            epoch: Epoch(m.epoch),
            nodes: m.nodes.into_iter().map(Into::into).collect(),
            targets: m.targets.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<&proto::ObjectAddress> for ObjectId {
    fn from(o: &proto::ObjectAddress) -> Self {
        Self { inode: InodeId(o.inode), generation: o.generation, slot: o.slot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_of_a_newer_version_or_without_targets_is_refused() {
        let layout = Layout::striped(3, 65536, vec![TargetId(1), TargetId(2)]).expect("valid");
        let message = proto::Layout::from(&layout);
        assert_eq!(Layout::try_from(message.clone()).expect("valid"), layout);
        assert!(Layout::try_from(proto::Layout { version: 2, ..message.clone() }).is_err());
        assert!(Layout::try_from(proto::Layout { targets: vec![], ..message.clone() }).is_err());
        assert!(Layout::try_from(proto::Layout { unit_bytes: 1000, ..message }).is_err());
    }
}
