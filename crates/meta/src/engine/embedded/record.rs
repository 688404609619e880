//! Records of the log, byte by byte as in `docs/on-disk.md`.
//!
//! ```text
//! magic u32 | check u32 | length u32 | position u64 | durable u64 | length bytes of changes       (little-endian)
//! ```
//! `check` is the CRC-32C of everything after it, XORed with half of the volume's identity: bytes of a file's contents
//! inside a record cannot pass for a record. `durable` is a position that was known to be durable when the record was
//! made. A record without changes is a mark: it says only that.

use super::super::transaction::Writes;
use super::super::{KEY_BYTES_MAX, Position, VALUE_BYTES_MAX};
use vazao_model::checksum::crc32c;

/// "VZR1".
const MAGIC: [u8; 4] = *b"VZR1";

/// Bytes before the changes.
pub(super) const HEADER_BYTES: usize = 28;

/// No record is longer: a transaction's limit, and six bytes for each of its changes.
const CHANGES_BYTES_MAX: usize = 8 << 20;

/// In place of a value's length: the key is removed.
const REMOVED: u32 = u32::MAX;

/// A record that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The commit; of a mark the last one before it.
    pub(super) position: Position,
    /// Known durable when it was made.
    pub(super) durable: Position,
    /// Its changes; none in a mark.
    pub(super) writes: Writes,
    /// Bytes from its start to its end.
    pub(super) bytes: usize,
}

/// Appends a record to `log`.
pub(super) fn append(
    log: &mut Vec<u8>,
    identity: u64,
    position: Position,
    durable: Position,
    writes: &Writes,
) {
    let start = log.len();
    log.extend_from_slice(&MAGIC);
    log.extend_from_slice(&[0; 8]);
    log.extend_from_slice(&position.to_le_bytes());
    log.extend_from_slice(&durable.to_le_bytes());
    for (key, value) in writes {
        let length = value.as_ref().map_or(REMOVED, |value| value.len() as u32);
        log.extend_from_slice(&(key.len() as u16).to_le_bytes());
        log.extend_from_slice(&length.to_le_bytes());
        log.extend_from_slice(key);
        log.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    let length = (log.len() - start - HEADER_BYTES) as u32;
    log[start + 8..start + 12].copy_from_slice(&length.to_le_bytes());
    let check = check(identity, &log[start + 8..]);
    log[start + 4..start + 8].copy_from_slice(&check.to_le_bytes());
}

fn check(identity: u64, bytes: &[u8]) -> u32 {
    crc32c(bytes) ^ (identity as u32) ^ (identity >> 32) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// The record that begins at `bytes[0]`, if a whole and undamaged one does.
pub(super) fn parse(bytes: &[u8], identity: u64) -> Option<Record> {
    if !bytes.starts_with(&MAGIC) {
        return None;
    }
    let length = u32_at(bytes, 8)? as usize;
    if length > CHANGES_BYTES_MAX {
        return None;
    }
    let end = HEADER_BYTES + length;
    let changes = bytes.get(HEADER_BYTES..end)?;
    if check(identity, bytes.get(8..end)?) != u32_at(bytes, 4)? {
        return None;
    }
    let (position, durable) = (u64_at(bytes, 12)?, u64_at(bytes, 20)?);
    Some(Record { position, durable, writes: parse_changes(changes)?, bytes: end })
}

fn parse_changes(mut rest: &[u8]) -> Option<Writes> {
    let mut writes = Writes::new();
    while !rest.is_empty() {
        let (lengths, after) = rest.split_at_checked(6)?;
        let key_length = usize::from(u16::from_le_bytes([lengths[0], lengths[1]]));
        let value_length = u32_at(lengths, 2)?;
        let (key, after) = after.split_at_checked(key_length)?;
        if key_length > KEY_BYTES_MAX {
            return None;
        }
        if value_length == REMOVED {
            writes.insert(key.to_vec(), None);
            rest = after;
            continue;
        }
        let (value, after) = after.split_at_checked(value_length as usize)?;
        if value.len() > VALUE_BYTES_MAX {
            return None;
        }
        writes.insert(key.to_vec(), Some(value.to_vec()));
        rest = after;
    }
    Some(writes)
}

/// Where the next undamaged record at or after `from` begins.
pub(super) fn find(bytes: &[u8], from: usize, identity: u64) -> Option<(usize, Record)> {
    let mut at = from;
    while let Some(rest) = bytes.get(at..) {
        let step = rest.windows(MAGIC.len()).position(|window| window == MAGIC)?;
        at += step;
        if let Some(record) = parse(&bytes[at..], identity) {
            return Some((at, record));
        }
        at += 1;
    }
    None
}
