//! The bytes of one file: read by one thread while another writes, under a name that is not the final one.

use super::meter::Meter;
use super::part::{PartName, PartNames, version_of};
use super::rules::Rules;
use super::tree::{Found, Owner, Sink, Source, Tree};
use crate::failure::{Failure, Outcome};
use crate::signals::Stop;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use vazao_model::FileKind;
use vazao_model::limits::BLOCK_BYTES;

/// Bytes of one call to either side.
const CHUNK_BYTES: usize = 1 << 20;

/// Files up to this size are copied by the thread at hand: starting another one costs more than it saves.
const ALONE_BYTES_MAX: u64 = 4 << 20;

/// Where a copy is to be resumable, a destination that keeps some of what arrived in memory is flushed after so many
/// bytes.
const KEPT_BYTES: u64 = 64 << 20;

/// Chunks between reader and writer.
const CHUNKS: usize = 4;

/// A file under its temporary name; removed when dropped before it was given its final one.
struct Part<'a> {
    tree: &'a dyn Tree,
    path: Vec<u8>,
    placed: bool,
    /// What has arrived stays for the next try.
    kept: bool,
    /// Dropped last of all: until then the name is ours.
    _claim: Option<UnixDatagram>,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.placed && !self.kept && self.tree.remove(&self.path).is_err() {
            eprintln!(
                "vazao: {}: could not be removed; it is the unfinished part of a copy",
                self.tree.show(&self.path)
            );
        }
    }
}

/// Everything that one copy needs.
#[derive(Clone, Copy)]
pub(crate) struct Transfer<'a> {
    /// Where from.
    pub(crate) from: &'a dyn Tree,
    /// Where to.
    pub(crate) to: &'a dyn Tree,
    /// Owner and times are kept.
    pub(crate) preserve: bool,
    /// Files that this user may not write to are replaced too.
    pub(crate) force: bool,
    /// What has arrived of a file stays when its copy ends early.
    pub(crate) keeps: bool,
    /// What is there already is gone on with.
    pub(crate) resume: bool,
    /// Which files, how fast, until when.
    pub(crate) rules: &'a Rules,
    /// Names for what is not whole yet.
    pub(crate) parts: &'a PartNames,
    /// What is counted.
    pub(crate) meter: &'a Meter,
    /// Whether the copy was asked to stop.
    pub(crate) stop: &'a Stop,
    /// The same file may be on both sides.
    pub(crate) may_meet: bool,
}

/// What the bytes of a file are written to.
enum Destination {
    /// A file that will appear at `path` in the place of `replaced`.
    File { path: Vec<u8>, replaced: Option<Found> },
    /// What is there: a fifo or a device.
    Stream,
    /// Nothing: what is there stays.
    Kept,
}

fn not_replaced(shown: &str, kind: FileKind) -> Failure {
    Failure::new(format!("{shown}: is a {} and is not replaced by a copy", crate::format::kind(kind)))
}

/// Permissions of a file that takes the place of one with `mode`: never open to more users than that one was.
fn mode_of_replaced(mode: u32, owner: Owner) -> u32 {
    match owner {
        Owner::Given | Owner::GroupOnly => mode & 0o777,
        // The group is another one: it gets no more than all other users do.
        Owner::Refused => mode & 0o707 | (mode & 0o007) << 3 & mode & 0o070,
    }
}

/// Permissions with -p. Set-id bits give the rights of the owner: without that one they would give those of another.
fn preserved_mode(mode: u32, owner: Owner) -> u32 {
    if owner == Owner::Given { mode } else { mode & 0o1777 }
}

