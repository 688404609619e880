//! Table of opens: which files a session may have open.
//!
//! - Opens come as requests, closes do not. Each open is noted here before its answer leaves.
//! - Each renewal of a session lists what it still has open: "of all that was noted before the answer with round q,
//!   these". Rounds make delayed, repeated and reordered renewals safe: the list for a round stays true, because a
//!   file noted before it and closed is not opened again without a new note.
//! - The table errs to one side: a session of which nothing is known may have any file open. That is so before its
//!   first complete renewal, after too many opens to note, and for two or three renewals after a restart of the
//!   service.
//! - A removal looks its inode up ([`Table::holders`]), and walks no sessions but those of which nothing is known.
//! - A session is in the table for as long as its record is there: it is entered before, and leaves after it.
//! - Race: an open between a removal's look at this table and its commit would be lost. Opens and removals therefore
//!   exclude each other by locks on shares of the inodes (`InodeGuard`).
//! - Lock order: `turns`, `table`.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_model::{InodeId, SessionId};

/// Opens noted of one session; with more, nothing is known of it for a while (fallback). A fast client makes fewer
/// between three renewals, and they take a few megabytes.
const NOTED_MAX: usize = 1 << 18;

/// Shares of the inodes: more than there are threads that could contend for one.
const TURNS: usize = 256;

/// Rounds of one start of the service; the starts count above them.
const ROUND_BITS: u32 = 40;

/// Outdated notes that are dropped with each new one, and with each list. A list may outdate hundreds of thousands of
/// them, and no request waits while they are all looked up.
const DROPPED_WITH_NOTE: usize = 2;
const DROPPED_WITH_LIST: usize = 4096;

/// The opens of one session.
#[derive(Default)]
struct Session {
    /// Everything since this round is noted; `None`: since the next one.
    complete_since: Option<u64>,
    /// The round of its last list; 0: none since then. Notes from before it are outdated.
    covered: u64,
    /// The last round that it was answered with.
    round: u64,
    /// What its last list has open.
    listed: HashSet<u64>,
    /// Opens noted, each with the round before the last one.
    noted: HashMap<u64, u64>,
    /// The notes in their order, also those that were replaced by later ones.
    order: VecDeque<(u64, u64)>,
}

impl Session {
    fn has(&self, inode: u64) -> bool {
        self.listed.contains(&inode) || self.noted.contains_key(&inode)
    }

    fn may_hold(&self, inode: u64) -> bool {
        self.listed.contains(&inode) || self.noted.get(&inode).is_some_and(|&round| round >= self.covered)
    }

    /// Drops the oldest notes that are outdated, up to `count`, and tells `dropped` of inodes that are in no list
    /// either.
    fn drop_outdated(&mut self, count: usize, mut dropped: impl FnMut(u64)) {
        for _ in 0..count {
            let Some((inode, round)) = self.order.pop_front_if(|(_, round)| *round < self.covered) else {
                return;
            };
            if self.noted.get(&inode) == Some(&round) {
                self.noted.remove(&inode);
                if !self.listed.contains(&inode) {
                    dropped(inode);
                }
            }
        }
    }
}

/// The opens of all sessions, by session and by inode.
#[derive(Default)]
struct Table {
    sessions: HashMap<SessionId, Session>,
    /// Sessions that may have anything open.
    unknown: BTreeSet<SessionId>,
    /// By inode, the sessions that have listed or noted it, perhaps in a note that is outdated.
    holders: HashMap<u64, Vec<SessionId>>,
}

impl Table {
    fn enter(&mut self, id: SessionId) -> &mut Session {
        if !self.sessions.contains_key(&id) {
            self.unknown.insert(id);
        }
        self.sessions.entry(id).or_default()
    }

    fn note(&mut self, id: SessionId, inode: u64) {
        let Table { sessions, holders, .. } = self;
        let Some(session) = sessions.get_mut(&id).filter(|session| session.complete_since.is_some()) else {
            return;
        };
        if !session.has(inode) {
            holders.entry(inode).or_default().push(id);
        }
        if session.noted.insert(inode, session.round) != Some(session.round) {
            session.order.push_back((inode, session.round));
        }
        session.drop_outdated(DROPPED_WITH_NOTE, |inode| end_holding(holders, inode, id));
        if session.order.len() > NOTED_MAX {
            self.forget(id);
        }
    }

