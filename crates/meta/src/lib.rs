//! The metadata service: every operation one transaction over an ordered key-value engine.
//!
//! [`MetaService`] implements the wire's `Service`; `ops/` has one file a family of operations, `engine/` the
//! stores under them, `keys` and `records` the schema between the two. The service checks what POSIX demands of
//! names, types, links and sizes. It does not check permissions: clients prove that they belong to the cluster,
//! and a door has its kernel check modes and owners. It never touches file data, except that it has the objects of
//! deleted files removed.

mod acl;
mod engine;
mod integrity;
mod line_users;
mod membership;
mod objects;
mod ops;
mod part;
mod placement;
mod schema;
mod service;
mod sessions;

#[cfg(test)]
mod tests;

pub use engine::Background;
pub use integrity::check::Checked;
pub use service::{MetaOptions, MetaService};
