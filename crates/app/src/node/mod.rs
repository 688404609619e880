//! A node: one process with the roles its configuration names.

pub(crate) mod areas;
pub(crate) mod calls;
pub(crate) mod config;
pub(crate) mod daemon;
mod disk;
pub(crate) mod files;
mod http;
mod leases;
mod link;
mod measures;
mod membership;
pub(crate) mod memory;
mod metrics;
pub(crate) mod opening;
pub(crate) mod owners;
mod pauses;
mod router;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod targets;
