//! The metadata service: every operation one transaction over an ordered key-value engine.
//!
//! [`MetaService`] implements the wire's `Service`; `ops/` has one file a family of operations, `engine/` the
//! stores under them, `keys` and `records` the schema between the two. The service checks what POSIX demands of
//! names, types, links and sizes. It does not check permissions: clients prove that they belong to the cluster,
//! and a door has its kernel check modes and owners. It never touches file data, except that it has the objects of
//! deleted files removed.

mod acl;
mod answer;
mod check;
mod claims;
mod cluster;
mod context;
mod conversions;
mod dispatch;
mod engine;
mod fault;
mod history;
mod incarnations;
mod integrity;
mod interest;
mod invalidation_hub;
mod joining;
mod keys;
mod locks;
mod member_watch;
mod metrics;
mod names;
mod numbers;
mod once;
mod opens;
mod ops;
mod orphan_objects;
mod orphans;
mod placement;
mod proposals;
mod random;
mod reclaim;
mod records;
mod refusals;
mod service;
mod sessions;

#[cfg(test)]
mod tests;

pub use check::Checked;
pub use engine::Background;
pub use service::{MetaOptions, MetaService};
