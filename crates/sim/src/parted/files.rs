//! What clients do with files, and what they may see.

use super::{CLIENTS, Parted};
use crate::cluster::Cluster;
use crate::contents::{Contents, PartRead, VERSIONS_MAX};
use crate::copies::Holders;
use rand::RngExt;
use std::collections::BTreeSet;
use vazao_client::{Client, Error, File, OpenMode};
use vazao_model::{Code, InodeId};

pub(super) const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };

pub(super) const UNIT: u64 = 64 << 10;

/// Files stay between these: too much for an inode record, so that their blocks stay where they are.
const BYTES_MIN: usize = 20_000;
const BYTES_MAX: usize = 400_000;

/// A file, which one client at a time writes.
pub(super) struct Known {
    inode: InodeId,
    pub(super) contents: Contents,
    pub(super) holders: Holders,
    writer: usize,
    /// Clients that take what they wrote, or cut off, for lost where power was lost, also when another client has
    /// written it again since, or made it durable.
    unsure: BTreeSet<usize>,
    /// The writer's handle.
    file: Option<File>,
    /// A change of it has failed, or power has taken what its writer is not told of: which versions are there only
    /// writing all of it again decides.
    is_in_doubt: bool,
    /// Its writer was told that something is not stored.
    pub(super) is_to_be_rewritten: bool,
}

/// Bytes that no other version has at the same place, and never zero, which stands for a hole.
pub(super) fn bytes_of(version: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| 1 + ((version * 7 + (at as u64 >> 9)) % 255) as u8).collect()
}

impl Known {
    /// A file with these bytes, durably.
    pub(super) fn new(inode: InodeId, writer: usize, file: File, bytes: Vec<u8>, holders: Holders) -> Known {
        let mut contents = Contents::default();
        contents.settle(bytes);
        let (is_in_doubt, is_to_be_rewritten, file, unsure) = (false, false, Some(file), BTreeSet::new());
        Known { inode, contents, holders, writer, unsure, file, is_in_doubt, is_to_be_rewritten }
    }

    /// A machine has lost power. What lies on machines that are no current members of its groups counts no more.
    pub(super) fn lose_power(&mut self, machine: usize, cluster: &Cluster) {
        if !self.contents.is_volatile() {
            return;
        }
        self.contents.lose_power(machine);
        self.holders.gone(cluster).into_iter().for_each(|gone| self.contents.lose_power(gone));
        // What another client wrote, and the length of a file that was closed, are not missed by its writer.
        let is_missed = self.contents.is_known_to(self.writer) && (machine != 0 || self.file.is_some());
        self.is_in_doubt |= !is_missed;
        self.is_to_be_rewritten |= !is_missed;
    }

    /// Groups of it may have gone on without what was not synced.
    pub(super) fn take_losses(&mut self, cluster: &Cluster) {
        for machine in self.holders.newly_lost(cluster) {
            self.lose_power(machine, cluster);
        }
    }

    /// True when a client may take a part of it for lost that is not.
    pub(super) fn is_unsure(&self, client: usize) -> bool {
        self.unsure.contains(&client)
    }

    /// The whole file as a client reads it that opens it now.
    pub(super) fn read_whole(&self, client: &Client) -> vazao_client::Result<Vec<u8>> {
        let file = client.open_file(self.inode, OpenMode { read: true, ..OpenMode::default() })?;
        let mut bytes = vec![0xEE; BYTES_MAX + 1];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        file.close()?;
        Ok(bytes)
    }

    /// Whether a client that does not write it may see these bytes, and no others.
    pub(super) fn allows_whole(&self, bytes: &[u8]) -> bool {
        let read = PartRead { start: 0, bytes, asked: BYTES_MAX + 1, is_writers: false };
        self.contents.allows_read(&read, &self.holders)
    }

    /// How these bytes differ from the newest ones, in words.
    pub(super) fn difference(&self, bytes: &[u8]) -> String {
        let newest = self.contents.newest();
        let first = bytes.iter().zip(newest).position(|(a, b)| a != b);
        let (found, expected) = (bytes.len(), newest.len());
        let impossible = self.contents.first_impossible(0, bytes, &self.holders);
        let around = impossible.map(|at| &bytes[at as usize..bytes.len().min(at as usize + 8)]);
        format!(
            "{found} bytes, the newest version has {expected}; the first other one is {first:?}, the first of no version \
             {impossible:?}: {around:?}"
        )
    }
}

impl Parted {
    /// Opens a file for its writer; false when that fails.
    fn open(&mut self, index: usize) -> bool {
        let known = &self.files[index];
        if known.file.is_some() {
            return true;
        }
        let client = &self.clients[known.writer];
        let opened = self.within("open", || client.open_file(known.inode, MODE));
        // What was lost until then was lost of a file that was closed.
        self.collect_ends();
        match opened {
            Ok(file) => self.files[index].file = Some(file),
            Err(error) => self.explain(index, &error),
        }
        self.files[index].file.is_some()
    }

