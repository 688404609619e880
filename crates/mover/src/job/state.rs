//! One job in memory.

use super::files::{JobFiles, OutcomeWriter, PlanReader};
use super::limit::{Limit, Present, Shown, Spent, VOLUME};
use super::progress::Rates;
use crate::control::{Control, Counts, Order, Timeouts, Underway};
use crate::method::Method;
use crate::method::auto::Chosen;
use crate::place::Place;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use vazao_client::Client;
use vazao_client::measure::Watch;
use vazao_meter::Clock;
use vazao_meter::bottleneck::Verdict;
use vazao_wire::proto;

/// Where a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum JobState {
    /// Waits to be planned.
    Queued = 1,
    /// Its files are being listed.
    Planning = 2,
    /// Its files are being copied.
    Running = 3,
    /// It was asked to wait.
    Paused = 4,
    /// All files are there.
    Done = 5,
    /// Some are not.
    Failed = 6,
    /// It was asked to end.
    Cancelled = 7,
}

impl JobState {
    /// The state with this number on the wire.
    pub fn from_number(number: u32) -> Option<JobState> {
        Some(match number {
            1 => JobState::Queued,
            2 => JobState::Planning,
            3 => JobState::Running,
            4 => JobState::Paused,
            5 => JobState::Done,
            6 => JobState::Failed,
            7 => JobState::Cancelled,
            _ => return None,
        })
    }

    /// Nothing more will happen.
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Done | JobState::Failed | JobState::Cancelled)
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Planning => "planning",
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }
}

/// A file that is to be tried again.
#[derive(Clone, Debug)]
pub(super) struct Again {
    pub(super) index: u64,
    pub(super) entry: proto::PlanEntry,
    pub(super) tries: Tries,
}

/// How often and since when a file is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tries {
    /// Failures of the file itself.
    pub(super) failed: u32,
    /// Failures of the way to the other node, in a row.
    pub(super) cut: u32,
}

/// What changes while a job runs.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) state: JobState,
    pub(super) is_planned: bool,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) files_done: u64,
    pub(super) files_failed: u64,
    pub(super) files_skipped: u64,
    /// Of files that are over.
    pub(super) bytes_done: u64,
    pub(super) trouble: String,
    pub(super) ended_ns: u64,
    pub(super) elapsed_ms: u64,
    /// Since when it has been running.
    pub(super) since_ns: Option<u64>,
    pub(super) rates: Rates,
    /// What holds it up.
    pub(super) limit: Present,
    pub(super) reader: Option<PlanReader>,
    pub(super) outcomes: Option<OutcomeWriter>,
    /// Indices of files that were over before the daemon started.
    pub(super) before: crate::grid::BlockSet,
    /// Files to be tried again, by the time from which on.
    pub(super) again: BTreeMap<(u64, u64), Again>,
    pub(super) is_read: bool,
    /// Files begun and not over.
    pub(super) in_flight: usize,
    /// Places in the queue that they take.
    pub(super) places: usize,
    /// It reads from an area whose file system hangs.
    pub(super) is_stuck: bool,
    /// Requests with many small files, of which each is one place in the queue.
    pub(super) batches: usize,
    pub(super) sending: BTreeMap<u64, Weak<dyn Underway>>,
    /// Since when the other node has not answered.
    pub(super) cut_since_ns: Option<u64>,
    /// The other node's last fault was transient (`may_pass`); the next file that ends clears it.
    pub(super) is_cut: bool,
    /// A round trip to the other node takes long.
    pub(super) is_far: bool,
    pub(super) is_busy: bool,
    /// Its end is not begun before this.
    pub(super) finish_not_before_ns: u64,
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) spec: proto::JobSpec,
    pub(super) method: Method,
    pub(super) requester: String,
    pub(super) created_ns: u64,
    pub(super) files: JobFiles,
    pub(super) control: Arc<Control>,
    pub(super) counts: Arc<Counts>,
    pub(super) progress: Mutex<Progress>,
    /// What `auto` has chosen.
    pub(super) chosen: Arc<Mutex<Option<Chosen>>>,
    /// What the volume waits for, where it is one of the ends.
    judged: Mutex<Judged>,
}

