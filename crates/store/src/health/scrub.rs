//! Scrub: every block of a target is read from its disk and compared with its checksum, at a bounded rate, in a thread
//! of its own, while the target serves. What it finds is counted as damage found by a reader is, and repaired from
//! another copy where there is a good one.

use crate::health::damage::{Place, REMEDY};
use crate::object::names::{self, Bucket, Part};
use crate::object::sidecar::{ENTRY_BYTES, entry_at};
use crate::object::{Mode, Stop, blocks};
use crate::targets::Target;
use std::sync::Arc;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, ObjectId};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::shell::scrub::{Progress, Runs};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks between two looks at the rate and at whether to go on; writers of the object wait no longer than for these.
const BLOCKS_AT_ONCE: u64 = 16;

/// Findings kept for the report; the counts go on.
const FINDINGS_MAX: usize = 256;

/// What a scrub has found, besides what every scrub counts.
#[derive(Clone, Default)]
pub(crate) struct Found {
    /// Leaf directories that there were, and those gone through.
    parts: u32,
    parts_done: u32,
    objects: u64,
    damaged: u64,
    /// Of those.
    repaired: u64,
    unreadable: u64,
    /// The first of what is wrong.
    findings: Vec<proto::ScrubFinding>,
}

/// Repairs a place of a target from another copy; false: it was not damaged any more.
pub(crate) type Repair = Box<dyn Fn(&Arc<Target>, ObjectId, Place) -> Result<bool, Fault> + Send>;

/// The scrub of one target.
pub(crate) type Scrub = vazao_wire::shell::scrub::Scrub<Found>;

/// What some blocks turned out to be.
#[derive(Default)]
struct Looked {
    /// Looked at, holes included.
    bytes: u64,
    /// What is wrong, by chunk and block.
    found: Vec<(u64, u64, Fault)>,
    /// The chunk has further blocks.
    has_more: bool,
}

impl Target {
    /// Starts a scrub that reads at most so many bytes a second; 0: as fast as it can. One that runs goes on, at the
    /// new rate. Errors: no thread; the one before has been stopped and has not ended yet.
    pub(crate) fn start_scrub(
        self: &Arc<Target>,
        rate_bytes: u64,
        repair: Repair,
        is_inline: bool,
    ) -> Result<(), Fault> {
        let runs = match is_inline {
            true => Runs::Here,
            false => Runs::Thread(format!("scrub-{}", self.id())),
        };
        let target = Arc::clone(self);
        let started = self.scrub.start(rate_bytes, Found::default(), runs, move || target.scrub_all(&repair));
        started.map_err(|fault| Fault::new(fault.code, format!("{self}: {}", fault.detail)))
    }

    fn scrub_all(self: &Arc<Target>, repair: &Repair) {
        tracing::info!(target_id = self.id().0, "scrub begins");
        let ended = self.scrub.run(|| self.scrub_buckets(repair));
        let Found { objects, damaged, repaired, unreadable, .. } = ended.found;
        let (state, bytes) = (ended.state, ended.bytes);
        tracing::info!(
            target_id = self.id().0,
            ?state,
            bytes,
            objects,
            damaged,
            repaired,
            unreadable,
            "scrub ends"
        );
    }

    /// How far the scrub has come, and what it has found.
    pub(crate) fn scrub_report(&self) -> proto::ScrubResponse {
        let Progress { state, rate_bytes, bytes, elapsed_ms, trouble, found, .. } = self.scrub.report();
        let Found { parts, parts_done, objects, damaged, repaired, unreadable, findings } = found;
        proto::ScrubResponse {
            state: state as u32,
            parts,
            parts_done,
            objects,
            bytes,
            damaged,
            unreadable,
            elapsed_ms,
            rate_bytes,
            findings,
            trouble,
            repaired,
        }
    }

    /// False when it was stopped.
    fn scrub_buckets(self: &Arc<Target>, repair: &Repair) -> Result<bool, Fault> {
        let buckets = self.buckets_from(Bucket::default())?;
        // One more than there are, so that a target with nothing in it comes to an end as well.
        self.scrub.note(|found| found.parts = buckets.len() as u32 + 1);
        for bucket in buckets {
            self.check()?;
            for object in self.list_bucket(bucket)? {
                if !self.scrub_object(object, repair)? {
                    return Ok(false);
                }
            }
            self.scrub.note(|found| found.parts_done += 1);
        }
        self.scrub.note(|found| found.parts_done += 1);
        Ok(true)
    }

