//! What a file without handles is remembered for: a handle that comes later goes on where the last one ended.
//!
//! Where the last close failed this is what could not be reported. After one that succeeded it is what the metadata
//! service may still lose with its power: until an fsync has returned, the next handle has to notice that when it
//! happens, and to report it again.

use super::inode::{FreshInode, InodeState};
use super::layout_state::{Contents, LayoutState};
use super::report_ledger::ReportLedger;
use super::sync_ledger::SyncLedger;
use vazao_model::{Attributes, Extents};

/// What an inode without handles is remembered for.
#[derive(Default)]
pub(crate) struct Unfinished {
    /// What an fsync has yet to make durable, and what is lost.
    pub(super) sync: SyncLedger,
    /// What the metadata service does not know, or may forget. Boxed: of most files nothing.
    pub(super) unreported: Option<Box<Unreported>>,
}

/// The state of a file as its last handle left it, as far as the metadata service is concerned.
pub(super) struct Unreported {
    attributes: Attributes,
    absorbed_at: u64,
    size: u64,
    placed: LayoutState,
    unwritten: Extents,
    reports: ReportLedger,
}

impl Unfinished {
    /// True when there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.sync.is_settled() && self.unreported.is_none()
    }

    /// Bytes of contents that it keeps in memory.
    pub(crate) fn contents_bytes(&self) -> usize {
        match self.unreported.as_ref().map(|left| left.placed.contents()) {
            Some(Contents::Inline(inline)) => inline.bytes().len(),
            _ => 0,
        }
    }
}

impl Unreported {
    /// What of it still concerns the file as an open shows it.
    fn concerning(mut self: Box<Self>, fresh: &FreshInode) -> Option<Box<Unreported>> {
        let (then, now) = (&self.attributes, &fresh.attributes);
        if now.version < then.version {
            // The service lost power while the file was closed here. It is what others have seen since, and may have
            // changed: nothing of before comes over that because this client looks at the file.
            return None;
        }
        let is_same = then.modified == now.modified && then.size == now.size;
        match self.placed.contents() {
            Contents::Moving => return None,
            // Another client has changed it since, as above.
            Contents::Inline(_) if !is_same => return None,
            Contents::Inline(_) => {}
            // Of an earlier life of the file there is nothing to report. What was written in this one is at the data
            // servers, and to be reported whatever else has changed.
            Contents::Striped(mine) => {
                fresh.layout.as_ref().filter(|theirs| mine.is_same_life(theirs))?;
                if !is_same {
                    self.reports.forget_taken();
                }
            }
        }
        Some(self)
    }
}

impl InodeState {
    /// Takes away what is to be remembered when the last handle is gone.
    pub(crate) fn take_unfinished(&mut self) -> Unfinished {
        let unreported = self.take_unreported();
        Unfinished { sync: std::mem::take(&mut self.sync), unreported }
    }

    fn take_unreported(&mut self) -> Option<Box<Unreported>> {
        let is_inline_unfinished = self.inline_mut().is_some_and(|inline| {
            // Of a report that is still under way nothing is known.
            inline.fail_report();
            inline.is_unfinished()
        });
        let is_unfinished = is_inline_unfinished || !self.reports.is_settled() || self.placed.has_moved();
        if !is_unfinished {
            return None;
        }
        let placed = self.placed.leave()?;
        Some(Box::new(Unreported {
            attributes: self.attributes.clone(),
            absorbed_at: self.absorbed_at,
            size: self.size,
            placed,
            unwritten: self.unwritten.clone(),
            reports: self.reports.leave(),
        }))
    }

    /// The state of a file that is opened after its last handle left `closed`.
    pub(crate) fn reopened(fresh: FreshInode, fresh_at: u64, closed: Unfinished) -> InodeState {
        let Unfinished { sync, unreported } = closed;
        let Some(left) = unreported.and_then(|left| left.concerning(&fresh)) else {
            let mut state = InodeState::new(fresh, fresh_at);
            state.sync = sync.of_reopened(state.layout().map(|layout| &**layout));
            return state;
        };
        let shown = FreshInode {
            attributes: left.attributes,
            layout: None,
            contents: None,
            start: 0,
            unwritten: left.unwritten,
            asked_at: left.absorbed_at,
        };
        let mut state = InodeState::new(shown, left.absorbed_at);
        state.size = left.size;
        state.placed = left.placed;
        state.reports = left.reports;
        state.kept.note_missing();
        state.sync = sync.of_continued();
        state.absorb_open(fresh, fresh_at);
        state
    }
}
