//! The queue of a daemon: which job's which file is begun next, and what becomes of those that fail.

mod batch;
mod moving;
mod places;

use super::directories::{Act, each_of};
use super::files::JobFiles;
use super::plan::{Destined, Planner};
use super::state::{Again, Job, JobState, Progress};
use super::step::{Means, finish_directory, make_directory};
use super::{ENDED_MAX, Filter, JOBS_MAX};
use crate::control::{Order, may_pass};
use crate::engine::Engines;
use crate::grid::BlockSet;
use crate::method::Method;
use crate::method::auto::Pairs;
use crate::place::Place;
use crate::source::of_client;
use crate::volume::Arrivals;
use batch::{batches_max, gather, is_small};
use moving::{CUT_NS_MAX, DONE, FAILED, PAUSE_MS, SKIPPED, next_file};
use parking_lot::{Condvar, Mutex, MutexGuard};
use places::Places;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vazao_area::AreaService;
use vazao_client::Client;
use vazao_meter::Clock;
use vazao_meter::measures::Part;
use vazao_model::{Code, FileKind};
use vazao_wire::pool::Pool;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Threads for steps that wait for other nodes.
const THREADS: usize = 16;

/// Bytes that queued steps hold; they hold next to none.
const STEP_BYTES_MAX: usize = 64 << 20;

/// The scheduler looks again this often where nothing wakes it.
const LOOK: Duration = Duration::from_millis(50);

/// Rates are brought up to date this often.
const SAMPLE_NS: u64 = 250_000_000;

/// Stopping waits this long for files that are being sent.
const STOP_FILES_NS_MAX: u64 = 2_000_000_000;

/// A step that has taken so long has its thread replaced: it waits for another node, or for a disk that hangs.
const STEP_NS_MAX: u64 = 1_000_000_000;

/// More threads in their place: as many as there can be steps that have one at the same time, and no more than that.
const THREADS_MORE: usize = 112;

/// Failures and jobs on one page.
const PAGE: usize = 256;

/// Opens a client of the cluster that the daemon belongs to.
pub(crate) type OpenClient = Box<dyn Fn() -> vazao_client::Result<Client> + Send + Sync>;

struct Table {
    jobs: BTreeMap<u64, Arc<Job>>,
    /// The highest number of a job so far.
    last: u64,
    places: Places,
}

/// Who holds the table takes no job's progress; who holds a progress may take the table.
struct Inner {
    means: Means,
    directory: PathBuf,
    open_client: OpenClient,
    client: Mutex<Option<Client>>,
    engines: Engines,
    /// What is known of the ways to other nodes.
    pairs: Arc<Pairs>,
    pool: Pool,
    table: Mutex<Table>,
    /// Held while a job is taken in.
    submitting: Mutex<()>,
    changed: Condvar,
    stopping: AtomicBool,
}

/// The queue.
pub(crate) struct Queue {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("directory", &self.inner.directory).finish_non_exhaustive()
    }
}

/// What the queue is opened with.
pub(crate) struct Setup<'a> {
    /// The node's name.
    pub(crate) node: String,
    pub(crate) area: Arc<AreaService>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The daemon's own directory.
    pub(crate) directory: &'a Path,
    /// Files sent by this node at once.
    pub(crate) copies_out_max: usize,
    /// Of them to one other node.
    pub(crate) copies_pair_max: usize,
    pub(crate) open_client: OpenClient,
    pub(crate) engines: Engines,
}