/// A job's own counts say that the volume was waited for. Which part of it, its client knows.
#[derive(Debug, Default)]
struct Judged {
    watch: Option<Watch>,
    verdict: Option<Verdict>,
}

impl Job {
    pub(super) fn new(number: u64, node: &str, files: JobFiles, status: proto::JobStatus) -> Job {
        let spec = status.spec.unwrap_or_default();
        let defaults = Timeouts::default();
        let or = |given: u32, default: u32| if given == 0 { default } else { given };
        let timeouts = Timeouts {
            connect_ms: or(spec.connect_ms, defaults.connect_ms),
            block_ms: or(spec.block_ms, defaults.block_ms),
        };
        let progress = Progress {
            state: JobState::from_number(status.state).unwrap_or(JobState::Queued),
            is_planned: false,
            files: status.files,
            bytes: status.bytes,
            files_done: 0,
            files_failed: 0,
            files_skipped: 0,
            bytes_done: 0,
            trouble: status.trouble,
            ended_ns: status.ended_ns,
            elapsed_ms: status.elapsed_ms,
            since_ns: None,
            rates: Rates::default(),
            limit: Present::default(),
            reader: None,
            outcomes: None,
            before: crate::grid::BlockSet::default(),
            again: BTreeMap::new(),
            is_read: false,
            in_flight: 0,
            places: 0,
            is_stuck: false,
            batches: 0,
            sending: BTreeMap::new(),
            cut_since_ns: None,
            is_cut: false,
            is_far: false,
            is_busy: false,
            finish_not_before_ns: 0,
        };
        Job {
            number,
            id: format!("{node}-{number}"),
            method: spec.method.parse().unwrap_or_default(),
            requester: status.requester,
            created_ns: status.created_ns,
            control: Arc::new(Control::new(timeouts, spec.rate_bytes)),
            counts: Arc::default(),
            spec,
            files,
            progress: Mutex::new(progress),
            chosen: Arc::default(),
            judged: Mutex::default(),
        }
    }

    /// A file of it is begun by `client`. What the volume does from the first one on is looked at.
    pub(super) fn watch_volume(&self, client: &Client, clock: &Arc<dyn Clock>) {
        let (source, destination) = self.ends();
        let mut judged = self.judged.lock();
        if [source, destination].iter().any(|end| end == VOLUME) && judged.watch.is_none() {
            judged.watch = Some(Watch::begin(Some(client), None, Arc::clone(clock)));
        }
    }

    /// All files are over: what of the volume limited them. Asks its servers, and waits for them for some seconds at
    /// most.
    pub(super) fn judge_volume(&self) {
        let watch = self.judged.lock().watch.take();
        if let Some(watch) = watch {
            self.judged.lock().verdict = Some(watch.seen().verdict);
        }
    }

    /// It does not run any more, or not yet: the time until it does is none of its own.
    pub(super) fn stop_watching(&self) {
        // Its end waits for a thread: not with the lock.
        let watch = self.judged.lock().watch.take();
        drop(watch);
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock()
    }

    /// Bytes at the destination.
    fn bytes_done(progress: &Progress) -> u64 {
        let sending: u64 =
            progress.sending.values().filter_map(Weak::upgrade).map(|copy| copy.finished_bytes()).sum();
        progress.bytes_done + sending
    }

    /// Brings the rates up to date.
    pub(super) fn sample(&self, now_ns: u64) {
        let mut progress = self.progress();
        if progress.state != JobState::Running {
            return progress.rates.stop();
        }
        let bytes = Job::bytes_done(&progress);
        let files = progress.files_done + progress.files_skipped + progress.files_failed;
        // Blocks are confirmed seconds apart where streams are many and a limit is low: what is sent says more of the
        // rate. What was there already, and holes, are not sent.
        let sent_bytes = self.counts.sent_bytes.get();
        if self.control.order() == Order::Run {
            progress.rates.show(bytes);
        }
        progress.rates.note(if sent_bytes > 0 { sent_bytes } else { bytes }, files, now_ns);
        let round_trip_ns = self.counts.round_trip_ns.load(std::sync::atomic::Ordering::Relaxed);
        progress.limit.note(Spent::of(&self.counts), round_trip_ns, now_ns);
    }

