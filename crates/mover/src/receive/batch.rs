//! Many small files that arrive in one request.
//!
//! All are written under temporary names first and the disk is asked to begin with all of them; then each is synced,
//! which is cheap for all but the first, for they share the file system's transaction; then each gets its name; then
//! the directories are synced, each once. So a name never shows a file that is not whole and durable.

use super::{Receiver, SmallHeld, id_of};
use crate::outgoing::WHOLE_BYTES_MAX;
use crate::outgoing::batch::{BYTES_MAX, FILES_MAX};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use vazao_area::{AreaFile, Inside, InsideStatus};
use vazao_meter::Cause;
use vazao_model::checksum::crc32c;
use vazao_model::{Code, Timestamp};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A file that is written and has no name yet.
struct Written<'a> {
    /// Until it has its name.
    _held: SmallHeld<'a>,
    target: Inside,
    part: Inside,
    file: AreaFile,
    checksum: u32,
}

/// One file of the batch between its steps: `None` where what is there is kept.
type Step<'a> = Result<Option<Written<'a>>, Fault>;

impl Receiver {
    /// Takes them in. Errors: a request that makes no sense; what is wrong with single files is in the answer.
    pub(crate) fn batch(
        &self,
        request: proto::CopyBatchRequest,
        bytes: &[u8],
    ) -> Result<proto::CopyBatchResponse, Fault> {
        let sizes: u64 = check(&request, bytes.len() as u64)?;
        let started_ns = self.clock.now_ns();
        let mut rest = bytes;
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(request.files.len());
        for file in &request.files {
            let size = file.begin.as_ref().map_or(0, |begin| begin.size);
            // The sizes add up to what there is.
            let (own, behind) = rest.split_at(size as usize);
            rest = behind;
            steps.push(self.write_one(file, own));
        }
        each(&mut steps, |written| {
            written.part.begin_writing(&written.file);
            Ok(())
        });
        each(&mut steps, |written| {
            let synced = written.part.during(Cause::DiskSync, || written.file.sync_all());
            synced.map_err(|error| written.part.fault_of(&error))
        });
        if request.read_back {
            each(&mut steps, read_back);
        }
        each(&mut steps, |written| written.part.rename_only(&written.target));
        sync_directories(&mut steps);
        let whole = steps.iter().filter(|step| matches!(step, Ok(Some(_)))).count();
        self.metrics.files.add(whole as u64);
        self.metrics.received_bytes.add(sizes);
        let outcomes = steps.into_iter().map(|step| match step {
            Ok(written) => proto::CopyBatchOutcome { skipped: written.is_none(), ..Default::default() },
            Err(fault) => {
                let (code, detail) = (fault.code.number(), fault.detail);
                proto::CopyBatchOutcome { code, detail, skipped: false }
            }
        });
        let disk_ns = self.clock.now_ns().saturating_sub(started_ns);
        Ok(proto::CopyBatchResponse { outcomes: outcomes.collect(), disk_ns })
    }

    fn write_one(&self, file: &proto::CopyBatchFile, bytes: &[u8]) -> Step<'_> {
        let begin = file.begin.clone().unwrap_or_default();
        let id = id_of(&begin.copy)?;
        let target = self.target(&begin)?;
        if crc32c(bytes) != file.checksum {
            let why = format!("{}: arrived with another checksum than it was sent with", target.shown());
            return Err(Fault::new(Code::Corrupt, why));
        }
        // This wait belongs to the file's own area, whichever thread runs it.
        let waiting = target.begin("a small file of a copy")?;
        let held = self.hold_small(id)?;
        let found = target.status()?;
        self.check_replaceable(&begin, &target, found.as_ref())?;
        if found.is_some_and(|found| is_kept(file.overwrite, &begin, &found)) {
            return Ok(None);
        }
        let part = self.part(&id, &target)?;
        let (opened, _) = match part.create() {
            Err(fault) if fault.code == Code::Exists => {
                part.remove()?;
                part.create()?
            }
            other => other?,
        };
        let written = part.during(Cause::DiskWrite, || opened.write_all_at(bytes, 0));
        let written = written.map_err(|error| part.fault_of(&error));
        if let Err(fault) = written.and_then(|()| part.finish(&opened, begin.mode, begin.modified)) {
            let _ = part.remove();
            return Err(fault);
        }
        drop(waiting);
        Ok(Some(Written { _held: held, target, part, file: opened, checksum: file.checksum }))
    }
}

/// Refuses what cannot be a batch. Returns the bytes of all files.
fn check(request: &proto::CopyBatchRequest, bytes: u64) -> Result<u64, Fault> {
    let sizes = request.files.iter().map(|file| file.begin.as_ref().map_or(0, |begin| begin.size));
    let is_small = sizes.clone().all(|size| size <= WHOLE_BYTES_MAX);
    // Bounded by the number of files, as each is.
    let sum: u64 = if is_small { sizes.sum() } else { u64::MAX };
    let most = BYTES_MAX + WHOLE_BYTES_MAX;
    if request.files.len() > FILES_MAX || sum != bytes || bytes > most {
        let count = request.files.len();
        let why = format!("a batch of {count} files and {bytes} bytes that are not those of its files");
        return Err(Fault::new(Code::BadRequest, why));
    }
    Ok(sum)
}

/// Whether what is there stays. The numbers are those of a job's specification.
fn is_kept(overwrite: u32, begin: &proto::CopyBeginRequest, found: &InsideStatus) -> bool {
    let there = found.attributes.modified.map(Timestamp::from);
    let modified = begin.modified.map(Timestamp::from);
    match overwrite {
        1 => true,
        2 => modified <= there,
        3 => found.attributes.size == begin.size && there == modified,
        _ => false,
    }
}

/// Does a step for each file that got so far; one that fails loses its temporary name.
fn each(steps: &mut [Step<'_>], mut act: impl FnMut(&Written<'_>) -> Result<(), Fault>) {
    for step in steps {
        let Ok(Some(written)) = step else { continue };
        if let Err(fault) = act(written) {
            let _ = written.part.remove();
            *step = Err(fault);
        }
    }
}

fn read_back(written: &Written<'_>) -> Result<(), Fault> {
    let length = written.file.metadata().map_err(|e| written.part.fault_of(&e))?.len();
    written.part.forget_cached(&written.file);
    let sum = super::incoming::read_checksum(&written.file, 0, length);
    match sum.map_err(|e| written.part.fault_of(&e))? == written.checksum {
        true => Ok(()),
        false => {
            let why = format!("{}: read back otherwise than it was written", written.target.shown());
            Err(Fault::new(Code::Corrupt, why))
        }
    }
}

/// Makes the new names durable, each directory once. Where that fails none of its files is called done.
fn sync_directories(steps: &mut [Step<'_>]) {
    let mut synced: BTreeMap<Vec<u8>, Result<(), Fault>> = BTreeMap::new();
    for step in steps {
        let Ok(Some(written)) = step else { continue };
        let directory = synced.entry(written.target.parent_key());
        if let Err(fault) = directory.or_insert_with(|| written.target.sync_parent()) {
            *step = Err(fault.clone());
        }
    }
}
