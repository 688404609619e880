//! Soft state of a part of the inodes: what is in memory only, and belongs to the process that owns the part.
//!
//! One process owns all inodes today. Everything here is keyed by inode or by name, so that parts may have different
//! owners later. What concerns the whole volume is not here: sessions and their leases (`sessions`), members
//! (`cluster`, `claims`, `refusals`, `member_watch`), the volume's own past (`history`).
//!
//! What becomes of it when the owner starts again, or another process takes the part over:
//!
//! | state | afterwards |
//! |---|---|
//! | opens | every session may have anything open, until its second renewal has said what it has |
//! | locks | sessions reclaim theirs; until they have, or a lease is over, no other gets one on the files they marked |
//! | interests, invalidations | sessions are told to forget all that they cached |
//! | proposals | writers propose a layout again |

pub(crate) mod conversions;
pub(crate) mod interest;
pub(crate) mod invalidation_hub;
pub(crate) mod locks;
pub(crate) mod opens;
pub(crate) mod proposals;

use crate::part::invalidation_hub::InvalidationHub;
use crate::part::locks::{Grant, Locks, Marks};
use crate::part::opens::Opens;
use crate::part::proposals::Proposals;
use vazao_meter::Exposition;
use vazao_model::SessionId;

/// See the module. Each of these has its own locks, and none of them calls another.
pub(crate) struct PartState {
    pub(crate) opens: Opens,
    pub(crate) locks: Locks,
    pub(crate) invalidations: InvalidationHub,
    pub(crate) proposals: Proposals,
}

impl PartState {
    /// Nothing is known. `boot` counts the starts of the service.
    pub(crate) fn new(boot: u64) -> PartState {
        PartState {
            opens: Opens::new(boot),
            locks: Locks::default(),
            invalidations: InvalidationHub::default(),
            proposals: Proposals::default(),
        }
    }

    /// The sessions of an earlier start: all of them, and those that may have locks, on which files.
    pub(crate) fn resume(&self, sessions: &[SessionId], with_locks: Vec<(SessionId, Marks)>, now_ns: u64) {
        sessions.iter().for_each(|&session| self.opens.enter(session));
        self.locks.await_sessions(with_locks, now_ns);
    }

    /// A session is about to begin: its record is not there yet.
    pub(crate) fn begin_session(&self, session: SessionId) {
        self.opens.enter(session);
    }

    /// A session has ended: its record is gone. Returns locks that others have now.
    pub(crate) fn end_session(&self, session: SessionId) -> Vec<Grant> {
        self.invalidations.leave(session);
        self.locks.end(session)
    }

    /// The record of a session is gone. Before that removals have to find what it may have open.
    pub(crate) fn forget_session(&self, session: SessionId) {
        self.opens.leave(session);
    }

    /// Writes out how many clients it has something of.
    pub(crate) fn expose(&self, out: &mut Exposition) {
        let mut gauge = |name: &str, help: &str, value: usize| out.gauge(name, help, &[], value as f64);
        gauge("vazao_meta_watchers", "Clients that remember answers.", self.invalidations.count());
        gauge("vazao_meta_locks", "Locks of clients, and waiters for them.", self.locks.count());
    }
}
