//! Receive buffers that writes keep until servers have their bytes, and what is done of a request after its answer.

use crate::filesystem::Unsent;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use vazao_client::{SendBuffer, SharedBytes};

/// Buffers kept for later; a mount that writes uses a few more than its window has megabytes.
const SPARE_MAX: usize = 8;

/// Receive buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    buffers: Mutex<Vec<SendBuffer>>,
}

/// A receive buffer. It can be shared with writes in flight that send from it, and returns to the spare buffers when
/// its last user drops it.
#[derive(Debug)]
pub(crate) struct Received {
    /// Until it is dropped.
    bytes: Option<SendBuffer>,
    /// Where in it requests begin.
    start: usize,
    spare: Arc<Spare>,
}

impl Spare {
    /// A buffer of `length` bytes that begins `before` bytes before a page, in memory that `new` makes where none is
    /// left.
    pub(crate) fn take(
        self: &Arc<Spare>,
        length: usize,
        before: usize,
        new: impl FnOnce(usize) -> SendBuffer,
    ) -> Received {
        let page = rustix::param::page_size();
        let kept = self.buffers.lock().pop();
        let bytes = kept.filter(|bytes| bytes.len() == length + page).unwrap_or_else(|| new(length + page));
        let data = bytes.as_ptr() as usize + before;
        Received { start: data.next_multiple_of(page) - data, bytes: Some(bytes), spare: Arc::clone(self) }
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref().and_then(|bytes| bytes.get(self.start..)).unwrap_or_default()
    }
}

impl AsMut<[u8]> for Received {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut().and_then(|bytes| bytes.get_mut(self.start..)).unwrap_or_default()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let mut buffers = self.spare.buffers.lock();
        if buffers.len() < SPARE_MAX {
            buffers.extend(self.bytes.take());
        }
    }
}

/// What may be left until an answer has been sent: the transport says whether anything may, a request what it is.
#[derive(Default)]
pub(crate) struct Afterwards {
    is_possible: bool,
    /// The memory the request is in, if it can be kept.
    memory: Option<SharedBytes>,
    unsent: Option<Unsent>,
}

impl std::fmt::Debug for Afterwards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Afterwards({}, {:?})", self.is_possible, self.unsent)
    }
}

impl Afterwards {
    /// Something may be left, and with `memory` the request's bytes may be kept where they are.
    pub(crate) fn possible(memory: Option<SharedBytes>) -> Afterwards {
        Afterwards { is_possible: true, memory, unsent: None }
    }

    /// Whether something may be left.
    pub(crate) fn is_possible(&self) -> bool {
        self.is_possible
    }

    /// The memory that `bytes` of the request lie in, and where.
    pub(crate) fn memory_of(&self, bytes: &[u8]) -> Option<(SharedBytes, Range<usize>)> {
        let memory = self.memory.as_ref()?;
        let all = (**memory).as_ref().as_ptr_range();
        let part = bytes.as_ptr_range();
        let is_within = all.start <= part.start && part.end <= all.end;
        let start = (part.start as usize).wrapping_sub(all.start as usize);
        is_within.then(|| (Arc::clone(memory), start..start + bytes.len()))
    }

    /// Leaves sending until the answer has been sent.
    pub(crate) fn leave(&mut self, unsent: Option<Unsent>) {
        self.unsent = unsent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_goes_back_when_its_last_user_drops_it_and_its_data_begin_on_a_page() {
        let spare = Arc::new(Spare::default());
        let mut received = spare.take(8192, 80, |length| vec![0; length].into());
        received.as_mut()[80] = 7;
        assert_eq!((received.as_ref().as_ptr() as usize + 80) % rustix::param::page_size(), 0);
        let shared: SharedBytes = Arc::new(received);
        let part = &(*shared).as_ref()[80..100];
        let afterwards = Afterwards::possible(Some(Arc::clone(&shared)));
        let (memory, range) = afterwards.memory_of(part).expect("it lies in it");
        assert_eq!(range, 80..100);
        assert!(
            afterwards.memory_of(&[1, 2, 3]).is_none() && Afterwards::default().memory_of(part).is_none()
        );
        drop((shared, afterwards));
        assert!(spare.buffers.lock().is_empty(), "it is still being sent from");
        drop(memory);
        assert_eq!(spare.buffers.lock().len(), 1);
        assert_eq!(
            spare.take(8192, 80, |length| vec![0; length].into()).as_ref()[80],
            7,
            "the same memory again"
        );
    }
}
