//! Locks between clients: flock(2) and fcntl(2), in memory only.
//!
//! - Clients know their own locks too. After a restart of the service the sessions that had locks reclaim them.
//! - Session records list the locked files. Until a session has reclaimed its locks or has ended, no other session
//!   gets a lock on these files.
//! - A client whose session ended takes back, in a new one, the locks that no other has had since.
//! - A lock that is not free may be waited for in a queue. When it becomes free its first waiter holds it at once,
//!   and is notified.
//! - Deadlock detection: a request that would close a cycle of waiting processes is refused, as fcntl(2) has it.

mod ended;
#[cfg(test)]
mod tests;

use ended::EndedLocks;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use vazao_model::limits::{LOCKS_MAX, LOCKS_OF_SESSION_MAX, SESSION_LEASE_MS};
use vazao_model::locks::{HeldLock, LockKind, LockMode, LockRange, RangeLocks};
use vazao_model::{InodeId, SessionId};

/// A file, and which kind of its locks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) inode: InodeId,
    pub(crate) kind: LockKind,
}

/// A process, or an open file, of one client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Owner {
    pub(crate) session: SessionId,
    pub(crate) number: u64,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) place: Place,
    pub(crate) owner: Owner,
    pub(crate) range: LockRange,
    /// `None` lets go.
    pub(crate) mode: Option<LockMode>,
    /// Process, for people.
    pub(crate) process: u32,
    /// Waits in the queue under this number of the session's; 0: does not wait.
    pub(crate) waiter: u64,
}

/// How that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Granted,
    Waits,
    /// Another owner has it.
    Taken,
    /// Waiting would close a circle.
    Deadlock,
    TooMany,
    /// Sessions from before the restart have not yet said what they hold.
    TooEarly,
}

/// A waiter that has got its lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) session: SessionId,
    pub(crate) inode: InodeId,
    pub(crate) waiter: u64,
}

/// Files on which a session may have locks, as its record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Marks {
    /// Any.
    All,
    /// These.
    Files(HashSet<InodeId>),
}

impl Marks {
    fn covers(&self, inode: InodeId) -> bool {
        match self {
            Marks::All => true,
            Marks::Files(inodes) => inodes.contains(&inode),
        }
    }
}

#[derive(Default)]
struct File {
    locks: RangeLocks<Owner>,
    waiting: VecDeque<Wish>,
    /// Processes of those who hold locks, for people.
    processes: HashMap<Owner, u32>,
}

#[derive(Default)]
struct State {
    files: HashMap<Place, File>,
    /// Locks and waiters of each session.
    counts: HashMap<SessionId, usize>,
    total: usize,
    /// What the records of sessions say.
    marks: HashMap<SessionId, Marks>,
    /// Sessions with marks that have not spoken since the restart, and until when that is waited for.
    missing: HashSet<SessionId>,
    missing_until_ns: u64,
    ended: EndedLocks,
}

