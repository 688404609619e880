//! Calls that look at and change files, in the volume and in areas.

use super::arguments::Arguments;
use super::record::Record;
use crate::failure::{At, Failure, Outcome};
use crate::format;
use crate::location::place::{self, Place};
use crate::location::show_volume;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use vazao_client::area::ChannelOptions;
use vazao_client::{Client, Entry, NewInode, OpenMode, RenameMode};
use vazao_luarpc::Value;
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Attributes, Code, FileKind, InodeId, VolumePath};

/// Bytes of one read, and of one write: as a line they may be twice as many.
const BYTES_MAX: u64 = 1 << 20;

/// Entries of a listing that comes in one answer.
const ENTRIES_MAX: usize = 10_000;

/// Permissions of what is made.
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A path as callers write it: one that begins with a slash is in the volume.
fn path(arguments: &Arguments<'_>, at: usize) -> Outcome<Place> {
    let bytes = arguments.bytes(at);
    let place = match bytes.first() {
        Some(b'/') => place::place(OsStr::from_bytes(&[b"vz:", bytes].concat())),
        _ => place::place(OsStr::from_bytes(bytes)),
    };
    // On a command line it would be a mistake of usage; here it is an answer like others.
    place.map_err(|failure| Failure::new(failure.message().unwrap_or_default()))
}

fn entry_record(entry: &Entry) -> Vec<u8> {
    Record::default().field("kind", format::kind(entry.kind)).field("name", &entry.name).line()
}

fn directory(client: &Client, place: &Place) -> Outcome<InodeId> {
    let attributes = place.stat(client, true)?;
    match attributes.kind {
        FileKind::Directory => Ok(attributes.inode),
        other => {
            Err(Failure::new(format!("{}: is a {}, not a directory", place.show(), format::kind(other))))
        }
    }
}

pub(super) fn list(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let place = path(arguments, 0)?;
    let inode = directory(client, &place)?;
    let mut entries: Vec<Entry> = Vec::new();
    place.pages(client, inode, false, |page| {
        entries.extend(page);
        match entries.len() > ENTRIES_MAX {
            true => Err(Failure::new(format!(
                "{}: has more than {ENTRIES_MAX} entries; take them in parts, with list_page",
                place.show()
            ))),
            false => Ok(()),
        }
    })?;
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(vec![entries.iter().flat_map(entry_record).collect::<Vec<u8>>().into()])
}

pub(super) fn list_page(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let place = path(arguments, 0)?;
    let cursor = arguments.text(1, "cursor")?;
    let after = if cursor.is_empty() { Ok(0) } else { cursor.parse::<u64>() };
    let after = after.map_err(|_| {
        Failure::new(format!(
            "cursor {cursor:?} is none of list_page; begin with \"\" and give back what it returned"
        ))
    })?;
    let count = arguments.whole(2, "count", u64::from(LIST_ENTRIES_MAX))?.max(1) as u32;
    let (entries, is_last) = match &place {
        Place::Volume(_) => {
            let inode = directory(client, &place)?;
            let page = client.list(inode, after, count, false).at(place.show())?;
            (page.entries, page.end)
        }
        Place::Area(reference) => {
            let page = place::area(client, reference).list(&reference.path, after, count, false);
            let page = place::at(reference, page)?;
            (page.entries.into_iter().map(place::entry).collect(), page.end)
        }
    };
    let next = entries.last().filter(|_| !is_last).map_or(String::new(), |entry| entry.cookie.to_string());
    let records: Vec<u8> = entries.iter().flat_map(entry_record).collect();
    Ok(vec![records.into(), next.into()])
}

pub(super) fn stat(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let place = path(arguments, 0)?;
    let a = place.stat(client, true)?;
    let record = Record::default()
        .field("kind", format::kind(a.kind))
        .field("size", a.size.to_string())
        .field("mode", format!("{:04o}", a.mode))
        .field("uid", a.uid.to_string())
        .field("gid", a.gid.to_string())
        .field("links", a.links.to_string())
        .field("inode", a.inode.0.to_string())
        .field("allocated_bytes", a.allocated_bytes.to_string())
        .field("accessed", format::instant(a.accessed))
        .field("modified", format::instant(a.modified))
        .field("changed", format::instant(a.changed))
        .field("path", place.to_bytes());
    Ok(vec![record.alone().into()])
}

/// Only files have contents.
fn check_file(place: &Place, attributes: &Attributes) -> Outcome {
    match attributes.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(vazao_client::Error::new(Code::IsDirectory, place.show()).into()),
        other => {
            Err(Failure::new(format!("{}: is a {} and has no contents", place.show(), format::kind(other))))
        }
    }
}

pub(super) fn read(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let place = path(arguments, 0)?;
    let offset = arguments.whole(1, "offset", u64::MAX)?;
    let count = arguments.whole(2, "count", BYTES_MAX)?;
    let attributes = place.stat(client, true)?;
    check_file(&place, &attributes)?;
    let mut buffer = vec![0; count.min(attributes.size.saturating_sub(offset)) as usize];
    let taken = match &place {
        Place::Volume(path) => {
            let mode = OpenMode { read: true, ..OpenMode::default() };
            let (_, file) = client.open_path(path, mode).at(place.show())?;
            let taken = fill(&mut buffer, |part, at| file.read_at(part, offset + at).at(place.show()))?;
            file.close().at(place.show())?;
            taken
        }
        Place::Area(reference) => {
            let area = place::area(client, reference);
            let channel = place::at(reference, area.open(&reference.path, &ChannelOptions::default()))?;
            let taken =
                fill(&mut buffer, |part, at| place::at(reference, channel.read_at(part, offset + at)))?;
            place::at(reference, channel.close())?;
            taken
        }
    };
    buffer.truncate(taken);
    Ok(vec![Value::Double(taken as f64), buffer.into()])
}

