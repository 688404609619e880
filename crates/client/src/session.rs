//! The client's session: request slots, lease renewal, answers about unlinked open files.

use crate::core::Core;
use crate::opens::TOLD_MAX;
use crate::options::own_name;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_model::limits::{HEARTBEAT_MS, SESSION_SLOTS_MAX};
use vazao_model::{Code, InodeId};
use vazao_wire::{op, proto};

/// How long a thread that waits for a slot sleeps before it looks at the clock.
const SLOT_WAIT: Duration = Duration::from_millis(50);

/// Inodes noted as on their way. With more it begins anew, so that some are let go a few renewals later.
const ASKED_MAX: usize = 65_536;

/// The session with the metadata service.
///
/// - `opening` serialises opening a session; `slots` is not held while a request is sent.
/// - A slot is returned only to the session that it was taken from: `install` makes a new table.
/// - Lock order: `asked` before the locks of the registry (`may_hold_unlinked`).
#[derive(Default)]
pub(crate) struct Session {
    slots: Mutex<Slots>,
    freed: Condvar,
    opening: Mutex<()>,
    answers: Mutex<Answers>,
    /// Inodes asked about that are not open here but may be on their way, and the period in which that was first.
    asked: Mutex<HashMap<u64, usize>>,
    /// Renewals carry the counters of this client.
    is_watched: AtomicBool,
}

#[derive(Default)]
struct Slots {
    session: u64,
    free: Vec<u32>,
    sequences: Vec<u64>,
    /// Waiters for a free slot. Without any, the wake-up would be a system call for nothing.
    waiting: usize,
}

/// Inodes that the metadata service asked about, to be answered with the next renewal.
#[derive(Default)]
struct Answers {
    held: Vec<u64>,
    not_held: Vec<u64>,
}

/// A slot in use by one request; free again when dropped.
pub(crate) struct Slot {
    session: Arc<Session>,
    pub(crate) id: u64,
    slot: u32,
    sequence: u64,
}

impl Slot {
    /// The mark of the request in this slot; `seat` is [`Core::seat`].
    pub(crate) fn once(&self, seat: u32) -> proto::Once {
        proto::Once { session: self.id, slot: self.slot, sequence: self.sequence, seat }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut slots = self.session.slots.lock();
        if slots.session == self.id {
            slots.free.push(self.slot);
            let is_awaited = slots.waiting > 0;
            // Notified under the lock, the waiter would only block on it.
            drop(slots);
            if is_awaited {
                self.session.freed.notify_one();
            }
        }
    }
}

impl Session {
    /// The session's id.
    pub(crate) fn id(&self) -> u64 {
        self.slots.lock().session
    }

    fn install(&self, session: u64, slots: u32) {
        let count = slots.clamp(1, SESSION_SLOTS_MAX);
        let mut slots = self.slots.lock();
        slots.session = session;
        (slots.free, slots.sequences) = ((0..count).rev().collect(), vec![0; count as usize]);
        drop(slots);
        self.freed.notify_all();
    }

    fn try_take(self: &Arc<Session>, slots: &mut Slots) -> Option<Slot> {
        let slot = slots.free.pop()?;
        let sequence = slots.sequences.get_mut(slot as usize)?;
        *sequence += 1;
        Some(Slot { session: Arc::clone(self), id: slots.session, slot, sequence: *sequence })
    }
}

impl Core {
    /// A slot for a changing request; blocks while all are in use (backpressure).
    pub(crate) fn take_slot(&self, deadline_ns: u64) -> Result<Slot> {
        let mut slots = self.session.slots.lock();
        loop {
            if let Some(slot) = self.session.try_take(&mut slots) {
                return Ok(slot);
            }
            if self.clock.now_ns() >= deadline_ns {
                let detail = format!("{}: all request slots of this client are waiting", self.meta_name());
                return Err(Error::new(Code::Timeout, detail));
            }
            slots.waiting += 1;
            self.session.freed.wait_for(&mut slots, SLOT_WAIT);
            slots.waiting -= 1;
        }
    }

    /// A slot, if one is free.
    pub(crate) fn free_slot(&self) -> Option<Slot> {
        self.session.try_take(&mut self.session.slots.lock())
    }