impl Queue {
    /// Opens the queue with the jobs that are written down, and goes on with them.
    pub(crate) fn open(setup: Setup<'_>) -> std::io::Result<Queue> {
        let arrivals = Arrivals::open(setup.directory)?;
        let means = Means { node: setup.node, area: setup.area, clock: setup.clock, arrivals };
        let directory = setup.directory.join("jobs");
        std::fs::create_dir_all(&directory)?;
        // Every file that is out has at most one step, every job two.
        let steps_max = setup.copies_out_max + 2 * JOBS_MAX;
        let pool = Pool::new("jobs", THREADS, steps_max, STEP_BYTES_MAX, Arc::clone(&means.clock));
        let places = Places::new(setup.copies_out_max, setup.copies_pair_max);
        let mut table = Table { jobs: BTreeMap::new(), last: 0, places };
        for (number, files) in JobFiles::all(&directory)? {
            table.last = table.last.max(number);
            let Some(record) = files.load() else { continue };
            let job = Job::new(number, &means.node, files, record.status.unwrap_or_default());
            restore(&job, record.is_planned)?;
            table.jobs.insert(number, Arc::new(job));
        }
        let inner = Arc::new(Inner {
            means,
            directory,
            open_client: setup.open_client,
            client: Mutex::default(),
            engines: setup.engines,
            pairs: Arc::new(Pairs::load(setup.directory.join("pairs"))),
            pool,
            table: Mutex::new(table),
            submitting: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        });
        let running = Arc::clone(&inner);
        let thread = std::thread::Builder::new().name("queue".to_owned()).spawn(move || running.run())?;
        Ok(Queue { inner, thread: Mutex::new(Some(thread)) })
    }

    /// Takes a job in; it survives from then on.
    pub(crate) fn submit(&self, request: proto::SubmitJobRequest) -> Result<proto::JobStatus, Fault> {
        let spec = request.spec.unwrap_or_default();
        self.inner.check(&spec)?;
        let (inner, now_ns) = (&self.inner, self.inner.means.clock.now_ns());
        let _one = inner.submitting.lock();
        let jobs = inner.jobs();
        let same = |job: &&Arc<Job>| spec.nonce != 0 && job.spec.nonce == spec.nonce;
        if let Some(job) = jobs.iter().rev().find(same) {
            return Ok(job.status(now_ns));
        }
        let open = jobs.iter().filter(|job| !job.progress().state.is_over()).count();
        if open >= JOBS_MAX {
            let why = format!("node {}: {open} jobs wait already; wait, or cancel some", inner.means.node);
            return Err(Fault::new(Code::Overloaded, why));
        }
        let number = inner.table().last + 1;
        let status = proto::JobStatus {
            spec: Some(spec),
            state: JobState::Queued as u32,
            created_ns: inner.means.clock.wall_ns(),
            requester: request.requester,
            ..Default::default()
        };
        let files = JobFiles::new(inner.directory.join(number.to_string()));
        let job = Arc::new(Job::new(number, &inner.means.node, files, status));
        job.save(now_ns).map_err(|error| inner.own(&error))?;
        {
            let mut table = inner.table();
            table.last = number;
            table.jobs.insert(number, Arc::clone(&job));
        }
        inner.changed.notify_all();
        Ok(job.status(now_ns))
    }

    fn find(&self, id: &str) -> Result<Arc<Job>, Fault> {
        let found = self.inner.table().jobs.values().find(|job| job.id == id).cloned();
        found.ok_or_else(|| {
            let node = &self.inner.means.node;
            Fault::new(Code::NotFound, format!("node {node} has no job {id:.80}; `vazao jobs` lists them"))
        })
    }

    /// A page of jobs, or one.
    pub(crate) fn list(&self, request: &proto::ListJobsRequest) -> Result<proto::ListJobsResponse, Fault> {
        let now_ns = self.inner.means.clock.now_ns();
        if !request.id.is_empty() {
            let jobs = vec![self.find(&request.id)?.status(now_ns)];
            return Ok(proto::ListJobsResponse { jobs, end: true });
        }
        let page: Vec<Arc<Job>> = {
            let table = self.inner.table();
            let rest = table.jobs.range(request.after.saturating_add(1)..);
            rest.map(|(_, job)| Arc::clone(job)).take(PAGE).collect()
        };
        let jobs = page.iter().map(|job| job.status(now_ns)).collect();
        Ok(proto::ListJobsResponse { jobs, end: page.len() < PAGE })
    }

