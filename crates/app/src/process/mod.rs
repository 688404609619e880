//! This process: its log, and how many descriptors it may have.

pub(crate) mod descriptors;
pub(crate) mod log_file;
pub(crate) mod logging;
