//! List: a page of a directory in the order of cookies.
//!
//! Nothing is remembered between pages: a cookie is the hash of a name. Entries whose hashes are equal share a cookie
//! and therefore always come in the same page.

use crate::context::Context;
use crate::engine::Pair;
use crate::fault::Outcome;
use crate::keys;
use crate::names;
use crate::records::EntryRecord;
use prost::Message;
use vazao_model::{Code, InodeId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// A page ends before its message grows beyond this, which leaves room for the rest of a frame.
const PAGE_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX * 3 / 4;

pub(crate) fn run(context: &mut Context<'_>, request: &proto::ListRequest) -> Outcome<proto::ListResponse> {
    let directory = InodeId(request.directory);
    context.seat = request.seat;
    let record = context.inode(directory)?;
    if !record.is_directory() {
        return Err(Fault::new(Code::NotDirectory, format!("inode {directory}")));
    }
    let limit = request.limit.clamp(1, limits::LIST_ENTRIES_MAX) as usize;
    let pairs = match names::hash_after(request.cookie) {
        Some(hash) => page(context, directory, hash, limit)?,
        None => Vec::new(),
    };
    let (entries, all) = encode(context, directory, &pairs, request.with_attributes)?;
    Ok(proto::ListResponse { entries, end: all && pairs.len() < limit, parent: record.parent })
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
    with_attributes: bool,
) -> Outcome<(Vec<proto::DirectoryEntry>, bool)> {
    let mut entries: Vec<proto::DirectoryEntry> = Vec::with_capacity(pairs.len());
    let mut bytes = 0;
    for (key, value) in pairs {
        let cookie = names::cookie(hash_of(key)?);
        let begins = entries.last().is_none_or(|last| last.cookie != cookie);
        if begins && bytes > PAGE_BYTES_MAX {
            return Ok((entries, false));
        }
        let entry = message(context, directory, (key, value), cookie, with_attributes)?;
        bytes += entry.encoded_len() + 4;
        entries.push(entry);
    }
    Ok((entries, true))
}

fn message(
    context: &mut Context<'_>,
    directory: InodeId,
    (key, value): (&[u8], &[u8]),
    cookie: u64,
    with_attributes: bool,
) -> Outcome<proto::DirectoryEntry> {
    let broken = |e: &dyn std::fmt::Display| Fault::new(Code::Corrupt, format!("directory entry: {e}"));
    let entry = EntryRecord::decode(value).map_err(|e| broken(&e))?;
    let name = keys::entry_name(key).ok_or_else(|| broken(&"short key"))?.to_vec();
    let attributes = if with_attributes {
        context.shows_entry(directory, &name);
        let id = InodeId(entry.inode);
        // An entry that was removed since the page was read is shown without attributes.
        let record = context.find_inode(id)?;
        record.map(|record| context.attributes(id, &record)).transpose()?
    } else {
        None
    };
    Ok(proto::DirectoryEntry { name, inode: entry.inode, kind: entry.kind, cookie, attributes })
}