    /// Takes over a list of what a session has open, of all that was noted before the round `covers`.
    fn take_list(&mut self, id: SessionId, covers: u64, open: &[u64]) {
        let Table { sessions, unknown, holders } = self;
        let Some(session) = sessions.get_mut(&id) else { return };
        let is_complete = session.complete_since.is_some_and(|since| covers >= since);
        if !is_complete || covers <= session.covered {
            return;
        }
        session.covered = covers;
        let listed: HashSet<u64> = open.iter().copied().collect();
        for &inode in listed.iter().filter(|&&inode| !session.has(inode)) {
            holders.entry(inode).or_default().push(id);
        }
        let before = std::mem::replace(&mut session.listed, listed);
        for inode in before.into_iter().filter(|&inode| !session.has(inode)) {
            end_holding(holders, inode, id);
        }
        session.drop_outdated(DROPPED_WITH_LIST, |inode| end_holding(holders, inode, id));
        unknown.remove(&id);
    }

    fn begin_round(&mut self, id: SessionId, round: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.complete_since.get_or_insert(round);
            session.round = round;
        }
    }

    /// Drops all that is known of a session, which has opened too much.
    fn forget(&mut self, id: SessionId) {
        self.leave(id);
        self.enter(id);
    }

    fn leave(&mut self, id: SessionId) {
        let session = self.sessions.remove(&id).unwrap_or_default();
        let inodes: HashSet<u64> = session.noted.into_keys().chain(session.listed).collect();
        inodes.into_iter().for_each(|inode| end_holding(&mut self.holders, inode, id));
        self.unknown.remove(&id);
    }

    /// Those of the sessions `all`, which are sorted, that may have the inode open: also those that were never entered.
    fn may_hold(&self, inode: u64, all: &[SessionId]) -> Vec<SessionId> {
        let holds = |id: &&SessionId| self.sessions.get(id).is_some_and(|session| session.may_hold(inode));
        let noted = self.holders.get(&inode).into_iter().flatten().filter(holds);
        let is_wanted = |id: &SessionId| all.binary_search(id).is_ok();
        let mut found: BTreeSet<SessionId> =
            self.unknown.iter().chain(noted).copied().filter(is_wanted).collect();
        if self.sessions.len() < all.len() {
            found.extend(all.iter().filter(|id| !self.sessions.contains_key(id)));
        }
        found.into_iter().collect()
    }
}

fn end_holding(holders: &mut HashMap<u64, Vec<SessionId>>, inode: u64, id: SessionId) {
    if let Some(of_inode) = holders.get_mut(&inode) {
        of_inode.retain(|&other| other != id);
        if of_inode.is_empty() {
            holders.remove(&inode);
        }
    }
}

/// The opens of all sessions.
pub(crate) struct Opens {
    table: Mutex<Table>,
    round: AtomicU64,
    turns: Box<[RwLock<()>]>,
}

