//! Whether names and attributes are, after a loss of power, as they were at one moment, and at which.
//!
//! Each writer's operations have an order, so that what is left of them is the state after the first *k* of them, for
//! some *k*. A moment fits when, for every writer, the last operation that is left began before it and the first that
//! is lost was not answered before it.

use crate::load::journal::{Entry, Journal};
use crate::load::tree::{Op, Same, Tree};
use std::collections::BTreeSet;

/// What is left of one writer's operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prefix {
    /// The moments that fit begin here.
    pub(crate) from_ns: u64,
    /// They end here: when the first lost operation was answered, else at the loss.
    pub(crate) to_ns: u64,
    /// Operations answered before the loss that are gone.
    pub(crate) lost: usize,
    /// When the last of them was answered; 0 when none is gone.
    pub(crate) lost_until_ns: u64,
    /// Which inode each node is.
    pub(crate) same: Same,
}

/// A writer's directory as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// By inode numbers.
    pub(crate) tree: Tree,
    /// The directory's own inode.
    pub(crate) root: u64,
}

/// A loss of power, as far as a writer is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blow {
    /// When.
    pub(crate) at_ns: u64,
    /// The writer and its mount or session were not hit: what was under way is asked for again, and the writer goes on.
    pub(crate) is_survived: bool,
    /// The metadata service has lost power.
    pub(crate) forgets_metadata: bool,
}

/// How many of the writer's operations before the loss have to be left: everything up to a sync that was answered,
/// as far as that sync promises it.
fn promised(before: &[Entry], loss_ns: u64) -> usize {
    let mut tree = Tree::default();
    let mut promised = 0;
    // Which operation last changed a name or an attribute of each node.
    let mut changed: Vec<(usize, u64)> = Vec::new();
    for (index, entry) in before.iter().enumerate() {
        if entry.is_answered_before(loss_ns) {
            match entry.op {
                Op::SyncDirectory { .. } => promised = index,
                Op::SyncFile { file } => {
                    let concerned = with_those_above(&tree, file);
                    let last = changed.iter().rev().find(|(_, node)| concerned.contains(node));
                    promised = promised.max(last.map_or(0, |(index, _)| index + 1));
                }
                _ => {}
            }
        }
        changed.extend(touched(&tree, &entry.op).into_iter().map(|node| (index, node)));
        // One that a fault made fail was not answered: whether it has happened is open, and it was the last.
        let _ = tree.apply(&entry.op);
    }
    promised
}

/// Operations after the loss that a finding shows.
const AFTER_MAX: usize = 20;

/// A node and the directories above it.
fn with_those_above(tree: &Tree, node: u64) -> BTreeSet<u64> {
    let mut concerned = BTreeSet::from([node]);
    let places = tree.places();
    let mut left = vec![node];
    while let Some(node) = left.pop() {
        for (place, _) in places.iter().filter(|(_, child)| *child == node) {
            if concerned.insert(place.directory) {
                left.push(place.directory);
            }
        }
    }
    concerned
}

/// The nodes whose names or attributes an operation changes.
fn touched(tree: &Tree, op: &Op) -> Vec<u64> {
    match op {
        Op::Link { node, .. } | Op::SetMode { node, .. } | Op::SetAttribute { node, .. } => vec![*node],
        Op::Unlink { at } | Op::RemoveDirectory { at } => tree.at(at).into_iter().collect(),
        Op::Rename { from, to } => tree.at(from).into_iter().chain(tree.at(to)).collect(),
        Op::Exchange { one, other } => tree.at(one).into_iter().chain(tree.at(other)).collect(),
        op => op.made().into_iter().collect(),
    }
}

