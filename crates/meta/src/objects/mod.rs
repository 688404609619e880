//! Ends of files: what goes when the last name, the last handle and the last object go.
//!
//! [`orphans`] are files without a name that a session has open. [`reclaim`] has the objects of ended files removed by
//! the data servers. [`orphan_objects`] walks all targets slowly for objects that a late write made again.

pub(crate) mod orphan_objects;
pub(crate) mod orphans;
pub(crate) mod reclaim;
