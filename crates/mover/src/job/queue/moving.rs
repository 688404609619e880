//! The files of a job under way: begun, ended, tried again, or noted as failed.

use super::Inner;
use crate::control::{Order, Underway, may_pass};
use crate::job::state::{Again, Job, Progress, Tries};
use crate::job::step::{Ended, First};
use crate::method::auto::{Auto, Chosen};
use crate::method::build::build;
use crate::method::{CopyMethod, Method};
use crate::outgoing::{Outgoing, WHOLE_BYTES_MAX};
use crate::volume::VolumeCopy;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use vazao_model::{Code, FileKind};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A node that does not answer is asked again for this long before files fail for it.
pub(super) const CUT_NS_MAX: u64 = 300_000_000_000;

/// A file that changes under its copy, or arrives damaged, is tried this often.
pub(super) const TRIES_MAX: u32 = 3;

/// Waits between tries double from the first to the second.
pub(super) const PAUSE_MS: (u64, u64) = (100, 5_000);

/// Outcomes as they are written down.
pub(super) const DONE: u32 = 1;
pub(super) const SKIPPED: u32 = 2;
pub(super) const FAILED: u32 = 3;

impl Inner {
    pub(super) fn begin_file(self: &Arc<Inner>, job: &Arc<Job>, file: Again) {
        let begun = self.client().and_then(|client| {
            job.watch_volume(&client, &self.means.clock);
            self.means.first(&client, job, &file.entry)
        });
        match begun {
            Ok(First::Ended(ended)) => self.file_ended(job, &file, ended),
            Err(fault) => self.file_failed(job, file, fault),
            Ok(First::Send(copy)) => {
                let underway: Weak<dyn Underway> = Arc::downgrade(&copy) as _;
                job.progress().sending.insert(file.index, underway);
                let method = self.method(job);
                let (inner, job, sent) = (Arc::clone(self), Arc::clone(job), Arc::clone(&copy));
                let done = move |outcome| {
                    let again = Arc::clone(&inner);
                    match inner.pool.reserve(0) {
                        Some(place) => place.submit(move || again.end_file(&job, file, &sent, outcome)),
                        None => inner.put_back(&job, file, 0),
                    }
                };
                method.start(copy, Box::new(done));
            }
            Ok(First::Write(copy)) => self.write_file(job, file, copy),
        }
    }

    /// Writes a file into the volume: a small one at once, a large one by threads of its own.
    fn write_file(self: &Arc<Inner>, job: &Arc<Job>, file: Again, copy: Arc<VolumeCopy>) {
        self.say_volume(job);
        if file.entry.size <= WHOLE_BYTES_MAX {
            return self.end_written(job, file, &copy, copy.run());
        }
        job.progress().sending.insert(file.index, Arc::downgrade(&copy) as Weak<dyn Underway>);
        let (inner, ours, its) = (Arc::clone(self), Arc::clone(job), file.clone());
        let work = move || {
            let outcome = copy.run();
            inner.end_written(&ours, its, &copy, outcome);
        };
        let spawned = std::thread::Builder::new().name("into-volume".to_owned()).spawn(work);
        if let Err(error) = spawned {
            let why = format!("node {}: no thread for a copy: {error}", self.means.node);
            self.file_failed(job, file, Fault::new(Code::Overloaded, why));
        }
    }

    fn end_written(&self, job: &Job, file: Again, copy: &VolumeCopy, outcome: Result<(), Fault>) {
        match outcome.and_then(|()| copy.end()) {
            Ok(()) => self.file_ended(job, &file, Ended::Done),
            Err(fault) => {
                let is_of_no_use = matches!(fault.code, Code::Stale | Code::Corrupt)
                    || (copy.finished_bytes() == 0 && !is_away(&fault));
                if is_of_no_use || job.control.order() == Order::Cancel {
                    copy.forget();
                }
                self.file_failed(job, file, fault);
            }
        }
    }

    /// Says why no method is at work.
    fn say_volume(&self, job: &Job) {
        let mut chosen = job.chosen.lock();
        if chosen.is_none() {
            let why = "into the volume: the client stripes over the data servers".to_owned();
            *chosen = Some(Chosen { method: job.method, why });
        }
    }

    /// What carries out a job's method.
    fn method(&self, job: &Job) -> Box<dyn CopyMethod> {
        match job.method {
            Method::Auto => {
                let (pairs, chosen) = (Arc::clone(&self.pairs), Arc::clone(&job.chosen));
                Box::new(Auto { pairs, chosen, engines: self.engines.clone() })
            }
            other => build(other, &self.engines),
        }
    }

    pub(super) fn end_file(&self, job: &Job, file: Again, copy: &Outgoing, outcome: Result<(), Fault>) {
        let ended = outcome.and_then(|()| copy.end());
        match ended {
            Ok(()) => self.file_ended(job, &file, Ended::Done),
            Err(fault) => {
                // The receiver keeps what it has, and its place in the queue is free for another.
                if !is_away(&fault) {
                    copy.give_up(job.control.order() == Order::Cancel);
                }
                self.file_failed(job, file, fault);
            }
        }
    }

