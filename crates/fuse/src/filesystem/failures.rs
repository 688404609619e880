//! The read of a file that failed last.
//!
//! When read-ahead fails the kernel asks for the first of its pages once more before it tells the application. Asking
//! a silent server again would double the time a read takes to fail; within [`REMEMBERED_NS`] it gets the same answer
//! at once, unless the file was changed here meanwhile: what was written since must be read as it is.
//!
//! An error that came at once, as that of a damaged block, is not remembered: it is about some bytes of the read-ahead,
//! and the page that the application wants may be sound.

use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use vazao_client::Error;
use vazao_model::Code;

/// The kernel asks again at once; an application that tries again gets a new attempt.
pub(crate) const REMEMBERED_NS: u64 = 500_000_000;

/// A read that fails sooner may be repeated: that costs the application nothing that it notices.
const SOON_NS: u64 = 100_000_000;

#[derive(Debug)]
struct Failed {
    range: Range<u64>,
    at_ns: u64,
    error: Error,
}

/// What is remembered of one open file.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Mutex<Option<Failed>>,
}

impl Failures {
    fn last(&self) -> MutexGuard<'_, Option<Failed>> {
        self.last.lock()
    }

    /// Remembers that reading `range`, which began at `began_ns`, failed, when trouble with the system was the reason.
    pub(crate) fn note(&self, range: Range<u64>, error: &Error, began_ns: u64, now_ns: u64) {
        if is_trouble(error) && now_ns.saturating_sub(began_ns) >= SOON_NS {
            *self.last() = Some(Failed { range, at_ns: now_ns, error: error.clone() });
        }
    }

    /// The file was changed: bytes that could not be read may be there now.
    pub(crate) fn forget(&self) {
        *self.last() = None;
    }

    /// The failure of a read just now that had the start of `range` in it.
    pub(crate) fn repeated(&self, range: &Range<u64>, now_ns: u64) -> Option<Error> {
        let last = self.last();
        let failed = last.as_ref().filter(|failed| now_ns.saturating_sub(failed.at_ns) < REMEMBERED_NS);
        failed.filter(|failed| failed.range.contains(&range.start)).map(|failed| failed.error.clone())
    }
}

/// True for what is wrong with the system, not with the request: codes from [`Code::Io`] on.
pub(crate) fn is_trouble(error: &Error) -> bool {
    error.code.number() >= Code::Io.number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_fail_again_at_once_others_and_later_ones_are_tried() {
        let failures = Failures::default();
        assert_eq!(failures.repeated(&(0..10), 0), None);
        let error = Error::new(Code::Unreachable, "data server d1");
        let at_ns = SOON_NS;
        failures.note(4096..1_000_000, &error, 0, at_ns);
        assert_eq!(failures.repeated(&(4096..8192), at_ns + 1), Some(error.clone()));
        assert_eq!(failures.repeated(&(999_999..2_000_000), at_ns + REMEMBERED_NS - 1), Some(error));
        assert_eq!(failures.repeated(&(0..8192), at_ns + 1), None);
        assert_eq!(failures.repeated(&(1_000_000..1_000_001), at_ns + 1), None);
        assert_eq!(failures.repeated(&(4096..8192), at_ns + REMEMBERED_NS), None);
    }

    #[test]
    fn a_change_of_the_file_ends_what_is_remembered() {
        let failures = Failures::default();
        failures.note(0..10, &Error::new(Code::Unreachable, ""), 0, SOON_NS);
        assert!(failures.repeated(&(0..10), SOON_NS).is_some());
        failures.forget();
        assert_eq!(failures.repeated(&(0..10), SOON_NS), None);
    }

    #[test]
    fn an_ordinary_refusal_is_not_remembered_nor_an_error_that_came_at_once() {
        let failures = Failures::default();
        failures.note(0..10, &Error::new(Code::BadHandle, ""), 0, SOON_NS);
        failures.note(0..10, &Error::new(Code::Corrupt, ""), 1, SOON_NS);
        assert_eq!(failures.repeated(&(0..10), SOON_NS), None);
    }
}