/// Reads until the buffer is full or the file ends.
fn fill(buffer: &mut [u8], mut read: impl FnMut(&mut [u8], u64) -> Outcome<usize>) -> Outcome<usize> {
    let mut taken = 0;
    while let Some(rest) = buffer.get_mut(taken..).filter(|rest| !rest.is_empty()) {
        match read(rest, taken as u64)? {
            0 => break,
            count => taken += count,
        }
    }
    Ok(taken)
}

fn new_inode(kind: FileKind, mode: u32) -> NewInode {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    NewInode { kind, mode, uid, gid, ..NewInode::default() }
}

/// The directory that a path of the volume lies in, and its name there.
fn parent<'a>(client: &Client, path: &'a VolumePath) -> Outcome<(InodeId, &'a [u8])> {
    let shown = show_volume(path);
    let Some((above, name)) = path.split_last() else {
        return Err(Failure::new(format!("{shown}: is the root of the volume; name what is in it")));
    };
    Ok((client.resolve(&above, true).at(&shown)?.inode, name))
}

pub(super) fn write(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let place = path(arguments, 0)?;
    let offset = arguments.whole(1, "offset", u64::MAX)?;
    let bytes = arguments.bytes(2);
    if bytes.len() as u64 > BYTES_MAX {
        let count = bytes.len();
        return Err(Failure::new(format!(
            "{}: {count} bytes in one write, at most {BYTES_MAX}; write them in parts",
            place.show()
        )));
    }
    match &place {
        Place::Volume(path) => {
            let shown = place.show();
            let (above, name) = parent(client, path)?;
            // A symbolic link at the end leads to its file; what is not there is made.
            let mode = OpenMode { read: true, write: true, truncate: false };
            let opened = match client.open_path(path, mode) {
                Err(error) if error.code == Code::NotFound => {
                    client.create_file(above, name, &new_inode(FileKind::File, FILE_MODE), false)
                }
                other => other,
            };
            let (attributes, file) = opened.at(&shown)?;
            check_file(&place, &attributes)?;
            file.write_at(bytes, offset).at(&shown)?;
            file.close().at(&shown)?;
        }
        Place::Area(reference) => {
            let options =
                ChannelOptions { write: true, create: true, mode: FILE_MODE, ..ChannelOptions::default() };
            let opened = place::area(client, reference).open(&reference.path, &options);
            let channel = place::at(reference, opened)?;
            place::at(reference, channel.write_at(bytes, offset))?;
            place::at(reference, channel.close())?;
        }
    }
    Ok(vec![Value::Double(bytes.len() as f64)])
}

pub(super) fn truncate(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let place = path(arguments, 0)?;
    let size = arguments.whole(1, "size", u64::MAX)?;
    match &place {
        Place::Volume(path) => {
            let shown = place.show();
            let mode = OpenMode { read: true, write: true, truncate: false };
            let (attributes, file) = client.open_path(path, mode).at(&shown)?;
            check_file(&place, &attributes)?;
            file.set_length(size).at(&shown)?;
            file.close().at(&shown)?;
        }
        Place::Area(reference) => {
            let options = ChannelOptions { write: true, ..ChannelOptions::default() };
            let channel =
                place::at(reference, place::area(client, reference).open(&reference.path, &options))?;
            place::at(reference, channel.set_length(size))?;
            place::at(reference, channel.close())?;
        }
    }
    Ok(vec![Value::Nil])
}

pub(super) fn mkdir(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    match path(arguments, 0)? {
        Place::Volume(path) => {
            let (above, name) = parent(client, &path)?;
            let made = client.create(above, name, &new_inode(FileKind::Directory, DIRECTORY_MODE));
            made.at(show_volume(&path))?;
        }
        Place::Area(reference) => place::make_directory(client, &reference, DIRECTORY_MODE, false)?,
    }
    Ok(vec![Value::Nil])
}

pub(super) fn rename(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    match (path(arguments, 0)?, path(arguments, 1)?) {
        (Place::Volume(from), Place::Volume(to)) => {
            let (from_directory, name) = parent(client, &from)?;
            let (to_directory, new_name) = parent(client, &to)?;
            let renamed = client.rename(from_directory, name, to_directory, new_name, RenameMode::Replace);
            renamed.at(format!("{} to {}", show_volume(&from), show_volume(&to)))?;
        }
        (Place::Area(from), Place::Area(to)) if from.node == to.node && from.area == to.area => {
            let area = place::area(client, &from);
            place::at(&from, area.rename(&from.path, &to.path, RenameMode::Replace))?;
        }
        (from, to) => {
            return Err(Failure::new(format!(
                "{} to {}: rename works within the volume or within one area; copy, then remove",
                from.show(),
                to.show()
            )));
        }
    }
    Ok(vec![Value::Nil])
}

pub(super) fn remove(client: &Client, arguments: &Arguments<'_>) -> Outcome<Vec<Value>> {
    let place = path(arguments, 0)?;
    let kind = place.stat(client, false)?.kind;
    match (&place, kind) {
        (Place::Volume(path), kind) => {
            let (above, name) = parent(client, path)?;
            let removed = match kind {
                FileKind::Directory => client.remove_directory(above, name),
                _ => client.unlink(above, name),
            };
            removed.at(place.show())?;
        }
        (Place::Area(reference), FileKind::Directory) => {
            let area = place::area(client, reference);
            place::at(reference, area.remove_directory(&reference.path))?;
        }
        (Place::Area(reference), _) => {
            place::at(reference, place::area(client, reference).remove(&reference.path))?
        }
    }
    Ok(vec![Value::Nil])
}
