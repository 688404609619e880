//! Every key of the metadata service. The first byte is the kind of record; numbers are big-endian, so that they sort.

use std::ops::Range;
use vazao_model::ids::ROOT;
use vazao_model::{GroupId, InodeId, NodeId, SessionId, TargetId};

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
/// How often an operator has gone on with old metadata.
pub(crate) const LINEAGE: &[u8] = b"Clineage";
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
const START: u8 = b'H';
const GROUP: u8 = b'B';

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

/// What every start of the service reads, and the root directory: without it a volume is of no use.
pub(crate) fn essential() -> Vec<Range<Vec<u8>>> {
    let single = [VOLUME, MEMBERSHIP, NEXT_INODE, BOOTS, LINEAGE, INODES_IN_USE].map(<[u8]>::to_vec);
    let single = single.into_iter().chain([inode(ROOT)]).map(|key| key.clone()..after(&key));
    single.chain([nodes(), targets(), groups(), starts(), sessions()]).collect()
}

/// Whose record lies under this key, for people.
pub(crate) fn described(key: &[u8]) -> String {
    let id = |index| number(key, index).map_or("?".to_owned(), |number| number.to_string());
    match key.first() {
        Some(&INODE) => format!("inode {}", id(0)),
        Some(&ENTRY) => format!("names in directory inode {}", id(0)),
        Some(&TIMES) => format!("times of directory inode {}", id(0)),
        Some(&SUBDIRECTORIES) => format!("subdirectories of directory inode {}", id(0)),
        Some(&XATTR) => format!("extended attributes of inode {}", id(0)),
        Some(&ORPHAN) => format!("unlinked inode {}", id(0)),
        Some(&RECLAIM) => format!("objects of former inode {}", id(0)),
        Some(&CONVERSION) => format!("conversion of inode {}", id(0)),
        Some(&SESSION | &REPLY | &ASKED) => format!("session {}", id(0)),
        Some(&NODE) => format!("node {}", id(0)),
        Some(&TARGET) => format!("target {}", id(0)),
        Some(&GROUP) => format!("placement group {}", id(0)),
        _ => format!("record {:?}", String::from_utf8_lossy(key)),
    }
}

/// The kinds of records that belong to an inode, besides its entries: each with all keys of that inode.
pub(crate) fn of_inode(id: InodeId) -> [(&'static str, Range<Vec<u8>>); 4] {
    let one = |key: Vec<u8>| key.clone()..after(&key);
    [
        ("its attributes, layout or contents", one(inode(id))),
        ("its times", one(times(id))),
        ("its number of subdirectories", one(subdirectories(id))),
        ("its extended attributes", xattrs(id)),
    ]
}

/// The directories whose entries a range of keys may have: the first and the last, if there are any.
pub(crate) fn directories_within(range: &Range<Vec<u8>>) -> Option<(u64, u64)> {
    let all = all_entries();
    let (start, end) = (range.start.as_slice().max(&all.start), range.end.as_slice().min(&all.end));
    let first = if start.len() > 1 { directory_of(start) } else { 0 };
    let last = if end == all.end.as_slice() { u64::MAX } else { directory_of(end) };
    (start < end).then_some((first, last))
}

/// The number after the kind, of a key that may be cut short.
fn directory_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let given = key.get(1..).unwrap_or_default();
    let length = given.len().min(8);
    bytes[..length].copy_from_slice(&given[..length]);
    u64::from_be_bytes(bytes)
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

pub(crate) fn all_times() -> Range<Vec<u8>> {
    under(vec![TIMES])
}

pub(crate) fn all_subdirectories() -> Range<Vec<u8>> {
    under(vec![SUBDIRECTORIES])
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

/// A placement group.
pub(crate) fn group(id: GroupId) -> Vec<u8> {
    key(GROUP, &[u64::from(id.0)], &[])
}

pub(crate) fn groups() -> Range<Vec<u8>> {
    under(vec![GROUP])
}

/// A start of this service.
pub(crate) fn start(number: u64) -> Vec<u8> {
    key(START, &[number], &[])
}

pub(crate) fn starts() -> Range<Vec<u8>> {
    under(vec![START])
}
