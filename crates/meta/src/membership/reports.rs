//! What members report of their groups, until it is decided ([`super::groups`]).
//!
//! - Accusations are gathered for [`GATHER_NS`]: both ends of a link that is cut notice it, and the first to say so
//!   need not be the one that is well. A request with one waits with all that is in it.
//! - Whatever is decided is decided by a thread of its own, which may wait for the disk, and answered by it.

use crate::service::fault::Outcome;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::cluster::accusations::GATHER_NS;
use vazao_model::{Code, GroupId, NodeId, TargetId};
use vazao_wire::service::{Deferred, Fault};

/// Reports that may wait: of all groups of a large cluster from each of their members.
const REPORTS_MAX: usize = 65_536;

/// What a member says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// It does not hear these, or gives up their promotion.
    Silent(Vec<TargetId>),
    /// This process of a lagging one has caught up.
    Promote { target: TargetId, process: u64, instead_of: Option<TargetId> },
    /// It goes on alone.
    Lead { kept_power: bool },
}

/// One report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) node: NodeId,
    pub(crate) group: GroupId,
    /// In which it was decided.
    pub(crate) epoch: u64,
    /// The member that says so, and its process.
    pub(crate) target: TargetId,
    pub(crate) process: u64,
    pub(crate) said: Said,
}

/// A request whose answer is owed.
pub(crate) struct Waiting {
    pub(crate) reports: Vec<Report>,
    pub(crate) deferred: Deferred,
}

#[derive(Default)]
struct Gathered {
    /// When the first of those came that accuse.
    first_ns: Option<u64>,
    accusing: Vec<Waiting>,
    others: Vec<Waiting>,
    /// Reports in both.
    count: usize,
}

/// All that wait.
#[derive(Default)]
pub(crate) struct Reports {
    gathered: Mutex<Gathered>,
    come: Condvar,
}

impl Reports {
    /// Keeps a request until it is decided. Errors: too many wait, and `defer` was not called.
    pub(crate) fn add(
        &self,
        reports: Vec<Report>,
        now_ns: u64,
        defer: impl FnOnce() -> Deferred,
    ) -> Outcome<()> {
        let mut gathered = self.gathered.lock();
        if gathered.count + reports.len() > REPORTS_MAX {
            return Err(Fault::new(Code::Overloaded, format!("{} reports of members wait", gathered.count)));
        }
        gathered.count += reports.len();
        let accuses = reports.iter().any(|report| matches!(report.said, Said::Silent(_)));
        let waiting = Waiting { reports, deferred: defer() };
        if accuses {
            gathered.first_ns.get_or_insert(now_ns);
            gathered.accusing.push(waiting);
        } else {
            gathered.others.push(waiting);
        }
        self.come.notify_all();
        Ok(())
    }

    /// Blocks up to `timeout` until something is to be decided.
    pub(crate) fn wait(&self, clock: &dyn Clock, timeout: Duration) {
        let mut gathered = self.gathered.lock();
        let is_empty = |gathered: &mut Gathered| gathered.first_ns.is_none() && gathered.others.is_empty();
        self.come.wait_while_for(&mut gathered, is_empty, timeout);
        let left_ns = gathered
            .first_ns
            .map_or(0, |first_ns| first_ns.saturating_add(GATHER_NS).saturating_sub(clock.now_ns()));
        let left = Duration::from_nanos(left_ns).min(timeout);
        self.come.wait_while_for(&mut gathered, |gathered| gathered.others.is_empty(), left);
    }

    /// Those that are to be decided now.
    pub(crate) fn take(&self, now_ns: u64) -> Vec<Waiting> {
        let mut gathered = self.gathered.lock();
        let is_due = |first_ns: u64| now_ns.saturating_sub(first_ns) >= GATHER_NS;
        let mut taken = std::mem::take(&mut gathered.others);
        if gathered.first_ns.is_some_and(is_due) {
            gathered.first_ns = None;
            taken.append(&mut gathered.accusing);
        }
        gathered.count -= taken.iter().map(|waiting| waiting.reports.len()).sum::<usize>();
        taken
    }
}
