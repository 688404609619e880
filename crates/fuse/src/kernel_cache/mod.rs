//! The kernel's caches: what it was shown and may believe, and who tells it of changes.
//!
//! `told` remembers what the kernel was shown, `notices` queues invalidations and passes them on to a `notifier`, with
//! the renames of `moves`; `second_walks` has the kernel look again at names that are gone, `readdirplus` decides which
//! listings bring attributes, `mappings` has pages written back that programs may have stored into.

pub(crate) mod mappings;
mod moves;
pub(crate) mod notices;
pub(crate) mod notifier;
pub(crate) mod readdirplus;
pub(crate) mod second_walks;
pub(crate) mod told;