/// All locks.
#[derive(Default)]
pub(crate) struct Locks {
    state: Mutex<State>,
    /// Held while a session's record and its marks here are changed, so that both say the same. Taken before `state`.
    marking: Mutex<()>,
}

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The service has started; these sessions may have had locks before.
    pub(crate) fn await_sessions(&self, sessions: Vec<(SessionId, Marks)>, now_ns: u64) {
        let mut state = self.state();
        state.missing = sessions.iter().map(|(session, _)| *session).collect();
        state.marks = sessions.into_iter().collect();
        state.missing_until_ns = now_ns + u64::from(SESSION_LEASE_MS) * 1_000_000;
    }

    /// True when the session's record says that it may have locks on the file.
    pub(crate) fn is_marked(&self, session: SessionId, inode: InodeId) -> bool {
        self.state().marks.get(&session).is_some_and(|marks| marks.covers(inode))
    }

    /// One session's record is changed at a time.
    pub(crate) fn begin_marking(&self) -> MutexGuard<'_, ()> {
        self.marking.lock()
    }

    /// The session's record says so now.
    pub(crate) fn mark(&self, session: SessionId, marks: Marks) {
        self.state().marks.insert(session, marks);
    }

    /// Files on which the session has locks, or waits for one. `None`: not known, as it has yet to take back its locks
    /// after a restart.
    pub(crate) fn files_of(&self, session: SessionId) -> Option<HashSet<InodeId>> {
        let state = self.state();
        let has = |(place, file): (&Place, &File)| (file.count(session) > 0).then_some(place.inode);
        let is_known = !state.missing.contains(&session);
        is_known.then(|| state.files.iter().filter_map(has).collect())
    }

    /// Locks and waiters of a session.
    pub(crate) fn count_of(&self, session: SessionId) -> usize {
        self.state().counts.get(&session).copied().unwrap_or(0)
    }

    /// Who holds a lock that others wait for.
    pub(crate) fn holder_in_the_way(&self, place: Place) -> Option<SessionId> {
        let state = self.state();
        let first = *state.files.get(&place)?.waiting.front()?;
        state.in_the_way(&first).first().map(|holder| holder.session)
    }

    /// Locks, lets go, or waits. Others that get a lock by it are returned.
    pub(crate) fn set(&self, wish: Wish, now_ns: u64) -> (Verdict, Vec<Grant>) {
        let mut state = self.state();
        if wish.mode.is_some() && state.is_early(wish.place.inode, now_ns) {
            return (Verdict::TooEarly, Vec::new());
        }
        state.set(wish)
    }

    /// What stands against a wish: of several locks the one that begins lowest, and the process that holds it as its
    /// client knows it.
    pub(crate) fn test(&self, wish: &Wish) -> Option<(HeldLock<Owner>, u32)> {
        let state = self.state();
        let file = state.files.get(&wish.place)?;
        let conflicts = file.locks.conflicts(wish.owner, wish.range, wish.mode?);
        let held = *conflicts.min_by_key(|held| held.range.first)?;
        Some((held, file.processes.get(&held.owner).copied().unwrap_or(0)))
    }

    /// A waiter gives up; false when it does not wait (any more): it may have got the lock.
    pub(crate) fn cancel(&self, place: Place, session: SessionId, waiter: u64) -> bool {
        let mut state = self.state();
        let mut was_waiting = false;
        state.change(place, session, |file| {
            let before = file.waiting.len();
            file.waiting.retain(|wish| wish.owner.session != session || wish.waiter != waiter);
            was_waiting = file.waiting.len() != before;
        });
        was_waiting
    }

    /// A session says what it holds: all of it, nothing else. `former`: the session of the same client that had them
    /// last, if that was another one. Those that others have, or have had since, are not given back; their positions
    /// in the list are returned, and who gets what it did not name.
    pub(crate) fn reclaim(
        &self,
        session: SessionId,
        former: Option<SessionId>,
        wishes: &[Wish],
    ) -> (Vec<u32>, Vec<Grant>) {
        let mut state = self.state();
        state.missing.remove(&session);
        let kept = former.map(|former| {
            let mut kept = state.ended.take(former);
            // Its record is gone, and its locks are about to be freed.
            kept.extend(state.held_by(former));
            kept.extend(state.held_by(session));
            state.drop_all(former, true);
            kept.into_iter()
                .map(|(place, held)| (place, held.owner.number, held.range, held.mode))
                .collect::<HashSet<_>>()
        });
        state.drop_all(session, false);
        let mut lost = Vec::new();
        for (wish, number) in wishes.iter().zip(0..) {
            let wish = Wish { waiter: 0, ..*wish };
            let is_kept = kept.as_ref().is_none_or(|kept| {
                let same = wish.mode.map(|mode| (wish.place, wish.owner.number, wish.range, mode));
                same.is_some_and(|same| kept.contains(&same))
            });
            if !is_kept || state.set(wish).0 != Verdict::Granted {
                lost.push(number);
            }
        }
        let grants = state.grant_all();
        (lost, grants)
    }

    /// A session has ended.
    pub(crate) fn end(&self, session: SessionId) -> Vec<Grant> {
        let mut state = self.state();
        state.missing.remove(&session);
        state.marks.remove(&session);
        if !state.counts.contains_key(&session) {
            return Vec::new();
        }
        let held = state.held_by(session);
        state.ended.keep(session, held);
        state.drop_all(session, true);
        state.grant_all()
    }

    /// Number of locks and of waiters.
    pub(crate) fn count(&self) -> usize {
        self.state().total
    }
}

impl State {
    /// Others may still take back what they had of the file.
    fn is_early(&mut self, inode: InodeId, now_ns: u64) -> bool {
        if !self.missing.is_empty() && now_ns >= self.missing_until_ns {
            tracing::warn!(
                sessions = self.missing.len(),
                "locks of sessions that did not come back are free"
            );
            self.missing.clear();
        }
        let may_have = |session| self.marks.get(session).is_some_and(|marks| marks.covers(inode));
        self.missing.iter().any(may_have)
    }

    fn set(&mut self, wish: Wish) -> (Verdict, Vec<Grant>) {
        if let Some(verdict) = wish.mode.and_then(|mode| self.objection(&wish, mode)) {
            return (verdict, Vec::new());
        }
        self.ended.granted(&wish);
        self.change(wish.place, wish.owner.session, |file| {
            file.waiting.retain(|other| !is_same_waiter(other, &wish));
            file.hold(&wish);
        });
        let frees = wish.mode != Some(LockMode::Exclusive);
        let grants = if frees { self.grant(wish.place) } else { Vec::new() };
        (Verdict::Granted, grants)
    }

