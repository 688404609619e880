//! Every key of the metadata service. The first byte is the kind of record; numbers are big-endian, so that they sort.

use std::ops::Range;
use vazao_model::{InodeId, NodeId, SessionId, TargetId};

/// Bits of a name's hash: a cookie has to stay positive in a signed 64-bit offset.
pub(crate) const NAME_HASH_BITS: u32 = 62;

/// The volume's identity.
pub(crate) const VOLUME: &[u8] = b"V";
/// Membership epoch and the next node's and target's ids.
pub(crate) const MEMBERSHIP: &[u8] = b"M";
/// Changes with every session that opens or ends.
pub(crate) const SESSIONS_EPOCH: &[u8] = b"E";
/// Counters, by name.
pub(crate) const NEXT_INODE: &[u8] = b"Cinode";
/// Number of times the service was opened.
pub(crate) const BOOTS: &[u8] = b"Cboots";
/// Inodes in use, as last written down.
pub(crate) const INODES_IN_USE: &[u8] = b"Cused";

const INODE: u8 = b'I';
const ENTRY: u8 = b'D';
const TIMES: u8 = b'T';
const SUBDIRECTORIES: u8 = b'L';
const XATTR: u8 = b'X';
const ORPHAN: u8 = b'O';
const ASKED: u8 = b'Q';
const RECLAIM: u8 = b'R';
const CONVERSION: u8 = b'W';
const SESSION: u8 = b'S';
const REPLY: u8 = b'A';
const NODE: u8 = b'N';
const TARGET: u8 = b'G';

fn key(kind: u8, numbers: &[u64], tail: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 8 * numbers.len() + tail.len());
    key.push(kind);
    numbers.iter().for_each(|n| key.extend_from_slice(&n.to_be_bytes()));
    key.extend_from_slice(tail);
    key
}

/// All keys that begin with `prefix`.
pub(crate) fn under(prefix: Vec<u8>) -> Range<Vec<u8>> {
    let mut end = prefix.clone();
    while let Some(last) = end.pop() {
        if last < 255 {
            end.push(last + 1);
            break;
        }
    }
    prefix..end
}

/// The key right after `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The number at `index` among those after the kind, if the key is long enough.
pub(crate) fn number(key: &[u8], index: usize) -> Option<u64> {
    let bytes = key.get(1 + 8 * index..9 + 8 * index)?;
    bytes.try_into().ok().map(u64::from_be_bytes)
}

/// Attributes, layout, small contents.
pub(crate) fn inode(id: InodeId) -> Vec<u8> {
    key(INODE, &[id.0], &[])
}

pub(crate) fn inodes() -> Range<Vec<u8>> {
    under(vec![INODE])
}

/// A name in a directory; in the order of the names' hashes, which are the cookies of listings.
pub(crate) fn entry(parent: InodeId, hash: u64, name: &[u8]) -> Vec<u8> {
    key(ENTRY, &[parent.0, hash], name)
}

pub(crate) fn entries(parent: InodeId) -> Range<Vec<u8>> {
    under(key(ENTRY, &[parent.0], &[]))
}

/// Entries whose names have exactly this hash.
pub(crate) fn entries_of_hash(parent: InodeId, hash: u64) -> Range<Vec<u8>> {
    under(key(ENTRY, &[parent.0, hash], &[]))
}

pub(crate) fn all_entries() -> Range<Vec<u8>> {
    under(vec![ENTRY])
}

/// The name in an entry's key.
pub(crate) fn entry_name(key: &[u8]) -> Option<&[u8]> {
    key.get(17..)
}

/// Times of a directory, written blindly by every change of its entries.
pub(crate) fn times(directory: InodeId) -> Vec<u8> {
    key(TIMES, &[directory.0], &[])
}

/// Number of subdirectories.
pub(crate) fn subdirectories(directory: InodeId) -> Vec<u8> {
    key(SUBDIRECTORIES, &[directory.0], &[])
}

pub(crate) fn xattr(id: InodeId, name: &[u8]) -> Vec<u8> {
    key(XATTR, &[id.0], name)
}

pub(crate) fn xattrs(id: InodeId) -> Range<Vec<u8>> {
    under(key(XATTR, &[id.0], &[]))
}

/// The name in an extended attribute's key.
pub(crate) fn xattr_name(key: &[u8]) -> Option<&[u8]> {
    key.get(9..)
}

/// The sessions that may have an unlinked inode open.
pub(crate) fn orphan(id: InodeId) -> Vec<u8> {
    key(ORPHAN, &[id.0], &[])
}

pub(crate) fn orphans() -> Range<Vec<u8>> {
    under(vec![ORPHAN])
}

/// The same the other way round: which unlinked inodes a session is asked about.
pub(crate) fn asked(session: SessionId, id: InodeId) -> Vec<u8> {
    key(ASKED, &[session.0, id.0], &[])
}

pub(crate) fn asked_of(session: SessionId) -> Range<Vec<u8>> {
    under(key(ASKED, &[session.0], &[]))
}

pub(crate) fn all_asked() -> Range<Vec<u8>> {
    under(vec![ASKED])
}

/// Objects to be removed: those of one life of one file.
pub(crate) fn reclaim(id: InodeId, generation: u32) -> Vec<u8> {
    key(RECLAIM, &[id.0, u64::from(generation)], &[])
}

pub(crate) fn reclaims() -> Range<Vec<u8>> {
    under(vec![RECLAIM])
}

/// Another layout that a file is about to get.
pub(crate) fn conversion(id: InodeId) -> Vec<u8> {
    key(CONVERSION, &[id.0], &[])
}

pub(crate) fn conversions() -> Range<Vec<u8>> {
    under(vec![CONVERSION])
}

pub(crate) fn session(id: SessionId) -> Vec<u8> {
    key(SESSION, &[id.0], &[])
}

pub(crate) fn sessions() -> Range<Vec<u8>> {
    under(vec![SESSION])
}

/// The last answer of one slot of a session.
pub(crate) fn reply(session: SessionId, slot: u32) -> Vec<u8> {
    key(REPLY, &[session.0, u64::from(slot)], &[])
}

pub(crate) fn replies(session: SessionId) -> Range<Vec<u8>> {
    under(key(REPLY, &[session.0], &[]))
}

pub(crate) fn all_replies() -> Range<Vec<u8>> {
    under(vec![REPLY])
}

pub(crate) fn node(id: NodeId) -> Vec<u8> {
    key(NODE, &[u64::from(id.0)], &[])
}

pub(crate) fn nodes() -> Range<Vec<u8>> {
    under(vec![NODE])
}

pub(crate) fn target(id: TargetId) -> Vec<u8> {
    key(TARGET, &[u64::from(id.0)], &[])
}

pub(crate) fn targets() -> Range<Vec<u8>> {
    under(vec![TARGET])
}
