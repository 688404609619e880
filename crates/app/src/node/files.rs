//! The small files by which a node tells others on its machine that it runs: its lock and its notice.

use crate::failure::{At, Failure, Outcome};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vazao_meter::Clock;

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

/// The process that holds a lock file; `None` when it is free. A process that is just starting or ending holds the lock
/// for a moment without being named by it, or with its last threads only: this waits that moment out.
pub(crate) fn holder(path: &Path) -> Outcome<Option<u32>> {
    let clock = vazao_meter::SystemClock;
    let deadline_ns = clock.now_ns() + CHANGING_MS_MAX * 1_000_000;
    loop {
        match held(path)? {
            Held::Free => return Ok(None),
            Held::By(pid) if runs(pid) => return Ok(Some(pid)),
            Held::By(_) | Held::Changing if clock.now_ns() < deadline_ns => clock.sleep(CHANGING_POLL),
            Held::By(pid) => {
                let shown = path.display();
                return Err(Failure::new(format!(
                    "{shown}: held by process {pid}, which does not end; look at it with ps"
                )));
            }
            Held::Changing => {
                let shown = path.display();
                return Err(Failure::new(format!(
                    "{shown}: held by a process that it does not name; find it with fuser"
                )));
            }
        }
    }
}

/// A process that is starting or ending has got there within this time.
const CHANGING_MS_MAX: u64 = 5_000;

/// How often one looks meanwhile.
const CHANGING_POLL: Duration = Duration::from_millis(2);

enum Held {
    Free,
    By(u32),
    Changing,
}

fn held(path: &Path) -> Outcome<Held> {
    let shown = path.display();
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Held::Free),
        Err(error) => return Err(error).at(&shown),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => return Ok(Held::Free),
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error).at(&shown),
    }
    let mut text = String::new();
    file.read_to_string(&mut text).at(&shown)?;
    Ok(text.trim().parse().map_or(Held::Changing, Held::By))
}

/// False for a process that is gone or has ended but for its last threads.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

/// Where a node in `directory` writes why it cannot register; not there while it can.
pub(crate) fn trouble_file(directory: &Path) -> PathBuf {
    directory.join("trouble")
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
    /// Where remote calls are answered, if anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) luarpc: Option<String>,
}

impl Notice {
    /// Writes it, whole or not at all.
    pub(crate) fn save(&self, path: &Path) -> Outcome {
        let text =
            serde_json::to_string(self).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        replace(path, &format!("{text}\n"))
    }

    /// Reads it; `None` when it is not there or not whole.
    pub(crate) fn load(path: &Path) -> Option<Notice> {
        serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
    }
}

/// Replaces a file's contents by way of a second file, durably and so that no reader ever sees half.
pub(crate) fn replace(path: &Path, text: &str) -> Outcome {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new: PathBuf = path.with_file_name(name);
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        // Else the name may still be that of the old contents after a loss of power.
        File::open(path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
            .sync_all()
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
