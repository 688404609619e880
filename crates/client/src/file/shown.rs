//! The part of a file that this client has shown to be there, and does not know the contents of yet.

use std::ops::Range;

/// A mount's kernel fills what an answer leaves out of a file, as it was shown its length, with zeros.
#[derive(Clone, Default, Debug)]
pub(super) struct Shown {
    range: Range<u64>,
    /// The latest version that was shown.
    version: u64,
    /// The client's count of answers when it was.
    at: u64,
}

impl Shown {
    /// Attributes of `version` show `range`, from the end that is known here on.
    pub(super) fn note(&mut self, range: Range<u64>, version: u64, at: u64) {
        let start = if self.range.is_empty() { range.start } else { self.range.start.min(range.start) };
        self.range = start..self.range.end.max(range.end);
        self.version = self.version.max(version);
        self.at = at;
    }

    /// An answer about the contents was taken over: it tells of what was shown where it is as new.
    pub(super) fn settle(&mut self, version: u64, asked_at: u64) {
        if version >= self.version || asked_at >= self.at {
            *self = Shown::default();
        }
    }

    /// True when a read of `range` has to wait for a newer answer.
    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }

    pub(super) fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_waits_for_an_answer_that_is_as_new() {
        let mut shown = Shown::default();
        assert!(shown.is_empty() && !shown.overlaps(&(0..u64::MAX)));
        shown.note(10..20, 5, 7);
        shown.note(15..30, 6, 8);
        assert!(shown.overlaps(&(10..11)) && shown.overlaps(&(29..40)));
        assert!(!shown.overlaps(&(0..10)) && !shown.overlaps(&(30..40)));
        shown.settle(5, 7);
        assert!(!shown.is_empty(), "an older one that was on its way");
        // After a loss of power the newest answer may have a lower version.
        shown.settle(4, 8);
        assert!(shown.is_empty());
    }
}