    /// Why a wish cannot be granted now; if it is to wait, it does so from now on.
    fn objection(&mut self, wish: &Wish, mode: LockMode) -> Option<Verdict> {
        let file = self.files.get(&wish.place);
        let is_taken = file.is_some_and(|f| f.locks.conflicts(wish.owner, wish.range, mode).next().is_some());
        let was_waiting = file.is_some_and(|file| file.waiting.iter().any(|w| is_same_waiter(w, wish)));
        if is_taken && was_waiting {
            return Some(Verdict::Waits);
        }
        if is_taken && wish.waiter == 0 {
            return Some(Verdict::Taken);
        }
        if is_taken && self.closes_a_circle(wish) {
            return Some(Verdict::Deadlock);
        }
        let own = self.counts.get(&wish.owner.session).copied().unwrap_or(0);
        if self.total >= LOCKS_MAX || own >= LOCKS_OF_SESSION_MAX {
            return Some(Verdict::TooMany);
        }
        if !is_taken {
            return None;
        }
        self.change(wish.place, wish.owner.session, |file| file.waiting.push_back(*wish));
        Some(Verdict::Waits)
    }

    /// True when one of those that stand in the way waits, itself or through others, for the one that wishes. Those who
    /// wait for flock(2) are left to it, as everywhere.
    fn closes_a_circle(&self, wish: &Wish) -> bool {
        if wish.place.kind != LockKind::Range {
            return false;
        }
        let (mut seen, mut next) = (HashSet::new(), vec![*wish]);
        while let Some(blocked) = next.pop() {
            for holder in self.in_the_way(&blocked) {
                if holder == wish.owner {
                    return true;
                }
                if seen.insert(holder) {
                    let files = self.files.iter().filter(|(place, _)| place.kind == LockKind::Range);
                    let waiting = files.flat_map(|(_, file)| &file.waiting);
                    next.extend(waiting.filter(|waits| waits.owner == holder));
                }
            }
        }
        false
    }

    fn in_the_way(&self, wish: &Wish) -> Vec<Owner> {
        let (Some(file), Some(mode)) = (self.files.get(&wish.place), wish.mode) else { return Vec::new() };
        file.locks.conflicts(wish.owner, wish.range, mode).map(|held| held.owner).collect()
    }

    /// Changes a file's locks and waiters of one session, and keeps count.
    fn change(&mut self, place: Place, session: SessionId, work: impl FnOnce(&mut File)) {
        let file = self.files.entry(place).or_default();
        let before = file.count(session);
        work(file);
        let after = file.count(session);
        if file.locks.is_empty() && file.waiting.is_empty() {
            self.files.remove(&place);
        }
        self.total = self.total + after - before;
        let count = self.counts.entry(session).or_default();
        *count = *count + after - before;
        if *count == 0 {
            self.counts.remove(&session);
        }
    }

    /// Gives waiters what is free, in the order in which they came.
    fn grant(&mut self, place: Place) -> Vec<Grant> {
        let waiting: Vec<Wish> =
            self.files.get(&place).map(|file| file.waiting.iter().copied().collect()).unwrap_or_default();
        let mut grants = Vec::new();
        for wish in waiting {
            if !self.in_the_way(&wish).is_empty() {
                continue;
            }
            let Owner { session, .. } = wish.owner;
            self.ended.granted(&wish);
            self.change(place, session, |file| {
                file.waiting.retain(|other| !is_same_waiter(other, &wish));
                file.hold(&wish);
            });
            grants.push(Grant { session, inode: place.inode, waiter: wish.waiter });
        }
        grants
    }

    fn grant_all(&mut self) -> Vec<Grant> {
        let waited = self.files.iter().filter(|(_, file)| !file.waiting.is_empty());
        let places: Vec<Place> = waited.map(|(place, _)| *place).collect();
        places.into_iter().flat_map(|place| self.grant(place)).collect()
    }

    fn held_by(&self, session: SessionId) -> Vec<(Place, HeldLock<Owner>)> {
        let of_file = |(&place, file): (&Place, &File)| {
            let held = file.locks.iter().filter(|held| held.owner.session == session);
            held.map(|held| (place, *held)).collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of_file).collect()
    }

    /// Lets go of all locks of a session, and, with `waiters`, of its places in queues.
    fn drop_all(&mut self, session: SessionId, waiters: bool) {
        let concerned = self.files.iter().filter(|(_, file)| file.count(session) > 0);
        let places: Vec<Place> = concerned.map(|(place, _)| *place).collect();
        for place in places {
            self.change(place, session, |file| {
                file.locks.remove(|owner| owner.session == session);
                file.processes.retain(|owner, _| owner.session != session);
                file.waiting.retain(|wish| !waiters || wish.owner.session != session);
            });
        }
    }
}

impl File {
    fn hold(&mut self, wish: &Wish) {
        self.locks.set(wish.owner, wish.range, wish.mode);
        if !self.locks.iter().any(|held| held.owner == wish.owner) {
            self.processes.remove(&wish.owner);
        } else if wish.mode.is_some() {
            // Who lets go of a part does not say who it is, and keeps the rest.
            self.processes.insert(wish.owner, wish.process);
        }
    }

    /// Locks and waiters of a session.
    fn count(&self, session: SessionId) -> usize {
        self.locks.iter().filter(|held| held.owner.session == session).count()
            + self.waiting.iter().filter(|wish| wish.owner.session == session).count()
    }
}

fn is_same_waiter(a: &Wish, b: &Wish) -> bool {
    b.waiter != 0 && a.waiter == b.waiter && a.owner.session == b.owner.session
}
