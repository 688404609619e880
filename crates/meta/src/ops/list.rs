//! List: a page of a directory in the order of cookies.
//!
//! Nothing is remembered between pages: a cookie is the hash of a name. Entries whose hashes are equal share a cookie
//! and therefore always come in the same page.

use crate::engine::Pair;
use crate::schema::keys;
use crate::schema::names;
use crate::schema::records::EntryRecord;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use vazao_model::{Code, InodeId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A page ends before its message grows beyond this, which leaves room for the rest of a frame.
const PAGE_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX * 3 / 4;

/// The answer's message.
pub(crate) fn run(context: &mut Context<'_>, request: &proto::ListRequest) -> Outcome<Vec<u8>> {
    let directory = InodeId(request.directory);
    context.seat = request.seat;
    let record = context.inode(directory)?;
    if !record.is_directory() {
        return Err(Fault::new(Code::NotDirectory, format!("inode {directory}")));
    }
    let limit = request.limit.clamp(1, limits::LIST_ENTRIES_MAX) as usize;
    let hash = names::hash_after(request.cookie);
    if !request.with_attributes {
        let mut entries = NameEntries::default();
        let count = hash.map_or(Ok(0), |hash| entries.read(context, directory, hash, limit))?;
        return entries.finish(count < limit, record.parent);
    }
    let pairs = hash.map_or(Ok(Vec::new()), |hash| page(context, directory, hash, limit))?;
    let (entries, all) = encode(context, directory, &pairs)?;
    let end = all && pairs.len() < limit;
    Ok(proto::ListResponse { entries, end, parent: record.parent }.encode_to_vec())
}

/// A page of names, encoded as it is read: there are millions a second of them, and nothing else of each is wanted.
#[derive(Default)]
struct NameEntries {
    /// `ListResponse`, as far as its entries.
    message: Vec<u8>,
    last_key: Vec<u8>,
    /// The page was full before the last ones.
    is_cut: bool,
    fault: Option<Fault>,
}

impl NameEntries {
    /// Entries from `hash` on, as [`page`] has them; returns how many it came by.
    fn read(
        &mut self,
        context: &mut Context<'_>,
        directory: InodeId,
        hash: u64,
        limit: usize,
    ) -> Outcome<usize> {
        let mut range = keys::entries(directory);
        range.start = keys::entry(directory, hash, &[]);
        let count = context.visit(&range, limit, &mut |key, value| self.add(key, value))?;
        if count < limit || self.fault.is_some() {
            return Ok(count);
        }
        let last = std::mem::take(&mut self.last_key);
        let mut same = keys::entries_of_hash(directory, hash_of(&last)?);
        same.start = keys::after(&last);
        self.last_key = last;
        let more = limits::LIST_ENTRIES_MAX as usize;
        Ok(count + context.visit(&same, more, &mut |key, value| self.add(key, value))?)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        if self.fault.is_none() {
            self.fault = self.put(key, value).err();
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let hash = hash_of(key)?;
        let begins = keys::number(&self.last_key, 1) != Some(hash);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.is_cut |= begins && self.message.len() > PAGE_BYTES_MAX;
        if !self.is_cut {
            let (name, entry) = decoded(key, value)?;
            put_entry(&mut self.message, name, &entry, names::cookie(hash));
        }
        Ok(())
    }

    /// The whole message.
    fn finish(self, all: bool, parent: u64) -> Outcome<Vec<u8>> {
        let rest = proto::ListResponse { entries: Vec::new(), end: all && !self.is_cut, parent };
        let mut message = self.message;
        // Fields follow one another in any message.
        rest.encode(&mut message).map_err(|e| Fault::new(Code::Internal, format!("a page of names: {e}")))?;
        self.fault.map_or(Ok(message), Err)
    }
}

/// Appends an entry to the bytes of a `ListResponse`, as a `DirectoryEntry` without attributes encodes itself.
fn put_entry(message: &mut Vec<u8>, name: &[u8], entry: &EntryRecord, cookie: u64) {
    let bytes = |value: u64| if value == 0 { 0 } else { 1 + encoded_len_varint(value) };
    let numbers = [(2, entry.inode), (3, u64::from(entry.kind)), (4, cookie)];
    let name_bytes = 1 + encoded_len_varint(name.len() as u64) + name.len();
    let length = name_bytes + numbers.iter().map(|(_, value)| bytes(*value)).sum::<usize>();
    encode_key(1, WireType::LengthDelimited, message);
    encode_varint(length as u64, message);
    encode_key(1, WireType::LengthDelimited, message);
    encode_varint(name.len() as u64, message);
    message.extend_from_slice(name);
    for (tag, value) in numbers.into_iter().filter(|(_, value)| *value != 0) {
        encode_key(tag, WireType::Varint, message);
        encode_varint(value, message);
    }
}

/// What an entry's key and value say.
fn decoded<'k>(key: &'k [u8], value: &[u8]) -> Outcome<(&'k [u8], EntryRecord)> {
    let broken = |e: &dyn std::fmt::Display| Fault::new(Code::Corrupt, format!("directory entry: {e}"));
    let entry = EntryRecord::decode(value).map_err(|e| broken(&e))?;
    Ok((keys::entry_name(key).ok_or_else(|| broken(&"short key"))?, entry))
}

/// Pairs from `hash` on: `limit` of them, and those that share the last one's hash.
fn page(context: &mut Context<'_>, directory: InodeId, hash: u64, limit: usize) -> Outcome<Vec<Pair>> {
    let mut range = keys::entries(directory);
    range.start = keys::entry(directory, hash, &[]);
    let mut pairs = context.scan(&range, limit)?;
    if pairs.len() == limit {
        let last = pairs.last().map(|(key, _)| key.clone()).unwrap_or_default();
        let mut same = keys::entries_of_hash(directory, hash_of(&last)?);
        same.start = keys::after(&last);
        pairs.extend(context.scan(&same, limits::LIST_ENTRIES_MAX as usize)?);
    }
    Ok(pairs)
}

fn hash_of(key: &[u8]) -> Outcome<u64> {
    keys::number(key, 1).ok_or_else(|| Fault::new(Code::Corrupt, "entry with a short key"))
}

/// The messages of as many pairs as fit, cut where the hash changes, and whether that is all of them.
fn encode(
    context: &mut Context<'_>,
    directory: InodeId,
    pairs: &[Pair],
) -> Outcome<(Vec<proto::DirectoryEntry>, bool)> {
    let mut ids = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        ids.push(InodeId(decoded(key, value)?.1.inode));
    }
    ids.sort_unstable();
    ids.dedup();
    let attributes = context.attributes_of(&ids)?;
    let mut entries: Vec<proto::DirectoryEntry> = Vec::with_capacity(pairs.len());
    let mut bytes = 0;
    for (key, value) in pairs {
        let cookie = names::cookie(hash_of(key)?);
        let begins = entries.last().is_none_or(|last| last.cookie != cookie);
        if begins && bytes > PAGE_BYTES_MAX {
            return Ok((entries, false));
        }
        let (name, entry) = decoded(key, value)?;
        context.shows_entry(directory, name);
        let entry = proto::DirectoryEntry {
            name: name.to_vec(),
            inode: entry.inode,
            kind: entry.kind,
            cookie,
            // An entry that was removed since the page was read is shown without them.
            attributes: attributes.get(&InodeId(entry.inode)).cloned(),
        };
        bytes += entry.encoded_len() + 4;
        entries.push(entry);
    }
    Ok((entries, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_as_the_messages_encode_themselves() {
        let named = |name: &[u8], inode, kind, cookie| proto::DirectoryEntry {
            name: name.to_vec(),
            inode,
            kind,
            cookie,
            attributes: None,
        };
        let long = [b'n'; 255];
        let entries = vec![named(b"a", 300, 1, u64::MAX >> 2), named(&long, 1, 0, 16), named(b"b", 0, 7, 0)];
        let mut names = NameEntries::default();
        for entry in &entries {
            let record = EntryRecord { inode: entry.inode, kind: entry.kind };
            put_entry(&mut names.message, &entry.name, &record, entry.cookie);
        }
        let message = proto::ListResponse { entries, end: true, parent: 9 }.encode_to_vec();
        assert_eq!(names.finish(true, 9), Ok(message));
    }
}
