//! What is done to a volume while faults come: writers, each a process with a directory to itself, and their journals.

pub(crate) mod access;
pub(crate) mod bytes;
pub(crate) mod journal;
pub(crate) mod process;
pub(crate) mod sharing;
pub(crate) mod tree;
pub(crate) mod writer;

pub use sharing::process::{Arguments as SharerArguments, run as share};
pub use writer::{Arguments as WriterArguments, run as write};
