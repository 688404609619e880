//! A node: one process with the roles its configuration names.

pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod files;
mod metrics;
mod router;
