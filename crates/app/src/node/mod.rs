//! A node: one process with the roles its configuration names.

pub(crate) mod areas;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod files;
mod measures;
mod membership;
mod metrics;
pub(crate) mod owners;
mod router;
pub(crate) mod targets;
