//! Table of opens: which files a session may have open.
//!
//! - Opens come as requests, closes do not. Each open is noted here before its answer leaves.
//! - Each renewal of a session lists what it still has open: "of all that was noted before the answer with round q,
//!   these". Rounds make delayed, repeated and reordered renewals safe: the list for a round stays true, because a
//!   file noted before it and closed is not opened again without a new note.
//! - The table errs to one side: a session of which nothing is known may have any file open. That is so before its
//!   first complete renewal, after too many opens to note, and for two or three renewals after a restart of the
//!   service.
//! - Race: an open between a removal's look at this table and its commit would be lost. Opens and removals therefore
//!   exclude each other by locks on shares of the inodes (`InodeGuard`).
//! - Lock order: `turns`, `sessions`.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_model::{InodeId, SessionId};

/// Opens noted of one session; with more, nothing is known of it for a while (fallback). A fast client makes fewer
/// between three renewals, and they take a few megabytes.
const NOTED_MAX: usize = 1 << 18;

/// Shares of the inodes: more than there are threads that could contend for one.
const TURNS: usize = 256;

/// Rounds of one start of the service; the starts count above them.
const ROUND_BITS: u32 = 40;

/// The opens of one session.
#[derive(Default)]
struct Session {
    /// Everything since this round is noted; `None`: since the next one.
    complete_since: Option<u64>,
    /// The round of its last list; 0: none since then.
    covered: u64,
    /// What that list has open.
    open: HashSet<u64>,
    /// Opens noted before each of these rounds and after the round in front of it.
    closed: VecDeque<(u64, HashSet<u64>)>,
    /// Noted since the last round.
    current: HashSet<u64>,
}

impl Session {
    fn noted(&self) -> usize {
        self.current.len() + self.closed.iter().map(|(_, noted)| noted.len()).sum::<usize>()
    }

    fn note(&mut self, inode: u64) {
        if self.complete_since.is_none() {
            return;
        }
        self.current.insert(inode);
        if self.current.len() > NOTED_MAX {
            *self = Session::default();
        }
    }

    fn says(&mut self, covers: u64, open: &[u64]) {
        let is_complete = self.complete_since.is_some_and(|since| covers >= since);
        if !is_complete || covers <= self.covered {
            return;
        }
        self.covered = covers;
        self.open = open.iter().copied().collect();
        self.closed.retain(|(round, _)| *round > covers);
    }

    fn begin_round(&mut self, round: u64) {
        if self.noted() > NOTED_MAX {
            *self = Session::default();
        }
        self.complete_since.get_or_insert(round);
        let noted = std::mem::take(&mut self.current);
        if !noted.is_empty() {
            self.closed.push_back((round, noted));
        }
    }

    fn may_hold(&self, inode: u64) -> bool {
        self.covered == 0
            || self.open.contains(&inode)
            || self.current.contains(&inode)
            || self.closed.iter().any(|(_, noted)| noted.contains(&inode))
    }
}

/// The opens of all sessions.
pub(crate) struct Opens {
    sessions: Mutex<HashMap<SessionId, Session>>,
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
            sessions: Mutex::default(),
            round: AtomicU64::new(boot << ROUND_BITS),
            turns: (0..TURNS).map(|_| RwLock::default()).collect(),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Session>> {
        self.sessions.lock()
    }

    fn turn(&self, inode: InodeId) -> &RwLock<()> {
        &self.turns[(inode.0 % TURNS as u64) as usize]
    }

    /// Notes an open before the session's answer shows the file. The lock is to be held until that transaction is
    /// over.
    pub(crate) fn opens(&self, session: SessionId, inode: InodeId) -> InodeGuard<'_> {
        let turn = self.turn(inode).read();
        if let Some(session) = self.sessions().get_mut(&session) {
            session.note(inode.0);
        }
        InodeGuard::Opens { _turn: turn }
    }

    /// An inode is about to lose its last name: returns which of these sessions may have it open, true while the lock
    /// is held.
    pub(crate) fn ends(&self, inode: InodeId, all: &[SessionId]) -> (InodeGuard<'_>, Vec<SessionId>) {
        let turn = self.turn(inode).write();
        let known = self.sessions();
        let may_hold = |id: &&SessionId| known.get(id).is_none_or(|session| session.may_hold(inode.0));
        (InodeGuard::Ends { _turn: turn }, all.iter().filter(may_hold).copied().collect())
    }

    /// A renewal of a session with its list of opens: all of `open`, of what was noted before round `covers`. Returns
    /// the round to answer with.
    pub(crate) fn renewed(&self, session: SessionId, covers: u64, open: &[u64]) -> u64 {
        let mut sessions = self.sessions();
        let round = self.round.fetch_add(1, Ordering::SeqCst) + 1;
        let session = sessions.entry(session).or_default();
        session.says(covers, open);
        session.begin_round(round);
        round
    }

    /// A session is over.
    pub(crate) fn leave(&self, session: SessionId) {
        self.sessions().remove(&session);
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
}
