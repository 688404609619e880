//! Walks down long paths: the directories further down are asked for together with the first.
//!
//! The kernel looks at each directory of a path again once its second of belief is over, one after the other. With a
//! request for each, a walk through two thousand of them took longer than that second, so that the next walk began at
//! the top again: `cp -r` of a deep tree never came to its end. So a directory that is looked up again is asked for
//! with those below it through which the last walk went, and these are answered from here, for the rest of the second
//! that began when they were asked for.
//!
//! Invariants:
//!
//! - What is kept was asked for after the last change through this mount had ended.
//! - It is believed no longer than any other answer: the lease counts from the request.

use super::{Areas, LEASE};
use crate::filesystem::arguments::Place;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use vazao_client::{Asked, Result};
use vazao_model::{Attributes, FileKind, InodeId};

/// Answers kept at once: those to a few walks.
const KEPT_MAX: usize = 4096;

/// Answers older than this are not given: the kernel would ask again too soon.
const AGE_MAX: Duration = LEASE.checked_div(2).expect("2 is not 0");

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<InodeId, (Attributes, Asked)>,
    /// Changes through this mount that have ended.
    changes: u64,
}

/// Directories that were asked for with one above them.
#[derive(Debug, Default)]
pub(super) struct Walks {
    kept: Mutex<Kept>,
}

/// A change of names or attributes through this mount; when it ends, nothing is kept of what was asked before.
#[must_use = "dropped at once it counts as ended"]
pub(super) struct Changing<'a>(&'a Walks);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut kept = self.0.kept.lock();
        kept.changes += 1;
        kept.answers.clear();
    }
}

impl Walks {
    pub(super) fn changing(&self) -> Changing<'_> {
        Changing(self)
    }

    fn changes(&self) -> u64 {
        self.kept.lock().changes
    }

    /// Keeps what was asked for when `changes` had ended.
    fn keep(&self, changes: u64, answers: impl Iterator<Item = (InodeId, Attributes)>, asked: Asked) {
        let mut kept = self.kept.lock();
        if kept.changes != changes {
            return;
        }
        if kept.answers.len() >= KEPT_MAX {
            kept.answers.clear();
        }
        kept.answers.extend(answers.map(|(inode, attributes)| (inode, (attributes, asked))));
    }

    fn is_empty(&self) -> bool {
        self.kept.lock().answers.is_empty()
    }

    fn get(&self, inode: InodeId) -> Option<(Attributes, Asked)> {
        self.kept.lock().answers.get(&inode).cloned()
    }
}

impl Areas {
    /// How long an answer may be believed from now on.
    pub(super) fn lease(&self, asked: Asked) -> Duration {
        LEASE.saturating_sub(self.age(asked))
    }

    fn age(&self, asked: Asked) -> Duration {
        Duration::from_nanos(self.clock.now_ns().saturating_sub(asked.at_ns()))
    }

    /// A directory that has been asked for with one above it.
    pub(super) fn cached_walk(&self, place: Place<'_>) -> Option<(Result<Attributes>, Option<Asked>)> {
        if self.walks.is_empty() {
            return None;
        }
        let spot = self.table.lock().spot(place.directory)?.child(place.name);
        let inode = self.table.lock().number(&spot)?;
        let (attributes, asked) = self.walks.get(inode)?;
        if self.age(asked) > AGE_MAX {
            return None;
        }
        Some((Ok(self.entered(&spot, attributes, None)), Some(asked)))
    }

    /// Looks at a directory again, with those below it that the last walk went through; `None` where none is known, or
    /// it is no directory any more.
    pub(super) fn look_up_walk(&self, place: Place<'_>) -> Option<Result<Attributes>> {
        let (spot, below) = {
            let table = self.table.lock();
            let spot = table.spot(place.directory)?.child(place.name);
            let below = table.walk_below(&spot);
            (spot, below)
        };
        let deepest = below.last().filter(|_| !spot.area.is_empty())?;
        let path = deepest.1.path.get(spot.path.len()..)?;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let (changes, asked) = (self.walks.changes(), self.client.asked());
        let found = self.servers.ask_area(&spot, |area| area.stat_below(&spot.path, path));
        let (attributes, further) = match found {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        if attributes.kind != FileKind::Directory {
            return None;
        }
        let answers = below.iter().map(|(inode, _)| *inode).zip(further);
        self.walks.keep(changes, answers, asked);
        Some(Ok(self.entered(&spot, attributes, None)))
    }
}

#[cfg(test)]
#[path = "walks_tests.rs"]
mod tests;