    /// The status that callers see.
    pub(super) fn status(&self, now_ns: u64) -> proto::JobStatus {
        let mut progress = self.progress();
        let mut bytes_done = Job::bytes_done(&progress);
        match progress.state {
            JobState::Running if self.control.order() == Order::Run => progress.rates.show(bytes_done),
            state if state.is_over() => {}
            // Files that it was at are let go, also before it is paused; what has arrived of them stays, and is gone on
            // with.
            _ => bytes_done = bytes_done.max(progress.rates.shown_bytes()),
        }
        let over = progress.files_done + progress.files_skipped + progress.files_failed;
        let running_ms = progress.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns) / 1_000_000);
        let left_ms = match progress.state {
            JobState::Running => progress
                .rates
                .left_ms(progress.bytes.saturating_sub(bytes_done), progress.files.saturating_sub(over)),
            state if state.is_over() => 0,
            _ => u64::MAX,
        };
        let chosen = self.chosen.lock().clone();
        let chosen = chosen.as_ref();
        let limit = self.limit(&progress);
        let (source, destination) = self.ends();
        let shown = Shown::of(limit, self.judged.lock().verdict.as_ref(), (&source, &destination));
        proto::JobStatus {
            id: self.id.clone(),
            spec: Some(self.spec.clone()),
            state: progress.state as u32,
            files: progress.files,
            files_done: progress.files_done,
            files_failed: progress.files_failed,
            files_skipped: progress.files_skipped,
            bytes: progress.bytes,
            bytes_done,
            sent_bytes: self.counts.sent_bytes.get(),
            rate_bytes: progress.rates.bytes_per_second(),
            left_ms,
            method: chosen.map_or(self.method, |chosen| chosen.method).to_string(),
            why: chosen.map_or_else(String::new, |chosen| chosen.why.clone()),
            bottleneck: shown.text,
            limit_resource: shown.resource,
            limit_node: shown.node,
            limit_percent: shown.percent,
            trouble: match (self.control.order(), progress.state.is_over()) {
                (Order::Cancel, false) => "is being cancelled".to_owned(),
                _ => progress.trouble.clone(),
            },
            created_ns: self.created_ns,
            ended_ns: progress.ended_ns,
            elapsed_ms: progress.elapsed_ms + running_ms,
            copies: progress.in_flight as u64,
            requester: self.requester.clone(),
        }
    }

    /// What holds its copies up at present; of one that is over, what did.
    fn limit(&self, progress: &Progress) -> Option<Limit> {
        let round_trip_ns = self.counts.round_trip_ns.load(std::sync::atomic::Ordering::Relaxed);
        let whole = || Spent::of(&self.counts).judge(round_trip_ns);
        match progress.state {
            state if state.is_over() => whole(),
            _ if progress.in_flight == 0 => None,
            _ => progress.limit.limit().or_else(whole),
        }
    }

    /// The areas of `node` that it reads from.
    pub(super) fn areas(&self, node: &str) -> Vec<String> {
        let area = |source: &Vec<u8>| match Place::parse(source) {
            Ok(Place::Area(reference)) if reference.node == node => Some(reference.area),
            _ => None,
        };
        self.spec.sources.iter().filter_map(area).collect()
    }

    /// What messages call the two ends: nodes, or the volume.
    fn ends(&self) -> (String, String) {
        let end = |place: &[u8]| match Place::parse(place) {
            Ok(Place::Area(reference)) => reference.node,
            _ => VOLUME.to_owned(),
        };
        let source = self.spec.sources.first().map_or_else(String::new, |source| end(source));
        (source, end(&self.spec.destination))
    }

    /// Writes it down. Errors: the daemon's own disk says no.
    pub(super) fn save(&self, now_ns: u64) -> std::io::Result<()> {
        let is_planned = self.progress().is_planned;
        let status = self.status(now_ns);
        self.files.save(&proto::JobRecord { status: Some(status), number: self.number, is_planned })
    }
}
