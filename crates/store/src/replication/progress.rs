//! How far lagging members have come: counted by the primary of their groups while it walks them, told to the metadata
//! service with each heartbeat, and shown in metrics.
//!
//! - *Bytes of a group* are the lengths of its objects, as the directory of the group has them when a walk begins, or
//!   is tried in vain. Of a group with very many objects some of its directories are counted and stand for all. So they
//!   are an estimate: holes count, and what is written later does not until it is counted again.
//! - *Bytes left* are what the member missed, where that is known, and else all of them, minus the bytes that the
//!   present walk has compared. A walk that fails begins anew.
//! - *Rate and times* are those of the last seconds, over all groups of a target: two may be walked at the same time.
//!
//! It decides nothing. Its lock is taken after all others, for a moment.

use super::Key;
use super::missed::Missed;
use crate::service::DataService;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vazao_meter::{Clock, Exposition};
use vazao_model::TargetId;
use vazao_model::cluster::lagging::CatchUpWait;
use vazao_model::cluster::membership::{Member, Standing};
use vazao_wire::proto;

/// Rates are of so much of the past.
const WINDOW_NS: u64 = 10_000_000_000;

/// A group of which a member stays away is counted again after this, or after so many times as long as it took.
const COUNTED_NS: u64 = 30_000_000_000;
const PAUSES: u64 = 50;

/// One whose walk begins is counted again after this.
const FRESH_NS: u64 = 2_000_000_000;

/// Members that are told of; a server leads some hundred groups.
const TOLD_MAX: usize = 4096;

/// What a group's objects come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    bytes: u64,
    at_ns: u64,
    took_ns: u64,
}

impl Counted {
    fn is_old(&self, now_ns: u64, least_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.at_ns);
        age_ns >= least_ns.max(self.took_ns.saturating_mul(PAUSES).min(least_ns.saturating_mul(PAUSES)))
    }
}

/// A walk that is under way, or was.
#[derive(Clone, Copy, Debug)]
struct Walked {
    target: TargetId,
    /// To be compared.
    bytes: u64,
    compared_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfGroup {
    counted: Option<Counted>,
    walked: Option<Walked>,
}

/// What was done for one target, since the server started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Done {
    compared_bytes: u64,
    sent_bytes: u64,
    /// In the order of [`CatchUpWait::ALL`].
    ns: [u64; CatchUpWait::COUNT],
}

#[derive(Default)]
struct OfTarget {
    done: Done,
    /// What it was at some moments, the oldest first.
    marks: VecDeque<(u64, Done)>,
}

impl OfTarget {
    /// Bytes a second and times since the oldest mark in the window, or else the one before it.
    fn lately(&mut self, now_ns: u64) -> (u64, [u64; CatchUpWait::COUNT]) {
        while self.marks.len() > 1
            && self.marks.front().is_some_and(|(at_ns, _)| at_ns.saturating_add(WINDOW_NS) < now_ns)
        {
            self.marks.pop_front();
        }
        let (at_ns, before) = self.marks.front().copied().unwrap_or((now_ns, self.done));
        self.marks.push_back((now_ns, self.done));
        let compared = u128::from(self.done.compared_bytes.saturating_sub(before.compared_bytes));
        let rate = compared * 1_000_000_000 / u128::from(now_ns.saturating_sub(at_ns).max(1));
        let ns = std::array::from_fn(|at| self.done.ns[at].saturating_sub(before.ns[at]));
        (u64::try_from(rate).unwrap_or(u64::MAX), ns)
    }
}

/// A member that lags in a group which is led here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Lags {
    key: Key,
    target: TargetId,
    /// It is walked; true: to the end.
    walked: Option<bool>,
    /// What it missed, where that is known and it has kept what it had.
    missed_bytes: Option<u64>,
}

#[derive(Default)]
struct State {
    groups: BTreeMap<Key, OfGroup>,
    targets: BTreeMap<TargetId, OfTarget>,
}

/// Of all groups that a server leads.
#[derive(Default)]
pub(crate) struct Progress(Mutex<State>);