    /// Opens a session in place of `expired` (0 for the first), unless another thread has done so.
    pub(crate) fn open_session(&self, expired: u64, deadline_ns: u64) -> Result<()> {
        let _one = self.session.opening.lock();
        if self.session.id() != expired {
            return Ok(());
        }
        let client = if self.options.name.is_empty() { own_name() } else { self.options.name.clone() };
        let request = proto::OpenSessionRequest { client, follows_conversions: true };
        let response = self.ask_until::<op::OpenSession>(&request, deadline_ns)?;
        if let Some(map) = response.map {
            self.install_map(map)?;
        }
        if expired != 0 {
            tracing::warn!("the session with the metadata service had expired; a new one was opened");
        }
        self.session.install(response.session, response.slots);
        Ok(())
    }

    /// Renews the session and answers what the metadata service wants to know.
    pub(crate) fn renew_session(&self) -> Result<()> {
        let deadline_ns = self.deadline_ns();
        // A second round answers at once what the first one was asked.
        for _ in 0..2 {
            if !self.renew_once(deadline_ns)? {
                break;
            }
        }
        Ok(())
    }

    /// What a renewal says of the files that are open: of which round, and which ones.
    fn told_open(&self) -> (u64, Vec<u64>) {
        let covers_round = self.opens.next_period();
        let open = self.registry.ids();
        if open.len() > TOLD_MAX { (0, Vec::new()) } else { (covers_round, open) }
    }

    /// True when the metadata service waits for an answer: it keeps asking about what is held.
    fn renew_once(&self, deadline_ns: u64) -> Result<bool> {
        let session = self.session.id();
        let answers = std::mem::take(&mut *self.session.answers.lock());
        let epoch = self.routes().map.epoch.0;
        let is_watched = self.session.is_watched.load(Ordering::Relaxed);
        let (covers_round, open) = self.told_open();
        let request = proto::RenewSessionRequest {
            session,
            epoch,
            held: answers.held,
            not_held: answers.not_held,
            measures: is_watched.then(|| (&self.reported()).into()),
            covers_round: Some(covers_round),
            open,
        };
        let response = match self.ask_until::<op::RenewSession>(&request, deadline_ns) {
            Ok(response) => response,
            Err(error) if error.code == Code::SessionExpired => {
                self.open_session(session, deadline_ns)?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        self.opens.arrived(response.round);
        self.session.is_watched.store(response.report_measures, Ordering::Relaxed);
        if let Some(map) = response.map {
            self.install_map(map)?;
        }
        let (held, not_held): (Vec<u64>, Vec<u64>) =
            response.orphans.iter().partition(|&&inode| self.may_hold_unlinked(inode));
        let can_let_go = !not_held.is_empty();
        *self.session.answers.lock() = Answers { held, not_held };
        Ok(can_let_go)
    }

    /// The metadata service asks about an inode without a name: false when it is not open here, and no open of it can
    /// be under way that began before it asked.
    fn may_hold_unlinked(&self, inode: u64) -> bool {
        let mut asked = self.session.asked.lock();
        let period = asked.get(&inode).copied().unwrap_or_else(|| self.opens.period());
        // Before the registry: opens that have ended by now are known there.
        let is_over = self.opens.are_over(period);
        let is_open = self.registry.hold_unlinked(InodeId(inode));
        asked.remove(&inode);
        if !is_open && !is_over {
            if asked.len() >= ASKED_MAX {
                asked.clear();
            }
            asked.insert(inode, period);
        }
        is_open || !is_over
    }
}

/// Renews the session for as long as the client lives.
pub(crate) fn spawn_heartbeat(core: &Arc<Core>) -> Result<()> {
    let (weak, clock) = (Arc::downgrade(core), Arc::clone(&core.clock));
    let body = move || {
        let mut is_failing = false;
        loop {
            clock.sleep(Duration::from_millis(u64::from(HEARTBEAT_MS)));
            if !beat(&weak, &mut is_failing) {
                return;
            }
        }
    };
    let spawned = std::thread::Builder::new().name("vazao-client".to_owned()).spawn(body);
    let refused = |e: std::io::Error| Error::new(Code::Io, format!("starting the client's thread: {e}"));
    spawned.map(|_| ()).map_err(refused)
}

/// False when the client is gone.
fn beat(core: &Weak<Core>, is_failing: &mut bool) -> bool {
    let Some(core) = core.upgrade() else { return false };
    if core.closed.load(std::sync::atomic::Ordering::Relaxed) {
        return false;
    }
    let failure = core.tick().err();
    // Once for each trouble, not with each heartbeat.
    if let Some(error) = failure.as_ref().filter(|_| !*is_failing) {
        tracing::warn!(%error, "the session could not be renewed; it is tried again");
    }
    *is_failing = failure.is_some();
    true
}
