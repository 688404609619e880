//! Files that could not be stored while a mount ends, collected from the threads that close them.
//!
//! While the mount serves, programs get such errors from their own calls. When a mount ends, it closes files whose
//! processes are gone; only the unmount can report their errors.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Lines kept; of more files the log tells.
const LINES_MAX: usize = 10_000;

/// Lost files, a line each.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    is_ending: AtomicBool,
    lines: Mutex<Vec<String>>,
}

impl Lost {
    /// The mount ends from now on.
    pub(crate) fn begin(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
    }

    /// Notes a file, if the mount ends.
    pub(crate) fn note(&self, line: String) {
        let mut lines = self.lines.lock();
        if self.is_ending.load(Ordering::SeqCst) && lines.len() < LINES_MAX {
            lines.push(line);
        }
    }

    /// All of them.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_lost_at_the_end_is_kept() {
        let lost = Lost::default();
        lost.note("while it serves".to_owned());
        lost.begin();
        lost.note("at its end".to_owned());
        assert_eq!(lost.take(), ["at its end"]);
        (0..2 * LINES_MAX).for_each(|number| lost.note(number.to_string()));
        assert_eq!(lost.take().len(), LINES_MAX);
    }
}