impl Progress {
    /// Whether what is known of a group is older than this.
    fn is_due(&self, key: Key, now_ns: u64, least_ns: u64) -> bool {
        let state = self.0.lock();
        let counted = state.groups.get(&key).and_then(|group| group.counted);
        counted.is_none_or(|counted| counted.is_old(now_ns, least_ns))
    }

    fn count(&self, key: Key, bytes: u64, (at_ns, took_ns): (u64, u64)) {
        self.0.lock().groups.entry(key).or_default().counted = Some(Counted { bytes, at_ns, took_ns });
    }

    /// A walk of a member begins, over what it missed, or over all where that is not known.
    pub(super) fn begin(&self, key: Key, target: TargetId, missed_bytes: Option<u64>, now_ns: u64) {
        let mut state = self.0.lock();
        let group = state.groups.entry(key).or_default();
        let bytes = missed_bytes.or(group.counted.map(|counted| counted.bytes)).unwrap_or(0);
        group.walked = Some(Walked { target, bytes, compared_bytes: 0 });
        let of = state.targets.entry(target).or_default();
        // Time in which nothing was walked belongs to no rate.
        if of.marks.back().is_none_or(|(at_ns, _)| at_ns.saturating_add(WINDOW_NS) < now_ns) {
            of.marks.clear();
            of.marks.push_back((now_ns, of.done));
        }
    }

    /// So much of a group was compared, and so much of that sent. Of a member that is not walked nothing is counted.
    pub(super) fn compared(&self, key: Key, target: TargetId, bytes: u64, sent_bytes: u64) {
        let mut state = self.0.lock();
        let State { groups, targets } = &mut *state;
        let walked = groups.get_mut(&key).and_then(|group| group.walked.as_mut());
        let Some(walked) = walked.filter(|walked| walked.target == target) else { return };
        walked.compared_bytes += bytes;
        let done = &mut targets.entry(target).or_default().done;
        done.compared_bytes += bytes;
        done.sent_bytes += sent_bytes;
    }

    /// A walk spent time. Of a member that is not walked nothing is counted.
    pub(super) fn spent(&self, key: Key, target: TargetId, wait: CatchUpWait, ns: u64) {
        let mut state = self.0.lock();
        let State { groups, targets } = &mut *state;
        let walked = groups.get(&key).and_then(|group| group.walked);
        if walked.is_some_and(|walked| walked.target == target) {
            targets.entry(target).or_default().done.ns[wait as usize - 1] += ns;
        }
    }

    /// The same of a request that took so long until its answer was there, which the other server had for a while, and
    /// its disk for some of that.
    pub(super) fn answered(&self, key: Key, target: TargetId, taken_ns: u64, service_ns: u64, disk_ns: u64) {
        let service_ns = service_ns.min(taken_ns);
        let disk_ns = disk_ns.min(service_ns);
        self.spent(key, target, CatchUpWait::TheirDisk, disk_ns);
        self.spent(key, target, CatchUpWait::TheirCpu, service_ns - disk_ns);
        self.spent(key, target, CatchUpWait::Network, taken_ns - service_ns);
    }

    /// What is told of those that lag. What is known of other groups is forgotten.
    fn told(&self, lagging: &[Lags], now_ns: u64) -> Told {
        let mut state = self.0.lock();
        let keys: BTreeSet<Key> = lagging.iter().map(|lags| lags.key).collect();
        state.groups.retain(|key, _| keys.contains(key));
        let members = lagging.iter().filter_map(|lags| member(&state, lags)).take(TOLD_MAX).collect();
        let targets: BTreeSet<TargetId> = lagging.iter().map(|lags| lags.target).collect();
        let works = targets.into_iter().filter_map(|target| {
            let (bytes_per_second, ns) = state.targets.get_mut(&target)?.lately(now_ns);
            let times = CatchUpWait::ALL.into_iter().zip(ns).filter(|(_, ns)| *ns > 0);
            let times = times.map(|(wait, ns)| proto::CatchUpTime { wait: wait as u32, ns }).collect();
            Some(proto::CatchUpWork { target: target.0, bytes_per_second, times })
        });
        Told { members, works: works.collect() }
    }

