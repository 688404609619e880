//! Objects of placement groups with several members: their changes are made by all current members, or by none.
//!
//! - The primary locks the blocks, has all other current members carry the change out, carries it out itself **last**
//!   and answers: so it never has what no other has. A sync goes the same way, without a lock.
//! - It answers only while it may acknowledge ([`MemberState`](vazao_model::cluster::serving::MemberState)), and
//!   everyone who counts then has the change. A member that is silent is waited for until the group goes on without it.
//! - Another member takes from the primary of its own epoch only, and passes on to it what a client brings instead.
//! - A change that one member made and another refused, or whose fate is not known, leaves its blocks *uneven*: the
//!   primary sends its own over them, under their lock, and tries again until that has succeeded.
//! - Each change has a number in its group. Members list what they took and have not been told is complete everywhere.
//!   A new primary collects these lists, and evens all of it out before it does anything else (`take_over`).
//!
//! What a primary has given up, or sends again, may still be on its way: it raises its *stream*, and members refuse
//! what is of an earlier stream or epoch, under the object's lock ([`Passed`](crate::object::attempts::Passed)). Late
//! requests of clients meet later attempts there, which go to all members with the change.
//!
//! A member that lags is brought up to date by its primary ([`catch_up`], [`level`]): meanwhile each change goes to it,
//! too. What it missed is known ([`missed`]) where it was away for a while and lost nothing; else all is compared. How
//! far that is, is counted in [`progress`].
//! Damage that one member has is repaired from another one's copy ([`restore`], [`sources`]); what it has lost is made
//! anew ([`missing`]), also from one that lags ([`lost`]).
//!
//! Lock order: blocks of an object, then the table of groups, then leases; the last two only for a moment. Work here
//! waits for other servers: it has threads of its own, and none of a target.

mod catch_up;
mod change;
mod compare;
mod copy;
mod even;
mod follow;
mod lead;
mod level;
mod locks;
mod lost;
mod missed;
mod missing;
mod progress;
mod restore;
mod several;
mod sources;

pub(crate) use change::{Body, Change, behind, bytes};
pub(crate) use follow::Duty;
#[cfg(test)]
pub(crate) use restore::{own_blocks, sound_blocks};

use crate::service::DataService;
use change::Touched;
use locks::Locks;
use missed::Missed;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::limits::ATTACHMENT_BYTES_MAX;
use vazao_model::{GroupId, TargetId};
use vazao_wire::pool::Pool;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Pending, Transport};

/// Changes under way at the same time: each waits for other servers most of its time.
const THREADS_MAX: usize = 64;

/// Changes that may wait for a thread.
const JOBS_MAX: usize = 1024;

/// Groups of a server whose members are walked at the same time; others wait.
const WALKS_MAX: usize = 2;
const WALKS_QUEUED_MAX: usize = 16;

/// Bytes of all these.
const JOBS_BYTES_MAX: usize = 64 * ATTACHMENT_BYTES_MAX;

/// What another member was sent, or why it was not.
type Sent = Result<Box<dyn Pending>, Fault>;

/// A member of this server, in one group.
type Key = (TargetId, GroupId);

/// What a group's primary knows of its changes.
#[derive(Default)]
struct Led {
    /// It has evened out what was under way when it became the primary.
    is_ready: bool,
    /// The number of the latest change.
    last: u64,
    /// Raised when anything was given up that may still be on its way to another member.
    stream: u64,
    /// Those that are under way.
    open: BTreeMap<u64, Touched>,
    /// Those after which members may differ.
    uneven: BTreeMap<u64, Touched>,
    /// What others miss, of which that is known; nothing while they count.
    missed: BTreeMap<TargetId, Missed>,
    /// What this process has changed, where it has gone on alone as it started, and members lag since.
    changed: Option<lost::Changed>,
    /// The epoch in which it took over; 0: it has not. What was begun under another one is not gone on with.
    leads_since: u64,
    /// A member that does not count yet.
    lagging: catch_up::Lagging,
}

impl Led {
    /// All changes with lower numbers are the same everywhere.
    fn confirmed(&self) -> u64 {
        let first = |changes: &BTreeMap<u64, Touched>| changes.first_key_value().map(|(number, _)| *number);
        first(&self.open).into_iter().chain(first(&self.uneven)).min().unwrap_or(self.last + 1)
    }

    /// It leads no more: what another one does since it knows nothing of.
    fn end_leading(&mut self) {
        self.missed.clear();
        self.changed = None;
        self.leads_since = 0;
        self.lagging.walked = None;
    }