    /// Files of a job that failed.
    pub(crate) fn failures(
        &self,
        request: &proto::ListJobFailuresRequest,
    ) -> Result<proto::ListJobFailuresResponse, Fault> {
        let job = self.find(&request.id)?;
        let mut failures = Vec::new();
        let mut seen = 0;
        let collect = |outcome: proto::FileOutcome| {
            if outcome.outcome == FAILED {
                seen += 1;
                if seen > request.after && failures.len() < PAGE {
                    failures.push(proto::JobFailure { source: Vec::new(), detail: outcome.detail });
                }
            }
        };
        job.files.read_outcomes(collect).map_err(|error| self.inner.own(&error))?;
        let end = failures.len() < PAGE;
        Ok(proto::ListJobFailuresResponse { failures, end })
    }

    /// Pauses, resumes, cancels or forgets a job.
    pub(crate) fn control(&self, request: &proto::ControlJobRequest) -> Result<proto::JobStatus, Fault> {
        let job = self.find(&request.id)?;
        let state = job.progress().state;
        let refuse = |why: &str| {
            let why = format!("job {} is {}; {why}", job.id, state.text());
            Err(Fault::new(Code::Invalid, why))
        };
        match request.action {
            1 if !state.is_over() => job.control.set(Order::Pause),
            3 if !state.is_over() => job.control.set(Order::Cancel),
            2 if !state.is_over() => {
                let mut progress = job.progress();
                job.control.set(Order::Run);
                progress.cut_since_ns = None;
                if progress.state == JobState::Paused {
                    progress.state = if progress.is_planned { JobState::Running } else { JobState::Queued };
                }
            }
            4 if state.is_over() => {
                self.inner.table().jobs.remove(&job.number);
                job.files.remove().map_err(|error| self.inner.own(&error))?;
            }
            4 => return refuse("cancel it first"),
            1..=3 => return refuse("nothing can be changed any more"),
            other => return Err(Fault::new(Code::BadRequest, format!("action {other} on a job"))),
        }
        self.inner.changed.notify_all();
        Ok(job.status(self.inner.means.clock.now_ns()))
    }

    /// Jobs that are not over, and files on their way.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let open = self.inner.jobs().iter().filter(|job| !job.progress().state.is_over()).count();
        (open, self.inner.table().places.out())
    }

    /// Removes abandoned parts of files in the volume.
    pub(crate) fn sweep(&self) {
        let inner = &self.inner;
        inner.means.arrivals.sweep(&*inner.means.clock, || inner.client());
    }

    /// Stops; jobs go on when the queue is opened again. What has not ended at `until_ns`, because another node does
    /// not answer, is left to itself.
    pub(crate) fn stop(&self, until_ns: u64) {
        let inner = &self.inner;
        inner.stopping.store(true, Ordering::SeqCst);
        let jobs = inner.jobs();
        jobs.iter().for_each(|job| job.control.set(Order::Shutdown));
        inner.changed.notify_all();
        let clock = &*inner.means.clock;
        let files_ns = until_ns.min(clock.now_ns() + STOP_FILES_NS_MAX);
        while inner.table().places.out() > 0 && clock.now_ns() < files_ns {
            clock.sleep(Duration::from_millis(5));
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        let timeout = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
        if !inner.pool.stop(timeout) {
            tracing::warn!("a job still waits for another node, or for a disk that hangs");
        }
        for job in jobs.iter().filter(|job| !job.progress().state.is_over()) {
            if let Err(error) = job.save(clock.now_ns()) {
                tracing::warn!(job = job.id, %error, "could not be written down");
            }
        }
        // One that is just being opened is locked.
        let client = inner.client.try_lock().and_then(|mut client| client.take());
        if let Some(client) = client {
            let _ = client.close();
        }
    }
}

