//! What the measurement behind P4, P5, P7 and P8 brought: it is made once in one call and kept for all of them.

use crate::psplit::Results;

/// What was measured, and with what.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) threads: Vec<u32>,
    pub(super) total_bytes: u64,
    pub(super) cold: Results,
    pub(super) warm: Results,
    pub(super) setup: Vec<String>,
    pub(super) gaps: Vec<String>,
}
