//! What a writer did and when it was answered, as it reports to its parent: one JSON value a line.

use super::tree::Op;
use crate::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// What a line says. Moments are those of [`crate::clock::now_ns`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// An operation is about to be asked for.
    Began { at_ns: u64, op: Op },
    /// The last one was answered; with the inode, where it has made one.
    Answered { at_ns: u64, inode: Option<u64> },
    /// There is no way here to do the last one: it was not asked for.
    Refused,
    /// The last one failed.
    Failed { at_ns: u64, why: String },
}

/// Writes lines, each at once: a writer may be killed at any moment.
pub(crate) fn say(output: &mut impl Write, line: &Line) -> Outcome {
    let mut text = serde_json::to_vec(line).map_err(Failure::new)?;
    text.push(b'\n');
    output.write_all(&text).and_then(|()| output.flush()).map_err(Failure::at("the journal"))
}

/// An operation and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// What was asked for.
    pub(crate) op: Op,
    /// When it was asked for.
    pub(crate) began_ns: u64,
    /// When it was answered, or failed.
    pub(crate) ended_ns: Option<u64>,
    /// Why it failed.
    pub(crate) failed: Option<String>,
}

impl Entry {
    /// True when it was answered, and not by a failure, before this moment.
    pub(crate) fn is_answered_before(&self, at_ns: u64) -> bool {
        self.failed.is_none() && self.ended_ns.is_some_and(|ended_ns| ended_ns < at_ns)
    }

    /// True when it was answered, and not by a failure, at any time.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered_before(u64::MAX)
    }
}

/// Everything that one writer did in one round, in its order. There is never more than one operation at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Journal {
    /// Its operations.
    pub(crate) entries: Vec<Entry>,
    /// The inodes of nodes, as far as they were answered.
    pub(crate) inodes: BTreeMap<u64, u64>,
}

impl Journal {
    /// Adds a line.
    pub(crate) fn hear(&mut self, line: Line) {
        match line {
            Line::Began { at_ns, op } => {
                self.entries.push(Entry { op, began_ns: at_ns, ended_ns: None, failed: None })
            }
            Line::Answered { at_ns, inode } => {
                let Some(last) = self.entries.last_mut() else { return };
                last.ended_ns = Some(at_ns);
                if let (Some(node), Some(inode)) = (last.op.made(), inode) {
                    self.inodes.insert(node, inode);
                }
            }
            Line::Refused => drop(self.entries.pop()),
            Line::Failed { at_ns, why } => {
                if let Some(last) = self.entries.last_mut() {
                    last.ended_ns = Some(at_ns);
                    last.failed = Some(why);
                }
            }
        }
    }
}
