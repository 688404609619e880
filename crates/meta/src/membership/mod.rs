//! Who belongs to the cluster: its nodes and targets, how they join, which of them are what they claim to be.
//!
//! [`cluster`] has the map that everybody sees. A registration goes through [`joining`], which asks [`claims`] (two
//! processes with one identity), [`incarnations`] (a disk that came back older than it was) and [`history`] (metadata
//! that came back older than its members); what is turned down is kept by [`refusals`] for `vazao status`.
//! [`member_watch`] writes to the log who went silent and who is back. Who belongs to which placement group is decided
//! in [`groups`], by what its members say ([`reports`]); how far those lag that are behind, in [`lagging`].
//! [`replacing`] has an empty directory take a lost target's place.

pub(crate) mod claims;
pub(crate) mod cluster;
mod groups;
pub(crate) mod history;
pub(crate) mod incarnations;
pub(crate) mod joining;
pub(crate) mod lagging;
pub(crate) mod member_watch;
pub(crate) mod refusals;
pub(crate) mod replacing;
pub(crate) mod reports;
