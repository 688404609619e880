//! Names the bottleneck: the one resource that limited a stretch of time, from the measures of all processes
//! involved.
//!
//! A resource limits when two things come together: it is used up, and threads wait for it. Used up means near a
//! ceiling that was set or measured (a quota, a rate, a device that is never idle). Waiting is what threads were
//! charged with. Either alone proves nothing: a disk may be busy with a write-back that blocks no thread, and a
//! thread may wait for a server that itself waits for something else. So each candidate's score is the smaller of the
//! two, weighted by how long the observer was blocked on the server that the resource belongs to. The highest score
//! is named, and none below [`CONCLUSIVE`]. The rules are in docs/bottleneck.md, in the same order.

mod judge;
mod own;
mod path;
mod steady;
#[cfg(test)]
mod tests;
mod verdict;

pub use judge::{CONCLUSIVE, Scene, judge, not_answering};
pub use steady::Steady;
pub use verdict::{Direction, Kind, Resource, SetRate, Verdict};
