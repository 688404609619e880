//! The client's session, its request slots, and the locks that have to be told in it.
//!
//! What was written under locks is reported only in a session that knows these locks. A client that was cut off for
//! longer than its session lasts has lost its locks to the clients that asked for them, and opens a new session. What
//! it wrote before must not be reported there until the service has been told which locks it holds, and has said which
//! of them are lost: the new holder may have written over it. Nor may it be sent to data servers, which know no
//! sessions: a client that has not heard for a while that its session goes on asks before it changes a locked file.

use super::MetaService;
use super::call::Changing;
use crate::config::own_name;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_model::limits::{SESSION_LEASE_MS, SESSION_SLOTS_MAX};
use vazao_model::{Code, InodeId};
use vazao_wire::transport::source;
use vazao_wire::{op, proto};

/// How long a thread that waits for a slot sleeps before it looks at the clock.
const SLOT_WAIT: Duration = Duration::from_millis(50);

/// For how long after a renewal was asked for a change of a locked file is sent without asking again. An attempt at it
/// takes half of a deadline at most, 15 s as a rule, so that it ends before the session does.
const CERTAIN_NS: u64 = (SESSION_LEASE_MS as u64 - 20_000) * 1_000_000;

/// Who holds locks in a session.
pub(crate) trait LockHolder: Send + Sync {
    /// Whether there was ever a lock.
    fn has_locked(&self) -> bool;

    /// Whether any of the file is locked here.
    fn holds(&self, inode: InodeId) -> bool;

    /// How many locks were lost so far.
    fn losses(&self) -> u64;

    /// Whether a lock on the file may have been lost since there were `losses`.
    fn has_lost_since(&self, inode: InodeId, losses: u64) -> bool;

    /// Whether the service knows in `session` which locks are held here. True where there never was one.
    fn are_told(&self, session: u64) -> bool;

    /// Tells it, in the session that is the present one.
    fn tell(&self) -> Result<()>;

    /// Fails with `Io` while what was written to the file is to be given up, because a lock on it is lost.
    fn check(&self, inode: InodeId) -> Result<()>;
}

/// The session with the metadata service.
///
/// - `opening` serialises opening a session; `slots` is not held while a request is sent.
/// - A slot is returned only to the session that it was taken from: `install` makes a new table.
#[derive(Default)]
pub(crate) struct Session {
    slots: Mutex<Slots>,
    freed: Condvar,
    opening: Mutex<()>,
    /// When the latest renewal that was granted was asked for.
    renewed_ns: AtomicU64,
}

#[derive(Default)]
struct Slots {
    session: u64,
    free: Vec<u32>,
    sequences: Vec<u64>,
    /// Waiters for a free slot. Without any, the wake-up would be a system call for nothing.
    waiting: usize,
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

    /// A lease was granted that was asked for at `asked_ns`, by [`vazao_meter::Clock::steady_ns`].
    pub(crate) fn renewed(&self, asked_ns: u64) {
        self.renewed_ns.fetch_max(asked_ns, Ordering::SeqCst);
    }