    /// Notes a change after which members may differ. Two primaries may have given the same number to two changes.
    fn enter(&mut self, number: u64, touched: Touched) {
        self.last = self.last.max(number);
        let number = match self.uneven.get_mut(&number) {
            Some(known) if known.object == touched.object => {
                let is_new = |range: &Range<u64>| !known.ranges.contains(range);
                let new: Vec<Range<u64>> = touched.ranges.into_iter().filter(is_new).collect();
                known.ranges.extend(new);
                return;
            }
            Some(_) => {
                self.last += 1;
                self.last
            }
            None => number,
        };
        self.uneven.insert(number, touched);
    }

    /// A change has ended, or is evened out: those who do not have it miss it.
    fn missed_by_others(&mut self, touched: &Touched, has: impl Fn(TargetId) -> bool) {
        self.changed.iter_mut().for_each(|changed| changed.add(touched.object));
        for (_, missed) in self.missed.iter_mut().filter(|(target, _)| !has(**target)) {
            missed.add(touched);
        }
    }

    /// Whatever is not complete yet is missed by a member that is walked from now on.
    fn missed_by_walked(&mut self, target: TargetId) {
        if let Some(missed) = self.missed.get_mut(&target) {
            self.open.values().chain(self.uneven.values()).for_each(|touched| missed.add(touched));
        }
    }
}

/// What a member took and has not been told is complete.
#[derive(Default)]
struct List {
    last: u64,
    /// Of the last one.
    epoch: u64,
    changes: BTreeMap<u64, Touched>,
}

#[derive(Default)]
struct Table {
    led: HashMap<Key, Led>,
    lists: HashMap<Key, List>,
}

/// The changes of a server's groups with several members.
pub(crate) struct Replication {
    locks: Locks,
    table: Mutex<Table>,
    pool: Pool,
    /// For members that lag: each thread walks one group.
    walks: Pool,
    /// How far those are.
    progress: progress::Progress,
    piece_bytes: level::PieceBytes,
    is_turning: AtomicBool,
    transport: OnceLock<Arc<dyn Transport>>,
    /// Where the metadata service is; empty: not known yet.
    metadata: Mutex<String>,
    service: OnceLock<Weak<DataService>>,
}

impl Replication {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Replication {
        Replication {
            locks: Locks::default(),
            table: Mutex::default(),
            walks: Pool::new("catch-up", WALKS_MAX, WALKS_QUEUED_MAX, 0, Arc::clone(&clock)),
            pool: Pool::new("copies", THREADS_MAX, JOBS_MAX, JOBS_BYTES_MAX, clock),
            progress: progress::Progress::default(),
            piece_bytes: level::PieceBytes::default(),
            is_turning: AtomicBool::new(false),
            transport: OnceLock::new(),
            metadata: Mutex::default(),
            service: OnceLock::new(),
        }
    }

    pub(crate) fn serve(&self, service: &Arc<DataService>) {
        // Once: it belongs to one service.
        let _ = self.service.set(Arc::downgrade(service));
    }

    /// Lets what is under way end for so long.
    pub(crate) fn stop(&self, timeout: Duration) {
        self.pool.stop(timeout);
        self.walks.stop(timeout);
    }
}

impl DataService {
    /// What it sends changes to other members through. Until it is set no group with several members is served.
    pub fn set_transport(&self, transport: Arc<dyn Transport>) {
        // Once: a server has one.
        let _ = self.replication.transport.set(transport);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::{InodeId, ObjectId};

    fn touched(inode: u64, range: Range<u64>) -> Touched {
        let object = ObjectId { inode: InodeId(inode), generation: 1, slot: 0, group: GroupId(300) };
        Touched { object, ranges: vec![range] }
    }

    /// Each attempt to take over added all ranges of all members once more; and of two changes that two primaries had
    /// given the same number one was never evened out.
    #[test]
    fn what_is_told_again_changes_nothing_and_two_changes_of_one_number_are_both_kept() {
        let mut led = Led::default();
        for _ in 0..3 {
            led.enter(12, touched(1, 0..5));
            led.enter(12, touched(1, 7..9));
        }
        assert_eq!(led.uneven[&12].ranges, [0..5, 7..9]);
        led.enter(12, touched(2, 0..5));
        led.enter(13, touched(3, 0..5));
        let objects: Vec<u64> = led.uneven.values().map(|touched| touched.object.inode.0).collect();
        assert_eq!(objects.len(), 3, "{objects:?}");
        assert!(objects.contains(&1) && objects.contains(&2) && objects.contains(&3));
        assert!(led.last >= *led.uneven.keys().next_back().expect("there are some"));
    }
}
