//! Checkpoints: frozen changes of the log are written into the checkpoint, then their log files are removed.

use super::super::{EngineError, EngineResult};
use super::base::View;
use super::overlay::Overlay;
use super::space::Pace;
use super::{Core, NO_PANIC, READERS_PAUSE, SLICE_READERS_PAUSES, State};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// Writes the frozen overlay, if there is one, into the checkpoint.
    pub(super) fn checkpoint(&self) -> EngineResult<()> {
        let _turn = self.checkpoint_turn.lock().expect(NO_PANIC);
        self.check()?;
        let Some(frozen) = self.state().frozen.clone() else { return Ok(()) };
        if !self.fits(&frozen) {
            // After a failed write redb would have to be opened again, so a checkpoint that might not fit is not
            // begun. The log holds all changes.
            self.look_at_space();
            return Ok(());
        }
        let Some(applied) = self.write_base(&frozen)? else { return Ok(()) };
        // Writes and syncs succeed even when the directory has been removed or replaced, so the place is checked
        // before anything counts as durable.
        self.check_place()?;
        let last = frozen.last();
        let old = {
            let mut state = self.state_to_change();
            self.replace_base(&mut state, applied);
            state.frozen.take()
        };
        self.threads.report_progress();
        // Freeing millions of allocations takes a while: not under the lock.
        drop((old, frozen));
        self.durable.fetch_max(last, Ordering::AcqRel);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.notify_durable();
        // The names of the new files must be durable (fsync of the directory) before the old log files are removed.
        let named = self.disk.sync_directory("").map_err(|e| EngineError::io("the metadata directory", e));
        if let Err(error) = named.and_then(|()| self.log().remove_up_to(last)) {
            tracing::warn!(%error, "a log file stays until the next start");
        }
        if self.watch.is_tight() {
            self.look_at_space();
        }
        Ok(())
    }

    /// Writes the changes into the checkpoint, or into a new one where damage prevents that. `None`: there is too
    /// little room, or a reader holds freed pages; the next attempt begins again.
    pub(super) fn write_base(&self, frozen: &Overlay) -> EngineResult<Option<View>> {
        if !self.must_rebuild() {
            match self.change_base(frozen) {
                Err(EngineError::Corrupt(_)) => {}
                changed => return changed,
            }
        }
        // The new file needs more room than a change of the old one.
        if self.fits(frozen) { self.rebuild(frozen) } else { Ok(None) }
    }

    /// In one transaction, or where there is no room for that in several, each of which makes room for the next.
    pub(super) fn change_base(&self, frozen: &Overlay) -> EngineResult<Option<View>> {
        let in_one = self.fits_at_once(frozen);
        let mut changes: Vec<_> = frozen.iter().collect();
        if !in_one {
            // Removals first: they make room for values. The overlay shadows a half-applied commit from readers.
            changes.sort_by_key(|(_, value)| value.is_some());
        }
        let (mut rest, mut pace) = (changes.into_iter().peekable(), Pace::default());
        loop {
            if !in_one && !self.wait_for_readers(SLICE_READERS_PAUSES, || self.is_former_read()) {
                // It would take new pages, and in the end those that the first slice needs the next time.
                return Ok(None);
            }
            let slice = if in_one { rest.by_ref().collect() } else { self.next_slice(&mut rest, &mut pace) };
            if slice.is_empty() && rest.peek().is_some() {
                self.look_at_space();
                return Ok(None);
            }
            let is_last = rest.peek().is_none();
            if !is_last && self.durable.load(Ordering::Acquire) < frozen.last() {
                // Crash safety: a part of these commits must not be durable in the checkpoint before all of them are
                // in the log.
                self.sync_log()?;
            }
            let applied = self.base().apply(&slice, is_last.then_some(frozen.last()));
            let view = applied.inspect_err(|error| self.note_unwritable(error))?;
            if is_last {
                return Ok(Some(view));
            }
            // The overlay shadows the changed keys. The older state has to be released: later slices need its pages.
            self.replace_base(&mut self.state_to_change(), view);
        }
    }

    pub(super) fn replace_base(&self, state: &mut State, view: View) {
        let replaced = std::mem::replace(&mut state.base, Arc::new(view));
        let mut former = self.former.lock().expect(NO_PANIC);
        former.retain(|view| view.strong_count() > 0);
        former.push(Arc::downgrade(&replaced));
    }

    /// True while a reader holds a former state of the checkpoint: pages freed since then are not reused.
    pub(super) fn is_former_read(&self) -> bool {
        let mut former = self.former.lock().expect(NO_PANIC);
        former.retain(|view| view.strong_count() > 0);
        !former.is_empty()
    }

    /// Blocks while `is_reading`, for at most so many pauses. Returns false on a timeout.
    pub(super) fn wait_for_readers(&self, pauses: u32, is_reading: impl Fn() -> bool) -> bool {
        (0..pauses).any(|pause| {
            if pause > 0 {
                self.clock.sleep(READERS_PAUSE);
            }
            !is_reading()
        })
    }

    /// Frees what the log takes, as far as a checkpoint fits. `at_any_size`: also when that is little, for its removals
    /// may free much in the checkpoint.
    pub(super) fn free_log(&self, at_any_size: bool) -> EngineResult<()> {
        self.write_log()?;
        if let Err(error) = self.rotate_if(|log| self.must_rotate(log) || self.would_help(at_any_size)) {
            tracing::warn!(%error, "the log goes on in its present file");
        }
        self.checkpoint()
    }

    /// Writes everything so far into the checkpoint.
    pub(super) fn checkpoint_all(&self) -> EngineResult<()> {
        self.write_log()?;
        self.checkpoint()?;
        self.rotate_if(|_| {
            let state = self.state();
            state.frozen.is_none() && !state.active.is_empty()
        })?;
        self.checkpoint()
    }
}
