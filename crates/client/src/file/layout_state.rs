//! Where the contents of an open file are.
//!
//! - `Inline`: in the inode record, with a copy here. → `Moving`
//! - `Moving`: a thread moves them to objects. → `Striped`, or `Inline` where it failed
//! - `Striped`: in objects. Once it is known that the file has got another layout of the same life (a conversion), that
//!   is its *next* one: reads go by it at once, writes once no write is under way.

use super::inline::InlineContents;
use std::sync::Arc;
use vazao_model::Layout;

/// Where the contents are.
pub(crate) enum Contents {
    /// In the inode record, with a copy here.
    Inline(InlineContents),
    /// A thread is moving them to objects.
    Moving,
    /// In objects.
    Striped(Arc<Layout>),
}

/// The layout that a file is to have here.
#[derive(Clone)]
struct Next {
    layout: Arc<Layout>,
    /// Slots that were written under it here.
    slots: u64,
}

/// The layout of one file, and what is known of its objects.
pub(super) struct LayoutState {
    contents: Contents,
    next: Option<Next>,
    /// Slots of `contents` known to have objects.
    slots: u64,
}

/// What became of objects that were written under a layout.
pub(super) enum Written {
    /// They are in the layout that the file is to have, or were known there.
    Next,
    /// They are in the layout that the file has. That these slots have objects was not known.
    Present { new: u64 },
    /// The file has another layout since, which lacks them.
    TooLate,
}

impl LayoutState {
    pub(super) fn new(contents: Contents) -> LayoutState {
        let slots = match &contents {
            Contents::Striped(layout) => layout.written_slots,
            _ => 0,
        };
        LayoutState { contents, next: None, slots }
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The layout, once there is one.
    pub(super) fn layout(&self) -> Option<&Arc<Layout>> {
        match &self.contents {
            Contents::Striped(layout) => Some(layout),
            _ => None,
        }
    }

    /// The layout that reads go by, and its slots that have objects.
    pub(super) fn read_layout(&self) -> Option<(&Arc<Layout>, u64)> {
        match &self.next {
            Some(next) => Some((&next.layout, next.layout.written_slots | next.slots)),
            None => self.layout().map(|layout| (layout, self.slots)),
        }
    }

    /// The copy of inline contents, unless they are in objects.
    pub(super) fn inline_mut(&mut self) -> Option<&mut InlineContents> {
        match &mut self.contents {
            Contents::Inline(inline) => Some(inline),
            _ => None,
        }
    }

    /// True when the contents are inline, and the file is not known to have a layout.
    pub(super) fn is_inline(&self) -> bool {
        matches!(&self.contents, Contents::Inline(inline) if !inline.is_outgrown())
    }

    /// Takes the inline contents away to be moved; `None` when they have moved.
    pub(super) fn begin_move(&mut self) -> Option<InlineContents> {
        let inline = std::mem::take(self.inline_mut()?);
        self.contents = Contents::Moving;
        Some(inline)
    }

    /// Inline contents could not be moved, or now they are in objects.
    pub(super) fn end_move(&mut self, contents: Contents) {
        *self = LayoutState { next: self.next.take(), ..LayoutState::new(contents) };
    }

    /// Slots of the file's layout known to have objects.
    pub(super) fn slots(&self) -> u64 {
        self.slots
    }

    /// True when a slot is known to have an object.
    pub(super) fn has_object(&self, slot: u32) -> bool {
        self.slots & 1u64.checked_shl(slot).unwrap_or(0) != 0
    }

    /// These slots have objects. Returns those of which that was not known.
    pub(super) fn note_objects(&mut self, slots: u64) -> u64 {
        let new = slots & !self.slots;
        self.slots |= slots;
        new
    }

    /// True when a layout is known that the file does not have here yet.
    pub(super) fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// True when something was written under such a layout: the next report tells of it.
    pub(super) fn has_moved(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.slots != 0)
    }

    /// True when that layout is of this generation.
    pub(super) fn is_next(&self, generation: u32) -> bool {
        self.next.as_ref().is_some_and(|next| next.layout.generation == generation)
    }

    /// The layout that the file was to have does not matter any more.
    pub(super) fn forget_next(&mut self) {
        self.next = None;
    }

    /// Takes note of a layout, and returns [`Written::Next`], where it is a newer one of the same life of the file;
    /// [`Written::TooLate`] where it lacks what was written under one between.
    pub(super) fn note_next(&mut self, theirs: &Layout) -> Option<Written> {
        let mine = self.layout()?;
        let newest = self.next.as_ref().map_or(mine.generation, |next| next.layout.generation);
        if !mine.is_same_life(theirs) || theirs.generation < newest || theirs.generation == mine.generation {
            return None;
        }
        let is_known = self.is_next(theirs.generation);
        let former = self.next.take();
        let is_lost = |next: &Next| next.slots & !next.layout.written_slots != 0;
        let too_late = !is_known && former.as_ref().is_some_and(is_lost);
        let slots = former.filter(|_| is_known).map_or(0, |next| next.slots);
        self.next = Some(Next { layout: Arc::new(theirs.clone()), slots });
        Some(if too_late { Written::TooLate } else { Written::Next })
    }

    /// Exchanges the layout for the next one of the same life, while no write is under way. Returns it, and its slots
    /// that were written here and that the metadata service does not know of.
    pub(super) fn take_next(&mut self) -> Option<(Arc<Layout>, u64)> {
        let mine = self.layout()?;
        let next = self.next.as_ref().filter(|next| mine.is_same_life(&next.layout))?.clone();
        let known = next.layout.written_slots;
        let contents = Contents::Striped(Arc::clone(&next.layout));
        *self = LayoutState { contents, next: None, slots: known | next.slots };
        Some((next.layout, next.slots & !known))
    }

    /// Takes note of slots that were written under a layout that was not the file's here when that began.
    pub(super) fn note_moved(&mut self, layout: &Layout, slots: u64) -> Written {
        if let Some(next) = self.next.as_mut().filter(|next| next.layout.generation == layout.generation) {
            next.slots |= slots;
            return Written::Next;
        }
        if self.layout().is_some_and(|mine| mine.generation == layout.generation) {
            return Written::Present { new: self.note_objects(slots) };
        }
        if slots & !layout.written_slots != 0 { Written::TooLate } else { Written::Next }
    }

    /// Takes away what is to be remembered of a file without handles; `None` while its contents are being moved.
    pub(super) fn leave(&mut self) -> Option<LayoutState> {
        let contents = match &mut self.contents {
            Contents::Moving => return None,
            Contents::Inline(inline) => Contents::Inline(std::mem::take(inline)),
            Contents::Striped(layout) => Contents::Striped(Arc::clone(layout)),
        };
        Some(LayoutState { contents, next: self.next.clone(), slots: self.slots })
    }
}