    /// A call on the writer's handle.
    fn on_file<T>(
        &mut self,
        index: usize,
        what: &str,
        call: impl FnOnce(&File) -> vazao_client::Result<T>,
    ) -> vazao_client::Result<T> {
        let file = self.files[index].file.as_ref().expect("opened before");
        self.within(what, || call(file))
    }

    fn any_range(&mut self, size: usize) -> (usize, usize) {
        let random = &mut self.random;
        let offset = match random.random_range(0..4) {
            0 => size,
            1 => random.random_range(0..=size / UNIT as usize) * UNIT as usize,
            _ => random.random_range(0..=size),
        };
        let length = match random.random_range(0..3) {
            0 => random.random_range(1..200),
            1 => random.random_range(1..20_000),
            _ => random.random_range(1..200_000),
        };
        (offset, length.min(BYTES_MAX.saturating_sub(offset)))
    }

    /// Whether a file can be changed now: it is open, and not too many versions of it are kept.
    fn can_change(&mut self, index: usize) -> bool {
        if self.files[index].contents.version_count() >= VERSIONS_MAX {
            match self.files[index].is_to_be_rewritten {
                true => self.rewrite(index),
                false => _ = self.flush(index, true),
            }
            return false;
        }
        self.open(index)
    }

    pub(super) fn write(&mut self, index: usize) {
        if !self.can_change(index) {
            return;
        }
        let (offset, length) = self.any_range(self.files[index].contents.newest().len());
        if length == 0 {
            return;
        }
        self.versions += 1;
        let (bytes, end) = (bytes_of(self.versions, offset + length), offset + length);
        self.note(format!("write {index} at {offset}, {length} bytes"));
        let answer = self.on_file(index, "write", |file| file.write_at(&bytes[offset..], offset as u64));
        self.changed(index, end, answer, |contents| {
            contents.resize(contents.len().max(end), 0);
            contents[offset..end].copy_from_slice(&bytes[offset..]);
        });
    }

    pub(super) fn set_length(&mut self, index: usize) {
        if !self.can_change(index) {
            return;
        }
        let size = self.files[index].contents.newest().len();
        let longest = if self.random.random_bool(0.7) { size } else { BYTES_MAX };
        let length = self.random.random_range(BYTES_MIN..=longest);
        self.note(format!("set length of {index} to {length}"));
        let answer = self.on_file(index, "cut", |file| file.set_length(length as u64));
        self.changed(index, length, answer, |contents| contents.resize(length, 0));
    }

    pub(super) fn punch(&mut self, index: usize) {
        if !self.can_change(index) {
            return;
        }
        let size = self.files[index].contents.newest().len();
        let (offset, length) = self.any_range(size);
        let (start, end) = (offset.min(size), (offset + length).min(size));
        self.note(format!("punch {index} at {offset}, {length} bytes"));
        let range = offset as u64..(offset + length) as u64;
        let answer = self.on_file(index, "punch", |file| file.zero(range));
        self.changed(index, size, answer, |contents| contents[start..end].fill(0));
    }

    /// Works in what became of a change.
    fn changed(
        &mut self,
        index: usize,
        end: usize,
        answer: vazao_client::Result<()>,
        act: impl FnOnce(&mut Vec<u8>),
    ) {
        let known = &mut self.files[index];
        known.contents.change(known.writer, end as u64, act);
        self.collect_ends();
        let known = &mut self.files[index];
        if let Err(error) = answer {
            known.contents.doubt();
            (known.is_in_doubt, known.is_to_be_rewritten) = (true, true);
            self.explain(index, &error);
        }
    }

    /// A flush, or an fsync; whether it succeeds. One that does says that the file is what was written, whatever has
    /// failed before.
    pub(super) fn flush(&mut self, index: usize, is_sync: bool) -> bool {
        if !self.open(index) {
            return false;
        }
        let what = if is_sync { "fsync" } else { "flush" };
        self.note(format!("{what} {index}"));
        let answer = self.on_file(index, what, |file| if is_sync { file.sync() } else { file.flush() });
        self.collect_ends();
        let is_done = answer.is_ok();
        match answer {
            Ok(()) if self.files[index].is_in_doubt => {}
            Ok(()) => {
                let known = &mut self.files[index];
                known.contents.acknowledge();

                let is_covered = known.contents.is_certain() || known.contents.is_known_to(known.writer);
                if is_sync && is_covered {
                    known.contents.synced(true);
                    known.is_to_be_rewritten = false;
                    self.tried.syncs += 1;
                }
            }
            Err(error) => self.not_stored(index, &error),
        }
        is_done
    }

    /// A flush has failed: its writer tries it again, or writes everything again, as it must where something is lost.
    fn not_stored(&mut self, index: usize, error: &Error) {
        let is_given_up = error.code == Code::Io || self.random.random_bool(0.5);
        let known = &mut self.files[index];
        known.is_to_be_rewritten |= is_given_up;
        if error.code == Code::Io {
            known.unsure.insert(known.writer);
        }
        self.explain(index, error);
    }

