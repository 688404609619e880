//! The read of a file that failed last.
//!
//! When read-ahead fails the kernel asks for the first of its pages once more before it tells the application. Asking
//! a silent server again would double the time a read takes to fail; within [`REMEMBERED_NS`] it gets the same answer
//! at once, unless the file was changed here meanwhile: what was written since must be read as it is.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vazao_client::Error;
use vazao_model::Code;

/// The kernel asks again at once; an application that tries again gets a new attempt.
pub(crate) const REMEMBERED_NS: u64 = 500_000_000;

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
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that reading `range` failed, when trouble with the system was the reason.
    pub(crate) fn note(&self, range: Range<u64>, error: &Error, now_ns: u64) {
        if is_trouble(error) {
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
        failures.note(4096..1_000_000, &error, 5);
        assert_eq!(failures.repeated(&(4096..8192), 6), Some(error.clone()));
        assert_eq!(failures.repeated(&(999_999..2_000_000), REMEMBERED_NS + 4), Some(error));
        assert_eq!(failures.repeated(&(0..8192), 6), None);
        assert_eq!(failures.repeated(&(1_000_000..1_000_001), 6), None);
        assert_eq!(failures.repeated(&(4096..8192), REMEMBERED_NS + 5), None);
    }

    #[test]
    fn a_change_of_the_file_ends_what_is_remembered() {
        let failures = Failures::default();
        failures.note(0..10, &Error::new(Code::Unreachable, ""), 5);
        assert!(failures.repeated(&(0..10), 6).is_some());
        failures.forget();
        assert_eq!(failures.repeated(&(0..10), 6), None);
    }

    #[test]
    fn an_ordinary_refusal_is_not_remembered() {
        let failures = Failures::default();
        failures.note(0..10, &Error::new(Code::BadHandle, ""), 5);
        assert_eq!(failures.repeated(&(0..10), 5), None);
    }
}
