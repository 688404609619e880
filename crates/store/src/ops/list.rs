//! ListObjects: the objects of a target, a page at a time, in the order of their directories and ids. An object that is
//! there all the while is listed exactly once. Beside it, what the objects of a placement group come to.

use crate::object::Stop;
use crate::object::names::{self, Bucket, FAN_OUT, GROUPS, OBJECTS, Part, parse_group};
use crate::targets::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use vazao_disk::Open;
use vazao_model::limits::LIST_ENTRIES_MAX;
use vazao_model::{Code, GroupId, InodeId, ObjectId};
use vazao_wire::proto::{ListObjectsResponse, ListedObject};
use vazao_wire::service::Fault;

const COOKIE_BYTES: usize = 22;

/// After so many objects of a group the directories that are left are estimated by those that were counted.
const OBJECTS_COUNTED_MAX: u64 = 16_384;

/// The last object listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cookie {
    bucket: Bucket,
    object: ObjectId,
}

impl Cookie {
    fn encode(self) -> Vec<u8> {
        let ObjectId { inode, generation, slot, group } = self.object;
        let mut bytes = Vec::with_capacity(COOKIE_BYTES);
        bytes.extend_from_slice(&self.bucket.leaf.to_be_bytes());
        bytes.extend_from_slice(&inode.0.to_be_bytes());
        bytes.extend_from_slice(&generation.to_be_bytes());
        bytes.extend_from_slice(&slot.to_be_bytes());
        bytes.extend_from_slice(&group.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Option<Cookie>, Fault> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let bytes: &[u8; COOKIE_BYTES] = bytes
            .try_into()
            .map_err(|_| Fault::new(Code::BadRequest, "not a cookie of an object listing"))?;
        let number = |from: usize, to: usize| bytes[from..to].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let object = ObjectId {
            inode: InodeId(number(2, 10)),
            generation: number(10, 14) as u32,
            slot: number(14, 18) as u32,
            group: GroupId(number(18, 22) as u32),
        };
        Ok(Some(Cookie { bucket: Bucket { group: object.group, leaf: number(0, 2) as u16 }, object }))
    }
}

impl Target {
    /// The page after `cookie`, of at most `limit` objects; of one placement group, or of all.
    pub(crate) fn list(
        &self,
        cookie: &[u8],
        limit: u32,
        group: Option<GroupId>,
    ) -> Result<ListObjectsResponse, Stop> {
        let after = Cookie::decode(cookie)?;
        let limit = limit.clamp(1, LIST_ENTRIES_MAX) as usize;
        let mut response = ListObjectsResponse::default();
        let first = after.map_or_else(Bucket::default, |cookie| cookie.bucket);
        let buckets = match group {
            Some(group) => self.leaves(Bucket { group, leaf: 0 })?.filter(|it| *it >= first).collect(),
            None => self.buckets_from(first)?,
        };
        for bucket in buckets {
            let mut objects = self.list_bucket(bucket)?;
            if let Some(Cookie { bucket: last, object }) = after
                && last == bucket
            {
                objects.retain(|o| *o > object);
            }
            let room = limit - response.objects.len();
            response.objects.extend(objects.iter().take(room).map(|o| ListedObject {
                inode: o.inode.0,
                generation: o.generation,
                slot: o.slot,
                group: o.group.0,
            }));
            if objects.len() >= room
                && let Some(&object) = objects.get(room - 1)
            {
                response.cookie = Cookie { bucket, object }.encode();
                break;
            }
        }
        Ok(response)
    }

    /// The leaf directories that exist, from `first` on. Most of a small target do not.
    pub(crate) fn buckets_from(&self, first: Bucket) -> Result<Vec<Bucket>, Fault> {
        let mut buckets = Vec::new();
        if first.is_own() {
            let uppers = self.names_in(OBJECTS)?;
            for upper in first.leaf / FAN_OUT..FAN_OUT {
                if uppers.contains(&format!("{upper:02x}")) {
                    let upper = Bucket { leaf: upper * FAN_OUT, ..Bucket::default() };
                    buckets.extend(self.leaves(upper)?);
                }
            }
        }
        for name in self.names_in(GROUPS)? {
            if let Some(group) = parse_group(&name).filter(|group| *group >= first.group) {
                buckets.extend(self.leaves(Bucket { group, leaf: 0 })?);
            }
        }
        buckets.retain(|bucket| *bucket >= first);
        Ok(buckets)
    }

