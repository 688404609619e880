//! Who is here: the clients' sessions and their leases.
//!
//! That a session exists is a record; when its lease ends is known in memory only. After a restart every session has a
//! full lease again, so that no client suffers from the service's absence.

use crate::context::Context;
use crate::fault::Outcome;
use crate::keys;
use crate::records::{NumberRecord, SessionRecord};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use vazao_model::{Code, SessionId, limits};
use vazao_wire::service::Fault;

/// Session records read at a time.
const PAGE: usize = 1024;

const NO_PANIC: &str = "no code panics while it holds this lock";
const LEASE_NS: u64 = limits::SESSION_LEASE_MS as u64 * 1_000_000;

/// What memory knows of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lease {
    expires_ns: u64,
    /// The orphan that was asked about last.
    pub(crate) asked_last: u64,
}

#[derive(Default)]
struct Known {
    epoch: Option<u64>,
    ids: Arc<[SessionId]>,
}

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    leases: Mutex<BTreeMap<SessionId, Lease>>,
    known: Mutex<Known>,
}

pub(crate) fn unknown(session: SessionId) -> Fault {
    Fault::new(Code::SessionExpired, format!("session {session}: open a new one"))
}

impl Sessions {
    fn leases(&self) -> MutexGuard<'_, BTreeMap<SessionId, Lease>> {
        self.leases.lock().expect(NO_PANIC)
    }

    /// Starts or prolongs a lease.
    pub(crate) fn grant(&self, session: SessionId, now_ns: u64) {
        self.leases().entry(session).or_default().expires_ns = now_ns + LEASE_NS;
    }

    /// Prolongs a lease that is there.
    pub(crate) fn renew(&self, session: SessionId, now_ns: u64) -> Outcome<Lease> {
        let mut leases = self.leases();
        let lease = leases.get_mut(&session).ok_or_else(|| unknown(session))?;
        lease.expires_ns = now_ns + LEASE_NS;
        Ok(*lease)
    }

    pub(crate) fn set_asked_last(&self, session: SessionId, inode: u64) {
        if let Some(lease) = self.leases().get_mut(&session) {
            lease.asked_last = inode;
        }
    }

    /// Ends a lease; false when there was none.
    pub(crate) fn revoke(&self, session: SessionId) -> bool {
        self.leases().remove(&session).is_some()
    }

    /// Puts back a lease that has run out, so that its end is tried again.
    pub(crate) fn expire_later(&self, session: SessionId) {
        self.leases().entry(session).or_default();
    }

    /// Sessions whose lease has run out.
    pub(crate) fn expired(&self, now_ns: u64) -> Vec<SessionId> {
        self.leases().iter().filter(|(_, lease)| lease.expires_ns <= now_ns).map(|(id, _)| *id).collect()
    }

    /// Whether the session has a lease.
    pub(crate) fn is_known(&self, session: SessionId) -> bool {
        self.leases().contains_key(&session)
    }

    /// Number of leases.
    pub(crate) fn count(&self) -> usize {
        self.leases().len()
    }

    /// All sessions as the transaction sees them: it conflicts with one that opens or ends a session.
    pub(crate) fn all(&self, context: &mut Context<'_>) -> Outcome<Arc<[SessionId]>> {
        let epoch = epoch(context)?;
        {
            let known = self.known.lock().expect(NO_PANIC);
            if known.epoch == Some(epoch) {
                return Ok(Arc::clone(&known.ids));
            }
        }
        let ids: Arc<[SessionId]> = load(context)?.into();
        *self.known.lock().expect(NO_PANIC) = Known { epoch: Some(epoch), ids: Arc::clone(&ids) };
        Ok(ids)
    }
}

fn epoch(context: &mut Context<'_>) -> Outcome<u64> {
    let record = context.read::<NumberRecord>(keys::SESSIONS_EPOCH, "epoch of the sessions")?;
    Ok(record.map_or(0, |record| record.value))
}

/// Notes that the set of sessions changes.
pub(crate) fn advance_epoch(context: &mut Context<'_>) -> Outcome<()> {
    let value = epoch(context)? + 1;
    context.write(keys::SESSIONS_EPOCH.to_vec(), &NumberRecord { value });
    Ok(())
}

/// Those of the sessions whose records say that they have locks.
pub(crate) fn with_locks(context: &mut Context<'_>, sessions: &[SessionId]) -> Outcome<Vec<SessionId>> {
    let mut found = Vec::new();
    for &session in sessions {
        let record = context.read::<SessionRecord>(&keys::session(session), "session")?;
        found.extend(record.filter(|record| record.has_locks).map(|_| session));
    }
    Ok(found)
}

/// The ids of all session records.
pub(crate) fn load(context: &mut Context<'_>) -> Outcome<Vec<SessionId>> {
    let mut range = keys::sessions();
    let mut ids = Vec::new();
    loop {
        let page = context.scan(&range, PAGE)?;
        ids.extend(page.iter().filter_map(|(key, _)| keys::number(key, 0)).map(SessionId));
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range.start = keys::after(last),
            _ => return Ok(ids),
        }
    }
}