    fn scrub_object(self: &Arc<Target>, id: ObjectId, repair: &Repair) -> Result<bool, Fault> {
        for chunk in self.list_chunks(id)? {
            let mut first = 0;
            loop {
                if self.scrub.is_stopped() {
                    return Ok(false);
                }
                let looked = match self.scrub_blocks(id, chunk, first) {
                    Ok(looked) => looked,
                    Err(Stop::Fault(fault)) => {
                        self.check()?;
                        Looked { found: vec![(chunk, first, fault)], ..Looked::default() }
                    }
                    Err(Stop::Wait) => Looked::default(),
                };
                let has_more = looked.has_more;
                self.note_scrubbed(id, looked, repair);
                first += BLOCKS_AT_ONCE;
                if !has_more {
                    break;
                }
            }
        }
        self.scrub.note(|found| found.objects += 1);
        Ok(true)
    }

    /// Counts what was read and found, and waits where the rate demands it.
    fn note_scrubbed(self: &Arc<Target>, id: ObjectId, looked: Looked, repair: &Repair) {
        for (chunk, block, fault) in looked.found {
            let offset = chunk.saturating_mul(self.chunk_bytes).saturating_add(block * BLOCK);
            let is_damaged = fault.code == Code::Corrupt;
            // Also where it is sound by now: reads have damage repaired, too.
            let is_repaired = is_damaged && repair(self, id, Place::Block(offset / BLOCK)).is_ok();
            self.scrub.note(|found| {
                found.damaged += u64::from(is_damaged);
                found.repaired += u64::from(is_repaired);
                found.unreadable += u64::from(!is_damaged);
                if found.findings.len() < FINDINGS_MAX {
                    let what = match is_repaired {
                        true => format!("{}; repaired from another copy", without_remedy(&fault.detail)),
                        false => fault.detail,
                    };
                    let (inode, generation, slot) = (id.inode.0, id.generation, id.slot);
                    found.findings.push(proto::ScrubFinding { inode, generation, slot, offset, what });
                }
            });
        }
        self.scrub.read(looked.bytes);
    }

    /// Some blocks of a chunk from `first` on.
    fn scrub_blocks(&self, id: ObjectId, chunk: u64, first: u64) -> Result<Looked, Stop> {
        let object = self.cache.get(id);
        let _blocking = object.begin(Mode::Blocking)?;
        let body = self.open_to_read(&object, chunk..=chunk, Mode::Blocking)?;
        // Removed or cut meanwhile.
        let Some(files) = body.files(chunk) else { return Ok(Looked::default()) };
        let last = blocks(files.length).min(first + BLOCKS_AT_ONCE);
        if first >= last {
            return Ok(Looked::default());
        }
        let mut entries = [0; (BLOCKS_AT_ONCE * ENTRY_BYTES) as usize];
        let entries = &mut entries[..((last - first) * ENTRY_BYTES) as usize];
        self.read_file(id, chunk, Part::Sums, files, entries, entry_at(first), Mode::Blocking)?;
        let (start, end) = (first * BLOCK, (last * BLOCK).min(files.length));
        // What is in the cache says nothing of the disk.
        let was_cached = files.data.drop_cached(start, end - start);
        let path = names::path(id, chunk, Part::Data);
        let data = files.data.next_data(start).map_err(|e| self.read_fault(&path, &e))?;
        let data = data.map_or(u64::MAX, |range| range.start);
        let mut found = Vec::new();
        let mut edge = Vec::new();
        for (block, entry) in (first..last).zip(entries.chunks_exact(ENTRY_BYTES as usize)) {
            let entry = entry.try_into().map_or(0, u32::from_le_bytes);
            if entry == 0 && (block + 1) * BLOCK <= data {
                continue;
            }
            match self.verify_block(id, chunk, files, block, entry, Mode::Blocking, &mut edge) {
                Ok(()) => {}
                Err(Stop::Fault(fault)) => found.push((chunk, block, fault)),
                Err(stop) => return Err(stop),
            }
        }
        if !was_cached {
            files.data.drop_cached(start, end - start);
        }
        Ok(Looked { bytes: end - start, found, has_more: last < blocks(files.length) })
    }
}

/// What was found, without what to do about it: that is done.
fn without_remedy(detail: &str) -> &str {
    detail.strip_suffix(REMEDY).unwrap_or(detail)
}
