//! What limits: from what all processes that take part say of a stretch of time, the one resource that held it up.
//!
//! A resource limits when two things come together: it is used up, and somebody waits for it. Used up means near a
//! ceiling that was set or measured (a quota, a rate, a device that is never idle); waiting is what threads
//! were charged with. Either alone says nothing: a disk may be busy writing back what nobody waits for, and a
//! thread may wait for a server that itself waits for something else. So each candidate's score is the smaller of
//! the two, weighted by how much the observer stood still for the server that it belongs to; the highest one is
//! named, and none below [`CONCLUSIVE`]. The rules are in docs/bottleneck.md, in the same order.

mod judge;
mod own;
mod path;
mod steady;
#[cfg(test)]
mod tests;
mod verdict;

pub use judge::{CONCLUSIVE, Scene, judge};
pub use own::OTHERS;
pub use steady::Steady;
pub use verdict::{Resource, Verdict};