    /// The writer writes everything again.
    pub(super) fn rewrite(&mut self, index: usize) {
        if !self.open(index) {
            return;
        }
        self.note(format!("rewrite {index}"));
        let bytes = self.files[index].contents.newest().to_vec();
        let answer = self
            .on_file(index, "cut", |file| file.set_length(bytes.len() as u64))
            .and_then(|()| self.on_file(index, "write", |file| file.write_at(&bytes, 0)))
            .and_then(|()| self.on_file(index, "fsync", File::sync));
        self.collect_ends();
        match answer {
            Ok(()) => {
                let known = &mut self.files[index];
                known.contents.newest_is_durable();
                known.unsure.remove(&known.writer);
                (known.is_in_doubt, known.is_to_be_rewritten) = (false, false);
                self.tried.syncs += 1;
            }
            Err(error) => self.explain(index, &error),
        }
    }

    /// The writer closes its handle. What it was not told to be stored it writes again.
    pub(super) fn close(&mut self, index: usize) {
        let Some(file) = self.files[index].file.take() else { return };
        self.note(format!("close {index}"));
        let answer = self.within("close", || file.close());
        let is_whole = answer.is_ok() && !self.files[index].is_in_doubt;
        if is_whole {
            self.files[index].contents.acknowledge();
        }
        self.collect_ends();
        let known = &mut self.files[index];
        if answer.is_err() {
            known.contents.doubt();
        }
        // One that has nothing to report does not ask whether the metadata service has lost power, with the length.
        if answer.is_err() || known.contents.has_lost(0) {
            (known.is_in_doubt, known.is_to_be_rewritten) = (true, true);
        }
        if let Err(error) = answer {
            self.explain(index, &error);
        }
    }

    /// Another client writes the file from now on.
    pub(super) fn hand_over(&mut self, index: usize) {
        let known = &self.files[index];
        if known.is_to_be_rewritten || !known.contents.is_certain() {
            return;
        }
        self.close(index);
        let known = &mut self.files[index];
        if !known.is_to_be_rewritten && known.contents.is_certain() {
            if known.contents.is_volatile() {
                known.unsure.insert(known.writer);
            }
            known.writer = (known.writer + 1) % CLIENTS;
            let writer = known.writer;
            self.note(format!("{writer} writes {index}"));
        }
    }

    /// The writer reads through its handle.
    pub(super) fn read(&mut self, index: usize) {
        if !self.open(index) {
            return;
        }
        let (start, asked) = self.any_range(self.files[index].contents.newest().len());
        self.note(format!("read {index} at {start}, {asked} bytes"));
        let mut bytes = vec![0xEE; asked];
        let answer = self.on_file(index, "read", |file| file.read_at(&mut bytes, start as u64));
        self.collect_ends();
        self.check_read(
            index,
            answer,
            &PartRead { start: start as u64, bytes: &bytes, asked, is_writers: true },
        );
    }

    /// A client that does not write it opens the file, reads and closes it.
    pub(super) fn read_elsewhere(&mut self, index: usize) {
        let known = &self.files[index];
        let reader = (known.writer + 1 + self.random.random_range(0..CLIENTS - 1)) % CLIENTS;
        let (start, asked) = self.any_range(self.files[index].contents.newest().len());
        self.note(format!("{reader} reads {index} at {start}, {asked} bytes"));
        let (known, client) = (&self.files[index], &self.clients[reader]);
        let mode = OpenMode { read: true, ..OpenMode::default() };
        let mut bytes = vec![0xEE; asked];
        let opened = self.within("open", || client.open_file(known.inode, mode));
        let answer = opened.and_then(|file| {
            let read = self.within("read", || file.read_at(&mut bytes, start as u64));
            self.within("close", || file.close()).and(read)
        });
        self.collect_ends();
        self.check_read(
            index,
            answer,
            &PartRead { start: start as u64, bytes: &bytes, asked, is_writers: false },
        );
    }

    fn check_read(&mut self, index: usize, answer: vazao_client::Result<usize>, asked: &PartRead<'_>) {
        let read = match answer {
            Ok(read) => read,
            Err(error) => return self.explain(index, &error),
        };
        let known = &self.files[index];
        let read = PartRead { bytes: &asked.bytes[..read], ..*asked };
        let is_allowed = known.contents.allows_read(&read, &known.holders);
        let PartRead { start, bytes, asked, is_writers } = read;
        let expected = known.contents.newest().get(start as usize..).unwrap_or(&[]);
        let first = bytes.iter().zip(expected).position(|(a, b)| a != b);
        let count = bytes.len();
        assert!(
            is_allowed,
            "file {index} at {start}: {count} bytes of {asked}, the first other than in the newest version {first:?}, \
             of {} bytes; its writer: {is_writers}",
            known.contents.newest().len()
        );
        self.tried.reads += 1;
    }
}
