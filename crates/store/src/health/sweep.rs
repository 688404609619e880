//! The sweep after an unclean stop: every chunk that may be torn is opened, and thereby repaired, in the background.
//! When it has been through the whole target, the epochs of that stop are suspect no more.

use crate::health::repair::Suspects;
use crate::object::Mode;
use crate::object::names::{self, Bucket, Part};
use crate::object::sidecar::{Found, Header};
use crate::targets::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::time::Duration;
use vazao_disk::Open;
use vazao_model::{Code, GroupId, ObjectId};
use vazao_wire::service::Fault;

/// How far the sweep has come.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// `None`: there is nothing to sweep.
    round: Option<Round>,
    /// Chunks with regions that were repaired, by the sweep or by the first use before it.
    chunks: u64,
    /// Entries that were wrong.
    blocks: u64,
    /// Chunks of this round that could not be looked at.
    failures: u64,
    /// Rounds that ended with such chunks.
    failed_rounds: u64,
    /// Groups that were swept before their turn: what is left of each.
    groups: BTreeMap<GroupId, Vec<Bucket>>,
}

/// One way through the target.
#[derive(Debug, Default)]
struct Round {
    /// Leaf directories that are left, the next one last; `None`: they are yet to be listed. What is made later was
    /// written in this run of the server.
    left: Option<Vec<Bucket>>,
}

impl Sweep {
    /// A sweep that begins, or that there is no need for.
    pub(crate) fn new(is_needed: bool) -> Sweep {
        Sweep { round: is_needed.then(Round::default), ..Sweep::default() }
    }
}

/// One step of the sweep takes about this long.
const STEP_NS: u64 = 200_000_000;

/// How long one that asks for a group waits for another one's, and how long it may take itself.
const GROUP_WAIT: Duration = Duration::from_millis(500);
const GROUP_NS: u64 = 1_000_000_000;

impl Target {
    /// Counts a chunk that was repaired.
    pub(crate) fn note_repair(&self, blocks: u64) {
        let mut sweep = self.sweep.lock();
        sweep.chunks += 1;
        sweep.blocks += blocks;
    }

    /// Chunks and entries repaired since the start.
    pub(crate) fn repairs(&self) -> (u64, u64) {
        let sweep = self.sweep.lock();
        (sweep.chunks, sweep.blocks)
    }

    /// True when there is nothing to sweep.
    pub(crate) fn is_swept(&self) -> bool {
        self.sweep.lock().round.is_none()
    }

    /// Goes on with the sweep for a while.
    pub(crate) fn sweep_step(&self) -> Result<(), Fault> {
        let start = self.clock.now_ns();
        while !self.is_swept() {
            self.check()?;
            match self.next_to_sweep()? {
                Some(bucket) => {
                    self.sweep_bucket(bucket).inspect_err(|_| self.put_back(bucket))?;
                }
                None if self.must_go_round_again() => break,
                None => self.end_sweep(),
            }
            if self.clock.now_ns().saturating_sub(start) > STEP_NS {
                break;
            }
        }
        Ok(())
    }

    /// Sweeps one group before its turn. Errors: also that it takes longer; it goes on where it was when it is asked
    /// again.
    pub(crate) fn sweep_group(&self, group: GroupId) -> Result<(), Fault> {
        let begun_ns = self.clock.now_ns();
        let busy =
            || Fault::new(Code::Unavailable, format!("{self} is swept after an unclean stop; ask again"));
        let _one = self.sweeping_group.try_lock_for(GROUP_WAIT).ok_or_else(busy)?;
        let known = self.sweep.lock().groups.get(&group).cloned();
        let mut left = match known {
            _ if self.is_swept() => return Ok(()),
            Some(left) => left,
            None => self.leaves(Bucket { group, leaf: 0 })?.collect(),
        };
        while let Some(&bucket) = left.last() {
            self.check()?;
            self.sweep_bucket(bucket)?;
            left.pop();
            if !left.is_empty() && self.clock.now_ns().saturating_sub(begun_ns) > GROUP_NS {
                self.sweep.lock().groups.insert(group, left);
                return Err(busy());
            }
        }
        self.sweep.lock().groups.insert(group, left);
        Ok(())
    }