    /// Bytes of the groups of each target that lags, and those of them that are left.
    fn sums(&self, lagging: &[Lags]) -> BTreeMap<TargetId, (u64, u64)> {
        let state = self.0.lock();
        let mut sums: BTreeMap<TargetId, (u64, u64)> = BTreeMap::new();
        for member in lagging.iter().filter_map(|lags| member(&state, lags)) {
            let (bytes, left_bytes) = sums.entry(TargetId(member.target)).or_default();
            *bytes += member.bytes;
            *left_bytes += member.left_bytes;
        }
        sums
    }
}

/// `None`: the group was not counted yet.
fn member(state: &State, lags: &Lags) -> Option<proto::LaggingMember> {
    let group = state.groups.get(&lags.key)?;
    let bytes = group.counted?.bytes;
    let left_bytes = match (lags.walked, group.walked.filter(|walked| walked.target == lags.target)) {
        (Some(true), _) => 0,
        (Some(false), Some(walked)) => walked.bytes.saturating_sub(walked.compared_bytes),
        _ => lags.missed_bytes.map_or(bytes, |missed| missed.min(bytes)),
    };
    Some(proto::LaggingMember { group: lags.key.1.0, target: lags.target.0, bytes, left_bytes })
}

/// What the metadata service is told.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Told {
    pub(crate) members: Vec<proto::LaggingMember>,
    pub(crate) works: Vec<proto::CatchUpWork>,
}

/// Time of a walk, by what it goes into.
pub(super) struct Stopwatch<'a> {
    progress: &'a Progress,
    clock: &'a dyn Clock,
    key: Key,
    target: TargetId,
    since_ns: u64,
}

impl Stopwatch<'_> {
    /// The time since the last time that this was asked went into `wait`.
    pub(super) fn lap(&mut self, wait: CatchUpWait) {
        let now_ns = self.clock.now_ns();
        self.progress.spent(self.key, self.target, wait, now_ns.saturating_sub(self.since_ns));
        self.since_ns = now_ns;
    }

    /// That time is counted elsewhere.
    pub(super) fn skip(&mut self) {
        self.since_ns = self.clock.now_ns();
    }
}

impl DataService {
    pub(super) fn stopwatch(&self, key: Key, target: TargetId) -> Stopwatch<'_> {
        let clock: &dyn Clock = &**self.shell.clock();
        Stopwatch { progress: &self.replication.progress, clock, key, target, since_ns: clock.now_ns() }
    }

    /// Counts the bytes of a group again, unless that was done a moment ago: before a walk begins, or is tried.
    pub(super) fn weigh(&self, key: Key, begins: bool) {
        let clock = self.shell.clock();
        let begun_ns = clock.now_ns();
        let least_ns = if begins { FRESH_NS } else { COUNTED_NS };
        if !self.replication.progress.is_due(key, begun_ns, least_ns) {
            return;
        }
        let weighed = self.target(key.0.0).and_then(|target| target.bytes_of_group(key.1));
        match weighed {
            Ok(bytes) => {
                let now_ns = clock.now_ns();
                self.replication.progress.count(key, bytes, (now_ns, now_ns.saturating_sub(begun_ns)));
            }
            // The walk meets the same, and says so.
            Err(fault) => tracing::debug!(group = %key.1, %fault, "a placement group was not counted"),
        }
    }

    /// The members that lag in groups which this server leads.
    fn lagging(&self) -> Vec<Lags> {
        let led = self.leases.members().into_iter().filter(|(_, is_primary)| *is_primary);
        let records = led.filter_map(|(key, _)| Some((key, self.leases.record(key)?)));
        let lags = |member: &&Member| matches!(member.standing, Standing::Lagging { .. });
        let table = self.replication.table.lock();
        let mut lagging = Vec::new();
        for (key, record) in records {
            let led = table.led.get(&key);
            let walked = led.and_then(|led| led.lagging.walked_so_far());
            lagging.extend(record.members.iter().filter(lags).map(|member| {
                let target = member.target;
                let walked = walked.filter(|(of, _)| *of == target).map(|(_, is_over)| is_over);
                // An empty disk has nothing, whatever was missed.
                let is_empty = member.standing == Standing::Lagging { since: 0 };
                let missed = led.and_then(|led| led.missed.get(&target)).filter(|_| !is_empty);
                Lags { key, target, walked, missed_bytes: missed.and_then(Missed::bytes) }
            }));
        }
        lagging
    }

    /// What the metadata service is told of members that lag.
    pub(crate) fn told_of_lagging(&self) -> Told {
        self.replication.progress.told(&self.lagging(), self.shell.clock().now_ns())
    }

    /// Writes out how far members have come that lag in groups which this server leads.
    pub(crate) fn expose_lagging(&self, out: &mut Exposition) {
        let sums = self.replication.progress.sums(&self.lagging());
        let names: BTreeMap<TargetId, String> =
            sums.keys().map(|target| (*target, target.0.to_string())).collect();
        for (target, (bytes, _)) in &sums {
            let help = "Bytes of groups led here in which a target lags, as last counted.";
            out.gauge("vazao_data_lagging_bytes", help, &[("target", names[target].as_str())], *bytes as f64);
        }
        for (target, (_, left)) in &sums {
            let help = "Of them, bytes not compared since the target was last taken back.";
            let labels = [("target", names[target].as_str())];
            out.gauge("vazao_data_catch_up_left_bytes", help, &labels, *left as f64);
        }
        self.replication.progress.expose(out);
    }
}

