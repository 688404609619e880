//! Places in the queue: how many copies are out, from this node and to each other one.

use std::collections::HashMap;

/// A copy that waits for a file system that hangs keeps its place, and others may have as many more.
pub(super) struct Places {
    out_max: usize,
    pair_max: usize,
    out: usize,
    /// Of them, by the node that they go to.
    pairs: HashMap<String, usize>,
    is_any_stuck: bool,
    out_stuck: usize,
    pairs_stuck: HashMap<String, usize>,
}

impl Places {
    /// So many in all, and so many to one node.
    pub(super) fn new(out_max: usize, pair_max: usize) -> Places {
        let (pairs, pairs_stuck) = (HashMap::new(), HashMap::new());
        Places { out_max, pair_max, out: 0, pairs, is_any_stuck: false, out_stuck: 0, pairs_stuck }
    }

    /// Copies that are out.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    pub(super) fn has_room(&self, pair: &str) -> bool {
        let of = |pairs: &HashMap<String, usize>| pairs.get(pair).copied().unwrap_or(0);
        let both = of(&self.pairs).saturating_sub(of(&self.pairs_stuck));
        self.out.saturating_sub(self.out_stuck) < self.out_max && both < self.pair_max
    }

    pub(super) fn take(&mut self, pair: String) {
        self.out += 1;
        *self.pairs.entry(pair).or_insert(0) += 1;
    }

    pub(super) fn leave(&mut self, pair: &str) {
        self.out -= 1;
        if let Some(count) = self.pairs.get_mut(pair) {
            *count -= 1;
            if *count == 0 {
                self.pairs.remove(pair);
            }
        }
    }

    /// Notes whether any file system hangs, and returns what was noted before.
    pub(super) fn note_any_stuck(&mut self, is_any: bool) -> bool {
        std::mem::replace(&mut self.is_any_stuck, is_any)
    }

    /// So many places belong to copies that wait for a file system that hangs.
    pub(super) fn note_stuck(&mut self, out: usize, pairs: HashMap<String, usize>) {
        (self.out_stuck, self.pairs_stuck) = (out, pairs);
    }
}
