//! The record of what a run made, so that it can be undone by that record and by nothing else.
//!
//! A ledger is a file `RUN_DIRECTORY/vazao-lab-PID-N/ledger`, one JSON value a line, locked by the process that owns
//! it. A line is written before its thing is made: after a kill at any moment all that exists is on record, and
//! undoing a thing that is not there does nothing. The lock ends with its process, which is how [`sweep`] knows the
//! dead from the living; process numbers, which the kernel gives out again, are only names here.

use super::undo::{Made, undo};
use super::{Error, error::require_root};
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where ledgers are, and the mount points of slow disks.
pub const RUN_DIRECTORY: &str = "/run/vazao-lab";

/// The open record of what one value made; undone when dropped.
#[derive(Debug)]
pub(crate) struct Ledger {
    name: String,
    directory: PathBuf,
    file: Mutex<File>,
    closed: AtomicBool,
}

impl Ledger {
    /// Opens an empty ledger under a name that no living process has.
    pub(crate) fn open(thing: &'static str) -> Result<Ledger, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        require_root(thing)?;
        fs::create_dir_all(RUN_DIRECTORY).map_err(Error::at(RUN_DIRECTORY))?;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("vazao-lab-{}-{number}", std::process::id());
            let directory = Path::new(RUN_DIRECTORY).join(&name);
            if let Some(file) = create_locked(&directory)? {
                return Ok(Ledger {
                    name,
                    directory,
                    file: Mutex::new(file),
                    closed: AtomicBool::new(false),
                });
            }
        }
    }

    /// A name that nothing else on this machine has: the prefix of all that this ledger records.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A directory of this ledger's own; what is put there is to be recorded too.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Records what is about to be made.
    pub(crate) fn record(&self, made: &Made) -> Result<(), Error> {
        let mut line = serde_json::to_vec(made).map_err(|error| {
            Error::Refused(format!("{made:?} cannot be recorded, use a path that is valid text: {error}"))
        })?;
        line.push(b'\n');
        let mut file = self.file.lock();
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Refused(format!("{} is closed: what it stood for was dropped", self.name)));
        }
        file.write_all(&line).map_err(Error::at(self.directory.display()))
    }

    /// Undoes everything on record, once. What cannot be undone stays on record for [`sweep`].
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(error) = undo_all(&self.directory) {
            tracing::warn!("not everything was removed, sweep once this process has ended: {error}");
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}

/// Removes what dead processes left behind, by their own records; answers how many ledgers it closed.
///
/// The living are left alone. All are tried; the first error is returned after the last.
pub fn sweep() -> Result<usize, Error> {
    require_root("removing what a killed run left behind")?;
    let mut result = Ok(0);
    for directory in directories()? {
        match (sweep_one(&directory), &mut result) {
            (Ok(true), Ok(closed)) => *closed += 1,
            (Err(error), Ok(_)) => result = Err(error),
            _ => {}
        }
    }
    result
}

fn directories() -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(RUN_DIRECTORY) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Error::at(RUN_DIRECTORY))?,
    };
    entries.map(|entry| Ok(entry.map_err(Error::at(RUN_DIRECTORY))?.path())).collect()
}

fn sweep_one(directory: &Path) -> Result<bool, Error> {
    let file = match File::open(ledger_file(directory)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Killed before it made anything. A process that is only about to make its ledger takes another name.
            let _ = fs::remove_dir(directory);
            return Ok(false);
        }
        other => other.map_err(Error::at(directory.display()))?,
    };
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(Error::at(directory.display())(error)),
        Ok(()) => undo_all(directory).map(|()| true),
    }
}

/// Makes the directory and its ledger; nothing if the name is taken, or was swept before the lock was ours.
fn create_locked(directory: &Path) -> Result<Option<File>, Error> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        other => other.map_err(Error::at(directory.display()))?,
    }
    let path = ledger_file(directory);
    let file = match OpenOptions::new().append(true).create_new(true).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(Error::at(path.display()))?,
    };
    file.lock().map_err(Error::at(path.display()))?;
    let still_there = file.metadata().map_err(Error::at(path.display()))?.nlink() > 0;
    Ok(still_there.then_some(file))
}

/// Undoes in reverse order all that the ledger of `directory` records, and removes both if all went well.
fn undo_all(directory: &Path) -> Result<(), Error> {
    let path = ledger_file(directory);
    let text = fs::read_to_string(&path).map_err(Error::at(path.display()))?;
    let mut first_error = None;
    for made in parse(&text).iter().rev() {
        if let Err(error) = undo(made) {
            first_error.get_or_insert(error);
        }
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    fs::remove_file(&path).map_err(Error::at(path.display()))?;
    fs::remove_dir(directory).map_err(Error::at(directory.display()))
}

/// The things on record. A line cut short by a kill was never acted upon, so it is left out.
fn parse(text: &str) -> Vec<Made> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn ledger_file(directory: &Path) -> PathBuf {
    directory.join("ledger")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_cut_short_by_a_kill_is_left_out_and_the_others_are_kept() {
        let whole = serde_json::to_string(&Made::Namespace("a".into())).expect("text");
        let text = format!("{whole}\n{whole}\n{}", &whole[..whole.len() - 3]);
        assert_eq!(parse(&text), [Made::Namespace("a".into()), Made::Namespace("a".into())]);
    }

    #[test]
    fn things_are_undone_in_reverse_and_a_thing_that_was_never_made_is_no_error() {
        let place = tempfile::tempdir().expect("a directory");
        let run = place.path().join("run");
        fs::create_dir(&run).expect("a directory");
        let (outer, inner) = (place.path().join("outer"), place.path().join("outer/inner"));
        fs::create_dir_all(&inner).expect("directories");
        let made = [outer.clone(), inner, place.path().join("never")].map(Made::Directory);
        let lines: Vec<String> = made.iter().map(|made| serde_json::to_string(made).expect("text")).collect();
        fs::write(ledger_file(&run), lines.join("\n")).expect("a file");
        undo_all(&run).expect("all can be undone");
        assert!(!outer.exists() && !run.exists());
    }

    #[test]
    fn a_ledger_whose_things_cannot_be_undone_stays_for_the_next_sweep() {
        let place = tempfile::tempdir().expect("a directory");
        let busy = place.path().join("busy");
        fs::create_dir_all(busy.join("content")).expect("directories");
        let line = serde_json::to_string(&Made::Directory(busy.clone())).expect("text");
        fs::write(ledger_file(place.path()), line).expect("a file");
        undo_all(place.path()).expect_err("the directory is not empty");
        assert!(busy.exists() && ledger_file(place.path()).exists());
    }
}