/// Goes on where the daemon was when it ended.
fn restore(job: &Job, is_planned: bool) -> std::io::Result<()> {
    let mut progress = job.progress();
    progress.is_planned = is_planned;
    match progress.state {
        JobState::Planning => progress.state = JobState::Queued,
        JobState::Paused => job.control.set(Order::Pause),
        _ => {}
    }
    if !is_planned {
        return Ok(());
    }
    let mut outcomes = HashMap::new();
    let writer = job.files.outcomes(|outcome| {
        outcomes.insert(outcome.index, outcome.outcome);
    })?;
    let entries = job.files.plan()?.count();
    let mut before = BlockSet::new(entries);
    for (index, entry) in job.files.plan()? {
        let Some(outcome) = outcomes.get(&index) else { continue };
        before.insert(index as usize);
        match *outcome {
            DONE => {
                (progress.files_done, progress.bytes_done) =
                    (progress.files_done + 1, progress.bytes_done + entry.size)
            }
            SKIPPED => {
                (progress.files_skipped, progress.bytes_done) =
                    (progress.files_skipped + 1, progress.bytes_done + entry.size)
            }
            _ => progress.files_failed += 1,
        }
    }
    progress.before = before;
    if !progress.state.is_over() {
        progress.outcomes = Some(writer);
        progress.reader = Some(job.files.plan()?);
    }
    Ok(())
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// All jobs, the oldest first.
    fn jobs(&self) -> Vec<Arc<Job>> {
        self.table().jobs.values().cloned().collect()
    }

    /// A fault of the daemon's own disk.
    fn own(&self, error: &std::io::Error) -> Fault {
        let code = match error.kind() {
            std::io::ErrorKind::StorageFull => Code::NoSpace,
            _ => Code::Io,
        };
        Fault::new(code, format!("node {}: {}: {error}", self.means.node, self.directory.display()))
    }

    fn directories(&self, job: &Job, act: &Act<'_>) -> Result<(), Fault> {
        each_of(job, &*self.means.clock, &|error| self.own(error), act)
    }

    fn client(&self) -> Result<Client, Fault> {
        let mut client = self.client.lock();
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let opened = (self.open_client)().map_err(|error| of_client(error, "the metadata service"))?;
        // As verdicts call it.
        opened.describe(&self.means.node, Part::Client);
        *client = Some(opened.clone());
        Ok(opened)
    }

    /// Refuses what could never be done here.
    fn check(&self, spec: &proto::JobSpec) -> Result<(), Fault> {
        let invalid = |why| Fault::new(Code::Invalid, why);
        spec.method.parse::<Method>().map_err(invalid)?;
        Filter::parse(&spec.filters).map_err(invalid)?;
        Destined::parse(&spec.destination)?;
        let into_volume = matches!(Place::parse(&spec.destination)?, Place::Volume(_));
        if spec.sources.is_empty() {
            return Err(invalid("a job needs something to copy".to_owned()));
        }
        for source in &spec.sources {
            match Place::parse(source)? {
                Place::Area(reference) if reference.node != self.means.node => {
                    let node = &self.means.node;
                    let why = format!("{reference}: node {node} takes jobs for its own files only");
                    return Err(invalid(why));
                }
                Place::Volume(_) if into_volume => {
                    let why = "within the volume no node has a part in a copy: `vazao cp` does it itself";
                    return Err(invalid(why.to_owned()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn run(self: Arc<Inner>) {
        let mut sampled_ns = 0;
        let mut turn = 0;
        while !self.stopping.load(Ordering::SeqCst) {
            let now_ns = self.means.clock.now_ns();
            let mut jobs = self.jobs();
            jobs.retain(|job| !job.progress().state.is_over());
            if now_ns.saturating_sub(sampled_ns) >= SAMPLE_NS {
                sampled_ns = now_ns;
                jobs.iter().for_each(|job| job.sample(now_ns));
                self.note_hangs(&jobs);
                self.pool.replace_stuck(STEP_NS_MAX, THREADS_MORE);
                self.drop_ended();
            }
            turn += 1;
            let mut begun = false;
            for index in 0..jobs.len() {
                // Each turn another job is the first to be asked.
                begun |= self.deal(&jobs[(index + turn) % jobs.len()], now_ns);
            }
            if !begun {
                let mut table = self.table();
                self.changed.wait_for(&mut table, LOOK);
            }
        }
    }

    /// Finds out which jobs read from areas that hang. They begin nothing more, and what they have out holds up no
    /// other job: its places in the queue are given to others until it comes back.
    fn note_hangs(&self, jobs: &[Arc<Job>]) {
        let hanging = self.means.area.hanging();
        let was_any = self.table().places.note_any_stuck(!hanging.is_empty());
        if hanging.is_empty() && !was_any {
            return;
        }
        let (mut out_stuck, mut pairs_stuck) = (0, HashMap::new());
        for job in jobs {
            let areas = job.areas(&self.means.node);
            let hangs = hanging.iter().find(|(area, _)| areas.contains(area));
            let hangs = hangs.map(|(area, why)| format!("waits for area {area}: {why}"));
            let mut progress = job.progress();
            progress.is_stuck = hangs.is_some();
            if let Some(why) = hangs {
                progress.trouble = why;
                out_stuck += progress.places;
                *pairs_stuck.entry(Inner::pair(job)).or_insert(0) += progress.places;
            }
        }
        self.table().places.note_stuck(out_stuck, pairs_stuck);
    }

    /// Forgets the oldest jobs that are over, where there are many.
    fn drop_ended(&self) {
        let mut ended = self.jobs();
        ended.retain(|job| job.progress().state.is_over());
        for job in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            self.table().jobs.remove(&job.number);
            let _ = job.files.remove();
        }
    }

    /// Does the next thing for a job; true when there may be more at once.
    fn deal(self: &Arc<Inner>, job: &Arc<Job>, now_ns: u64) -> bool {
        let mut progress = job.progress();
        if progress.is_busy {
            return false;
        }
        let order = job.control.order();
        if order != Order::Run || now_ns >= job.control.deadline_ns.load(Ordering::Relaxed) {
            let is_halted = progress.state == JobState::Paused && order != Order::Cancel;
            if progress.in_flight == 0 && !is_halted {
                drop(progress);
                self.halt(job, order);
            }
            return false;
        }
        match progress.state {
            JobState::Queued if is_due(&progress, now_ns) => {
                progress.state = JobState::Planning;
                progress.is_busy = true;
                drop(progress);
                self.step(job, |inner, job| inner.plan(&job));
                true
            }
            JobState::Running => self.deal_file(job, progress, now_ns),
            _ => false,
        }
    }

    fn step(self: &Arc<Inner>, job: &Arc<Job>, work: impl FnOnce(Arc<Inner>, Arc<Job>) + Send + 'static) {
        let (inner, job) = (Arc::clone(self), Arc::clone(job));
        match self.pool.reserve(0) {
            Some(place) => place.submit(move || work(inner, job)),
            // Stopping: the job is as it was when it is opened again.
            None => job.progress().is_busy = false,
        }
    }

    /// What was asked for has happened: nothing of the job moves any more.
    fn halt(&self, job: &Job, order: Order) {
        let now_ns = self.means.clock.now_ns();
        match order {
            Order::Pause => self.set_state(job, JobState::Paused, ""),
            Order::Cancel => self.set_state(job, JobState::Cancelled, ""),
            Order::Run => {
                let why = format!("not done within the {} ms given to it", job.spec.job_ms);
                self.set_state(job, JobState::Failed, &why);
            }
            Order::Shutdown => drop(job.save(now_ns)),
        }
    }

    fn set_state(&self, job: &Job, state: JobState, trouble: &str) {
        let now_ns = self.means.clock.now_ns();
        if state != JobState::Running {
            job.stop_watching();
        }
        {
            let mut progress = job.progress();
            if let Some(since_ns) = progress.since_ns.take() {
                progress.elapsed_ms += now_ns.saturating_sub(since_ns) / 1_000_000;
            }
            if state == JobState::Running {
                progress.since_ns = Some(now_ns);
                self.set_deadline(job, &progress, now_ns);
            }
            progress.state = state;
            progress.is_busy = false;
            progress.trouble = trouble.to_owned();
            if state.is_over() {
                progress.ended_ns = self.means.clock.wall_ns();
                (progress.reader, progress.outcomes) = (None, None);
                progress.again.clear();
            }
        }
        if let Err(error) = job.save(now_ns) {
            tracing::warn!(job = job.id, %error, "could not be written down");
        }
        tracing::info!(job = job.id, state = state.text(), trouble, "job");
        self.changed.notify_all();
    }

    fn set_deadline(&self, job: &Job, progress: &Progress, now_ns: u64) {
        if job.spec.job_ms > 0 {
            let left_ms = job.spec.job_ms.saturating_sub(progress.elapsed_ms);
            let deadline_ns = now_ns.saturating_add(left_ms.saturating_mul(1_000_000));
            job.control.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        }
    }

    /// Lists what is to be copied and makes its directories.
    fn plan(&self, job: &Job) {
        match self.try_plan(job) {
            Ok(()) => self.set_state(job, JobState::Running, ""),
            Err(fault) if job.control.order() != Order::Run => {
                tracing::debug!(job = job.id, %fault, "planning was stopped");
                let mut progress = job.progress();
                (progress.state, progress.is_busy) = (JobState::Queued, false);
            }
            Err(fault) if may_pass(fault.code) => {
                let now_ns = self.means.clock.now_ns();
                let mut progress = job.progress();
                let since_ns = *progress.cut_since_ns.get_or_insert(now_ns);
                let is_late = now_ns.saturating_sub(since_ns) > CUT_NS_MAX;
                (progress.state, progress.is_busy) = (JobState::Queued, false);
                progress.trouble = fault.to_string();
                drop(progress);
                if is_late {
                    self.set_state(job, JobState::Failed, &fault.to_string());
                }
            }
            Err(fault) => self.set_state(job, JobState::Failed, &fault.to_string()),
        }
    }

    fn try_plan(&self, job: &Job) -> Result<(), Fault> {
        let client = self.client()?;
        let sources = job.spec.sources.iter().map(|source| Place::parse(source));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let destination = Destined::parse(&job.spec.destination)?;
        let mut writer = job.files.begin_plan().map_err(|error| self.own(&error))?;
        let (mut files, mut bytes) = (0, 0);
        Planner::new(&client, &job.spec)?.run(&sources, &destination, &mut |entry| {
            job.control.check(self.means.clock.now_ns())?;
            if FileKind::from_number(entry.kind) != Some(FileKind::Directory) {
                (files, bytes) = (files + 1, bytes + entry.size);
            }
            writer.add(&entry).map_err(|error| self.own(&error))
        })?;
        writer.finish().map_err(|error| self.own(&error))?;
        self.directories(job, &|entry| make_directory(&client, &job.spec, entry))?;
        let outcomes = job.files.outcomes(|_| {}).map_err(|error| self.own(&error))?;
        let reader = job.files.plan().map_err(|error| self.own(&error))?;
        let mut progress = job.progress();
        (progress.files, progress.bytes, progress.is_planned) = (files, bytes, true);
        (progress.outcomes, progress.reader) = (Some(outcomes), Some(reader));
        progress.cut_since_ns = None;
        Ok(())
    }

    /// The node that a job's files go to.
    fn pair(job: &Job) -> String {
        match Place::parse(&job.spec.destination) {
            Ok(Place::Area(reference)) => reference.node,
            _ => String::new(),
        }
    }

    /// Begins a file of a job, where limits allow it and one is left.
    fn deal_file(
        self: &Arc<Inner>,
        job: &Arc<Job>,
        mut progress: MutexGuard<'_, Progress>,
        now_ns: u64,
    ) -> bool {
        if progress.since_ns.is_none() {
            progress.since_ns = Some(now_ns);
            self.set_deadline(job, &progress, now_ns);
        }
        let pair = Inner::pair(job);
        {
            let mut table = self.table();
            if progress.is_stuck || !table.places.has_room(&pair) {
                return false;
            }
            let Some(next) = next_file(&mut progress, now_ns) else {
                drop(table);
                let is_due = now_ns >= progress.finish_not_before_ns;
                if is_due && progress.is_read && progress.again.is_empty() && progress.in_flight == 0 {
                    progress.is_busy = true;
                    drop(progress);
                    self.step(job, |inner, job| inner.finish(&job));
                }
                return false;
            };
            let mut batch = Vec::new();
            if is_small(&next.entry) {
                if progress.batches >= batches_max(&progress) {
                    progress.again.insert((0, next.index), next);
                    return false;
                }
                progress.batches += 1;
                batch = gather(&mut progress, next.clone(), now_ns);
            }
            table.places.take(pair);
            progress.places += 1;
            progress.in_flight += batch.len().max(1);
            drop(table);
            drop(progress);
            self.begin(job, next, batch, now_ns);
        }
        true
    }

    /// Has a file begun, or the batch that it is the first of.
    fn begin(self: &Arc<Inner>, job: &Arc<Job>, next: Again, batch: Vec<Again>, now_ns: u64) {
        let (inner, job) = (Arc::clone(self), Arc::clone(job));
        match self.pool.reserve(0) {
            Some(place) if batch.is_empty() => place.submit(move || inner.begin_file(&job, next)),
            Some(place) => place.submit(move || inner.begin_batch(&job, batch)),
            // Stopping: the job is as it was when it is opened again.
            None if batch.is_empty() => inner.put_back(&job, next, now_ns),
            None => inner.leave_many(&job, batch.len()),
        }
    }

    /// The other node may be back soon: what was begun of a job's end is begun again. False where it has been waited
    /// for long enough.
    fn is_patient(&self, job: &Job, fault: &Fault) -> bool {
        let now_ns = self.means.clock.now_ns();
        let mut progress = job.progress();
        let since_ns = *progress.cut_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) > CUT_NS_MAX {
            return false;
        }
        progress.finish_not_before_ns = now_ns + PAUSE_MS.1 * 1_000_000;
        (progress.trouble, progress.is_busy) = (format!("trying again: {fault}"), false);
        true
    }

    /// All files are over.
    fn finish(&self, job: &Job) {
        job.judge_volume();
        let finished = self
            .client()
            .and_then(|client| self.directories(job, &|entry| finish_directory(&client, &job.spec, entry)));
        let (failed, missing) = {
            let progress = job.progress();
            let over = progress.files_done + progress.files_skipped + progress.files_failed;
            (progress.files_failed, progress.files.saturating_sub(over))
        };
        match finished {
            Err(fault) if job.control.order() != Order::Run => {
                // It goes on from here, if it does.
                tracing::debug!(job = job.id, %fault, "finishing was stopped");
                job.progress().is_busy = false;
            }
            Err(fault) if may_pass(fault.code) && self.is_patient(job, &fault) => {}
            Err(fault) => self.set_state(job, JobState::Failed, &fault.to_string()),
            // A plan is read up to where it makes sense.
            Ok(()) if missing > 0 => {
                let why = format!(
                    "node {}: {}: the plan cannot be read to its end, {missing} files are missing; submit the job \
                     again",
                    self.means.node,
                    self.directory.display()
                );
                self.set_state(job, JobState::Failed, &why);
            }
            Ok(()) if failed > 0 => {
                self.set_state(job, JobState::Failed, &format!("{failed} files could not be copied"));
            }
            Ok(()) => self.set_state(job, JobState::Done, ""),
        }
    }
}

/// Planning that failed for a reason that may pass is tried again, but not at once.
fn is_due(progress: &Progress, now_ns: u64) -> bool {
    progress.cut_since_ns.is_none_or(|since_ns| now_ns.saturating_sub(since_ns) > PAUSE_MS.0 * 1_000_000)
}

#[cfg(test)]
mod tests;
