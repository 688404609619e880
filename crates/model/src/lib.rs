//! The nouns of Vazão, without I/O: ids, attributes, layouts, limits, error codes, the cluster map.
//!
//! Everything else imports this crate and it imports nothing of ours. It knows neither files nor sockets nor
//! clocks: what it computes, it computes from its arguments, so that all of it can be tested as mathematics.

pub mod attributes;
pub mod checksum;
pub mod cluster;
pub mod distribution;
pub mod error;
pub mod extents;
pub mod ids;
pub mod layout;
pub mod limits;
pub mod locks;
pub mod name;
pub mod origin;
pub mod sidecar;
pub mod size;
pub mod zone;

pub use attributes::{Attributes, FileKind, Timestamp};
pub use cluster::{
    AreaInfo, AwayMember, ClusterMap, Group, GroupAway, Node, NodeState, Refusal, Role, Target, TargetState,
};
pub use error::{Action, Code, Knowledge};
pub use extents::Extents;
pub use ids::{Epoch, GroupId, InodeId, NodeId, ObjectId, SessionId, TargetId};
pub use layout::{Layout, LayoutHint};
pub use name::{Name, VolumePath};
pub use zone::Placement;
