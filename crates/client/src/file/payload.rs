//! The bytes of a write on their way into runs: borrowed from the caller, or shared with it.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that another owner keeps as long as they are needed: a door's receive buffer, which returns to its pool when
/// the last user drops it. They must not change meanwhile.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// What a door receives at once, at most.
const RECEIVED_BYTES: usize = 1 << 20;

/// Shared bytes are kept in parts of no less than this share of them.
const PARTS_MAX: usize = 4;

/// A part of shared bytes.
#[derive(Clone)]
pub(crate) struct SharedSlice {
    bytes: SharedBytes,
    range: Range<usize>,
}

impl SharedSlice {
    /// The part `range` of `bytes`; nothing where that lies outside.
    pub(crate) fn new(bytes: SharedBytes, range: Range<usize>) -> SharedSlice {
        SharedSlice { bytes, range }
    }

    /// A part of it.
    pub(crate) fn part(&self, range: Range<usize>) -> SharedSlice {
        let start = self.range.start;
        SharedSlice { bytes: Arc::clone(&self.bytes), range: start + range.start..start + range.end }
    }
}

impl std::fmt::Debug for SharedSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedSlice({:?})", self.range)
    }
}

impl Deref for SharedSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        (*self.bytes).as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

/// What is written.
#[derive(Clone, Copy)]
pub(super) struct Payload<'a> {
    bytes: &'a [u8],
    /// What keeps them, and where in it they begin.
    owner: Option<(&'a SharedSlice, usize)>,
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload { bytes, owner: None }
    }
}

impl<'a> From<&'a SharedSlice> for Payload<'a> {
    fn from(slice: &'a SharedSlice) -> Payload<'a> {
        Payload { bytes: slice, owner: Some((slice, 0)) }
    }
}

impl<'a> Payload<'a> {
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The first `length` bytes, or all there are, and the rest.
    pub(super) fn split_at(self, length: usize) -> (Payload<'a>, Payload<'a>) {
        let length = length.min(self.bytes.len());
        let (now, later) = self.bytes.split_at(length);
        let owner_of_rest = self.owner.map(|(slice, start)| (slice, start + length));
        (Payload { bytes: now, owner: self.owner }, Payload { bytes: later, owner: owner_of_rest })
    }

    /// The same bytes to keep, without copying; `None` where they are only borrowed, and where a small part would keep
    /// a whole receive buffer from being used again, and that memory is not counted.
    pub(super) fn shared(&self) -> Option<SharedSlice> {
        let is_large = |(slice, _): &(&SharedSlice, usize)| {
            self.bytes.len() >= slice.len().min(RECEIVED_BYTES) / PARTS_MAX
        };
        self.owner.filter(is_large).map(|(slice, start)| slice.part(start..start + self.bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_shared_bytes_stay_the_same_bytes_however_they_are_cut() {
        let bytes: SharedBytes = Arc::new((0..100).collect::<Vec<u8>>());
        let slice = SharedSlice::new(Arc::clone(&bytes), 10..90);
        let (head, tail) = Payload::from(&slice).split_at(30);
        let (middle, rest) = tail.split_at(1000);
        assert_eq!((head.bytes()[0], middle.bytes()[0], middle.bytes().len()), (10, 40, 50));
        assert!(rest.bytes().is_empty());
        let kept = middle.shared().expect("it is shared");
        drop((slice, bytes));
        assert_eq!((kept[0], kept[49], kept.len()), (40, 89, 50));
        assert!(Payload::from(&kept[..]).shared().is_none());
    }

    // With units of 64 KiB a write of 1 MiB that one of 16 servers had not taken kept 1 MiB, and was counted as 64 KiB.
    #[test]
    fn a_small_part_does_not_keep_all_that_it_came_with() {
        let bytes: SharedBytes = Arc::new(vec![1u8; 1 << 20]);
        let slice = SharedSlice::new(bytes, 0..1 << 20);
        let part = |length| Payload::from(&slice).split_at(length).0.shared().is_some();
        assert!(part(256 << 10) && !part(64 << 10));
    }

    #[test]
    fn a_range_outside_is_no_bytes() {
        let bytes: SharedBytes = Arc::new(vec![1u8; 4]);
        assert!(SharedSlice::new(bytes, 2..9).is_empty());
    }
}
