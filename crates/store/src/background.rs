//! What a target does by itself, about once a second.

use crate::target::Target;
use std::sync::atomic::Ordering;

impl Target {
    /// Space, sweep, known damage, epoch.
    pub(crate) fn tick(&self, checkpoint_ms: u64) {
        if let Err(error) = self.room.refresh(&*self.disk) {
            tracing::warn!(target_id = self.id().0, %error, "cannot tell the space left on {}", self.label);
        }
        if let Err(fault) = self.sweep_step() {
            tracing::warn!(%fault, "the sweep after an unclean stop is held up");
        }
        self.review_damage();
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
        if let Err(error) = self.epochs.checkpoint(&*self.disk) {
            self.fail(format!("syncing the whole disk: {error}"));
        }
    }
}