/// All ways in which what was found can be what is left of a writer's operations; an explanation when there is none.
///
/// A writer that has lived through the loss has asked again for the operation that was under way, which then came upon
/// what was left, and has gone on from there.
pub(crate) fn prefixes(journal: &Journal, blow: Blow, found: &Found) -> Result<Vec<Prefix>, String> {
    let loss_ns = blow.at_ns;
    let split = journal.entries.partition_point(|entry| entry.began_ns < loss_ns);
    let (before, after) = journal.entries.split_at(split);
    let after = if blow.is_survived { after } else { &[] };
    let has_failed = |entry: &&Entry| entry.failed.is_some() && entry.ended_ns.is_some_and(|it| it < loss_ns);
    if let Some(failed) = before.iter().find(has_failed) {
        return Err(format!("failed before power went: {failed:?}"));
    }
    let under_way = before.last().filter(|entry| !entry.is_answered_before(loss_ns));
    let promised = promised(before, loss_ns);
    let (mut fitting, mut reasons) = (Vec::new(), Vec::new());
    let mut tree = Tree::default();
    for count in 0..=before.len() {
        if count > 0 && tree.apply(&before[count - 1].op).is_err() {
            // The one under way, on what it cannot be done on.
            break;
        }
        let is_new = count == 0 || before[count - 1].op.changes_tree();
        let next_changes = before.get(count).is_none_or(|entry| entry.op.changes_tree());
        if count < promised || !is_new && !next_changes {
            continue;
        }
        let is_redone = |entry: &&Entry| blow.is_survived && count < before.len() && entry.is_answered();
        let redone = under_way.filter(is_redone);
        for on_top in [None].into_iter().chain(redone.map(Some)) {
            let mut now = tree.clone();
            let further = on_top.into_iter().chain(after.iter().filter(|entry| entry.is_answered()));
            if !further.map(|entry| now.apply(&entry.op)).all(|applied| applied.is_ok()) {
                continue;
            }
            match now.is_as(&found.tree, found.root, &journal.inodes) {
                Ok(same) => fitting.push(prefix(before, count, loss_ns, same)),
                Err(why) if on_top.is_some() => {
                    reasons.push(format!("{count} and the one under way: {why}"));
                }
                Err(why) => reasons.push(format!("{count}: {why}")),
            }
        }
    }
    if fitting.is_empty() {
        let (all, answered) = (before.len(), before.iter().filter(|e| e.is_answered_before(loss_ns)).count());
        // What came before and after the last durable moment tells what is lost, and why.
        let shown = &journal.entries[promised..journal.entries.len().min(split + AFTER_MAX)];
        return Err(format!(
            "no state after {promised} to {all} operations ({answered} answered) is what is there:\n{}\n{}",
            reasons.join("\n"),
            super::told(shown.iter(), loss_ns)
        ));
    }
    Ok(fitting)
}

fn prefix(before: &[Entry], count: usize, loss_ns: u64, same: Same) -> Prefix {
    let (left, gone) = before.split_at(count);
    let last_left = left.iter().rev().find(|entry| entry.op.changes_tree());
    let first_lost = gone.iter().find(|entry| entry.op.changes_tree());
    let is_lost = |entry: &&Entry| entry.op.changes_tree() && entry.is_answered_before(loss_ns);
    Prefix {
        from_ns: last_left.map_or(0, |entry| entry.began_ns),
        to_ns: first_lost.and_then(|entry| entry.ended_ns).map_or(loss_ns, |ended_ns| ended_ns.min(loss_ns)),
        lost: gone.iter().filter(is_lost).count(),
        lost_until_ns: gone.iter().filter(is_lost).filter_map(|entry| entry.ended_ns).max().unwrap_or(0),
        same,
    }
}

