//! Sessions of clients and their leases.
//!
//! The existence of a session is a record; the end of its lease is in memory only. After a restart every session has
//! a full lease again, so that no client loses its session by the service's absence.

use crate::line_users::LineUsers;
use crate::part::locks::Marks;
use crate::schema::keys;
use crate::schema::records::{NumberRecord, SessionRecord};
use crate::service::context::Context;
use crate::service::fault::Outcome;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_model::{Code, InodeId, SessionId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Session records read at a time.
const PAGE: usize = 1024;

/// Longest report that is kept: dozens of servers and their connections.
const REPORT_BYTES_MAX: usize = 64 << 10;

/// Reports in one answer, which is below the longest message.
const REPORTS_BYTES_MAX: usize = 512 << 10;

/// A request for clients' measures keeps the clients reporting for this long: longer than a few of their renewals.
const WATCHED_NS: u64 = 10_000_000_000;

const LEASE_NS: u64 = limits::SESSION_LEASE_MS as u64 * 1_000_000;

/// The volatile state of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lease {
    expires_ns: u64,
    /// The orphan that the session was last asked about.
    pub(crate) asked_last: u64,
}

/// The session records as of an epoch of them.
#[derive(Default)]
struct Known {
    epoch: u64,
    ids: Arc<[SessionId]>,
    /// The name of a client that cannot follow a file to another layout, if there is one.
    without_conversions: Option<String>,
    /// A client knows no placement groups.
    has_without_groups: bool,
}

/// All sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    leases: Mutex<BTreeMap<SessionId, Lease>>,
    known: Mutex<Option<Arc<Known>>>,
    reports: Mutex<BTreeMap<SessionId, proto::Measures>>,
    /// Until when a client's measures are wanted.
    watched_until_ns: AtomicU64,
    pub(crate) lines: LineUsers,
}

pub(crate) fn unknown(session: SessionId) -> Fault {
    Fault::new(Code::SessionExpired, format!("session {session}: open a new one"))
}

impl Sessions {
    fn leases(&self) -> MutexGuard<'_, BTreeMap<SessionId, Lease>> {
        self.leases.lock()
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

    /// Keeps what a client reported of itself. Returns whether reports are wanted.
    pub(crate) fn report(&self, session: SessionId, measures: Option<&proto::Measures>, now_ns: u64) -> bool {
        let is_watched = now_ns < self.watched_until_ns.load(Ordering::Relaxed);
        let mut reports = self.reports.lock();
        match measures {
            Some(measures) if is_watched && measures.encoded_len() <= REPORT_BYTES_MAX => {
                reports.insert(session, measures.clone());
            }
            Some(_) | None => {
                reports.remove(&session);
            }
        }
        is_watched
    }

    /// What clients last reported, as much as fits into an answer; from now on they report for a while.
    pub(crate) fn reports(&self, now_ns: u64) -> Vec<proto::Measures> {
        self.watched_until_ns.store(now_ns + WATCHED_NS, Ordering::Relaxed);
        let mut left_bytes = REPORTS_BYTES_MAX;
        let reports = self.reports.lock();
        let fits = |report: &&proto::Measures| {
            let bytes = report.encoded_len();
            let fits = bytes <= left_bytes;
            left_bytes = left_bytes.saturating_sub(bytes);
            fits
        };
        reports.values().take_while(fits).cloned().collect()
    }

    /// Ends a lease; false when there was none.
    pub(crate) fn revoke(&self, session: SessionId) -> bool {
        self.reports.lock().remove(&session);
        self.lines.forget(session);
        self.leases().remove(&session).is_some()
    }

    /// Puts an expired lease back, so that its end is retried.
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

    /// All sessions, sorted, as the transaction sees them: it conflicts with one that opens or ends a session.
    pub(crate) fn all(&self, context: &mut Context<'_>) -> Outcome<Arc<[SessionId]>> {
        Ok(Arc::clone(&self.known(context)?.ids))
    }

    fn known(&self, context: &mut Context<'_>) -> Outcome<Arc<Known>> {
        let epoch = epoch(context)?;
        let known = self.known.lock().as_ref().filter(|known| known.epoch == epoch).cloned();
        match known {
            Some(known) => Ok(known),
            None => {
                let known = Arc::new(Known::load(context, epoch)?);
                *self.known.lock() = Some(Arc::clone(&known));
                Ok(known)
            }
        }
    }
}

impl Known {
    fn load(context: &mut Context<'_>, epoch: u64) -> Outcome<Known> {
        let mut ids = Vec::new();
        let mut known = Known { epoch, ..Known::default() };
        visit(context, |id, record| {
            ids.push(id);
            known.has_without_groups |= !record.follows_groups;
            if !record.follows_conversions {
                known.without_conversions = Some(record.client);
            }
        })?;
        known.ids = ids.into();
        Ok(known)
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

/// Those of the sessions that may have locks, and on which files, as their records say.
pub(crate) fn with_locks(
    context: &mut Context<'_>,
    sessions: &[SessionId],
) -> Outcome<Vec<(SessionId, Marks)>> {
    let mut found = Vec::new();
    for &session in sessions {
        let record = context.read::<SessionRecord>(&keys::session(session), "session")?;
        found.extend(record.as_ref().and_then(marks).map(|marks| (session, marks)));
    }
    Ok(found)
}

/// Which files a session may have locked, as its record says; `None` when it never had a lock.
pub(crate) fn marks(record: &SessionRecord) -> Option<Marks> {
    match record.has_locks {
        true => Some(Marks::All),
        false if record.locked_inodes.is_empty() => None,
        false => Some(Marks::Files(record.locked_inodes.iter().copied().map(InodeId).collect())),
    }
}

/// The name of a client, if there is one, that cannot follow a file to another layout.
pub(crate) fn left_behind(context: &mut Context<'_>) -> Outcome<Option<String>> {
    let service = context.service;
    Ok(service.sessions().known(context)?.without_conversions.clone())
}

/// True when every client knows layouts with placement groups.
pub(crate) fn all_follow_groups(context: &mut Context<'_>) -> Outcome<bool> {
    let service = context.service;
    Ok(!service.sessions().known(context)?.has_without_groups)
}

/// The ids of all session records.
pub(crate) fn load(context: &mut Context<'_>) -> Outcome<Vec<SessionId>> {
    let mut ids = Vec::new();
    visit(context, |id, _| ids.push(id))?;
    Ok(ids)
}

/// Has `take` see all session records. One that cannot be read is seen as one of which nothing is known.
fn visit(context: &mut Context<'_>, mut take: impl FnMut(SessionId, SessionRecord)) -> Outcome<()> {
    let mut range = keys::sessions();
    loop {
        let page = context.scan(&range, PAGE)?;
        for (key, value) in &page {
            if let Some(id) = keys::number(key, 0) {
                take(SessionId(id), SessionRecord::decode(value.as_slice()).unwrap_or_default());
            }
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range.start = keys::after(last),
            _ => return Ok(()),
        }
    }
}
