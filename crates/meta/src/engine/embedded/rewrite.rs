//! Writing what is there once more, so that a sync has something to do.
//!
//! When a sync fails, the kernel keeps the pages and forgets that they are not on the disk. A process that dies of it
//! leaves a page cache that shows its successor bytes which power loss would take away, and which no later sync writes.

use super::super::{EngineError, EngineResult};
use std::io;
use vazao_disk::{Disk, DiskFile, Open};

/// Bytes at a time: holes of at least this length stay holes.
const CHUNK_BYTES: u64 = 64 << 10;

/// Bytes at a time where a part cannot be read.
const SECTOR_BYTES: u64 = 4096;

/// Present while the checkpoint is being changed. It need not survive power loss, which leaves no page cache to
/// mistrust.
const UNSURE_FILE: &str = "UNSURE";

/// True for bytes that need no storage: zeros, where the disk has a hole. (In place of a hole may also be shown what
/// was lost on its way there.)
fn is_hole(file: &dyn DiskFile, bytes: &[u8], at: u64) -> io::Result<bool> {
    let end = at + bytes.len() as u64;
    Ok(bytes.iter().all(|&byte| byte == 0) && file.next_data(at)?.is_none_or(|data| data.start >= end))
}

/// Reads and writes back the bytes from `start` to `end`. What is a hole takes no room afterwards either.
pub(super) fn rewrite(file: &dyn DiskFile, start: u64, end: u64) -> io::Result<()> {
    rewrite_by(file, start, end, CHUNK_BYTES)
}

fn rewrite_by(file: &dyn DiskFile, start: u64, end: u64, step: u64) -> io::Result<()> {
    let mut chunk = vec![0; step.min(end.saturating_sub(start)) as usize];
    let mut at = start;
    while at < end {
        let length = step.min(end - at) as usize;
        match file.read_at(&mut chunk[..length], at) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                if !is_hole(file, &chunk[..read], at)? {
                    file.write_at(&chunk[..read], at)?;
                }
            }
            // A part that the disk cannot read cannot be written again; its next reader gets the error.
            Err(_) if step > SECTOR_BYTES => rewrite_by(file, at, at + length as u64, SECTOR_BYTES)?,
            Err(error) => tracing::warn!(%error, at_byte = at, "a part of a file cannot be read"),
        }
        at += length as u64;
    }
    Ok(())
}

/// Notes that the checkpoint is about to be changed.
pub(super) fn set_unsure(disk: &dyn Disk) -> EngineResult<()> {
    disk.open(UNSURE_FILE, Open::Create).map(drop).map_err(|e| EngineError::io(UNSURE_FILE, e))
}

/// Notes that all changes of the checkpoint were synced.
pub(super) fn set_sure(disk: &dyn Disk) -> EngineResult<()> {
    match disk.remove(UNSURE_FILE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(EngineError::io(UNSURE_FILE, e)),
        _ => Ok(()),
    }
}

/// True when the last changes of the checkpoint ended with an unknown result.
pub(super) fn is_unsure(disk: &dyn Disk) -> EngineResult<bool> {
    match disk.open(UNSURE_FILE, Open::ReadOnly) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(EngineError::io(UNSURE_FILE, e)),
        Ok(_) => Ok(true),
    }
}

/// Makes a file durable whose last changes ended with an unknown result. The note of that stays.
pub(super) fn write_again(disk: &dyn Disk, name: &str) -> EngineResult<()> {
    let write_again = || -> io::Result<()> {
        let file = disk.open(name, Open::Existing)?;
        rewrite(&*file, 0, file.length()?)?;
        file.sync()
    };
    write_again().map_err(|e| EngineError::io(name, e))
}
