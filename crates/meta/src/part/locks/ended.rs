//! Locks of sessions that have ended, as far as no other session has had them since.
//!
//! A client that was cut off for too long names its locks in a new session. It gets back those that are here: no
//! other client can have changed what they protect. Of the others it is told, also where they are free again.

use super::{Owner, Place, Wish};
use std::collections::{HashMap, VecDeque};
use vazao_model::SessionId;
use vazao_model::limits::LOCKS_OF_SESSION_MAX;
use vazao_model::locks::{HeldLock, LockMode};

/// So many are kept; beyond, those of the session that ended first are forgotten, whose client is told that they are
/// lost. Clients that end without a word leave theirs behind.
const KEPT_MAX: usize = 8 * LOCKS_OF_SESSION_MAX;

/// And of so many sessions: others may have got all that one of them had.
const SESSIONS_MAX: usize = 10_000;

/// What is kept.
#[derive(Default)]
pub(super) struct EndedLocks {
    /// In the order in which sessions ended.
    sessions: VecDeque<SessionId>,
    of_place: HashMap<Place, Vec<HeldLock<Owner>>>,
    count: usize,
}

fn is_conflict(a: &HeldLock<Owner>, b: &HeldLock<Owner>) -> bool {
    let are_shared = a.mode == LockMode::Shared && b.mode == LockMode::Shared;
    !are_shared && a.range.first <= b.range.last && b.range.first <= a.range.last
}

impl EndedLocks {
    /// A session ends that has these locks.
    pub(super) fn keep(
        &mut self,
        session: SessionId,
        locks: impl IntoIterator<Item = (Place, HeldLock<Owner>)>,
    ) {
        let before = self.count;
        for (place, held) in locks {
            self.of_place.entry(place).or_default().push(held);
            self.count += 1;
        }
        if self.count > before {
            self.sessions.push_back(session);
        }
        while (self.count > KEPT_MAX || self.sessions.len() > SESSIONS_MAX)
            && let Some(oldest) = self.sessions.pop_front()
        {
            self.remove(|_, held| held.owner.session == oldest);
        }
    }

    /// Another session has got a lock.
    pub(super) fn granted(&mut self, wish: &Wish) {
        let Wish { place, owner, range, mode: Some(mode), .. } = *wish else { return };
        let Some(kept) = self.of_place.get_mut(&place) else { return };
        let before = kept.len();
        kept.retain(|held| !is_conflict(held, &HeldLock { owner, range, mode }));
        self.count -= before - kept.len();
        if kept.is_empty() {
            self.of_place.remove(&place);
        }
    }

    /// Takes away what is left of a session's locks.
    pub(super) fn take(&mut self, session: SessionId) -> Vec<(Place, HeldLock<Owner>)> {
        self.sessions.retain(|ended| *ended != session);
        let mut taken = Vec::new();
        self.remove(|place, held| {
            let is_taken = held.owner.session == session;
            taken.extend(is_taken.then_some((place, *held)));
            is_taken
        });
        taken
    }

    /// Of how many sessions something is kept, or was.
    #[cfg(test)]
    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn remove(&mut self, mut is_removed: impl FnMut(Place, &HeldLock<Owner>) -> bool) {
        self.of_place.retain(|place, kept| {
            let before = kept.len();
            kept.retain(|held| !is_removed(*place, held));
            self.count -= before - kept.len();
            !kept.is_empty()
        });
    }
}
