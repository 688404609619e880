//! What a run can have made, and how each of it is undone by its identity. Undoing is idempotent, and does not depend
//! on the process that made it.

use super::{Error, cgroup, namespace, tool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One thing that was made, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Made {
    /// A network namespace, with its links and the processes in it.
    Namespace(String),
    /// A file or a device node.
    File(PathBuf),
    /// A directory, removed only when empty.
    Directory(PathBuf),
    /// The loop device behind which this file is. Its name is the kernel's choice, so the file is the identity.
    Loop(PathBuf),
    /// A bound on the loop device of file `backing`, kept in the kernel's file `rule`, which outlives the device.
    Throttle {
        /// The file of the block-I/O controller.
        rule: PathBuf,
        /// The file behind the device.
        backing: PathBuf,
    },
    /// What is mounted here.
    Mount(PathBuf),
    /// A control group; its processes go back to the group above.
    Cgroup(PathBuf),
}

/// Undoes one thing; not being there is success.
pub(crate) fn undo(made: &Made) -> Result<(), Error> {
    match made {
        Made::Namespace(name) => remove_namespace(name),
        Made::File(path) => ignore_missing(fs::remove_file(path)).map_err(Error::at(path.display())),
        Made::Directory(path) => ignore_missing(fs::remove_dir(path)).map_err(Error::at(path.display())),
        Made::Loop(backing) => detach_loop(backing),
        Made::Throttle { rule, backing } => lift_throttle(rule, backing),
        Made::Mount(path) => unmount(path),
        Made::Cgroup(path) => cgroup::remove(path),
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn remove_namespace(name: &str) -> Result<(), Error> {
    // A process may have a child while it is being killed.
    const ROUNDS_MAX: usize = 20;
    let file = namespace::file(name);
    if !file.exists() {
        return Ok(());
    }
    for _ in 0..ROUNDS_MAX {
        if kill_processes_in(&file)? == 0 {
            break;
        }
    }
    tool::run("ip", &["netns", "delete", name]).map(|_| ())
}

/// Kills what runs in a network namespace of ours: only we, or what we started, can have put it there.
/// Answers how many there were.
fn kill_processes_in(namespace: &Path) -> Result<usize, Error> {
    let mut killed = 0;
    let identity = identity_of(namespace).map_err(Error::at(namespace.display()))?;
    for entry in fs::read_dir("/proc").map_err(Error::at("/proc"))? {
        let entry = entry.map_err(Error::at("/proc"))?;
        let process_id = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let ours = identity_of(&entry.path().join("ns/net")).is_ok_and(|it| it == identity);
        if let Some(pid) = process_id.filter(|_| ours).and_then(Pid::from_raw) {
            killed += usize::from(kill(pid, &entry.path().join("ns/net"), identity)?);
        }
    }
    Ok(killed)
}

/// Kills one process and waits until it is gone, unless its number has meanwhile gone to a process elsewhere.
/// Answers whether it was killed.
fn kill(pid: Pid, its_namespace: &Path, identity: (u64, u64)) -> Result<bool, Error> {
    const GONE_WITHIN: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
    if pid == rustix::process::getpid() {
        return Ok(false);
    }
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(false) };
    let still_there = identity_of(its_namespace).is_ok_and(|it| it == identity);
    if !still_there || pidfd_send_signal(&handle, Signal::KILL).is_err() {
        return Ok(false);
    }
    let ended = retry_on_intr(|| poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&GONE_WITHIN)));
    if ended.map_err(Error::at_call("waiting for a process to end"))? > 0 {
        return Ok(true);
    }
    let process = pid.as_raw_nonzero();
    Err(Error::Refused(format!("process {process} does not end, though killed: see /proc/{process}/stack")))
}

fn identity_of(namespace: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(namespace).map(|it| (it.dev(), it.ino()))
}

/// What the kernel writes behind the path of a file that has been removed.
const REMOVED: &str = " (deleted)";

/// The loop device behind which `backing` is, as `loopN`, also when that file has been removed meanwhile.
pub(crate) fn loop_device_of(backing: &Path) -> Result<Option<String>, Error> {
    for entry in fs::read_dir("/sys/block").map_err(Error::at("/sys/block"))? {
        let entry = entry.map_err(Error::at("/sys/block"))?;
        let behind = fs::read_to_string(entry.path().join("loop/backing_file"));
        let is_backing = |behind: &str| {
            let path = behind.strip_suffix(REMOVED).unwrap_or(behind);
            Path::new(path) == backing
        };
        if behind.is_ok_and(|behind| is_backing(behind.trim_end())) {
            return Ok(Some(entry.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn detach_loop(backing: &Path) -> Result<(), Error> {
    match loop_device_of(backing)? {
        Some(device) => tool::run("losetup", &["--detach", &format!("/dev/{device}")]).map(|_| ()),
        None => Ok(()),
    }
}

/// The next user of the device would inherit the bound.
fn lift_throttle(rule: &Path, backing: &Path) -> Result<(), Error> {
    let Some(device) = loop_device_of(backing)? else { return Ok(()) };
    let numbers = cgroup::device_numbers(&device)?;
    cgroup::write(rule, &format!("{numbers} 0"))
}

/// Unmounts even what is still in use: the device then goes with its last user.
fn unmount(path: &Path) -> Result<(), Error> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(Error::at("/proc/self/mounts"))?;
    let path = path.to_string_lossy();
    if !mounts.lines().any(|line| line.split(' ').nth(1) == Some(&*path)) {
        return Ok(());
    }
    let gently = tool::run("umount", &[&path]);
    gently.or_else(|_| tool::run("umount", &["--lazy", &path])).map(|_| ())
}