impl Progress {
    fn expose(&self, out: &mut Exposition) {
        let state = self.0.lock();
        let done: Vec<(String, Done)> =
            state.targets.iter().map(|(target, of)| (target.0.to_string(), of.done)).collect();
        drop(state);
        for (target, done) in &done {
            let help = "Bytes compared with a target that lags.";
            let (labels, bytes) = ([("target", target.as_str())], done.compared_bytes as f64);
            out.counter("vazao_data_catch_up_compared_bytes_total", help, &labels, bytes);
        }
        for (target, done) in &done {
            let help = "Bytes sent to a target that lags.";
            let (labels, bytes) = ([("target", target.as_str())], done.sent_bytes as f64);
            out.counter("vazao_data_catch_up_sent_bytes_total", help, &labels, bytes);
        }
        for (target, done) in &done {
            let help = "What the time of comparing went into.";
            for (wait, ns) in CatchUpWait::ALL.into_iter().zip(done.ns) {
                let labels = [("target", target.as_str()), ("wait", wait.name())];
                out.counter("vazao_data_catch_up_seconds_total", help, &labels, ns as f64 / 1e9);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::GroupId;

    const SECOND_NS: u64 = 1_000_000_000;
    const A: Key = (TargetId(1), GroupId(GroupId::FIRST));
    const B: Key = (TargetId(1), GroupId(GroupId::FIRST + 1));

    fn lags(key: Key, target: u32, walked: Option<bool>) -> Lags {
        Lags { key, target: TargetId(target), walked, missed_bytes: None }
    }

    fn told(told: &Told) -> Vec<(u32, u32, u64, u64)> {
        told.members
            .iter()
            .map(|it| (it.group - GroupId::FIRST, it.target, it.bytes, it.left_bytes))
            .collect()
    }

    #[test]
    fn bytes_are_left_until_they_are_compared_and_again_when_the_walk_begins_anew() {
        let progress = Progress::default();
        progress.count(A, 1000, (0, 0));
        let all = |walked| [lags(A, 2, walked), lags(A, 3, None), lags(B, 2, None)];
        assert_eq!(
            told(&progress.told(&all(None), 0)),
            [(0, 2, 1000, 1000), (0, 3, 1000, 1000)],
            "B is unknown"
        );
        progress.count(B, 50, (0, 0));
        progress.begin(A, TargetId(2), None, 0);
        progress.compared(A, TargetId(2), 300, 10);
        progress.compared(A, TargetId(3), 77, 77);
        progress.compared(B, TargetId(2), 77, 77);
        let shown = |walked| told(&progress.told(&all(walked), 0));
        assert_eq!(shown(Some(false)), [(0, 2, 1000, 700), (0, 3, 1000, 1000), (1, 2, 50, 50)]);
        assert_eq!(progress.sums(&all(Some(false)))[&TargetId(2)], (1050, 750));
        // More than was counted.
        progress.compared(A, TargetId(2), 900, 0);
        assert_eq!(shown(Some(false))[0].3, 0);
        assert_eq!(shown(None)[0].3, 1000, "it failed");
        progress.begin(A, TargetId(2), None, 0);
        assert_eq!((shown(Some(false))[0].3, shown(Some(true))[0].3), (1000, 0));
        // What it missed is known, before its walk and from its beginning on.
        let missed = [Lags { missed_bytes: Some(64), ..lags(A, 2, None) }];
        assert_eq!(told(&progress.told(&missed, 0)), [(0, 2, 1000, 64)]);
        progress.begin(A, TargetId(2), Some(64), 0);
        progress.compared(A, TargetId(2), 14, 14);
        assert_eq!(told(&progress.told(&[lags(A, 2, Some(false))], 0)), [(0, 2, 1000, 50)]);
        assert!(progress.told(&[], 0).members.is_empty());
        assert!(
            told(&progress.told(&all(None), 0)).is_empty(),
            "what is not led or lacks nothing is forgotten"
        );
    }

    #[test]
    fn rates_and_times_are_of_the_last_seconds_and_of_walks_alone() {
        let progress = Progress::default();
        let one = [lags(A, 2, Some(false))];
        progress.count(A, 1 << 40, (0, 0));
        progress.begin(A, TargetId(2), None, 100 * SECOND_NS);
        let at = |second: u64| progress.told(&one, second * SECOND_NS).works[0].clone();
        assert_eq!((at(100).bytes_per_second, at(100).times.len()), (0, 0));
        progress.compared(A, TargetId(2), 4000, 0);
        progress.answered(A, TargetId(2), 900, 700, 500);
        progress.answered(A, TargetId(2), 10, 90, 99);
        progress.spent(A, TargetId(3), CatchUpWait::Programs, 5);
        let now = at(102);
        let times: Vec<(u32, u64)> = now.times.iter().map(|time| (time.wait, time.ns)).collect();
        assert_eq!((now.bytes_per_second, times), (2000, vec![(3, 510), (4, 200), (5, 200)]));
        progress.compared(A, TargetId(2), 16_000, 0);
        assert_eq!(at(110).bytes_per_second, 2000);
        assert_eq!(at(112).bytes_per_second, 1600, "16,000 bytes since second 102");
        assert_eq!(at(140).bytes_per_second, 0);
        // It was away for long: what it did not do then is not its rate.
        progress.begin(A, TargetId(2), None, 500 * SECOND_NS);
        progress.compared(A, TargetId(2), 500, 0);
        assert_eq!(at(501).bytes_per_second, 500);
    }

    #[test]
    fn a_group_is_counted_again_after_a_while_and_rarely_where_that_takes_long() {
        let progress = Progress::default();
        assert!(progress.is_due(A, 0, COUNTED_NS));
        progress.count(A, 1, (0, 0));
        assert!(
            !progress.is_due(A, COUNTED_NS - 1, COUNTED_NS) && progress.is_due(A, COUNTED_NS, COUNTED_NS)
        );
        assert!(progress.is_due(A, FRESH_NS, FRESH_NS));
        progress.count(A, 1, (0, 10 * SECOND_NS));
        assert!(
            !progress.is_due(A, 499 * SECOND_NS, COUNTED_NS)
                && progress.is_due(A, 500 * SECOND_NS, COUNTED_NS)
        );
        assert!(progress.is_due(A, 100 * SECOND_NS, FRESH_NS), "a walk is to begin");
    }
}
