//! Reads through a channel: at once where the page cache has the bytes, else where one may wait.

use super::channel::{check_linked, file_of};
use crate::channels::Channel;
use crate::open_file::AreaFile;
use crate::service::Shared;
use crate::{fault, path};
use rustix::fs::fstat;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, retry_on_intr};
use std::io::IoSliceMut;
use std::sync::atomic::Ordering;
use vazao_meter::Cause;
use vazao_model::Code;
use vazao_model::checksum::{crc32c, piece_lengths};
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, FILE_BYTES_MAX, READ_LIST_RANGES_MAX};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// What is read, and what is known of it afterwards.
#[derive(Default)]
pub(crate) struct Reading {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lengths: Vec<u32>,
    pub(crate) checksums: Vec<u32>,
    pub(crate) size: u64,
}

/// An area on which something is under way and nothing has ended for so long is not asked by a thread that others need.
const SILENT_MS_MAX: u32 = 50;

/// Refuses a request beyond the limits; returns the bytes it asks for.
pub(crate) fn check(ranges: &[proto::ByteRange]) -> Result<usize, Fault> {
    let refuse = |what: String| Err(Fault::new(Code::BadRequest, what));
    if ranges.is_empty() || ranges.len() > READ_LIST_RANGES_MAX {
        return refuse(format!("a read of {} ranges; 1 to {READ_LIST_RANGES_MAX}", ranges.len()));
    }
    if let Some(beyond) = ranges.iter().find(|range| range.offset > FILE_BYTES_MAX) {
        return refuse(format!("a read at {}, beyond any file's end", beyond.offset));
    }
    let bytes = ranges.iter().fold(0u64, |sum, range| sum + u64::from(range.length));
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= ATTACHMENT_BYTES_MAX => Ok(bytes),
        _ => refuse(format!("a read of {bytes} bytes; at most {ATTACHMENT_BYTES_MAX} in one request")),
    }
}

/// Refuses a channel that was not opened to read.
pub(crate) fn check_access(channel: &Channel) -> Result<(), Fault> {
    if channel.read {
        return Ok(());
    }
    let shown = path::show(&channel.area.name, &channel.path);
    Err(Fault::new(Code::NotPermitted, format!("{shown}: the channel was not opened to read")))
}

/// Reads what the page cache has; false when one would have to wait.
pub(crate) fn cached(
    shared: &Shared,
    channel: &Channel,
    ranges: &[proto::ByteRange],
    reading: &mut Reading,
) -> Result<bool, Fault> {
    if !channel.is_quick.load(Ordering::Relaxed) || channel.area.is_silent(SILENT_MS_MAX) {
        return Ok(false);
    }
    let Some(file) = shared.descriptors.get(channel.id) else { return Ok(false) };
    // Whatever waits in spite of all that, others learn of it.
    let _waiting = channel.area.begin("a read")?;
    let read = |file: &AreaFile, buffer: &mut [u8], offset: u64| {
        let length = buffer.len();
        let mut slices = [IoSliceMut::new(buffer)];
        match retry_on_intr(|| preadv2(&**file, &mut slices, offset, ReadWriteFlags::NOWAIT)) {
            Err(Errno::OPNOTSUPP) => {
                // It does not know `RWF_NOWAIT`: the futile call is saved from then on.
                channel.is_quick.store(false, Ordering::Relaxed);
                Ok(None)
            }
            Err(Errno::AGAIN) => Ok(None),
            // Cut short by a page that is not cached, or by the file's new end: to be looked at without haste.
            Ok(count) if count < length => Ok(None),
            other => other.map(Some),
        }
    };
    read_all(shared, channel, &file, ranges, reading, read)
}

/// Reads, and waits where that is needed.
pub(crate) fn blocking(
    shared: &Shared,
    channel: &Channel,
    ranges: &[proto::ByteRange],
) -> Result<Reading, Fault> {
    let file = file_of(shared, channel)?;
    let mut reading = Reading::default();
    let read = |file: &AreaFile, buffer: &mut [u8], offset: u64| {
        let mut done = 0;
        while done < buffer.len() {
            match retry_on_intr(|| pread(&**file, &mut buffer[done..], offset + done as u64))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(Some(done))
    };
    let all = || read_all(shared, channel, &file, ranges, &mut reading, read);
    channel.area.during(Cause::DiskRead, all)?;
    Ok(reading)
}

/// Reads all ranges with `read`, which says how much it got, or nothing when it would have to wait.
fn read_all(
    shared: &Shared,
    channel: &Channel,
    file: &AreaFile,
    ranges: &[proto::ByteRange],
    reading: &mut Reading,
    read: impl Fn(&AreaFile, &mut [u8], u64) -> Result<Option<usize>, Errno>,
) -> Result<bool, Fault> {
    let fail = |error| fault::of(error, &path::show(&channel.area.name, &channel.path));
    let status = fstat(&**file).map_err(fail)?;
    // Types of other architectures are narrower.
    #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
    check_linked(channel, u64::from(status.st_nlink))?;
    reading.size = u64::try_from(status.st_size).unwrap_or(0);
    reading.lengths.clear();
    reading.checksums.clear();
    let asked = ranges.iter().map(|range| present(range, reading.size)).sum::<usize>();
    reading.bytes.resize(asked, 0);
    let mut at = 0;
    for range in ranges {
        let length = present(range, reading.size);
        let place = &mut reading.bytes[at..at + length];
        let started_ns = shared.clock.now_ns();
        let got = if length == 0 { Ok(Some(0)) } else { read(file, place, range.offset) };
        shared.shell.accounts().charge(Cause::Disk, shared.clock.now_ns().saturating_sub(started_ns));
        let Some(count) = got.map_err(fail)? else { return Ok(false) };
        checksums(range.offset, &reading.bytes[at..at + count], &mut reading.checksums);
        reading.lengths.push(count as u32);
        at += count;
    }
    reading.bytes.truncate(at);
    Ok(true)
}

/// Bytes of a range that the file has.
fn present(range: &proto::ByteRange, size: u64) -> usize {
    size.saturating_sub(range.offset).min(u64::from(range.length)) as usize
}

fn checksums(offset: u64, bytes: &[u8], sums: &mut Vec<u32>) {
    let mut rest = bytes;
    for length in piece_lengths(offset, bytes.len()) {
        let (piece, after) = rest.split_at(length);
        rest = after;
        sums.push(crc32c(piece));
    }
}
