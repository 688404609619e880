//! How a node was started: what its command line says beside its configuration.

use super::memory::Wishes;
use std::path::PathBuf;

/// How a node was started.
pub(crate) struct Settings {
    /// Where its configuration lies, with the areas and targets that were added to it.
    pub(crate) directory: PathBuf,
    /// Where its state lies: what it remembers, jobs, lock and notice.
    pub(crate) state: PathBuf,
    /// A cluster key is not demanded.
    pub(crate) insecure: bool,
    /// It ends when standard input does.
    pub(crate) until_stdin_closes: bool,
    /// What its operator has said about disks that are not there.
    pub(crate) wishes: Wishes,
}