    /// A file is not out any more.
    pub(super) fn leave(&self, job: &Job, index: u64) {
        job.progress().sending.remove(&index);
        self.leave_many(job, 1);
    }

    /// Files that were out in one place of the queue are not any more.
    pub(super) fn leave_many(&self, job: &Job, files: usize) {
        let mut progress = job.progress();
        progress.in_flight -= files;
        progress.places -= 1;
        let mut table = self.table();
        table.places.leave(&Inner::pair(job));
        drop(table);
        self.changed.notify_all();
    }

    fn again(&self, job: &Job, file: Again, not_before_ns: u64) {
        job.progress().again.insert((not_before_ns, file.index), file);
    }

    pub(super) fn put_back(&self, job: &Job, file: Again, not_before_ns: u64) {
        let index = file.index;
        self.again(job, file, not_before_ns);
        self.leave(job, index);
    }

    pub(super) fn file_ended(&self, job: &Job, file: &Again, ended: Ended) {
        self.settle(job, file, ended);
        self.leave(job, file.index);
    }

    /// A file is over, as well as it can be.
    pub(super) fn settle(&self, job: &Job, file: &Again, ended: Ended) {
        let outcome = if ended == Ended::Done { DONE } else { SKIPPED };
        self.note(job, file.index, outcome, String::new());
        let mut progress = job.progress();
        progress.bytes_done += file.entry.size;
        match ended {
            Ended::Done => progress.files_done += 1,
            Ended::Skipped => progress.files_skipped += 1,
        }
        (progress.cut_since_ns, progress.is_cut) = (None, false);
        progress.trouble.clear();
    }

    pub(super) fn note(&self, job: &Job, index: u64, outcome: u32, detail: String) {
        let mut progress = job.progress();
        let Some(writer) = &mut progress.outcomes else { return };
        if let Err(error) = writer.add(&proto::FileOutcome { index, outcome, detail }) {
            // Looked at again after a restart, that is all.
            progress.trouble = self.own(&error).to_string();
        }
    }

    pub(super) fn file_failed(&self, job: &Job, file: Again, fault: Fault) {
        let index = file.index;
        self.fail(job, file, fault);
        self.leave(job, index);
    }

    /// A file is tried again later, or noted as failed.
    pub(super) fn fail(&self, job: &Job, mut file: Again, fault: Fault) {
        let now_ns = self.means.clock.now_ns();
        // The job's time being over is no fault of the file.
        let is_over = now_ns >= job.control.deadline_ns.load(Ordering::Relaxed);
        if is_over || job.control.order() != Order::Run {
            return self.again(job, file, now_ns);
        }
        let mut progress = job.progress();
        progress.is_cut |= may_pass(fault.code);
        let pause_ns = match fault.code {
            // Its place in the other node's queue comes.
            Code::Overloaded | Code::Unavailable | Code::Hung => {
                file.tries.cut += 1;
                Some(pause_ns(file.tries.cut))
            }
            code if may_pass(code) => {
                file.tries.cut += 1;
                let since_ns = *progress.cut_since_ns.get_or_insert(now_ns);
                let is_patient = now_ns.saturating_sub(since_ns) < CUT_NS_MAX;
                is_patient.then(|| pause_ns(file.tries.cut))
            }
            Code::Stale | Code::Corrupt => {
                file.tries.failed += 1;
                (file.tries.failed < TRIES_MAX).then(|| pause_ns(file.tries.failed))
            }
            _ => None,
        };
        match pause_ns {
            Some(pause_ns) => {
                progress.trouble = format!("trying again: {fault}");
                drop(progress);
                self.again(job, file, now_ns + pause_ns);
            }
            None => {
                progress.files_failed += 1;
                // What will not come is not waited for.
                progress.bytes = progress.bytes.saturating_sub(file.entry.size);
                drop(progress);
                let source = String::from_utf8_lossy(&file.entry.source).into_owned();
                let detail = match fault.to_string() {
                    said if said.contains(&source) => said,
                    said => format!("{source}: {said}"),
                };
                tracing::warn!(job = job.id, detail, "a file failed");
                self.note(job, file.index, FAILED, detail);
            }
        }
    }
}

/// How long to wait before try number `tries` + 1.
pub(super) fn pause_ns(tries: u32) -> u64 {
    let (first, last) = PAUSE_MS;
    (first << tries.saturating_sub(1).min(10)).min(last) * 1_000_000
}

/// The next file that may be begun.
pub(super) fn next_file(progress: &mut Progress, now_ns: u64) -> Option<Again> {
    if let Some((&(due_ns, index), _)) = progress.again.first_key_value()
        && due_ns <= now_ns
    {
        return progress.again.remove(&(due_ns, index));
    }
    let Progress { reader, before, is_read, .. } = progress;
    let directory = FileKind::Directory.number();
    let next = reader
        .as_mut()
        .and_then(|reader| reader.find(|(i, entry)| entry.kind != directory && !before.has(*i as usize)));
    *is_read = next.is_none();
    next.map(|(index, entry)| Again { index, entry, tries: Tries::default() })
}

/// The failed end was away: what has arrived stays for its return.
fn is_away(fault: &Fault) -> bool {
    fault.code.is_silence()
}