/// Lock of a transaction on a share of the inodes, until it is dropped.
pub(crate) enum InodeGuard<'a> {
    /// Shared: of a transaction that opens.
    Opens { _turn: RwLockReadGuard<'a, ()> },
    /// Exclusive: of a transaction that ends an inode.
    Ends { _turn: RwLockWriteGuard<'a, ()> },
}

impl Opens {
    /// Nothing is known. `boot` counts the starts of the service.
    pub(crate) fn new(boot: u64) -> Opens {
        Opens {
            table: Mutex::default(),
            round: AtomicU64::new(boot << ROUND_BITS),
            turns: (0..TURNS).map(|_| RwLock::default()).collect(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    fn turn(&self, inode: InodeId) -> &RwLock<()> {
        &self.turns[(inode.0 % TURNS as u64) as usize]
    }

    /// Notes an open before the session's answer shows the file. The lock is to be held until that transaction is
    /// over.
    pub(crate) fn opens(&self, session: SessionId, inode: InodeId) -> InodeGuard<'_> {
        let turn = self.turn(inode).read();
        self.table().note(session, inode.0);
        InodeGuard::Opens { _turn: turn }
    }

    /// A session is about to begin: until it has said what it has open it may have anything.
    pub(crate) fn enter(&self, session: SessionId) {
        self.table().enter(session);
    }

    /// An inode is about to lose its last name: returns which of the sessions `all`, sorted, may have it open, true
    /// while the lock is held.
    pub(crate) fn ends(&self, inode: InodeId, all: &[SessionId]) -> (InodeGuard<'_>, Vec<SessionId>) {
        let turn = self.turn(inode).write();
        let holders = self.table().may_hold(inode.0, all);
        (InodeGuard::Ends { _turn: turn }, holders)
    }

    /// A renewal of a session with its list of opens: all of `open`, of what was noted before round `covers`. Returns
    /// the round to answer with.
    pub(crate) fn renewed(&self, session: SessionId, covers: u64, open: &[u64]) -> u64 {
        let mut table = self.table();
        let round = self.round.fetch_add(1, Ordering::SeqCst) + 1;
        table.enter(session);
        table.take_list(session, covers, open);
        table.begin_round(session, round);
        round
    }

    /// A session is over, and its record gone.
    pub(crate) fn leave(&self, session: SessionId) {
        self.table().leave(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(5);
    const FILE: InodeId = InodeId(77);

    fn may_hold(opens: &Opens, inode: InodeId) -> bool {
        !opens.ends(inode, &[SESSION]).1.is_empty()
    }

    fn open(opens: &Opens, inode: InodeId) {
        drop(opens.opens(SESSION, inode));
    }

    #[test]
    fn a_session_that_has_said_nothing_may_have_anything_open() {
        let opens = Opens::new(1);
        assert!(may_hold(&opens, FILE));
        let round = opens.renewed(SESSION, 0, &[]);
        assert!(may_hold(&opens, FILE), "what it opened before is not known");
        opens.renewed(SESSION, round, &[FILE.0]);
        assert!(may_hold(&opens, FILE));
        assert!(!may_hold(&opens, InodeId(78)), "it has said which ones it has");
    }

    #[test]
    fn what_is_opened_after_the_round_that_a_session_speaks_of_stays_noted() {
        let opens = Opens::new(1);
        let first = opens.renewed(SESSION, 0, &[]);
        open(&opens, FILE);
        let second = opens.renewed(SESSION, first, &[]);
        assert!(may_hold(&opens, FILE), "its answer may still be on the way");
        let third = opens.renewed(SESSION, first, &[]);
        assert!(may_hold(&opens, FILE), "a repetition says nothing new");
        opens.renewed(SESSION, second, &[]);
        assert!(!may_hold(&opens, FILE));
        opens.renewed(SESSION, third, &[]);
        opens.renewed(SESSION, first, &[FILE.0]);
        assert!(!may_hold(&opens, FILE), "an old statement that was overtaken");
    }

    #[test]
    fn an_old_statement_does_not_hide_what_a_newer_one_has_named() {
        let opens = Opens::new(1);
        let first = opens.renewed(SESSION, 0, &[]);
        open(&opens, FILE);
        let second = opens.renewed(SESSION, 0, &[]);
        opens.renewed(SESSION, second, &[FILE.0]);
        opens.renewed(SESSION, first, &[]);
        assert!(may_hold(&opens, FILE));
    }

    #[test]
    fn statements_about_an_earlier_start_of_the_service_count_for_nothing() {
        let before = Opens::new(1);
        let round = before.renewed(SESSION, 0, &[]);
        let opens = Opens::new(2);
        opens.renewed(SESSION, round, &[]);
        assert!(may_hold(&opens, FILE));
        let own = opens.renewed(SESSION, round, &[]);
        opens.renewed(SESSION, own, &[]);
        assert!(!may_hold(&opens, FILE));
    }

    #[test]
    fn a_session_that_opens_too_much_is_taken_for_an_unknown_one_until_it_has_said_what_it_has() {
        let opens = Opens::new(1);
        let first = opens.renewed(SESSION, 0, &[]);
        let second = opens.renewed(SESSION, first, &[]);
        assert!(!may_hold(&opens, FILE));
        (0..=NOTED_MAX as u64).for_each(|inode| open(&opens, InodeId(1000 + inode)));
        assert!(may_hold(&opens, FILE), "not even what was noted is known any more");
        let third = opens.renewed(SESSION, second, &[]);
        assert!(may_hold(&opens, FILE), "that was about what is not known any more");
        opens.renewed(SESSION, third, &[]);
        assert!(!may_hold(&opens, FILE));
        opens.leave(SESSION);
        assert!(may_hold(&opens, FILE));
    }

    #[test]
    fn what_is_noted_over_several_rounds_is_bounded_too() {
        let opens = Opens::new(1);
        let mut round = opens.renewed(SESSION, 0, &[]);
        opens.renewed(SESSION, round, &[]);
        for inode in 0..=NOTED_MAX as u64 {
            open(&opens, InodeId(1000 + inode));
            if inode % 100_000 == 0 {
                round = opens.renewed(SESSION, 0, &[]);
            }
        }
        opens.renewed(SESSION, 0, &[]);
        opens.renewed(SESSION, round, &[]);
        assert!(may_hold(&opens, FILE));
    }

    /// A removal walked all sessions under one lock.
    #[test]
    fn a_removal_looks_at_the_holders_of_its_inode_and_at_unknown_sessions_only() {
        let opens = Opens::new(1);
        let all: Vec<SessionId> = (1..=1000).map(SessionId).collect();
        let begin = |&session: &SessionId| {
            opens.enter(session);
            let round = opens.renewed(session, 0, &[]);
            let listed = if session.0 == 7 { vec![FILE.0] } else { Vec::new() };
            opens.renewed(session, round, &listed);
        };
        all.iter().skip(1).for_each(begin);
        opens.enter(SessionId(1));
        drop(opens.opens(SessionId(9), FILE));
        assert_eq!(opens.ends(FILE, &all).1, [1, 7, 9].map(SessionId));
        assert_eq!(opens.ends(FILE, &all[6..8]).1, [7].map(SessionId), "the others have ended");
        begin(&SessionId(1));
        opens.leave(SessionId(9));
        assert_eq!(opens.ends(FILE, &all[..8]).1, [7].map(SessionId));
        let table = opens.table();
        assert_eq!((table.holders.len(), table.unknown.len()), (1, 0));
    }

    /// The index by inode against sets of each session, over random opens, lists and ends.
    #[test]
    fn the_index_agrees_with_what_each_session_has_noted() {
        use rand::rngs::StdRng;
        use rand::{RngExt, SeedableRng};
        let mut random = StdRng::seed_from_u64(5);
        let opens = Opens::new(1);
        let mut rounds: HashMap<u64, Vec<u64>> = HashMap::new();
        for _ in 0..20_000 {
            let session = random.random_range(1..6);
            let inode = random.random_range(1..20);
            match random.random_range(0..10) {
                0 => {
                    opens.leave(SessionId(session));
                    rounds.remove(&session);
                }
                1..4 => {
                    let of_session = rounds.entry(session).or_default();
                    let covers = of_session.get(random.random_range(0..of_session.len().max(1)));
                    let listed: Vec<u64> = (1..20).filter(|_| random.random_bool(0.2)).collect();
                    let round = opens.renewed(SessionId(session), covers.copied().unwrap_or(0), &listed);
                    of_session.push(round);
                }
                _ => drop(opens.opens(SessionId(session), InodeId(inode))),
            }
            let table = opens.table();
            let noted = |(id, session): (&SessionId, &Session)| {
                session.noted.keys().chain(&session.listed).map(|&inode| (inode, *id)).collect::<Vec<_>>()
            };
            let by_session: BTreeSet<(u64, SessionId)> = table.sessions.iter().flat_map(noted).collect();
            let of_inode = |(&inode, ids): (&u64, &Vec<SessionId>)| {
                ids.iter().map(|&id| (inode, id)).collect::<Vec<_>>()
            };
            let by_inode: Vec<(u64, SessionId)> = table.holders.iter().flat_map(of_inode).collect();
            assert_eq!(by_inode.len(), by_session.len(), "noted twice");
            assert_eq!(by_inode.into_iter().collect::<BTreeSet<_>>(), by_session);
            for (id, session) in &table.sessions {
                assert_eq!(session.covered == 0, table.unknown.contains(id));
                let in_order = |(inode, round): (&u64, &u64)| session.order.contains(&(*inode, *round));
                assert!(session.noted.iter().all(in_order));
            }
        }
    }
}
