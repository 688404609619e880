//! Changes through a channel: bytes, length, durability.

use super::channel::{check_linked, file_of};
use super::{done, message};
use crate::channels::Channel;
use crate::open_file::AreaFile;
use crate::service::Shared;
use crate::{fault, path};
use rustix::fs::{fstat, ftruncate};
use rustix::io::{Errno, pwrite, retry_on_intr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_meter::Cause;
use vazao_model::Code;
use vazao_model::checksum::first_mismatch;
use vazao_model::limits::{BLOCK_BYTES, FILE_BYTES_MAX};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault};

fn shown(channel: &Channel) -> String {
    path::show(&channel.area.name, &channel.path)
}

/// The file, when the channel may change it.
fn writable(shared: &Shared, channel: &Channel) -> Result<Arc<AreaFile>, Fault> {
    if !channel.write {
        let why = format!("{}: the channel was not opened to write", shown(channel));
        return Err(Fault::new(Code::NotPermitted, why));
    }
    let file = file_of(shared, channel)?;
    let status = fstat(&**file).map_err(|error| fault::of(error, &shown(channel)))?;
    #[allow(clippy::useless_conversion, reason = "the type differs between architectures")]
    check_linked(channel, u64::from(status.st_nlink))?;
    Ok(file)
}

pub(crate) fn write(
    shared: &Shared,
    channel: &Channel,
    request: &proto::ChannelWriteRequest,
    bytes: &[u8],
) -> Answer {
    let end = request.offset.checked_add(bytes.len() as u64);
    if end.is_none_or(|end| end > FILE_BYTES_MAX) {
        return Err(Fault::new(Code::TooLarge, shown(channel)));
    }
    if let Some(piece) = first_mismatch(request.offset, bytes, &request.checksums) {
        let at = (request.offset / BLOCK_BYTES as u64 + piece as u64) * BLOCK_BYTES as u64;
        let why = format!(
            "{}: the block at {at} arrived with another checksum than it was sent with",
            shown(channel)
        );
        return Err(Fault::new(Code::Corrupt, why));
    }
    let file = writable(shared, channel)?;
    let started_ns = shared.clock.now_ns();
    let written = channel.area.during(Cause::DiskWrite, || write_all(&file, bytes, request.offset));
    shared.shell.accounts().charge(Cause::Disk, shared.clock.now_ns().saturating_sub(started_ns));
    written.map_err(|error| fault::of(error, &shown(channel)))?;
    shared.shell.count_written(bytes.len());
    if request.sync {
        sync_file(shared, channel, &file)?;
    }
    message(&proto::ChannelWriteResponse { boot: shared.boot })
}

fn write_all(file: &AreaFile, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match retry_on_intr(|| pwrite(&**file, &bytes[done..], offset + done as u64))? {
            0 => return Err(Errno::IO),
            count => done += count,
        }
    }
    Ok(())
}

pub(crate) fn truncate(
    shared: &Shared,
    channel: &Channel,
    request: &proto::ChannelTruncateRequest,
) -> Answer {
    if request.size > FILE_BYTES_MAX {
        return Err(Fault::new(Code::TooLarge, shown(channel)));
    }
    let file = writable(shared, channel)?;
    ftruncate(&**file, request.size).map_err(|error| fault::of(error, &shown(channel)))?;
    message(&proto::ChannelTruncateResponse { boot: shared.boot })
}

pub(crate) fn sync(shared: &Shared, channel: &Channel, request: &proto::ChannelSyncRequest) -> Answer {
    if request.boot != 0 && request.boot != shared.boot {
        let why =
            format!("{}: the machine has lost power since it was written; write it again", shown(channel));
        return Err(Fault::new(Code::Io, why));
    }
    let file = file_of(shared, channel)?;
    done(sync_file(shared, channel, &file), &proto::ChannelSyncResponse {})
}

/// A failed sync stays failed: the kernel drops what it could not write, and the next sync would find nothing wrong.
fn sync_file(shared: &Shared, channel: &Channel, file: &AreaFile) -> Result<(), Fault> {
    if channel.sync_failed.load(Ordering::Acquire) {
        let why = format!("{}: an earlier sync of this channel failed; write the file again", shown(channel));
        return Err(Fault::new(Code::Io, why));
    }
    let started_ns = shared.clock.now_ns();
    let synced = channel.area.during(Cause::DiskSync, || rustix::fs::fsync(&**file));
    shared.shell.accounts().charge(Cause::Disk, shared.clock.now_ns().saturating_sub(started_ns));
    synced.map_err(|error| {
        channel.sync_failed.store(true, Ordering::Release);
        fault::of(error, &shown(channel))
    })
}
