//! Readdirplus policy: which listings return attributes, and which only names.
//!
//! The kernel asks for attributes with the first request of each listing, before it knows whether the caller uses
//! them, and takes six thousand entries at once; each costs the kernel and this mount ten times as much as a name. It
//! goes on with attributes only when an entry shown with attributes was looked up meanwhile. A program that reads all
//! names before it looks any of them up (`find -ls`, `tar`, `rm -r`) would get no attributes for the rest. Such a
//! program is recognised by its lookups in a directory whose names it just listed.
//!
//! Slots are shared and never freed: a collision shows a caller more or fewer entries at a time, never other ones.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vazao_model::InodeId;

/// Entries with attributes in the first answer to an unknown reader: all of a small directory.
const FIRST_ENTRIES: usize = 64;

/// The same for a reader that looks entries up: it would ask for them one by one otherwise.
const FIRST_ENTRIES_LOOKED_AT: usize = 4096;

/// Slots; more listings at a time than this rarely collide.
const PLACES: usize = 64;

/// What is known of the readers of directories.
#[derive(Debug)]
pub(crate) struct ReaddirplusPolicies {
    /// Directories whose names were listed without attributes lately.
    listed: [AtomicU64; PLACES],
    /// Threads that look at what they list.
    looking: [AtomicU32; PLACES],
}

impl Default for ReaddirplusPolicies {
    fn default() -> ReaddirplusPolicies {
        ReaddirplusPolicies {
            listed: std::array::from_fn(|_| AtomicU64::new(0)),
            looking: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl ReaddirplusPolicies {
    fn listed(&self, directory: InodeId) -> &AtomicU64 {
        &self.listed[(directory.0 % PLACES as u64) as usize]
    }

    fn looking(&self, thread: u32) -> &AtomicU32 {
        &self.looking[thread as usize % PLACES]
    }

    /// How many entries a thread is shown with attributes when it begins to list a directory.
    pub(crate) fn first_entries(&self, thread: u32) -> usize {
        let looks = self.looking(thread).load(Ordering::Relaxed) == thread;
        if looks { FIRST_ENTRIES_LOOKED_AT } else { FIRST_ENTRIES }
    }

    /// A thread has looked at what it was shown first.
    pub(crate) fn goes_on_with_attributes(&self, thread: u32) {
        self.looking(thread).store(thread, Ordering::Relaxed);
    }

    /// A thread reads on without having looked at anything so far.
    pub(crate) fn goes_on_without(&self, directory: InodeId, thread: u32) {
        self.listed(directory).store(directory.0, Ordering::Relaxed);
        let _ = self.looking(thread).compare_exchange(thread, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A thread looks a name up.
    pub(crate) fn looked_up(&self, directory: InodeId, thread: u32) {
        if self.listed(directory).load(Ordering::Relaxed) == directory.0 {
            self.looking(thread).store(thread, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: InodeId = InodeId(7);
    const THREAD: u32 = 4711;

    #[test]
    fn who_only_lists_names_is_shown_few_entries_with_attributes() {
        let readdirplus = ReaddirplusPolicies::default();
        readdirplus.goes_on_without(DIRECTORY, THREAD);
        assert_eq!(readdirplus.first_entries(THREAD), FIRST_ENTRIES);
        readdirplus.looked_up(InodeId(8), THREAD);
        assert_eq!(readdirplus.first_entries(THREAD), FIRST_ENTRIES, "that directory was not listed");
    }

    #[test]
    fn who_lists_all_names_and_then_looks_them_up_is_shown_more_the_next_time() {
        let readdirplus = ReaddirplusPolicies::default();
        readdirplus.goes_on_without(DIRECTORY, THREAD);
        readdirplus.looked_up(DIRECTORY, THREAD);
        assert_eq!(readdirplus.first_entries(THREAD), FIRST_ENTRIES_LOOKED_AT);
        assert_eq!(readdirplus.first_entries(THREAD + 1), FIRST_ENTRIES, "another thread");
        readdirplus.goes_on_without(DIRECTORY, THREAD);
        assert_eq!(readdirplus.first_entries(THREAD), FIRST_ENTRIES, "it has not looked again");
    }

    #[test]
    fn who_looks_at_what_it_was_shown_first_is_shown_more_the_next_time() {
        let readdirplus = ReaddirplusPolicies::default();
        readdirplus.goes_on_with_attributes(THREAD);
        assert_eq!(readdirplus.first_entries(THREAD), FIRST_ENTRIES_LOOKED_AT);
    }
}
