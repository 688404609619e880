//! What is kept of a file that arrives, so that it goes on after the death of this daemon: which blocks are there.
//!
//! An entry is appended after the block's bytes went to the page cache, and both outlive the process. After a loss of
//! power neither may be there: entries from before are believed only where the block's bytes have their checksum.

use prost::Message;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vazao_model::checksum::crc32c;
use vazao_wire::proto;

const MAGIC: &[u8; 8] = b"VZARRIV1";

/// Bytes of an entry: the block's number, its checksum, the checksum of both.
const ENTRY_BYTES: usize = 16;

/// The number of the entry that says that the file is whole and checked.
const ENDED: u64 = u64::MAX;

/// A record is a path or two and some numbers.
const RECORD_BYTES_MAX: usize = 64 * 1024;

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

/// What a journal says.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) record: proto::ArrivalRecord,
    pub(crate) blocks: Vec<(usize, u32)>,
    pub(crate) ended: bool,
    /// Length of what makes sense.
    pub(crate) whole_bytes: u64,
}

/// Where the journal of a copy is.
pub(crate) fn path_of(directory: &Path, copy: &[u8]) -> PathBuf {
    directory.join(hex(copy))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Journal {
    /// Begins one in the place of any that was there.
    pub(crate) fn create(path: &Path, record: &proto::ArrivalRecord) -> std::io::Result<Journal> {
        let body = record.encode_to_vec();
        let head = [&MAGIC[..], &(body.len() as u32).to_le_bytes(), &crc32c(&body).to_le_bytes(), &body];
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(&head.concat())?;
        Ok(Journal { file })
    }

    /// Goes on with one behind its `whole_bytes`: a torn entry would put all later ones out of step.
    pub(crate) fn reopen(path: &Path, whole_bytes: u64) -> std::io::Result<Journal> {
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(whole_bytes)?;
        Ok(Journal { file })
    }

    /// A block is there.
    pub(crate) fn append(&mut self, block: usize, checksum: u32) -> std::io::Result<()> {
        self.entry(block as u64, checksum)
    }

    /// The file is whole and is given its name next.
    pub(crate) fn end(&mut self) -> std::io::Result<()> {
        self.entry(ENDED, 0)?;
        self.file.sync_all()
    }

    fn entry(&mut self, number: u64, checksum: u32) -> std::io::Result<()> {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        let sum = crc32c(&bytes[..12]);
        bytes[12..].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all(&bytes)
    }
}

/// Reads a journal up to where it makes sense; `None` when there is none that does.
pub(crate) fn load(path: &Path) -> Option<Found> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.read_to_end(&mut bytes).ok()?;
    let rest = bytes.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > RECORD_BYTES_MAX {
        return None;
    }
    let (body, entries) = rest.split_at_checked(length)?;
    if crc32c(body) != u32::from_le_bytes(*sum) {
        return None;
    }
    let record = proto::ArrivalRecord::decode(body).ok()?;
    let head_bytes = (bytes.len() - entries.len()) as u64;
    let mut found = Found { record, blocks: Vec::new(), ended: false, whole_bytes: head_bytes };
    for entry in entries.chunks_exact(ENTRY_BYTES) {
        let (Some((number, tail)), true) =
            (entry.split_first_chunk::<8>(), entry[12..] == crc32c(&entry[..12]).to_le_bytes())
        else {
            break;
        };
        let checksum = tail.first_chunk::<4>().map_or(0, |four| u32::from_le_bytes(*four));
        match u64::from_le_bytes(*number) {
            ENDED => found.ended = true,
            block => found.blocks.push((usize::try_from(block).ok()?, checksum)),
        }
        found.whole_bytes += ENTRY_BYTES as u64;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_up_to_where_it_was_torn() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = path_of(directory.path(), &[7; 16]);
        let record = proto::ArrivalRecord { boot: 5, ..Default::default() };
        let mut journal = Journal::create(&path, &record).expect("made");
        journal.append(3, 30).expect("written");
        journal.file.write_all(&[1, 2, 3]).expect("torn");
        let found = load(&path).expect("is one");
        let mut journal = Journal::reopen(&path, found.whole_bytes).expect("opened");
        journal.append(4, 40).expect("written");
        let found = load(&path).expect("is one");
        assert_eq!((found.record.boot, found.blocks, found.ended), (5, vec![(3, 30), (4, 40)], false));
        let mut journal = Journal::create(&path, &record).expect("made anew");
        journal.end().expect("ended");
        assert!(load(&path).expect("is one").ended);
        std::fs::write(&path, b"VZARRIV1nonsense").expect("written");
        assert!(load(&path).is_none());
    }
}