/// The latest moment that fits all writers, and what fits it of each; `None` when there is none.
pub(crate) fn moment(writers: &[Vec<Prefix>]) -> Option<(u64, Vec<Prefix>)> {
    let mut moments: Vec<u64> = writers.iter().flatten().map(|prefix| prefix.to_ns).collect();
    moments.sort_unstable();
    moments.into_iter().rev().find_map(|moment_ns| {
        let fits = |prefix: &&Prefix| prefix.from_ns <= moment_ns && moment_ns <= prefix.to_ns;
        let chosen: Option<Vec<Prefix>> =
            writers.iter().map(|prefixes| prefixes.iter().rfind(fits).cloned()).collect();
        chosen.map(|chosen| (moment_ns, chosen))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tree::{Place, ROOT};
    use std::collections::BTreeMap;

    const LOSS_NS: u64 = 1_000;

    fn survived(at_ns: u64) -> Blow {
        Blow { at_ns, is_survived: true, forgets_metadata: true }
    }

    fn place(directory: u64, name: &str) -> Place {
        Place { directory, name: name.to_owned() }
    }

    fn file(node: u64) -> Op {
        Op::Create { at: place(ROOT, &format!("f{node}")), node, mode: 0o644 }
    }

    /// Operations that begin every 10 ns and take 5; the last has no answer before the loss when it is `None`.
    fn journal(ops: Vec<Op>) -> Journal {
        let entry = |(index, op): (u64, Op)| {
            let began_ns = 10 * (index + 1);
            Entry { op, began_ns, ended_ns: Some(began_ns + 5), failed: None }
        };
        Journal { entries: (0..).zip(ops).map(entry).collect(), inodes: BTreeMap::new() }
    }

    /// What is there when only the first operations have happened.
    fn left(journal: &Journal, count: usize) -> Found {
        let mut tree = Tree::default();
        journal.entries[..count].iter().for_each(|entry| tree.apply(&entry.op).expect("allowed"));
        Found { tree, root: ROOT }
    }

    #[test]
    fn what_is_left_is_found_and_how_old_what_is_lost_was() {
        let journal = journal(vec![file(2), file(3), file(4)]);
        for (count, to_ns, lost) in [(3, LOSS_NS, 0), (2, 35, 1), (0, 15, 3)] {
            let found = prefixes(&journal, survived(LOSS_NS), &left(&journal, count)).expect("fits");
            assert_eq!((found.len(), found[0].to_ns, found[0].lost), (1, to_ns, lost), "{count}");
        }
    }

    #[test]
    fn the_second_without_the_first_is_no_state() {
        let journal = journal(vec![file(2), file(3)]);
        let mut found = left(&journal, 2);
        found.tree.apply(&Op::Unlink { at: place(ROOT, "f2") }).expect("is there");
        assert!(prefixes(&journal, survived(LOSS_NS), &found).is_err());
    }

    #[test]
    fn half_a_rename_is_no_state() {
        let rename = Op::Rename { from: place(ROOT, "f2"), to: place(ROOT, "g") };
        // Without the sync no operation at all would be a state, too.
        let journal = journal(vec![file(2), Op::SyncDirectory { directory: ROOT }, rename]);
        let mut found = left(&journal, 1);
        found.tree.apply(&Op::Link { node: 2, at: place(ROOT, "g") }).expect("is new");
        assert!(prefixes(&journal, survived(LOSS_NS), &found).is_err(), "both names");
        let mut found = left(&journal, 1);
        found.tree.apply(&Op::Unlink { at: place(ROOT, "f2") }).expect("is there");
        assert!(prefixes(&journal, survived(LOSS_NS), &found).is_err(), "neither name");
    }

    #[test]
    fn what_a_sync_has_promised_is_not_lost() {
        let whole = journal(vec![file(2), Op::SyncDirectory { directory: ROOT }, file(3)]);
        assert!(prefixes(&whole, survived(LOSS_NS), &left(&whole, 0)).is_err());
        assert!(prefixes(&whole, survived(LOSS_NS), &left(&whole, 1)).is_ok());
        // The same answer after the loss promises nothing.
        let hit = Blow { at_ns: 22, is_survived: false, forgets_metadata: true };
        assert!(prefixes(&whole, hit, &left(&whole, 0)).is_ok());
    }

    #[test]
    fn an_fsync_promises_the_file_its_name_and_the_directories_above_and_no_more() {
        let below = place(2, "f");
        let ops = vec![
            Op::MakeDirectory { at: place(ROOT, "d"), node: 2, mode: 0o755 },
            Op::Create { at: below.clone(), node: 3, mode: 0o644 },
            Op::Rename { from: place(ROOT, "d"), to: place(ROOT, "e") },
            file(4),
            Op::SyncFile { file: 3 },
        ];
        let journal = journal(ops);
        assert!(prefixes(&journal, survived(LOSS_NS), &left(&journal, 2)).is_err(), "the directory's name");
        assert!(prefixes(&journal, survived(LOSS_NS), &left(&journal, 3)).is_ok());
    }

    #[test]
    fn an_operation_under_way_has_happened_or_not_or_comes_upon_what_was_left() {
        let journal = journal(vec![file(2), file(3), file(4)]);
        // The third began at 30 and was answered at 35.
        let loss_ns = 32;
        for count in [1, 2, 3] {
            assert!(prefixes(&journal, survived(loss_ns), &left(&journal, count)).is_ok(), "{count}");
        }
        let mut found = left(&journal, 1);
        found.tree.apply(&file(4)).expect("is new");
        assert!(prefixes(&journal, survived(loss_ns), &found).is_ok(), "asked for again");
        assert!(prefixes(&journal, survived(LOSS_NS), &found).is_err(), "it was answered before");
    }

    #[test]
    fn what_a_writer_did_after_the_loss_is_there() {
        let journal = journal(vec![file(2), file(3), file(4)]);
        let loss_ns = 26;
        let mut found = left(&journal, 1);
        found.tree.apply(&file(4)).expect("is new");
        assert!(prefixes(&journal, survived(loss_ns), &found).is_ok());
        assert!(prefixes(&journal, survived(loss_ns), &left(&journal, 1)).is_err());
        // What a machine without power answers is lost.
        let hit = Blow { at_ns: loss_ns, is_survived: false, forgets_metadata: true };
        assert!(
            prefixes(&journal, hit, &found).is_err() && prefixes(&journal, hit, &left(&journal, 1)).is_ok()
        );
    }

    #[test]
    fn one_moment_has_to_fit_all_writers() {
        let prefix = |from_ns, to_ns| Prefix {
            from_ns,
            to_ns,
            lost: 0,
            lost_until_ns: 0,
            same: Same { inodes: BTreeMap::new() },
        };
        let fits = moment(&[vec![prefix(0, 15)], vec![prefix(10, 40)]]).map(|(moment_ns, _)| moment_ns);
        assert_eq!(fits, Some(15));
        assert_eq!(moment(&[vec![prefix(0, 15)], vec![prefix(20, 40)]]), None);
        let choice = moment(&[vec![prefix(0, 15), prefix(20, 30)], vec![prefix(20, 40)]]);
        assert_eq!(choice.map(|(moment_ns, _)| moment_ns), Some(30));
    }
}