impl Transfer<'_> {
    /// Copies a regular file to a path that will then be whole, or as it was before.
    pub(crate) fn file(&self, source: &[u8], found: &Found, destination: &[u8]) -> Outcome {
        match self.destination(source, found, destination)? {
            Destination::Kept => {
                self.meter.was_there(found.size);
                Ok(())
            }
            Destination::File { path, replaced } => {
                let version = if self.keeps { version_of(&self.from.show(source), found) } else { 0 };
                let part = self.parts.name(self.to, &path, version)?;
                // Messages show the names that users gave, not the temporary ones.
                let (ours, theirs) = (self.to.show(&part.path), self.to.show(&path));
                let copied = self.file_part(source, found, part, &path, replaced.as_ref());
                copied.map_err(|failure| failure.renamed(&ours, &theirs))
            }
            Destination::Stream => {
                let reader = self.from.open(source)?;
                let sink = self.to.open_stream(destination)?;
                let end = self.bytes(&*reader, &*sink, 0, found.size)?;
                sink.finish(end)
            }
        }
    }

    /// What is there stays: an earlier copy has brought it, or it is not to be replaced.
    pub(crate) fn keeps_there(&self, found: &Found, there: &Found) -> bool {
        let is_same = there.kind == found.kind && there.size == found.size;
        let is_brought = self.resume && is_same && there.modified >= found.modified;
        is_brought || !self.rules.replaces(found, there)
    }

    /// What a copy to `path` is to write to: what a link leads to is replaced, not the link; devices never.
    fn destination(&self, source: &[u8], found: &Found, path: &[u8]) -> Outcome<Destination> {
        let Some(named) = self.to.find(path, false)? else {
            return Ok(Destination::File { path: path.to_vec(), replaced: None });
        };
        let shown = self.to.show(path);
        let is_link = named.kind == FileKind::Symlink;
        let there = if is_link { self.to.find(path, true)? } else { Some(named) };
        let there = there.ok_or_else(|| {
            Failure::new(format!(
                "{shown}: a symbolic link to nothing; remove it or name another destination"
            ))
        })?;
        // What is there and has another size is another file, and most are told apart by that without a question.
        let may_be_it = self.may_meet && there.size == found.size && there.kind == found.kind;
        if may_be_it && super::itself::is_same((self.from, source), (self.to, path))? {
            return Err(Failure::new(format!("{shown}: is the file to be copied itself")));
        }
        match there.kind {
            FileKind::File if self.keeps_there(found, &there) => Ok(Destination::Kept),
            FileKind::File if !self.force && !self.to.may_write(path, &there) => Err(Failure::new(format!(
                "{shown}: is read-only for you (mode {:04o}); give -f to replace it",
                there.mode
            ))),
            FileKind::File => {
                let path = if is_link { self.to.real_path(path)? } else { path.to_vec() };
                Ok(Destination::File { path, replaced: Some(there) })
            }
            FileKind::Fifo | FileKind::CharDevice => Ok(Destination::Stream),
            other => Err(not_replaced(&shown, other)),
        }
    }

    /// Makes a part. One in its place that no living copy holds is what a killed one has left.
    fn begin<T>(&self, part: PartName, make: impl Fn(&[u8]) -> Outcome<T>) -> Outcome<(T, Part<'_>)> {
        let made = match make(&part.path) {
            Err(_) if part.claim.is_some() && self.to.remove(&part.path).is_ok() => make(&part.path),
            outcome => outcome,
        };
        Ok((made?, self.part(part)))
    }

    fn part(&self, part: PartName) -> Part<'_> {
        Part { tree: self.to, path: part.path, placed: false, kept: false, _claim: part.claim }
    }

    /// Goes on with what an earlier copy of the same version of the source has left, or begins.
    fn begin_file(&self, part: PartName, mode: u32, size: u64) -> Outcome<(Box<dyn Sink>, u64, Part<'_>)> {
        if self.resume && self.keeps && part.claim.is_some() {
            let there = self.to.reopen(&part.path)?;
            if let Some((sink, have)) = there.filter(|(_, have)| *have <= size) {
                self.meter.was_there(have);
                return Ok((sink, have, self.part(part)));
            }
        }
        let (sink, part) = self.begin(part, |path| self.to.create(path, mode))?;
        Ok((sink, 0, part))
    }

    fn file_part(
        &self,
        source: &[u8],
        found: &Found,
        part: PartName,
        destination: &[u8],
        replaced: Option<&Found>,
    ) -> Outcome {
        let reader = self.from.open(source)?;
        // No other user may see the data before the file has the owner that its permissions are meant for.
        let is_final = replaced.is_none() && !self.preserve;
        let mode = if is_final { found.mode & 0o777 } else { 0o600 };
        let (sink, have, mut part) = self.begin_file(part, mode, found.size)?;
        part.kept = self.keeps;
        let end = self.bytes(&*reader, &*sink, have, found.size)?;
        let started_ns = self.meter.now_ns();
        sink.finish(end)?;
        part.kept = false;
        if self.rules.checksum {
            self.compare(source, &part.path, end)?;
        }
        if self.preserve {
            self.preserve(&part.path, found)?;
        } else if let Some(replaced) = replaced {
            let owner = self.to.set_owner(&part.path, replaced)?;
            self.to.set_mode(&part.path, mode_of_replaced(replaced.mode, owner))?;
        }
        self.check_stop()?;
        self.to.rename(&part.path, destination)?;
        part.placed = true;
        self.meter.wrote(started_ns);
        Ok(())
    }

    /// Gives a file or directory the owner, times and permissions of the source.
    pub(crate) fn preserve(&self, path: &[u8], found: &Found) -> Outcome {
        let owner = self.to.set_owner(path, found)?;
        self.to.set_times(path, found)?;
        // Last: a change of owner takes set-id bits away.
        self.to.set_mode(path, preserved_mode(found.mode, owner))
    }

    /// Copies a symbolic link as such.
    pub(crate) fn link(&self, source: &[u8], found: &Found, destination: &[u8]) -> Outcome {
        let there = self.to.find(destination, false)?;
        if there.as_ref().is_some_and(|there| self.keeps_there(found, there)) {
            return Ok(());
        }
        let kind = there.map(|there| there.kind);
        if let Some(kind) = kind.filter(|kind| !matches!(kind, FileKind::File | FileKind::Symlink)) {
            return Err(not_replaced(&self.to.show(destination), kind));
        }
        let part = self.parts.name(self.to, destination, 0)?;
        let (ours, theirs) = (self.to.show(&part.path), self.to.show(destination));
        let made = self.link_part(source, found, part, destination);
        made.map_err(|failure| failure.renamed(&ours, &theirs))
    }

    fn link_part(&self, source: &[u8], found: &Found, part: PartName, destination: &[u8]) -> Outcome {
        let target = self.from.read_link(source)?;
        let ((), mut part) = self.begin(part, |path| self.to.make_link(path, &target))?;
        if self.preserve {
            self.to.set_owner(&part.path, found)?;
            self.to.set_times(&part.path, found)?;
        }
        self.to.rename(&part.path, destination)?;
        part.placed = true;
        Ok(())
    }

    /// Copies the bytes from `start` on; returns the file's length.
    fn bytes(&self, source: &dyn Source, sink: &dyn Sink, start: u64, size: u64) -> Outcome<u64> {
        match size > ALONE_BYTES_MAX {
            true => self.two_threads(source, sink, start),
            false => self.one_thread(source, sink, start),
        }
    }

    /// Reads both files again and compares them.
    fn compare(&self, source: &[u8], part: &[u8], length: u64) -> Outcome {
        let (from, to) = (self.from.open(source)?, self.to.open_again(part)?);
        let (mut expected, mut found) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        let mut offset = 0;
        while offset < length {
            self.check_stop()?;
            let wanted = (length - offset).min(CHUNK_BYTES as u64) as usize;
            fill(&*from, &mut expected[..wanted], offset)?;
            fill(&*to, &mut found[..wanted], offset)?;
            if expected[..wanted] != found[..wanted] {
                let shown = self.to.show(part);
                return Err(Failure::new(format!("{shown}: read back otherwise than the source is now")));
            }
            offset += wanted as u64;
        }
        Ok(())
    }

    fn check_stop(&self) -> Outcome {
        if self.stop.is_asked() {
            return Err(Failure::new("interrupted"));
        }
        self.rules.check(self.meter.now_ns())
    }

    /// Hands out every chunk of data with its offset; returns the file's length.
    fn read_all(
        &self,
        source: &dyn Source,
        start: u64,
        take: &mut dyn FnMut() -> Outcome<Vec<u8>>,
        give: &mut dyn FnMut(Vec<u8>, usize, u64) -> Outcome,
    ) -> Outcome<u64> {
        let mut offset = start;
        while let Some((start, end)) = source.next_data(offset)? {
            offset = start;
            while offset < end {
                self.check_stop()?;
                let mut buffer = take()?;
                let wanted = (end - offset).min(CHUNK_BYTES as u64) as usize;
                self.rules.wait(wanted as u64, || self.meter.now_ns(), self.stop)?;
                let started_ns = self.meter.now_ns();
                let count = source.read_at(&mut buffer[..wanted], offset)?;
                self.meter.read(started_ns);
                if count == 0 {
                    return Ok(offset);
                }
                give(buffer, count, offset)?;
                offset += count as u64;
            }
        }
        source.length().map(|length| length.max(offset))
    }

    fn write(&self, sink: &dyn Sink, bytes: &[u8], offset: u64, skip_zeros: bool) -> Outcome {
        let started_ns = self.meter.now_ns();
        if skip_zeros {
            let mut at = offset;
            for block in bytes.chunks(BLOCK_BYTES) {
                if block.iter().any(|&b| b != 0) {
                    sink.write_at(block, at)?;
                }
                at += block.len() as u64;
            }
        } else {
            sink.write_at(bytes, offset)?;
        }
        if self.keeps && offset / KEPT_BYTES != (offset + bytes.len() as u64) / KEPT_BYTES {
            sink.flush()?;
        }
        self.meter.wrote(started_ns);
        self.meter.moved(bytes.len() as u64);
        Ok(())
    }

    fn one_thread(&self, source: &dyn Source, sink: &dyn Sink, start: u64) -> Outcome<u64> {
        let skip_zeros = source.may_hide_holes();
        let spare = std::cell::RefCell::new(Vec::new());
        let mut take = || {
            let mut buffer = spare.take();
            buffer.resize(CHUNK_BYTES, 0);
            Ok(buffer)
        };
        let mut give = |buffer: Vec<u8>, count: usize, offset: u64| {
            self.write(sink, &buffer[..count], offset, skip_zeros)?;
            spare.replace(buffer);
            Ok(())
        };
        self.read_all(source, start, &mut take, &mut give)
    }

    fn two_threads(&self, source: &dyn Source, sink: &dyn Sink, start: u64) -> Outcome<u64> {
        let (full_sender, full) = sync_channel::<(Vec<u8>, usize, u64)>(CHUNKS);
        let (empty_sender, empty) = channel::<Vec<u8>>();
        for _ in 0..CHUNKS {
            let _ = empty_sender.send(vec![0; CHUNK_BYTES]);
        }
        let skip_zeros = source.may_hide_holes();
        std::thread::scope(|scope| {
            let reading = scope.spawn(move || self.reading(source, start, &empty, &full_sender));
            let written = self.writing(sink, full, empty_sender, skip_zeros);
            let read = reading.join().map_err(|_| Failure::new("the reading thread panicked"))?;
            // When writing failed, the reader only noticed that its chunks are not taken any more.
            written.and(read)
        })
    }

    fn reading(
        &self,
        source: &dyn Source,
        start: u64,
        empty: &Receiver<Vec<u8>>,
        full: &SyncSender<(Vec<u8>, usize, u64)>,
    ) -> Outcome<u64> {
        let ended = || Failure::new("the writing side ended");
        let mut take = || empty.recv().map_err(|_| ended());
        let mut give = |buffer, count, offset| full.send((buffer, count, offset)).map_err(|_| ended());
        self.read_all(source, start, &mut take, &mut give)
    }

    fn writing(
        &self,
        sink: &dyn Sink,
        full: Receiver<(Vec<u8>, usize, u64)>,
        empty: Sender<Vec<u8>>,
        skip_zeros: bool,
    ) -> Outcome {
        for (buffer, count, offset) in full {
            self.write(sink, &buffer[..count], offset, skip_zeros)?;
            // It is not taken back once the reader has ended.
            let _ = empty.send(buffer);
        }
        Ok(())
    }
}

/// Reads all of `buffer`; behind the end there are zeros.
fn fill(source: &dyn Source, buffer: &mut [u8], offset: u64) -> Outcome {
    let mut done = 0;
    while done < buffer.len() {
        match source.read_at(&mut buffer[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    buffer[done..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_kept_with_the_owner_only() {
        assert_eq!(preserved_mode(0o6755, Owner::Given), 0o6755);
        assert_eq!(preserved_mode(0o6755, Owner::GroupOnly), 0o755);
        assert_eq!(preserved_mode(0o7755, Owner::Refused), 0o1755);
    }

    #[test]
    fn a_file_in_anothers_place_is_open_to_no_more_users() {
        assert_eq!(mode_of_replaced(0o4640, Owner::Given), 0o640);
        assert_eq!(mode_of_replaced(0o640, Owner::GroupOnly), 0o640);
        assert_eq!(mode_of_replaced(0o664, Owner::Refused), 0o644);
        assert_eq!(mode_of_replaced(0o604, Owner::Refused), 0o604);
    }
}
