//! A cluster on one machine: the directory it lives in and the processes it consists of.

pub(crate) mod directory;
pub(crate) mod processes;
