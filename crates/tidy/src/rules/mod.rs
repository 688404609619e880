//! One file a rule.

pub(crate) mod dependencies;
pub(crate) mod documents;
pub(crate) mod exemptions;
pub(crate) mod formats;
pub(crate) mod layers;
pub(crate) mod leftovers;
pub(crate) mod licences;
pub(crate) mod links;
pub(crate) mod modules;
pub(crate) mod sizes;
pub(crate) mod structure;
pub(crate) mod words;
