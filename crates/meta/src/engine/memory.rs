//! The engine that forgets: one ordered map, for tests, simulation and throw-away clusters.
//!
//! Conflicts are found by comparing what was read with the keys of the last [`RECENT_COMMITS_MAX`] commits; a
//! transaction that began before those is refused.

use super::transaction::{Optimistic, ReadSet, Store, Writes};
use super::{Commit, Engine, EngineResult, Figures, Notice, Position, Transaction};
use parking_lot::{RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// Commits whose keys are remembered: more than are ever made while one transaction is open.
const RECENT_COMMITS_MAX: usize = 1024;

#[derive(Default)]
struct State {
    position: Position,
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    recent: VecDeque<(Position, Vec<Vec<u8>>)>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct MemoryEngine {
    state: RwLock<State>,
}

impl MemoryEngine {
    /// An engine that holds `initial`.
    pub(crate) fn holding(initial: Writes) -> MemoryEngine {
        let map = initial.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        MemoryEngine { state: RwLock::new(State { map, ..State::default() }) }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }
}

impl State {
    fn is_stale(&self, reads: &ReadSet) -> bool {
        if self.position == reads.started {
            return false;
        }
        let oldest = self.recent.front().map_or(self.position, |(position, _)| *position);
        oldest > reads.started + 1
            || self
                .recent
                .iter()
                .rev()
                .take_while(|(position, _)| *position > reads.started)
                .any(|(_, keys)| keys.iter().any(|key| reads.covers(key)))
    }
}

impl Store for MemoryEngine {
    fn position(&self) -> Position {
        self.state().position
    }

    fn read(&self, key: &[u8]) -> EngineResult<Option<Vec<u8>>> {
        Ok(self.state().map.get(key).cloned())
    }

    fn read_range(
        &self,
        start: &[u8],
        end: &[u8],
        take: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> EngineResult<()> {
        let state = self.state();
        let mut range = state.map.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
        // Until one is enough.
        range.all(|(key, value)| take(key, value));
        Ok(())
    }

    fn apply(&self, reads: &ReadSet, writes: Writes) -> EngineResult<Commit> {
        let mut state = self.state.write();
        if state.is_stale(reads) {
            return Ok(Commit::Conflict);
        }
        if writes.is_empty() {
            return Ok(Commit::Done(state.position));
        }
        state.position += 1;
        let position = state.position;
        state.recent.push_back((position, writes.keys().cloned().collect()));
        if state.recent.len() > RECENT_COMMITS_MAX {
            state.recent.pop_front();
        }
        for (key, value) in writes {
            match value {
                Some(value) => state.map.insert(key, value),
                None => state.map.remove(&key),
            };
        }
        Ok(Commit::Done(position))
    }
}

impl Engine for MemoryEngine {
    fn begin(&self) -> Box<dyn Transaction + '_> {
        Box::new(Optimistic::begin(self))
    }

    fn flush(&self) -> EngineResult<()> {
        Ok(())
    }

    fn sync(&self) -> EngineResult<()> {
        Ok(())
    }

    fn when_durable(&self, _position: Position, notice: Notice) {
        notice(Ok(()));
    }

    fn maintain(&self) -> EngineResult<()> {
        Ok(())
    }

    fn close(&self) -> EngineResult<()> {
        Ok(())
    }

    fn figures(&self) -> Figures {
        let position = self.position();
        Figures { position, durable: position, ..Figures::default() }
    }
}