    /// The leaf directory that is next; `None`: the round is over.
    fn next_to_sweep(&self) -> Result<Option<Bucket>, Fault> {
        let is_listed = self.sweep.lock().round.as_ref().is_none_or(|round| round.left.is_some());
        let listed = if is_listed { None } else { Some(self.buckets_from(Bucket::default())?) };
        let mut sweep = self.sweep.lock();
        let Some(round) = &mut sweep.round else { return Ok(None) };
        if let Some(mut listed) = listed {
            listed.reverse();
            round.left = Some(listed);
        }
        Ok(round.left.as_mut().and_then(Vec::pop))
    }

    fn put_back(&self, bucket: Bucket) {
        if let Some(left) = self.sweep.lock().round.as_mut().and_then(|round| round.left.as_mut()) {
            left.push(bucket);
        }
    }

    fn end_sweep(&self) {
        self.sweep.lock().round = None;
        let (chunks, blocks) = self.repairs();
        self.epochs.set_swept();
        tracing::info!(
            target_id = self.id().0,
            "repaired {blocks} blocks of {chunks} unsynced chunks after an unclean stop"
        );
    }

    /// At the end of a round: begins another one when chunks could not be looked at. Until all were, their regions stay
    /// suspect: were the sweep over, a torn block among them would count as damaged for ever.
    fn must_go_round_again(&self) -> bool {
        let mut sweep = self.sweep.lock();
        let failures = std::mem::take(&mut sweep.failures);
        if failures == 0 {
            return false;
        }
        if sweep.failed_rounds == 0 {
            tracing::warn!(target_id = self.id().0, failures, "chunks could not be swept; trying again");
        }
        sweep.failed_rounds += 1;
        sweep.round = Some(Round::default());
        true
    }

    fn sweep_bucket(&self, bucket: Bucket) -> Result<(), Fault> {
        let path = bucket.path();
        let entries = match self.disk.list(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.read_fault(&path, &error)),
        };
        let files: Vec<_> = entries.iter().filter_map(|e| bucket.parse(&e.name)).collect();
        let data: BTreeSet<(ObjectId, u64)> =
            files.iter().filter(|f| f.2 == Part::Data).map(|f| (f.0, f.1)).collect();
        for &(object, chunk) in &data {
            if self.may_be_torn(object, chunk) {
                self.sweep_chunk(object, chunk);
            }
        }
        let orphans = files.iter().filter(|f| f.2 == Part::Sums && !data.contains(&(f.0, f.1)));
        for &(object, chunk, _) in orphans {
            self.remove_orphan(object, chunk);
        }
        Ok(())
    }

    /// Looks at a sidecar's header without opening the object.
    fn may_be_torn(&self, id: ObjectId, chunk: u64) -> bool {
        let suspects = Suspects::of(self);
        let header = self
            .disk
            .open(&names::path(id, chunk, Part::Sums), Open::ReadOnly)
            .and_then(|file| Header::read(&*file));
        match header {
            Ok(Found::Valid(header)) => header.marks.iter().any(|&mark| suspects.includes(mark)),
            _ => true,
        }
    }

    /// Opening repairs. What cannot be repaired is reported, once by the one who found it, and not served either.
    fn sweep_chunk(&self, id: ObjectId, chunk: u64) {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking);
        let mut body = object.write(self);
        if let Err(fault) = self.open_chunks(id, &mut body, chunk..=chunk) {
            tracing::debug!(%fault, "a chunk could not be swept");
            self.sweep.lock().failures += 1;
        }
        body.trim();
    }

    /// Removes a sidecar whose data file's removal, or creation, was cut short.
    fn remove_orphan(&self, id: ObjectId, chunk: u64) {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking);
        let mut body = object.write(self);
        let is_known = self.open_chunks(id, &mut body, 0..=0).is_ok();
        // Perhaps it was not removed, and the data is lost.
        if is_known
            && !body.chunks.contains_key(&chunk)
            && self.take_for_right(id, chunk, 0..u64::MAX).is_ok()
        {
            // The creation of the chunk clears such a file, so it does no harm where it cannot be removed.
            let _ = self.disk.remove(&names::path(id, chunk, Part::Sums));
        }
    }
}
