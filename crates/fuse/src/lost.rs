//! What could not be stored while a mount ends, gathered from the threads that close its files.
//!
//! While it serves, a program is told of such failures by its own calls. Of a file that is closed for a process that is
//! gone, as the mount ends, nobody is told but whoever unmounts.

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