    /// Whether the session cannot have ended.
    fn is_certain(&self, now_ns: u64) -> bool {
        now_ns < self.renewed_ns.load(Ordering::SeqCst).saturating_add(CERTAIN_NS)
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

impl MetaService {
    /// A slot for a changing request; blocks while all are in use (backpressure).
    pub(crate) fn take_slot(&self, deadline_ns: u64) -> Result<Slot> {
        let mut slots = self.session.slots.lock();
        loop {
            if let Some(slot) = self.session.try_take(&mut slots) {
                return Ok(slot);
            }
            if self.context.clock.now_ns() >= deadline_ns {
                let detail =
                    format!("{}: all request slots of this client are waiting", self.context.meta_name());
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
        let client =
            if self.context.options.name.is_empty() { own_name() } else { self.context.options.name.clone() };
        let address = source(&*self.context.transport, self.context.meta_address());
        let request =
            proto::OpenSessionRequest { client, follows_conversions: true, follows_groups: true, address };
        let asked_ns = self.context.clock.steady_ns();
        let response = self.ask_until::<op::OpenSession>(&request, deadline_ns)?;
        self.session.renewed(asked_ns);
        if let Some(map) = response.map {
            self.servers.install_map(map)?;
        }
        *self.zone_here.lock() = response.zone;
        self.servers.learn_lines(&self.zone(), &response.lines);
        if expired != 0 {
            tracing::warn!("the session with the metadata service had expired; a new one was opened");
        }
        self.session.install(response.session, response.slots);
        Ok(())
    }

    /// Whether a request in `slot` needs nothing to be told before it.
    pub(super) fn are_locks_told<R: Changing>(&self, request: &R, slot: &Slot) -> bool {
        request.contents().is_none() || self.lock_holder().is_none_or(|holder| holder.are_told(slot.id))
    }

    /// Returns the slot that the request is to be sent in: `slot`, unless its session ends meanwhile.
    pub(super) fn with_locks_told<R: Changing>(
        &self,
        request: &R,
        mut slot: Slot,
        deadline_ns: u64,
    ) -> Result<Slot> {
        let (Some(inode), Some(holder)) = (request.contents(), self.lock_holder()) else { return Ok(slot) };
        while !holder.are_told(slot.id) {
            match holder.tell() {
                Ok(()) if self.session.id() == slot.id => {}
                Err(error) if error.code == Code::SessionExpired => {
                    let expired = slot.id;
                    drop(slot);
                    self.open_session(expired, deadline_ns)?;
                    slot = self.take_slot(deadline_ns)?;
                }
                // Another thread has opened a session.
                Ok(()) => {
                    drop(slot);
                    slot = self.take_slot(deadline_ns)?;
                }
                Err(error) => return Err(error),
            }
        }
        holder.check(inode)?;
        Ok(slot)
    }

    /// How many locks were lost so far.
    pub(crate) fn lock_losses(&self) -> u64 {
        self.lock_holder().map_or(0, |holder| holder.losses())
    }

    /// Whether a change of an object may be sent without [`MetaService::confirm_locks`]: there are no locks, or all of
    /// them are held for certain.
    pub(crate) fn are_locks_certain(&self) -> bool {
        self.lock_holder().is_none_or(|holder| {
            !holder.has_locked() || (self.is_session_certain(&*holder) && holder.losses() == 0)
        })
    }

    fn is_session_certain(&self, holder: &dyn LockHolder) -> bool {
        let now_ns = self.context.clock.steady_ns();
        self.session.is_certain(now_ns) && holder.are_told(self.session.id())
    }

    /// Asks, before objects of a file that is locked here are changed, whether the locks are still held. `losses`: how
    /// many were lost when the change began. Errors: `Io` when one of the file was lost since; what keeps the metadata
    /// service from answering.
    pub(crate) fn confirm_locks(&self, inode: InodeId, losses: u64, deadline_ns: u64) -> Result<()> {
        let Some(holder) = self.lock_holder() else { return Ok(()) };
        let about = |error: Error| error.about(format_args!("{inode}: whether its lock is still held"));
        while holder.holds(inode) && !self.is_session_certain(&*holder) {
            self.confirm_session(deadline_ns).map_err(about)?;
            match holder.tell() {
                Err(error) if error.code == Code::SessionExpired => {}
                told => told.map_err(about)?,
            }
        }
        if holder.has_lost_since(inode, losses) {
            let detail =
                "a lock on it was lost while this was written, as this client was cut off for too long";
            return Err(Error::new(Code::Io, format!("{inode}: {detail}")));
        }
        holder.check(inode)
    }

    /// Has the session go on, or opens a new one.
    fn confirm_session(&self, deadline_ns: u64) -> Result<()> {
        let session = self.session.id();
        let epoch = self.servers.routes().map.epoch.0;
        let asked_ns = self.context.clock.steady_ns();
        let lines = self.servers.used_lines();
        let request = proto::RenewSessionRequest { session, epoch, lines, ..Default::default() };
        match self.ask_until::<op::RenewSession>(&request, deadline_ns) {
            Ok(_) => {
                self.session.renewed(asked_ns);
                Ok(())
            }
            Err(error) if error.code == Code::SessionExpired => self.open_session(session, deadline_ns),
            Err(error) => Err(error),
        }
    }
}
