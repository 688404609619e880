//! Looking for damage: everything that is on the disk is read from there and compared with its checksums.
//!
//! What is found in the log and in FORMAT is mended at once, for memory has what they should hold. Of the checkpoint it
//! is noted, and reading it is an error.

use super::super::{EngineError, EngineResult, Health};
use super::blocks::BLOCK_BYTES;
use super::{CHECKPOINT_FILE, Core, NO_PANIC, format, record};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_disk::{DiskFile, Open};

/// Blocks of the checkpoint between two looks at whether to go on.
const BLOCKS_AT_ONCE: u64 = 64;

/// Mended damage that is remembered; all of it is in the service's log.
const MENDED_MAX: usize = 256;

/// A log file with what it must hold.
struct Expected {
    name: String,
    /// End of the records; unknown in files that are full.
    end: Option<u64>,
}

impl Core {
    /// Reads checkpoint, log and FORMAT from the disk. `go_on` learns how many bytes were read since it was last
    /// called, and of how many in all; false from it ends this. Returns false when it was ended.
    pub(super) fn scrub(&self, go_on: &mut dyn FnMut(u64, u64) -> bool) -> EngineResult<bool> {
        let base = self.base();
        let failed = |e| EngineError::io(format!("reading {CHECKPOINT_FILE}"), e);
        let log_bytes = self.log().bytes();
        let (mut block, mut all_bytes) = (0, log_bytes);
        loop {
            let blocks = base.file().blocks().map_err(failed)?;
            if block >= blocks {
                break;
            }
            base.file().scrub(block, BLOCKS_AT_ONCE).map_err(failed)?;
            let read = BLOCKS_AT_ONCE.min(blocks - block);
            block += BLOCKS_AT_ONCE;
            all_bytes = blocks * BLOCK_BYTES + log_bytes;
            if !go_on(read * BLOCK_BYTES, all_bytes) {
                return Ok(false);
            }
        }
        self.scrub_format()?;
        self.scrub_log()?;
        Ok(go_on(log_bytes, all_bytes))
    }

    pub(super) fn scrub_format(&self) -> EngineResult<()> {
        let is_sound =
            matches!(format::read(&*self.disk), Ok(Some(found)) if found.identity == self.identity);
        if is_sound {
            return Ok(());
        }
        format::write(&*self.disk, self.identity)?;
        self.note_mended("FORMAT was damaged or missing, and was written again".to_owned());
        Ok(())
    }

    /// Compares the commits in the log files with those that have to be there. What is damaged there is in memory, and
    /// goes into the checkpoint now.
    fn scrub_log(&self) -> EngineResult<()> {
        let turn = self.checkpoint_turn.lock().expect(NO_PANIC);
        let (files, last) = {
            let log = self.log();
            (log.files(), self.written.load(Ordering::Acquire))
        };
        let mut next = self.state().base.applied + 1;
        let mut trouble = None;
        for file in files.into_iter().map(|(name, end)| Expected { name, end }) {
            match self.read_log(&file) {
                Ok(bytes) => next = commits_from(&bytes, self.identity, next),
                Err(error) => trouble = Some(error.to_string()),
            }
        }
        drop(turn);
        if next > last {
            return Ok(());
        }
        let why = trouble.unwrap_or_else(|| "it does not match its checksum".to_owned());
        let what = format!("commit {next} in the log was damaged on the disk ({why}) and is still in memory");
        self.checkpoint_all()?;
        if self.state().base.applied < last {
            let room = "make room on the disk of the metadata directory, so that a checkpoint can hold it";
            let text = format!("{what}: {}", self.keeping.why().as_deref().unwrap_or(room));
            return Err(EngineError::Full(text));
        }
        self.note_mended(format!("{what}; it is in the checkpoint now"));
        Ok(())
    }

    fn read_log(&self, file: &Expected) -> EngineResult<Vec<u8>> {
        let failed = |e| EngineError::io(format!("reading {}", file.name), e);
        let open = self.disk.open(&file.name, Open::ReadOnly).map_err(failed)?;
        let length = file.end.map_or_else(|| open.length(), Ok).map_err(failed)?;
        open.drop_cached(0, length);
        let mut bytes = vec![0; length as usize];
        let read = open.read_at(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Fails, and stops the engine for good, when what it writes to is not where its files are looked for: each write
    /// and each sync would succeed, and the next start would find nothing of it.
    pub(super) fn check_place(&self) -> EngineResult<()> {
        self.check()?;
        let lost = match self.disk.check_place() {
            Err(error) => Some(error.to_string()),
            Ok(()) => {
                self.lost_file()?.map(|name| format!("{name} was removed or replaced while it was in use"))
            }
        };
        let Some(what) = lost else { return Ok(()) };
        let error = EngineError::Failed(format!(
            "{what}: nothing of the metadata can be kept any more. Put it back as it was, or restore the metadata directory \
             from a backup"
        ));
        self.fail(&error);
        Err(error)
    }

    /// A file in use that has no name any more. One that goes because another has taken its place is none.
    fn lost_file(&self) -> EngineResult<Option<String>> {
        let lock_file = self.lock_file.lock().expect(NO_PANIC).clone();
        let failed = |e| EngineError::io("the metadata directory", e);
        let is_lost = |file: &dyn DiskFile| file.is_named().map(|is_named| !is_named).map_err(failed);
        loop {
            let (name, log) = self.log().present();
            if !is_lost(&*log)? {
                break;
            }
            // A checkpoint may have removed it since, after the log went on in another file.
            if Arc::ptr_eq(&log, &self.log().present().1) {
                return Ok(Some(name));
            }
        }
        if self.base().file().is_nameless().map_err(failed)? {
            return Ok(Some(CHECKPOINT_FILE.to_owned()));
        }
        Ok(lock_file
            .map(|file| is_lost(&*file))
            .transpose()?
            .unwrap_or(false)
            .then(|| format::LOCK_FILE.to_owned()))
    }

    fn note_mended(&self, what: String) {
        tracing::error!("{what}");
        let mut mended = self.mended.lock().expect(NO_PANIC);
        if mended.len() < MENDED_MAX {
            mended.push(what);
        }
    }

    /// What is known of damage and failures.
    pub(super) fn health(&self) -> Health {
        let place = |(byte, why): (u64, String)| format!("{CHECKPOINT_FILE}, byte {byte}: {why}");
        let known = self.base().file().known_damage();
        let failed = self.failed.read().expect(NO_PANIC);
        Health {
            damaged: self.keeping.why().into_iter().chain(known.into_iter().map(place)).collect(),
            lost_ranges: self.state().base.lost().len() as u64,
            mended: [self.mended.lock().expect(NO_PANIC).clone(), self.base().file().mended()].concat(),
            failure: failed.as_ref().map(ToString::to_string),
        }
    }
}

/// The commit after those that follow `next` in a log's bytes without a gap.
fn commits_from(bytes: &[u8], identity: u64, mut next: u64) -> u64 {
    let mut at = 0;
    while let Some((start, record)) = record::find(bytes, at, identity) {
        at = start + record.bytes;
        if record.position == next && !record.writes.is_empty() {
            next += 1;
        }
    }
    next
}
