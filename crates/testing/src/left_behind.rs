//! What one test started and mounted: found again by a mark in the environment and by its directory, named, and taken
//! away.
//!
//! Order: connections of FUSE mounts are broken first, since a process that waits for a mount's answer cannot be
//! killed; then processes end, then mounts and loop devices go.

use crate::report;
use crate::waiting::is_within;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The variable that every process which a test starts inherits.
pub const MARK: &str = "VAZAO_TEST_MARK";

/// Where the kernel lists FUSE connections, by the device number of the mount.
const FUSE_CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// How long processes have to end after a signal.
const END_MAX: Duration = Duration::from_secs(3);

/// How long a process may take to start a program, until it counts as one without an environment.
const START_MAX: Duration = Duration::from_millis(50);

/// The flag of a thread of the kernel (`include/linux/sched.h`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// A mount below a test's directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where it is.
    pub place: PathBuf,
    /// Of which type, `fuse.vazao` or `ext4`.
    pub kind: String,
    /// The minor number of its device: the name of its FUSE connection.
    device_minor: String,
}

/// The processes with this mark, but for the calling one.
pub fn processes(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let carries = |process: &u32| {
        let environment = environment(*process);
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    };
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|process| *process != std::process::id() && carries(process)).collect()
}

/// The environment of a process; nothing where it may not be read. One that is starting a program shows none for a
/// moment.
fn environment(process: u32) -> Vec<u8> {
    let mut environment = Vec::new();
    is_within(START_MAX, || match fs::read(format!("/proc/{process}/environ")) {
        Ok(bytes) if bytes.is_empty() => !may_have_environment(process),
        Ok(bytes) => {
            environment = bytes;
            true
        }
        Err(_) => true,
    });
    environment
}

/// False for a thread of the kernel, and for a process that has ended.
fn may_have_environment(process: u32) -> bool {
    let stat = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    // proc_pid_stat(5): the name may hold anything, also parentheses; state and flags follow it.
    let after_name = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let fields: Vec<&str> = std::str::from_utf8(after_name).unwrap_or_default().split_whitespace().collect();
    let flags: Option<u64> = fields.get(6).and_then(|flags| flags.parse().ok());
    let has_ended = fields.first().is_none_or(|state| matches!(*state, "Z" | "X"));
    !has_ended && flags.is_some_and(|flags| flags & PF_KTHREAD == 0)
}

/// The mounts below a directory, the last one first.
pub fn mounts(directory: &Path) -> Vec<Mount> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts: Vec<Mount> = table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect();
    mounts.retain(|mount| mount.place.starts_with(directory));
    mounts.reverse();
    mounts
}

/// A line of proc_pid_mountinfo(5): `36 35 0:98 / /mnt rw,noatime shared:1 - ext3 /dev/root rw`.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let place = unescape(fields.nth(1)?);
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount {
        place: PathBuf::from(std::ffi::OsString::from_vec(place)),
        kind: String::from_utf8_lossy(kind).into_owned(),
        device_minor: device.split_once(':')?.1.to_owned(),
    })
}

/// Blanks, tabs, newlines and backslashes stand as `\040` in the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    bytes
}

/// Breaks the FUSE connections of mounts: a thread that waits for an answer of theirs gets an error.
pub fn abort(mounts: &[Mount]) {
    let fuse = mounts.iter().filter(|mount| mount.kind.starts_with("fuse"));
    for mount in fuse {
        let connection = Path::new(FUSE_CONNECTIONS).join(&mount.device_minor);
        if fs::write(connection.join("abort"), "1").is_err() {
            // No fusectl is mounted here, or no permission: unmounting by force breaks the connection, too.
            let _ = unmount(&mount.place, UnmountFlags::FORCE);
        }
    }
}

/// Ends the processes with this mark and takes away what is mounted below the directory, and loop devices of its files.
pub fn remove(mark: &str, directory: &Path) {
    abort(&mounts(directory));
    for signal in [Signal::TERM, Signal::KILL] {
        let left = processes(mark);
        for process in left.iter().filter_map(|process| Pid::from_raw(i32::try_from(*process).ok()?)) {
            // A process that a test froze hears nothing before it goes on.
            let _ = kill_process(process, signal);
            let _ = kill_process(process, Signal::CONT);
        }
        if is_within(END_MAX, || processes(mark).is_empty()) {
            break;
        }
    }
    for mount in mounts(directory) {
        let _ = unmount(&mount.place, UnmountFlags::FORCE)
            .or_else(|_| unmount(&mount.place, UnmountFlags::DETACH));
    }
    detach_loop_devices(directory);
}

/// Loop devices are the machine's own: neither the end of a process nor that of a mount takes them away.
#[allow(clippy::disallowed_methods, reason = "losetup ends by itself")]
fn detach_loop_devices(directory: &Path) {
    let Ok(entries) = fs::read_dir("/sys/block") else { return };
    for entry in entries.flatten() {
        let Ok(file) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        let file = Path::new(OsStr::from_bytes(file.trim_ascii_end()));
        if file.starts_with(directory) {
            let device = Path::new("/dev").join(entry.file_name());
            let mut command = Command::new("losetup");
            command.arg("--detach").arg(device).stdout(Stdio::null()).stderr(Stdio::null());
            let _ = command.status();
        }
    }
}

/// What a test left behind, in words; empty when it left nothing. Processes that are about to end get `timeout`.
pub fn told(mark: &str, directory: &Path, timeout: Duration) -> String {
    is_within(timeout, || processes(mark).is_empty() && mounts(directory).is_empty());
    let processes = processes(mark).into_iter().map(report::line_of_process);
    let mounts = mounts(directory).into_iter();
    let mounts = mounts.map(|mount| format!("a mount of type {} at {}", mount.kind, mount.place.display()));
    processes.chain(mounts).map(|line| format!("left behind: {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::WaitBounded;

    #[test]
    fn a_line_of_the_mount_table_tells_place_type_and_connection() {
        let line = b"412 29 0:57 / /tmp/a\\040b rw,nosuid shared:7 - fuse.vazao vazao rw,user_id=0";
        let mount = parse_mount(line).expect("a line as the kernel writes it");
        let place = PathBuf::from("/tmp/a b");
        assert_eq!(mount, Mount { place, kind: "fuse.vazao".into(), device_minor: "57".into() });
        assert_eq!(parse_mount(b"412 29"), None);
        assert_eq!(unescape(b"\\134\\9\\04"), b"\\\\9\\04");
    }

    /// Now and then the daemon was not found: it was just starting its shell.
    #[test]
    fn a_daemon_that_a_test_left_behind_is_named_and_ended() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mark = format!("daemon-{}", std::process::id());
        let mut daemon = Command::new("sh");
        // It does not end by a signal to its group, nor by one that it may ignore.
        let orphan =
            "trap '' TERM; setsid sh -c \"trap '' TERM; while :; do sleep 0.1; done\" >/dev/null 2>&1 &";
        let started = daemon.args(["-c", orphan]).env(MARK, &mark).spawn().expect("a shell").wait_bounded();
        assert!(started.success());
        let left = told(&mark, directory.path(), Duration::from_millis(100));
        assert!(left.contains("while :"), "{left}");
        remove(&mark, directory.path());
        assert_eq!(told(&mark, directory.path(), Duration::ZERO), "");
    }
}
