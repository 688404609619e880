//! Scrubbing targets: the servers do it, this asks them.

use super::{Administration, ComparedCopies, compare};
use crate::data::malformed;
use crate::{Error, Result};
use prost::Message;
use vazao_model::{Code, GroupId, InodeId, ObjectId, TargetId};
pub use vazao_wire::shell::scrub::State as ScrubState;
use vazao_wire::{Method, op, proto};

/// What to ask of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubOrder {
    /// How far it has come.
    Report,
    /// To begin, reading at most so many bytes a second (0: no limit); one that runs goes on at this rate.
    Start(u64),
    /// To end.
    Stop,
}

impl ScrubOrder {
    /// As requests have it: `action`, `rate_bytes`.
    pub(crate) fn to_wire(self) -> (u32, u64) {
        match self {
            ScrubOrder::Report => (0, 0),
            ScrubOrder::Start(rate_bytes) => (1, rate_bytes),
            ScrubOrder::Stop => (2, 0),
        }
    }
}

/// Something that is not as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScrubFinding {
    /// Which object.
    pub object: ObjectId,
    /// Where in it.
    pub offset: u64,
    /// What is wrong, for people.
    pub what: String,
}

/// How far a scrub has come, and what it has found.
#[derive(Clone, PartialEq, Debug)]
pub struct ScrubReport {
    /// Which target.
    pub target: TargetId,
    /// What it is doing.
    pub state: ScrubState,
    /// Share of the target it has been through, 0 to 1.
    pub share: f64,
    /// Objects looked at.
    pub objects: u64,
    /// Bytes looked at, holes included.
    pub bytes: u64,
    /// Blocks, and chunks as a whole, that do not match their checksums.
    pub damaged: u64,
    /// Of those: repaired from another copy.
    pub repaired: u64,
    /// Places that the disk would not read.
    pub unreadable: u64,
    /// Milliseconds since it began; to its end, when that has come.
    pub elapsed_ms: u64,
    /// Bytes a second it is held to; 0: no limit.
    pub rate_bytes: u64,
    /// The first of what was found.
    pub findings: Vec<ScrubFinding>,
    /// Why it failed; empty otherwise.
    pub trouble: String,
}

impl Administration<'_> {
    /// Compares all copies of a file. Damaged blocks are repaired from a good copy; where contents differ, those of the
    /// primary replace the others only with `repair`. `progress` gets the bytes compared with each answer, and says
    /// whether to go on. Errors: a server that does not answer, or is too old to compare copies.
    pub fn compare_copies(
        &self,
        inode: InodeId,
        repair: bool,
        progress: &dyn Fn(u64) -> bool,
    ) -> Result<ComparedCopies> {
        compare::compare_copies(self.core, inode, repair, progress)
    }

    /// Gives an order about the scrub of a target, and returns how it stands. Errors: an unknown target, or one that
    /// failed; its server does not answer, or is too old to know of scrubs.
    pub fn scrub(&self, target: TargetId, order: ScrubOrder) -> Result<ScrubReport> {
        let (action, rate_bytes) = order.to_wire();
        let core = &self.core;
        let deadline_ns = core.context.deadline_ns();
        let message = proto::ScrubRequest { target: target.0, action, rate_bytes }.encode_to_vec();
        let mut call = core.data.submit_data(GroupId::of(target), Method::Scrub, message, &[], deadline_ns);
        let received = core.data.finish_data(&mut call, &[], deadline_ns).map_err(|e| e.about(target))?;
        let response = crate::meta::decode::<op::Scrub>(&received)?;
        let unknown = |state: u32| malformed(&call, &format!("a scrub in state {state}"));
        let state = ScrubState::try_from(response.state).map_err(unknown)?;
        Ok(report(target, state, response))
    }

    /// The target with this name, `t7` or `7`.
    pub fn find_target(&self, name: &str) -> Result<TargetId> {
        let number = name.strip_prefix('t').unwrap_or(name).parse().ok().map(TargetId);
        let known = number.filter(|id| self.core.servers.routes().map.target(*id).is_some());
        known.ok_or_else(|| Error::new(Code::NotFound, format!("target {name}; `vazao status` lists them")))
    }
}

fn report(target: TargetId, state: ScrubState, response: proto::ScrubResponse) -> ScrubReport {
    let finding = |found: proto::ScrubFinding| ScrubFinding {
        object: ObjectId {
            inode: vazao_model::InodeId(found.inode),
            generation: found.generation,
            slot: found.slot,
            group: GroupId(0),
        },
        offset: found.offset,
        what: found.what,
    };
    ScrubReport {
        target,
        state,
        share: f64::from(response.parts_done) / f64::from(response.parts.max(1)),
        objects: response.objects,
        bytes: response.bytes,
        damaged: response.damaged,
        repaired: response.repaired,
        unreadable: response.unreadable,
        elapsed_ms: response.elapsed_ms,
        rate_bytes: response.rate_bytes,
        findings: response.findings.into_iter().map(finding).collect(),
        trouble: response.trouble,
    }
}
