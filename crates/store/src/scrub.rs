//! Scrub: every block of a target is read from its disk and compared with its checksum, at a bounded rate, in a thread
//! of its own, while the target serves. What it finds is counted as damage found by a reader is.

use crate::names::{self, BUCKETS, Bucket, Part};
use crate::object::{Mode, Stop, blocks};
use crate::sidecar::{ENTRY_BYTES, entry_at};
use crate::target::Target;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, ObjectId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks between two looks at the rate and at whether to go on; writers of the object wait no longer than for these.
const BLOCKS_AT_ONCE: u64 = 16;

/// Findings kept for the report; the counts go on.
const FINDINGS_MAX: usize = 256;

/// A scrub that has to slow down looks this often whether it is to stop.
const PAUSE_NS_MAX: u64 = 100_000_000;

/// The scrub of one target, the present or the last one.
#[derive(Default)]
pub(crate) struct Scrub {
    progress: Mutex<proto::ScrubResponse>,
    must_stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a scrub is doing, as in `ScrubResponse.state`; 0 there: none was started yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum ScrubState {
    /// It goes on.
    Running = 1,
    /// It has been through the whole target.
    Done = 2,
    /// Somebody stopped it.
    Stopped = 3,
    /// The target could not be read any further.
    Failed = 4,
}

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

impl Scrub {
    fn progress(&self) -> MutexGuard<'_, proto::ScrubResponse> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it has come, and what it has found.
    pub(crate) fn report(&self) -> proto::ScrubResponse {
        self.progress().clone()
    }

    /// Asks it to end.
    pub(crate) fn stop(&self) {
        self.must_stop.store(true, Ordering::SeqCst);
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn finish(&self) {
        self.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // One that panicked has been reported by the panic itself.
            let _ = thread.join();
        }
    }

    fn is_stopped(&self) -> bool {
        self.must_stop.load(Ordering::SeqCst)
    }
}

impl Target {
    /// Starts a scrub that reads at most so many bytes a second; 0: as fast as it can. One that runs goes on, at the
    /// new rate. Errors: no thread; the one before has been stopped and has not ended yet.
    pub(crate) fn start_scrub(self: &Arc<Target>, rate_bytes: u64, is_inline: bool) -> Result<(), Fault> {
        let mut thread = self.scrub.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut progress = self.scrub.progress();
        if progress.state == ScrubState::Running as u32 && !self.scrub.is_stopped() {
            progress.rate_bytes = rate_bytes;
            return Ok(());
        }
        drop(progress);
        if thread.as_ref().is_some_and(|before| !before.is_finished()) {
            return Err(Fault::new(Code::Unavailable, format!("{self}: the scrub before is just ending")));
        }
        self.scrub.must_stop.store(false, Ordering::SeqCst);
        *self.scrub.progress() = proto::ScrubResponse {
            state: ScrubState::Running as u32,
            rate_bytes,
            parts: u32::from(BUCKETS),
            ..Default::default()
        };
        if is_inline {
            self.scrub_all();
            return Ok(());
        }
        let target = Arc::clone(self);
        let builder = std::thread::Builder::new().name(format!("scrub-{}", self.id()));
        let started = builder.spawn(move || target.scrub_all());
        let started = started.map_err(|e| Fault::new(Code::Overloaded, format!("{self}: no thread: {e}")))?;
        *thread = Some(started);
        Ok(())
    }

    fn scrub_all(&self) {
        let started_ns = self.clock.now_ns();
        tracing::info!(target_id = self.id().0, "scrub begins");
        let outcome = self.scrub_buckets(started_ns);
        let mut progress = self.scrub.progress();
        progress.elapsed_ms = self.elapsed_ms(started_ns);
        let state = match &outcome {
            Ok(true) => ScrubState::Done,
            Ok(false) => ScrubState::Stopped,
            Err(fault) => {
                progress.trouble = fault.to_string();
                ScrubState::Failed
            }
        };
        progress.state = state as u32;
        let proto::ScrubResponse { bytes, objects, damaged, unreadable, .. } = *progress;
        tracing::info!(target_id = self.id().0, ?state, bytes, objects, damaged, unreadable, "scrub ends");
    }

    fn elapsed_ms(&self, started_ns: u64) -> u64 {
        self.clock.now_ns().saturating_sub(started_ns) / 1_000_000
    }

    /// False when it was stopped.
    fn scrub_buckets(&self, started_ns: u64) -> Result<bool, Fault> {
        for bucket in self.buckets_from(0)? {
            self.check()?;
            for object in self.list_bucket(bucket)? {
                if !self.scrub_object(bucket, object, started_ns)? {
                    return Ok(false);
                }
            }
        }
        self.scrub.progress().parts_done = u32::from(BUCKETS);
        Ok(true)
    }

    fn scrub_object(&self, bucket: Bucket, id: ObjectId, started_ns: u64) -> Result<bool, Fault> {
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
                self.note_scrubbed(bucket, id, looked, started_ns);
                first += BLOCKS_AT_ONCE;
                if !has_more {
                    break;
                }
            }
        }
        self.scrub.progress().objects += 1;
        Ok(true)
    }

    /// Counts what was read and found, and waits where the rate demands it.
    fn note_scrubbed(&self, bucket: Bucket, id: ObjectId, looked: Looked, started_ns: u64) {
        let mut progress = self.scrub.progress();
        progress.parts_done = u32::from(bucket.0);
        progress.bytes += looked.bytes;
        for (chunk, block, fault) in looked.found {
            match fault.code {
                Code::Corrupt => progress.damaged += 1,
                _ => progress.unreadable += 1,
            }
            if progress.findings.len() < FINDINGS_MAX {
                progress.findings.push(proto::ScrubFinding {
                    inode: id.inode.0,
                    generation: id.generation,
                    slot: id.slot,
                    offset: chunk.saturating_mul(self.chunk_bytes).saturating_add(block * BLOCK),
                    what: fault.detail,
                });
            }
        }
        drop(progress);
        loop {
            let mut progress = self.scrub.progress();
            progress.elapsed_ms = self.elapsed_ms(started_ns);
            let due_ns = match progress.rate_bytes {
                0 => 0,
                rate => (u128::from(progress.bytes) * 1_000_000_000 / u128::from(rate)) as u64,
            };
            drop(progress);
            let ahead_ns = due_ns.saturating_sub(self.clock.now_ns().saturating_sub(started_ns));
            if ahead_ns == 0 || self.scrub.is_stopped() {
                return;
            }
            self.clock.sleep(Duration::from_nanos(ahead_ns.min(PAUSE_NS_MAX)));
        }
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
