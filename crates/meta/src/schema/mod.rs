//! What is in the engine: keys, the records under them, hashes of names, and numbers given out once.

pub(crate) mod groups;
pub(crate) mod keys;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod records;
