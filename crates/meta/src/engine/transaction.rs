//! The optimistic transaction both engines share: remembers what was read, keeps what was written.

use super::{
    Commit, EngineError, EngineResult, KEY_BYTES_MAX, Pair, Position, TRANSACTION_BYTES_MAX, Transaction,
    VALUE_BYTES_MAX,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Writes of a transaction: `None` removes.
pub(crate) type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What an engine has to offer to get transactions.
pub(crate) trait Store {
    /// Number of the last commit.
    fn position(&self) -> Position;
    /// The present value of a key.
    fn read(&self, key: &[u8]) -> EngineResult<Option<Vec<u8>>>;
    /// Gives the present pairs in `[start, end)` to `take`, in key order, until it says false.
    fn read_range(
        &self,
        start: &[u8],
        end: &[u8],
        take: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> EngineResult<()>;
    /// True while further changes have to wait until this has caught up with earlier ones.
    fn is_far_behind(&self) -> EngineResult<bool> {
        Ok(false)
    }
    /// Blocks while it is far behind.
    #[cfg(test)]
    fn catch_up(&self) -> EngineResult<()> {
        Ok(())
    }
    /// Applies the writes unless a commit after `reads.started` wrote what `reads` holds. Never waits for a disk.
    fn apply(&self, reads: &ReadSet, writes: Writes) -> EngineResult<Commit>;
}

/// What a transaction has seen, and since when.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// The last commit when the transaction began.
    pub(crate) started: Position,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ReadSet {
    fn add_key(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Keys that were read, there or not.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let key = &self.bytes[start..end];
            start = end;
            key
        })
    }

    /// Ranges `[start, end)` that were read.
    pub(crate) fn ranges(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.ranges
    }

    /// True when `key` was read.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.keys().any(|k| k == key)
            || self.ranges.iter().any(|(start, end)| start.as_slice() <= key && key < end.as_slice())
    }
}

/// A transaction over any [`Store`].
pub(crate) struct Optimistic<'a, S> {
    store: &'a S,
    reads: ReadSet,
    writes: Writes,
}

impl<'a, S: Store> Optimistic<'a, S> {
    pub(crate) fn begin(store: &'a S) -> Optimistic<'a, S> {
        let reads = ReadSet { started: store.position(), ..ReadSet::default() };
        Optimistic { store, reads, writes: Writes::new() }
    }

    /// Gives up to `limit` pairs of the store to `take`, and notes what was read; returns how many they were.
    fn read_store(
        &mut self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        take: &mut dyn FnMut(&[u8], &[u8]),
    ) -> EngineResult<usize> {
        let (mut count, mut last) = (0, Vec::new());
        self.store.read_range(start, end, &mut |key, value| {
            take(key, value);
            last.clear();
            last.extend_from_slice(key);
            count += 1;
            count < limit
        })?;
        let seen_to = match count == limit {
            true => [last.as_slice(), &[0]].concat(),
            false => end.to_vec(),
        };
        self.reads.ranges.push((start.to_vec(), seen_to));
        Ok(count)
    }

    /// The transaction's own writes within `[start, end)`.
    fn own(&self, start: &[u8], end: &[u8]) -> Vec<(&[u8], Option<&[u8]>)> {
        if start >= end || self.writes.is_empty() {
            return Vec::new();
        }
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        self.writes.range::<[u8], _>(bounds).map(|(k, v)| (k.as_slice(), v.as_deref())).collect()
    }
}

/// `base` with `own` on top, in key order, at most `limit` pairs.
fn merge(base: Vec<Pair>, own: &[(&[u8], Option<&[u8]>)], limit: usize) -> Vec<Pair> {
    let mut merged: Vec<Pair> = Vec::with_capacity(base.len() + own.len());
    let mut own = own.iter().peekable();
    for pair in base {
        while let Some((key, value)) = own.next_if(|(key, _)| *key < pair.0.as_slice()) {
            merged.extend(value.map(|value| (key.to_vec(), value.to_vec())));
        }
        match own.next_if(|(key, _)| *key == pair.0.as_slice()) {
            Some((_, value)) => merged.extend(value.map(|value| (pair.0, value.to_vec()))),
            None => merged.push(pair),
        }
    }
    merged.extend(own.filter_map(|(key, value)| value.map(|value| (key.to_vec(), value.to_vec()))));
    merged.truncate(limit);
    merged
}

impl<S: Store> Transaction for Optimistic<'_, S> {
    fn get(&mut self, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        if let Some(own) = self.writes.get(key) {
            return Ok(own.clone());
        }
        self.reads.add_key(key);
        self.store.read(key)
    }

    fn visit_keys(&mut self, keys: &[Vec<u8>], take: &mut dyn FnMut(usize, &[u8])) -> EngineResult<()> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(()) };
        debug_assert!(self.writes.is_empty(), "own writes are not looked at");
        keys.iter().for_each(|key| self.reads.add_key(key));
        let mut next = 0;
        self.store.read_range(first, &[last, [0].as_slice()].concat(), &mut |key, value| {
            next += keys[next..].iter().take_while(|wanted| wanted.as_slice() < key).count();
            if keys.get(next).is_some_and(|wanted| wanted == key) {
                take(next, value);
                next += 1;
            }
            next < keys.len()
        })
    }

    fn scan(&mut self, start: &[u8], end: &[u8], limit: usize) -> EngineResult<Vec<Pair>> {
        if start >= end || limit == 0 {
            return Ok(Vec::new());
        }
        // Each own write can hide at most one pair of the store.
        let wanted = limit.saturating_add(self.own(start, end).len());
        let mut base = Vec::new();
        self.read_store(start, end, wanted, &mut |key, value| base.push((key.to_vec(), value.to_vec())))?;
        Ok(merge(base, &self.own(start, end), limit))
    }

    fn visit(
        &mut self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        take: &mut dyn FnMut(&[u8], &[u8]),
    ) -> EngineResult<usize> {
        if start >= end || limit == 0 {
            return Ok(0);
        }
        if self.own(start, end).is_empty() {
            return self.read_store(start, end, limit, take);
        }
        let pairs = self.scan(start, end, limit)?;
        pairs.iter().for_each(|(key, value)| take(key, value));
        Ok(pairs.len())
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.writes.insert(key, Some(value));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.writes.insert(key, None);
    }

    fn discard_writes(&mut self) {
        self.writes.clear();
    }

    #[cfg(test)]
    fn commit(self: Box<Self>) -> EngineResult<Commit> {
        check_limits(&self.writes)?;
        if !self.writes.is_empty() {
            self.store.catch_up()?;
        }
        self.store.apply(&self.reads, self.writes)
    }

    fn commit_unless_behind(self: Box<Self>) -> EngineResult<Option<Commit>> {
        check_limits(&self.writes)?;
        if !self.writes.is_empty() && self.store.is_far_behind()? {
            return Ok(None);
        }
        self.store.apply(&self.reads, self.writes).map(Some)
    }
}

fn check_limits(writes: &Writes) -> EngineResult<()> {
    let mut total = 0;
    for (key, value) in writes {
        let value_bytes = value.as_ref().map_or(0, Vec::len);
        if key.len() > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
            let text = format!("a key of {} bytes with a value of {value_bytes}", key.len());
            return Err(EngineError::TooLarge(text));
        }
        total += key.len() + value_bytes;
    }
    if total > TRANSACTION_BYTES_MAX {
        return Err(EngineError::TooLarge(format!("a transaction of {total} bytes")));
    }
    Ok(())
}
