//! Copies that nodes do, waited for.

use crate::types::{CopyProgress, Limit};
use std::time::Duration;
use vazao_client::{Client, Error, Result};
use vazao_handles::Connection;
use vazao_model::Code;
use vazao_mover::remote::{self, Action};
use vazao_mover::{JobState, Method};
use vazao_wire::proto;

/// How often a copy is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// The first looks come sooner: small copies are over by then.
const LOOK_FIRST: Duration = Duration::from_millis(20);

/// What is under way of a cancelled copy ends within this, unless a node or a disk does not answer.
const CANCEL_MAX: Duration = Duration::from_secs(2);

/// Which files that are there already are written over.
const OVER_MAX: u32 = 3;

/// A copy as a program wants it.
pub(crate) struct Copy<'a> {
    pub(crate) sources: Vec<Vec<u8>>,
    pub(crate) destination: Vec<u8>,
    pub(crate) is_recursive: bool,
    pub(crate) preserves: bool,
    pub(crate) resumes: bool,
    pub(crate) compares_checksums: bool,
    pub(crate) over: u32,
    pub(crate) deadline: Option<Duration>,
    pub(crate) bytes_per_second_max: u64,
    pub(crate) method: Option<&'a str>,
}

impl Copy<'_> {
    fn spec(&self) -> Result<proto::JobSpec> {
        let invalid = |what: String| Error::new(Code::Invalid, what);
        if self.over > OVER_MAX {
            return Err(invalid(format!("over = {}: 0 to {OVER_MAX} are known", self.over)));
        }
        let method = self.method.map(str::parse::<Method>).transpose().map_err(|e| invalid(e.to_string()))?;
        Ok(proto::JobSpec {
            destination: self.destination.clone(),
            recursive: self.is_recursive,
            method: method.unwrap_or_default().to_string(),
            overwrite: self.over,
            checksum: self.compares_checksums,
            resume: self.resumes,
            rate_bytes: self.bytes_per_second_max,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            preserve: self.preserves,
            ..Default::default()
        })
    }

    /// Has it done, and waits until it is. `watch` is told how far it is; false cancels it. Returns what limited it.
    pub(crate) fn run(
        &self,
        connection: &Connection,
        watch: &mut dyn FnMut(&CopyProgress) -> bool,
    ) -> Result<Limit> {
        let client = connection.client()?;
        let requester = format!("process {}", std::process::id());
        let jobs = remote::order(client, &self.sources, &self.spec()?, &requester)?;
        let mut under_way = UnderWay { client, jobs };
        let clock = vazao_meter::clock::system();
        let until_ns =
            self.deadline.map(|deadline| clock.now_ns().saturating_add(deadline.as_nanos() as u64));
        let mut pause = LOOK_FIRST;
        loop {
            under_way.look()?;
            if !watch(&under_way.progress()) {
                return Err(under_way.cancel(Code::Cancelled, "cancelled"));
            }
            if under_way.is_over() {
                return under_way.outcome();
            }
            let left_ns = until_ns.map_or(u64::MAX, |until_ns| until_ns.saturating_sub(clock.now_ns()));
            if left_ns == 0 {
                return Err(under_way.cancel(Code::Timeout, "not over by its deadline"));
            }
            clock.sleep(pause.min(Duration::from_nanos(left_ns)));
            pause = (pause * 17 / 16).min(LOOK);
        }
    }
}

fn state(job: &proto::JobStatus) -> Option<JobState> {
    JobState::from_number(job.state)
}

/// The jobs of one copy: one of each node that has a part in it.
struct UnderWay<'a> {
    client: &'a Client,
    jobs: Vec<proto::JobStatus>,
}

impl UnderWay<'_> {
    fn is_over(&self) -> bool {
        self.jobs.iter().all(|job| state(job).is_none_or(JobState::is_over))
    }

    fn ids(&self) -> String {
        self.jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Asks for those that are not over. Errors: a node does not answer; its job goes on.
    fn look(&mut self) -> Result<()> {
        let ids = self.ids();
        for job in self.jobs.iter_mut().filter(|job| !state(job).is_none_or(JobState::is_over)) {
            let looked = remote::status(self.client, &job.id);
            *job = looked.map_err(|error| error.about(format!("copy {ids}, which goes on")))?;
        }
        Ok(())
    }

    fn progress(&self) -> CopyProgress {
        let sum = |part: fn(&proto::JobStatus) -> u64| self.jobs.iter().map(part).sum();
        CopyProgress {
            files: sum(|job| job.files),
            files_done: sum(|job| job.files_done + job.files_skipped),
            files_failed: sum(|job| job.files_failed),
            bytes: sum(|job| job.bytes),
            bytes_done: sum(|job| job.bytes_done),
            bytes_per_second: sum(|job| job.rate_bytes),
            left_ms: self.jobs.iter().map(|job| job.left_ms).max().unwrap_or(0),
            reserved: [0; 5],
        }
    }

    /// Ends it, and says why.
    fn cancel(&mut self, code: Code, why: &str) -> Error {
        let ids = self.ids();
        let mut outcome = Ok(());
        for job in self.jobs.iter().filter(|job| !state(job).is_none_or(JobState::is_over)) {
            outcome = outcome.and(remote::control(self.client, &job.id, Action::Cancel));
        }
        let clock = vazao_meter::clock::system();
        let until_ns = clock.now_ns() + CANCEL_MAX.as_nanos() as u64;
        while outcome.is_ok() && !self.is_over() && clock.now_ns() < until_ns {
            clock.sleep(LOOK_FIRST);
            outcome = self.look();
        }
        let rest = match (outcome, self.is_over()) {
            (Err(error), _) => format!("; that could not be told to its node: {error}"),
            (Ok(()), false) => "; what is under way of it ends soon".to_owned(),
            (Ok(()), true) => String::new(),
        };
        Error::new(code, format!("copy {ids}: {why}{rest}"))
    }

    /// What limited the job that took longest. Errors: a file could not be copied.
    fn outcome(&self) -> Result<Limit> {
        if let Some(job) = self.jobs.iter().find(|job| state(job) != Some(JobState::Done)) {
            return Err(self.failure(job));
        }
        let Some(job) = self.jobs.iter().max_by_key(|job| job.elapsed_ms) else {
            return Err(Error::new(Code::Invalid, "nothing is to be copied"));
        };
        let share = (job.limit_percent > 0).then(|| f64::from(job.limit_percent) / 100.0);
        let resource = if job.limit_resource.is_empty() { "unknown" } else { &job.limit_resource };
        Ok(Limit::new(resource, share, share.unwrap_or(0.0), &job.limit_node, &job.bottleneck))
    }

    fn failure(&self, job: &proto::JobStatus) -> Error {
        if state(job) == Some(JobState::Cancelled) {
            return Error::new(Code::Cancelled, format!("copy {}: somebody else cancelled it", job.id));
        }
        let first =
            remote::failures(self.client, &job.id, 0).ok().and_then(|(page, _)| page.into_iter().next());
        let why = first.map_or_else(|| job.trouble.clone(), |first| first.detail);
        let detail = format!("copy {}: {} of {} files failed: {why}", job.id, job.files_failed, job.files);
        Error::new(Code::Io, detail)
    }
}