    /// The leaf directories that exist beside `first`, which is the first beneath its upper one.
    pub(crate) fn leaves(&self, first: Bucket) -> Result<impl Iterator<Item = Bucket> + use<>, Fault> {
        let names = self.names_in(&first.upper())?;
        let all = (0..FAN_OUT).map(move |leaf| Bucket { leaf: first.leaf + leaf, ..first });
        Ok(all.filter(move |bucket| names.contains(&format!("{:02x}", bucket.leaf % FAN_OUT))))
    }

    fn names_in(&self, path: &str) -> Result<BTreeSet<String>, Fault> {
        match self.disk.list(path) {
            Ok(entries) => Ok(entries.into_iter().map(|entry| entry.name).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(self.read_fault(path, &error)),
        }
    }

    pub(crate) fn list_bucket(&self, bucket: Bucket) -> Result<Vec<ObjectId>, Fault> {
        let path = bucket.path();
        let entries = match self.disk.list(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.read_fault(&path, &error)),
        };
        let mut objects: Vec<ObjectId> = entries
            .iter()
            .filter_map(|entry| bucket.parse(&entry.name))
            .filter(|(_, chunk, part)| *chunk == 0 && *part == Part::Data)
            .map(|(object, _, _)| object)
            .collect();
        objects.sort_unstable();
        Ok(objects)
    }
}

impl Target {
    /// Lengths of a group's objects, summed up; estimated where there are very many.
    pub(crate) fn bytes_of_group(&self, group: GroupId) -> Result<u64, Fault> {
        let leaves: Vec<Bucket> = self.leaves(Bucket { group, leaf: 0 })?.collect();
        let (mut bytes, mut objects, mut looked_at) = (0u64, 0u64, 0u64);
        for leaf in &leaves {
            for (object, chunk) in self.last_chunks(*leaf)? {
                objects += 1;
                bytes = bytes.saturating_add(self.length_to(object, chunk)?);
            }
            looked_at += 1;
            if objects >= OBJECTS_COUNTED_MAX {
                break;
            }
        }
        Ok(estimate(bytes, looked_at, leaves.len() as u64))
    }

    /// The objects in a directory, each with its last chunk.
    fn last_chunks(&self, leaf: Bucket) -> Result<BTreeMap<ObjectId, u64>, Fault> {
        let path = leaf.path();
        let entries = match self.disk.list(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.read_fault(&path, &error)),
        };
        let mut last: BTreeMap<ObjectId, u64> = BTreeMap::new();
        for (object, chunk, part) in entries.iter().filter_map(|entry| leaf.parse(&entry.name)) {
            if part == Part::Data {
                let known = last.entry(object).or_default();
                *known = chunk.max(*known);
            }
        }
        Ok(last)
    }

    /// The length of an object whose last chunk this is; 0 for one that was removed meanwhile.
    fn length_to(&self, object: ObjectId, chunk: u64) -> Result<u64, Fault> {
        let path = names::path(object, chunk, Part::Data);
        let length = self.disk.open(&path, Open::ReadOnly).and_then(|file| file.length());
        match length {
            Ok(length) => Ok(chunk.saturating_mul(self.chunk_bytes).saturating_add(length)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(self.read_fault(&path, &error)),
        }
    }
}

/// What all directories have, by those that were looked at: objects are spread over them by a hash.
fn estimate(bytes: u64, looked_at: u64, all: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(all.max(1)) / u128::from(looked_at.max(1));
    if looked_at == 0 { bytes } else { u64::try_from(scaled).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::estimate;

    #[test]
    fn directories_that_were_not_looked_at_have_as_much_as_those_that_were() {
        assert_eq!((estimate(600, 6, 64), estimate(600, 64, 64), estimate(0, 0, 0)), (6400, 600, 0));
        assert_eq!(estimate(u64::MAX, 1, 64), u64::MAX);
    }
}
