//! What was found after a fault, against what the writers were promised.

pub(crate) mod contents;
pub(crate) mod look;
pub(crate) mod names;
pub(crate) mod sharing;

use crate::load::journal::{Entry, Journal};
use contents::Expected;
use look::{Seen, read};
use names::{Blow, Prefix, moment, prefixes};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A writer, and its directory as it was found.
#[derive(Debug)]
pub(crate) struct Case {
    /// Where, for people.
    pub(crate) directory: String,
    pub(crate) journal: Journal,
    pub(crate) seen: Seen,
}

/// What a check saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    /// What must not be, for people.
    pub(crate) findings: Vec<String>,
    /// How old the oldest answered change of names was that is lost.
    pub(crate) lost_ns: u64,
    /// How long the answered changes were made in that are lost: from the moment that is left to the last answer.
    pub(crate) span_ns: u64,
    /// How many such changes are lost.
    pub(crate) lost: usize,
    /// Files that are there, and among them those that had to be whole.
    pub(crate) files: usize,
    pub(crate) certain: usize,
    /// Files that have to be there whole from now on, by their paths.
    pub(crate) kept: BTreeMap<PathBuf, Expected>,
}

/// Compares. `loses_names`: the metadata service lost power, too.
pub(crate) fn check(cases: &[Case], blow: Blow, loses_names: bool) -> Checked {
    let mut checked = Checked::default();
    let mut fitting: Vec<Vec<Prefix>> = Vec::new();
    for case in cases {
        match prefixes(&case.journal, blow, &case.seen.found) {
            Ok(prefixes) => fitting.push(prefixes),
            Err(why) => checked.findings.push(format!("{}: {why}", case.directory)),
        }
    }
    if !checked.findings.is_empty() {
        return checked;
    }
    let Some((moment_ns, chosen)) = moment(&fitting) else {
        let each: Vec<String> = fitting.iter().map(|all| spans(all, blow.at_ns)).collect();
        let text = "what is there of one writer and of another was never there at one moment";
        checked.findings.push(format!("{text}: {}", each.join(" and ")));
        return checked;
    };
    checked.lost = chosen.iter().map(|prefix| prefix.lost).sum();
    if checked.lost > 0 {
        checked.lost_ns = blow.at_ns - moment_ns;
        let last_ns = chosen.iter().map(|prefix| prefix.lost_until_ns).max().unwrap_or(0);
        checked.span_ns = last_ns.saturating_sub(moment_ns);
        if !loses_names {
            let lost = checked.lost;
            checked.findings.push(format!("{lost} changes of names are lost, and no power of theirs"));
        }
    }
    for (case, prefix) in cases.iter().zip(&chosen) {
        check_files(case, prefix, blow, &mut checked);
    }
    checked
}

fn spans(prefixes: &[Prefix], loss_ns: u64) -> String {
    let before_ms = |ns: u64| loss_ns.saturating_sub(ns) as f64 / 1e6;
    let span = |prefix: &Prefix| {
        format!("{:.2} to {:.2} ms before", before_ms(prefix.from_ns), before_ms(prefix.to_ns))
    };
    prefixes.iter().map(span).collect::<Vec<_>>().join(" or ")
}

fn check_files(case: &Case, prefix: &Prefix, blow: Blow, checked: &mut Checked) {
    for (node, inode) in &prefix.same.inodes {
        let Some(path) = case.seen.files.get(inode) else { continue };
        let expected = Expected::of(&case.journal, *node, blow);
        checked.files += 1;
        checked.certain += usize::from(expected.is_certain());
        match check_file(path, &expected) {
            Err(why) => checked
                .findings
                .push(format!("inode {inode}: {why}\n{}", history(&case.journal, *node, blow.at_ns))),
            Ok(()) if expected.is_certain() => {
                checked.kept.insert(path.clone(), expected);
            }
            Ok(()) => {}
        }
    }
}

/// What was done to a file, with the milliseconds from the fault to the beginning and to the answer of each.
fn history(journal: &Journal, file: u64, fault_ns: u64) -> String {
    let of_it = |entry: &&Entry| entry.op.file() == Some(file) || entry.op.made() == Some(file);
    told(journal.entries.iter().filter(of_it), fault_ns)
}

/// Operations, a line each, with their times from the loss on.
fn told<'a>(entries: impl Iterator<Item = &'a Entry>, fault_ns: u64) -> String {
    let since_ms = |ns: u64| (ns as f64 - fault_ns as f64) / 1e6;
    let line = |entry: &Entry| {
        let answer = match (entry.ended_ns, &entry.failed) {
            (None, _) => "no answer".to_owned(),
            (Some(ns), None) => format!("answered at {:.1}", since_ms(ns)),
            (Some(ns), Some(why)) => format!("failed at {:.1}: {why}", since_ms(ns)),
        };
        format!("  {:.1} ms: {:?}, {answer}", since_ms(entry.began_ns), entry.op)
    };
    entries.map(line).collect::<Vec<_>>().join("\n")
}

/// Reads a file and compares it.
pub(crate) fn check_file(path: &Path, expected: &Expected) -> Result<(), String> {
    let (length, parts) = read(path).map_err(|failure| failure.to_string())?;
    expected.check(length, &parts).map_err(|why| format!("{}: {why}", path.display()))
}
