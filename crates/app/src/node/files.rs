//! The small files by which a node tells others on its machine that it runs: its lock and its notice.

use crate::failure::{At, Failure, Outcome};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// A held lock file; the lock ends with the process however that ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock and writes our process id into the file; `None` when another process has it.
    pub(crate) fn take(path: &Path) -> Outcome<Option<Lock>> {
        let shown = path.display();
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.at(&shown)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error).at(&shown),
        }
        file.set_len(0).at(&shown)?;
        file.rewind().at(&shown)?;
        writeln!(file, "{}", std::process::id()).at(&shown)?;
        Ok(Some(Lock { file }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // So that no later reader takes a number that may belong to another process by then.
        let _ = self.file.set_len(0);
    }
}

/// The process that holds a lock file; `None` when nobody does.
pub(crate) fn holder(path: &Path) -> Outcome<Option<u32>> {
    let shown = path.display();
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at(&shown),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => return Ok(None),
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error).at(&shown),
    }
    let mut text = String::new();
    file.read_to_string(&mut text).at(&shown)?;
    let pid = text.trim().parse();
    pid.map(Some).map_err(|_| Failure::new(format!("{shown}: held, but names no process; try again")))
}

/// What a running node tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// The process.
    pub(crate) pid: u32,
    /// Where it serves: `host:port`.
    pub(crate) address: String,
    /// Where /metrics is, if anywhere.
    pub(crate) metrics: Option<String>,
}

impl Notice {
    /// Writes it, whole or not at all.
    pub(crate) fn save(&self, path: &Path) -> Outcome {
        let text = serde_json::to_string(self).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        replace(path, &format!("{text}\n"))
    }

    /// Reads it; `None` when it is not there or not whole.
    pub(crate) fn load(path: &Path) -> Option<Notice> {
        serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
    }
}

/// Replaces a file's contents by way of a second file, so that no reader ever sees half.
pub(crate) fn replace(path: &Path, text: &str) -> Outcome {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new: PathBuf = path.with_file_name(name);
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().at(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_names_its_holder_until_it_is_let_go() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lock");
        assert_eq!(holder(&path), Ok(None));
        let lock = Lock::take(&path).expect("works").expect("free");
        assert_eq!(holder(&path), Ok(Some(std::process::id())));
        assert!(Lock::take(&path).expect("works").is_none());
        drop(lock);
        assert_eq!(holder(&path), Ok(None));
        assert!(Lock::take(&path).expect("works").is_some());
    }

    #[test]
    fn a_stale_number_in_a_free_lock_names_nobody() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lock");
        fs::write(&path, "1\n").expect("written");
        assert_eq!(holder(&path), Ok(None));
    }
}
