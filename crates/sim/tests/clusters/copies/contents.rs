//! What the blocks of an object may hold.

use super::{BLOCK, BLOCKS};
use std::collections::BTreeSet;

/// What a copy of a block holds: each version, and how many words of it follow one another. 0: zeros.
pub(super) type Shown = Vec<(u64, usize)>;

type Versions = BTreeSet<u64>;

#[derive(Clone, Default)]
struct Block {
    /// The version acknowledged last, and those that failed since.
    versions: Versions,
    /// What is left where what was not synced is lost: the versions that it had at the last sync, and each one since.
    kept: Versions,
    /// Those of another client that may be on their way.
    under_way: Versions,
    /// It may hold parts of several versions, as a machine lost power before they were synced.
    may_be_torn: bool,
}

/// Of each block.
pub(super) struct Contents {
    blocks: Vec<Block>,
}

impl Contents {
    /// All zeros.
    pub(super) fn new() -> Contents {
        let zeros = Block { versions: Versions::from([0]), kept: Versions::from([0]), ..Block::default() };
        Contents { blocks: vec![zeros; BLOCKS as usize] }
    }

    /// A change was acknowledged.
    pub(super) fn set(&mut self, block: usize, version: u64) {
        let known = &mut self.blocks[block];
        known.versions.clone_from(&known.under_way);
        known.may_be_torn = false;
        self.try_to_set(block, version);
    }

    /// A change failed, and may have been made all the same.
    pub(super) fn try_to_set(&mut self, block: usize, version: u64) {
        let known = &mut self.blocks[block];
        known.versions.insert(version);
        known.kept.insert(version);
    }

    /// Another client's change begins, and may be made at any time until [`Self::settle`].
    pub(super) fn send(&mut self, block: usize, version: u64) {
        self.blocks[block].under_way.insert(version);
        self.try_to_set(block, version);
    }

    /// What was acknowledged is durable.
    pub(super) fn sync(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.kept.clone_from(&block.versions));
    }

    /// What was not synced may be lost.
    pub(super) fn lose(&mut self) {
        for block in &mut self.blocks {
            block.versions.clone_from(&block.kept);
            block.may_be_torn |= block.kept.len() > 1;
        }
    }

    /// Whether a block may be as one copy shows it.
    pub(super) fn allows(&self, block: usize, shown: &Shown) -> bool {
        let known = &self.blocks[block];
        (shown.len() == 1 || known.may_be_torn)
            && shown.iter().all(|(version, _)| known.versions.contains(version))
    }

    /// Nothing is on its way, and all copies show the same.
    pub(super) fn settle(&mut self, block: usize, shown: &Shown) {
        let known = &mut self.blocks[block];
        known.under_way.clear();
        known.versions = shown.iter().map(|(version, _)| *version).collect();
        known.may_be_torn = shown.len() > 1;
    }

    /// For messages.
    pub(super) fn allowed(&self, block: usize) -> String {
        let Block { versions, may_be_torn, .. } = &self.blocks[block];
        format!("{versions:?}{}", if *may_be_torn { ", or parts of several" } else { "" })
    }
}

/// What the bytes of a block are; there are zeros beyond their end.
pub(super) fn shown(bytes: &[u8]) -> Shown {
    let mut shown = Shown::new();
    for at in (0..BLOCK as usize).step_by(8) {
        let word = bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().expect("8")));
        match shown.last_mut() {
            Some((version, words)) if *version == word => *words += 1,
            _ => shown.push((word, 1)),
        }
    }
    shown
}
