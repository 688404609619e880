//! Small files of a job, taken from its plan and sent together.

use super::Inner;
use super::moving::next_file;
use crate::job::plan::find;
use crate::job::state::{Again, Job, Progress};
use crate::job::step::{Ended, First, overwrite_number};
use crate::method::auto::Chosen;
use crate::outgoing::WHOLE_BYTES_MAX;
use crate::outgoing::batch::{BYTES_MAX, BatchFile, FILES_MAX, PATH_BYTES_MAX, Sent, send_batch};
use crate::place::Place;
use std::sync::Arc;
use vazao_model::{Code, FileKind};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Batches of a job at once: one is read, one is on its way, and others are with the destination's disk. More would
/// only wait longer, and be more to send again.
const BATCHES_MAX: usize = 4;

/// As many where the destination is far away: most of them are on their way there, or their answers are on the way
/// back. They leave threads of the queue to others.
const BATCHES_FAR_MAX: usize = 10;

/// A round trip beyond this is longer than a batch takes at its destination.
const FAR_NS: u64 = 10_000_000;

/// Files of a batch that are read from the volume: each has to be asked for by itself, one after the other.
const VOLUME_FILES_MAX: usize = 32;

/// Whether a file of a plan goes together with others. Into the volume each goes by itself, many at once.
pub(super) fn is_small(entry: &proto::PlanEntry) -> bool {
    FileKind::from_number(entry.kind) == Some(FileKind::File)
        && entry.size <= WHOLE_BYTES_MAX
        && !entry.destination.starts_with(b"vz:")
}

/// How many batches of a job may be out now.
pub(super) fn batches_max(progress: &Progress) -> usize {
    match (progress.is_cut, progress.is_far) {
        (true, _) => 1,
        (false, false) => BATCHES_MAX,
        (false, true) => BATCHES_FAR_MAX,
    }
}

/// The small files that come next in the plan, `first` and those behind it.
pub(super) fn gather(progress: &mut Progress, first: Again, now_ns: u64) -> Vec<Again> {
    let weight = |file: &Again| file.entry.source.len() + file.entry.destination.len();
    let is_remote = first.entry.source.starts_with(b"vz:");
    let files_max = match progress.is_cut {
        // One finds out whether the other node is back; many would be sent in vain.
        true => 1,
        false if is_remote => VOLUME_FILES_MAX,
        false => FILES_MAX,
    };
    let (mut bytes, mut paths) = (first.entry.size, weight(&first));
    let mut batch = vec![first];
    while batch.len() < files_max {
        let Some(next) = next_file(progress, now_ns) else { break };
        bytes += next.entry.size;
        paths += weight(&next);
        if !is_small(&next.entry) || bytes > BYTES_MAX || paths > PATH_BYTES_MAX {
            // The first of what is begun next.
            progress.again.insert((0, next.index), next);
            progress.is_read = false;
            break;
        }
        batch.push(next);
    }
    batch
}

impl Inner {
    /// Sends a batch and notes what became of each file.
    pub(super) fn begin_batch(self: &Arc<Inner>, job: &Arc<Job>, batch: Vec<Again>) {
        let count = batch.len();
        self.say_batch(job);
        match self.try_batch(job, &batch) {
            Err(fault) => batch.into_iter().for_each(|file| self.fail(job, file, fault.clone())),
            Ok(outcomes) => {
                for (file, outcome) in batch.into_iter().zip(outcomes) {
                    match outcome {
                        Ok(Sent::Done) => self.settle(job, &file, Ended::Done),
                        Ok(Sent::Skipped) => self.settle(job, &file, Ended::Skipped),
                        Err(fault) => self.fail_small(job, file, fault),
                    }
                }
            }
        }
        job.progress().batches -= 1;
        self.leave_many(job, count);
    }

    /// A small file failed. One that has grown too large meanwhile goes by itself from now on.
    fn fail_small(&self, job: &Job, mut file: Again, fault: Fault) {
        let stat = |client| find(&client, &Place::parse(&file.entry.source)?, true);
        let now = match fault.code {
            Code::Stale => self.client().and_then(stat).ok().flatten().map(|there| there.size),
            _ => None,
        };
        if let Some(size) = now {
            let mut progress = job.progress();
            progress.bytes = progress.bytes.saturating_sub(file.entry.size).saturating_add(size);
            file.entry.size = size;
        }
        self.fail(job, file, fault);
    }

    /// Opens the files and sends them. Errors: what is the fault of none of them.
    fn try_batch(&self, job: &Job, batch: &[Again]) -> Result<Vec<Result<Sent, Fault>>, Fault> {
        let client = self.client()?;
        let around = self.means.around(&client, &job.control, &job.counts);
        let mut files = Vec::with_capacity(batch.len());
        let mut opened = Vec::with_capacity(batch.len());
        for file in batch {
            let source = Place::parse(&file.entry.source).and_then(|place| self.means.open(&client, &place));
            opened.push(source.and_then(|source| {
                let to = self.means.destination(&client, &file.entry)?;
                files.push(BatchFile { source, to, overwrite: overwrite_number(&job.spec) });
                Ok(())
            }));
        }
        if let Some(file) = files.first() {
            job.progress().is_far = around.transport.round_trip_ns(&file.to.address) > FAR_NS;
        }
        let (sent, _) = send_batch(&files, &around, job.spec.checksum);
        let mut sent = sent.into_iter();
        let missing = || Err(Fault::new(Code::Internal, "a batch with fewer answers than files"));
        let outcomes = opened.into_iter().zip(batch).map(|(open, file)| {
            open?;
            match sent.next().unwrap_or_else(missing) {
                // A node of a version without batches takes each file by itself.
                Err(fault) if fault.code == Code::Unsupported => {
                    match self.means.first(&client, job, &file.entry)? {
                        First::Ended(Ended::Done) => Ok(Sent::Done),
                        First::Ended(Ended::Skipped) => Ok(Sent::Skipped),
                        First::Send(_) | First::Write(_) => Err(fault),
                    }
                }
                other => other,
            }
        });
        Ok(outcomes.collect())
    }

    /// Says why no method is at work, where none was yet.
    fn say_batch(&self, job: &Job) {
        let mut chosen = job.chosen.lock();
        if chosen.is_none() {
            let why = format!("small files, up to {FILES_MAX} in one request");
            *chosen = Some(Chosen { method: job.method, why });
        }
    }
}
