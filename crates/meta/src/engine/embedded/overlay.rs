//! Changes that are not yet in the checkpoint, in memory and in key order.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::super::Position;
use super::super::transaction::Writes;

/// What an entry costs besides its bytes: its slot in a tree node that is three quarters full, and two allocations.
const ENTRY_COST_BYTES: usize = 100;

/// The last change of a key.
#[derive(Debug)]
pub(super) struct Change {
    /// The commit that made it.
    pub(super) position: Position,
    /// `None`: removed.
    pub(super) value: Option<Box<[u8]>>,
}

/// Changed keys.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    changes: BTreeMap<Box<[u8]>, Change>,
    bytes: usize,
    last: Position,
}

impl Overlay {
    /// Bytes of memory, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of changed keys.
    pub(super) fn count(&self) -> usize {
        self.changes.len()
    }

    /// The last commit in it.
    pub(super) fn last(&self) -> Position {
        self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Applies one commit.
    pub(super) fn apply(&mut self, position: Position, writes: Writes) {
        self.last = position;
        for (key, value) in writes {
            let value = value.map(Vec::into_boxed_slice);
            let (key_bytes, value_bytes) = (key.len(), value.as_ref().map_or(0, |v| v.len()));
            match self.changes.insert(key.into_boxed_slice(), Change { position, value }) {
                Some(old) => self.bytes -= old.value.map_or(0, |v| v.len()),
                None => self.bytes += key_bytes + ENTRY_COST_BYTES,
            }
            self.bytes += value_bytes;
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Change> {
        self.changes.get(key)
    }

    /// Changes of `start <= key < end`, which must not be the wrong way round.
    pub(super) fn range<'a>(
        &'a self,
        start: &[u8],
        end: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Change)> + use<'a> {
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        self.changes.range::<[u8], _>(bounds).map(|(key, change)| (&**key, change))
    }

    /// All changes in key order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.changes.iter().map(|(key, change)| (&**key, change.value.as_deref()))
    }
}

/// Changes of one layer in key order.
pub(super) type Layer<'a> = Box<dyn Iterator<Item = (&'a [u8], &'a Change)> + 'a>;

/// What is done with a key, which has no value when it was removed. It says whether to go on.
pub(super) type Take<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> bool + 'a;

/// A pair of an older layer.
pub(super) trait Older {
    fn key(&self) -> &[u8];
    fn value(&self) -> &[u8];
}

/// Merges changes over older pairs, both in key order, and gives the keys to `take` until it says false. Removed keys
/// come without a value. `changes` are the layers, newest first; of equal keys the newest layer's counts.
pub(super) fn merge<'a, P: Older, E>(
    mut changes: Vec<Layer<'a>>,
    mut base: impl Iterator<Item = Result<P, E>>,
    take: &mut Take<'_>,
) -> Result<(), E> {
    let mut heads: Vec<Option<(&[u8], &Change)>> = changes.iter_mut().map(Iterator::next).collect();
    let mut base_head = base.next().transpose()?;
    loop {
        let newest = heads.iter().flatten().map(|(key, _)| *key).min();
        let older = base_head.as_ref().filter(|older| newest.is_none_or(|newest| older.key() < newest));
        if let Some(older) = older {
            if !take(older.key(), Some(older.value())) {
                return Ok(());
            }
            base_head = base.next().transpose()?;
            continue;
        }
        let Some(key) = newest else { return Ok(()) };
        let mut winner = None;
        for (head, layer) in heads.iter_mut().zip(&mut changes) {
            if head.is_some_and(|(head_key, _)| head_key == key) {
                winner = winner.or(head.map(|(_, change)| change));
                *head = layer.next();
            }
        }
        if base_head.as_ref().is_some_and(|older| older.key() == key) {
            base_head = base.next().transpose()?;
        }
        if let Some(change) = winner
            && !take(key, change.value.as_deref())
        {
            return Ok(());
        }
    }
}
