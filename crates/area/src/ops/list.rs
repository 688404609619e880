//! A page of a directory. The cookies are the file system's own: they stay valid while entries come and go.

use super::names::Named;
use super::{message, xattrs};
use crate::files;
use crate::service::Shared;
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, RawDir, SeekFrom, seek};
use rustix::io::Errno;
use vazao_model::limits::{LIST_ENTRIES_MAX, MESSAGE_BYTES_MAX};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Fault};

/// Room for names that the kernel fills in one call.
const BUFFER_BYTES: usize = 64 * 1024;

/// More than an entry's attributes and numbers take in a message.
const ENTRY_BYTES: usize = 256;

pub(crate) fn list(shared: &Shared, request: &proto::AreaListRequest) -> Answer {
    let named = Named::find(shared, &request.area, &request.path)?;
    let directory =
        named.area.open_path(&named.path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?;
    if request.cookie != 0 {
        seek(&directory, SeekFrom::Start(request.cookie)).map_err(|e| named.fault(e))?;
    }
    let limit = request.limit.clamp(1, LIST_ENTRIES_MAX) as usize;
    let (entries, end) = page(&named, &directory, limit, request.with_attributes)?;
    message(&proto::AreaListResponse { entries, end })
}

fn page(
    named: &Named,
    directory: &OwnedFd,
    limit: usize,
    with_attributes: bool,
) -> Result<(Vec<proto::DirectoryEntry>, bool), Fault> {
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut reading = RawDir::new(directory, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    let mut room = MESSAGE_BYTES_MAX;
    while entries.len() < limit && room > MESSAGE_BYTES_MAX / 16 {
        let Some(entry) = reading.next() else { return Ok((entries, true)) };
        let entry = entry.map_err(|e| named.fault(e))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let known = files::kind(entry.file_type());
        let status = match (known, with_attributes) {
            (Some(_), false) => None,
            _ => match files::status_at(directory, name) {
                Ok(status) => Some(status),
                // Removed meanwhile.
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(named.fault(error)),
            },
        };
        let kind = status.as_ref().map_or(known.unwrap_or_default(), files::kind_of);
        let attributes = status
            .as_ref()
            .filter(|_| with_attributes)
            .map(|status| files::attributes(status, xattrs::name_has_none(directory, name)));
        room = room.saturating_sub(ENTRY_BYTES + name.to_bytes().len());
        entries.push(proto::DirectoryEntry {
            name: name.to_bytes().to_vec(),
            inode: entry.ino(),
            kind: kind.number(),
            cookie: entry.next_entry_cookie(),
            attributes,
        });
    }
    Ok((entries, false))
}
