//! Why a directory cannot be served.

use std::io;
use vazao_model::TargetId;

/// A refusal to open a target. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory has no TARGET file, and other things in it.
    #[error(
        "{label} holds {found:?} but no TARGET file: it is not a target; give an empty directory, or the right one (an unmounted disk?)"
    )]
    NotEmpty {
        /// The directory.
        label: String,
        /// Something in it.
        found: String,
    },
    /// Written by another version.
    #[error(
        "{label} is a target of format {found}; this version reads format {known}: use the version that wrote it, or upgrade it with the newer one"
    )]
    Format {
        /// The directory.
        label: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Written with another chunk size.
    #[error("{label} is a target with chunks of {found} bytes; this server is set to {known}")]
    ChunkBytes {
        /// The directory.
        label: String,
        /// Its chunk size.
        found: u64,
        /// Ours.
        known: u64,
    },
    /// A target of another cluster.
    #[error(
        "{label} belongs to cluster {found:016x}, not to {expected:016x}: give this cluster a directory of its own"
    )]
    OtherCluster {
        /// The directory.
        label: String,
        /// Its cluster.
        found: u64,
        /// Ours.
        expected: u64,
    },
    /// A target of another node.
    #[error(
        "{label} belongs to node {found} of the cluster, the targets before it to node {expected}: serve it from its own node"
    )]
    OtherNode {
        /// The directory.
        label: String,
        /// Its node.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// One target in two directories.
    #[error(
        "{label} is the same target as {other}: one of them is a copy; take it out of the configuration (if it is the newer one, the other)"
    )]
    Twice {
        /// The directory.
        label: String,
        /// The one before it.
        other: String,
    },
    /// Two directories that were given the same id.
    #[error(
        "{label} and {other} are both target {id}: one took the place of the other when that was lost; take the lost one out of the configuration"
    )]
    SameId {
        /// The directory.
        label: String,
        /// The one before it.
        other: String,
        /// The target.
        id: TargetId,
    },
    /// Another process serves it.
    #[error("{label} is in use by another process: stop that server first")]
    InUse {
        /// The directory.
        label: String,
    },
    /// A file that is checksummed does not match.
    #[error("{path} is damaged: the disk does not return what was written; replace the target")]
    Damaged {
        /// The file.
        path: String,
    },
    /// Options that cannot work.
    #[error("{0}")]
    Options(String),
    /// The disk or the system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: String,
        /// Why.
        source: io::Error,
    },
}
