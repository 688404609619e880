//! Whether times of files are what some clock has shown.

use super::wall::machine_s;
use crate::failure::{Failure, Outcome};
use crate::tool::tool;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a busy machine may put between a clock and a look at it.
const SLACK_S: i64 = 120;

/// By how many seconds clocks have been off so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Offsets {
    /// Of each process, now.
    pub(super) now: Vec<i64>,
    /// The metadata service's greatest one: its stamps never go back while it runs.
    pub(super) of_metadata_max: i64,
    /// Of all, ever.
    pub(super) least: i64,
    pub(super) most: i64,
}

impl Offsets {
    pub(super) fn note(&mut self, process: usize, offset_s: i64) {
        self.now[process] = offset_s;
        if process == crate::daemons::META {
            self.of_metadata_max = self.of_metadata_max.max(offset_s);
        }
        (self.least, self.most) = (self.least.min(offset_s), self.most.max(offset_s));
    }
}

/// A clock from before 1970 counts as 1970.
fn shown_s(offset_s: i64) -> i64 {
    (machine_s() + offset_s).max(0)
}

/// Writes a file and compares its time with the clocks of the mount and of the metadata service. What must not be.
pub(super) fn probe(file: &Path, client: usize, offsets: &Offsets) -> Outcome<Vec<String>> {
    let wrote = File::create(file).and_then(|mut it| it.write_all(b"when").and_then(|()| it.sync_all()));
    wrote.map_err(Failure::at(file.display()))?;
    let mtime_s = fs::metadata(file).map_err(Failure::at(file.display()))?.mtime();
    let clocks = [offsets.now[client], offsets.now[crate::daemons::META], offsets.of_metadata_max];
    let fits = clocks.iter().any(|offset_s| (shown_s(*offset_s) - mtime_s).abs() <= SLACK_S);
    Ok(match fits {
        true => Vec::new(),
        false => vec![format!(
            "{}: was written at {mtime_s} s, and the clocks of its mount and of the metadata service show {:?}",
            file.display(),
            clocks.map(shown_s)
        )],
    })
}

/// Times of everything below a directory that no clock has ever shown; and that `ls -l` shows all.
pub(super) fn check(directory: &Path, offsets: &Offsets) -> Outcome<Vec<String>> {
    let range = shown_s(offsets.least) - SLACK_S..=shown_s(offsets.most) + SLACK_S;
    let mut findings = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).map_err(Failure::at(path.display()))?;
        for (what, seconds, nanoseconds) in [
            ("mtime", metadata.mtime(), metadata.mtime_nsec()),
            ("ctime", metadata.ctime(), metadata.ctime_nsec()),
            ("atime", metadata.atime(), metadata.atime_nsec()),
        ] {
            if seconds < 0 || !range.contains(&seconds) || !(0..1_000_000_000).contains(&nanoseconds) {
                findings
                    .push(format!("{}: {what} is {seconds}.{nanoseconds:09}, of no clock", path.display()));
            }
        }
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).map_err(Failure::at(path.display()))?;
            left.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    let place = directory.to_string_lossy();
    tool("ls", &["-lR", "--time-style=full-iso", &place])?;
    Ok(findings)
}
