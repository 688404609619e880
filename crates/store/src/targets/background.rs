//! What a target does by itself, about once a second.

use crate::targets::Target;
use crate::targets::epochs;
use crate::targets::unkept::Unkept;
use crate::targets::waits::Waits;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_wire::proto::HistoryMark;
use vazao_wire::service::Fault;

impl Target {
    /// Looks after the threads that wait for its disk, and has one of them do the rest. It never waits itself.
    pub(crate) fn begin_tick(self: &Arc<Target>, checkpoint_ms: u64, mark: HistoryMark) {
        self.waits.look();
        self.waits.look_after(self, Target::waits, Target::ask_disk);
        self.waits.tick(self, Target::waits, move |target| target.tick(checkpoint_ms, mark));
    }

    /// Who waits for its disk.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Place, space, incarnation, sweep, known damage, epoch. `mark`: the latest that this server was told of
    /// the metadata.
    fn tick(&self, checkpoint_ms: u64, mark: HistoryMark) {
        if self.check_place().is_err() {
            return;
        }
        if let Err(error) = self.room.refresh(&*self.disk) {
            tracing::warn!(target_id = self.id().0, %error, "cannot tell the space left on {}", self.label);
        }
        self.tick_incarnation(mark);
        if self.is_failed() {
            return;
        }
        if let Err(fault) = self.sweep_step() {
            tracing::warn!(%fault, "the sweep after an unclean stop is held up");
        }
        self.review_damage();
        if let Err(fault) = self.restores.review(|| self.end_objects()) {
            tracing::warn!(%fault, "it goes on to say that an object is not whole");
        }
        if !self.epochs.is_dirty() {
            self.dirty_since_ns.store(0, Ordering::Relaxed);
            return;
        }
        let now = self.clock.now_ns().max(1);
        let since = self.dirty_since_ns.load(Ordering::Relaxed);
        if since == 0 {
            self.dirty_since_ns.store(now, Ordering::Relaxed);
        } else if now.saturating_sub(since) >= checkpoint_ms.saturating_mul(1_000_000) {
            self.checkpoint();
            self.dirty_since_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Ends the epoch. A sync that fails takes the target out of service: what it lost cannot be known.
    pub(crate) fn checkpoint(&self) {
        match self.epochs.checkpoint(&*self.disk) {
            Ok(()) => {}
            Err(Unkept::Sync(error)) => self.fail_to_sync(&error),
            Err(Unkept::Write(error)) => {
                let fault = self.write_fault(epochs::STATE, &error);
                tracing::warn!(%fault, "the end of an epoch could not be noted");
            }
        }
    }

    /// Makes all that was answered durable, also what a checkpoint is at just now.
    pub(crate) fn sync_all(&self) -> Result<(), Fault> {
        if let Err(error) = self.disk.sync_all() {
            self.fail_to_sync(&error);
        }
        self.check_place()
    }

    fn fail_to_sync(&self, error: &std::io::Error) {
        self.fail(format!("syncing the whole disk: {error}"));
    }
}
