//! What of a file exists in this client's memory only: the report of what is lost when the client ends.

use super::inode::{InodeState, OpenInode};
use super::layout_state::Contents;
use crate::Error;
use std::fmt;
use std::ops::Range;
use vazao_model::InodeId;

/// Ranges that a message spells out.
const RANGES_SHOWN: usize = 8;

/// What of a file is not stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unstored {
    /// Which file.
    pub inode: InodeId,
    /// Bytes that were written here and are not with the data servers, in ascending order.
    pub ranges: Vec<Range<u64>>,
    /// The metadata service does not know of the latest size and time of change.
    pub is_unreported: bool,
    /// Why, where that is known.
    pub cause: Option<Error>,
}

impl Unstored {
    /// Number of these bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

impl fmt::Display for Unstored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}: ", self.inode.0)?;
        let shown = self.ranges.iter().take(RANGES_SHOWN);
        let shown: Vec<String> = shown.map(|range| format!("{}-{}", range.start, range.end)).collect();
        match (shown.is_empty(), self.ranges.len().saturating_sub(RANGES_SHOWN)) {
            (true, _) => write!(f, "its latest size and times")?,
            (false, 0) => write!(f, "bytes {}", shown.join(", "))?,
            (false, more) => write!(f, "bytes {} and {more} more ranges", shown.join(", "))?,
        }
        match &self.cause {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}

/// Ranges in ascending order, those that overlap or touch joined.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

impl OpenInode {
    /// `None` when everything written here is stored and reported, or has no name any more and needs not be.
    pub(crate) fn unstored(&self) -> Option<Unstored> {
        if self.is_unlinked() {
            return None;
        }
        let state = self.lock();
        let (ranges, is_unreported) = state.unstored();
        let ranges = joined(ranges);
        if ranges.is_empty() && !is_unreported {
            return None;
        }
        let cause = state.sync.lost().outstanding(state.size).cloned();
        Some(Unstored { inode: self.id, ranges, is_unreported, cause })
    }
}

impl InodeState {
    /// Ranges that the servers may not have, in any order, and whether the metadata service is behind.
    fn unstored(&self) -> (Vec<Range<u64>>, bool) {
        let lost = self.sync.lost().ranges(self.size);
        let mut ranges: Vec<Range<u64>> = self.buffer.ranges().chain(lost).collect();
        let mut is_unreported = false;
        for report in self.reports.unanswered() {
            is_unreported = true;
            // Bytes beyond the end that the metadata service knows are out of reach.
            ranges.push(self.attributes.size..report.end.min(self.size));
        }
        if let Contents::Inline(inline) = self.placed.contents() {
            ranges.extend(inline.unanswered().map(|range| range.start as u64..range.end as u64));
        }
        (ranges, is_unreported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::Code;

    #[test]
    fn ranges_are_joined_and_told_in_order_with_the_cause() {
        assert_eq!(joined(vec![5..9, 0..2, 2..3, 7..12, 20..20]), [0..3, 5..12]);
        let cause = Some(Error::new(Code::Timeout, "data server d1 is silent"));
        let unstored = Unstored { inode: InodeId(7), ranges: vec![0..3, 5..12], is_unreported: true, cause };
        assert_eq!(unstored.bytes(), 10);
        let said = unstored.to_string();
        assert!(said.starts_with("inode 7: bytes 0-3, 5-12 (data server d1 is silent"), "{said}");
        let ranges = (0..20).map(|number| number * 10..number * 10 + 1).collect();
        let many = Unstored { inode: InodeId(7), ranges, is_unreported: false, cause: None };
        assert!(many.to_string().ends_with("70-71 and 12 more ranges"), "{many}");
        let none = Unstored { inode: InodeId(7), ranges: Vec::new(), is_unreported: true, cause: None };
        assert_eq!(none.to_string(), "inode 7: its latest size and times");
    }
}
