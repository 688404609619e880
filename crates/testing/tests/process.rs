//! `vazao-test-process` around tests that hang or leave something behind. Each names what it is and leaves nothing.

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use vazao_testing::left_behind::mounts;
use vazao_testing::programs::output_of;
use vazao_testing::waiting::wait_until;

/// Longest run of one of these tests.
const LIMIT: Duration = Duration::from_secs(40);

/// Starts the program around `PROGRAM -c SCRIPT`, with a place of its own below `directory`.
fn start(directory: &Path, program: &str, script: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vazao-test-process"));
    command.args([program, "-c", script]).env("TMPDIR", directory).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// What the runner does when a test's time is over.
fn end(process: &Child) {
    let pid = Pid::from_raw(process.id() as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What the processes that were started below a directory with such a command line wait for, as the kernel names it.
fn running(command: &str, directory: &Path) -> Vec<String> {
    let place = format!("TMPDIR={}", directory.display());
    let read = |entry: &std::fs::DirEntry, name| {
        let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let entries = std::fs::read_dir("/proc").expect("is mounted").flatten();
    let ours = entries.filter(|entry| read(entry, "environ").contains(&place));
    let named = ours.filter(|entry| read(entry, "cmdline").trim_end().ends_with(command));
    named.map(|entry| read(&entry, "wchan")).collect()
}

fn is_empty(directory: &Path) -> bool {
    mounts(directory).is_empty() && directory.read_dir().expect("a directory").next().is_none()
}

#[test]
fn a_test_that_ends_is_passed_on_as_it_ended() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for code in [0, 3] {
        let process = start(directory.path(), "sh", &format!("touch \"$TMPDIR/file\"; exit {code}"));
        let output = output_of(process, LIMIT);
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(is_empty(directory.path()), "its files are taken away");
    }
}

#[test]
fn a_test_that_sleeps_for_ever_is_named_with_what_it_and_its_children_wait_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let process = start(directory.path(), "sh", "touch \"$TMPDIR/begun\"; sleep 1000 & wait");
    // A process that has only been started is on its way to sleep, and waits for nothing yet.
    let sleeps =
        || running("sleep 1000", directory.path()).iter().any(|waits_for| waits_for.contains("nanosleep"));
    wait_until("its child sleeps", sleeps);
    end(&process);
    let output = output_of(process, LIMIT);
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
    for word in ["HUNG: sh", "sleep 1000", "nanosleep", "wait"] {
        assert!(said(&output).contains(word), "{word}: {}", said(&output));
    }
    assert!(is_empty(directory.path()));
}

/// The kernel asks a server that never answers: no signal ends the caller.
const NEVER_ANSWERED: &str = r#"
import ctypes, os
place = os.environ["TMPDIR"] + "/mount"
os.mkdir(place)
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"never", place.encode(), b"fuse.never", 0, options) != 0:
    raise OSError(ctypes.get_errno(), "mount")
os.set_inheritable(device, True)
os.stat(place + "/file")
"#;

#[test]
fn a_test_that_never_comes_out_of_a_call_to_a_mount_is_named_and_its_mount_taken_away() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: no /dev/fuse, or not root");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let process = start(directory.path(), "python3", NEVER_ANSWERED);
    wait_until("it has mounted", || !mounts(directory.path()).is_empty());
    // One that is on its way to ask finds that the mount has gone, and ends by itself.
    let asks = || {
        running(NEVER_ANSWERED.trim_end(), directory.path())
            .iter()
            .any(|waits_for| waits_for.starts_with("fuse_"))
    };
    wait_until("it asks", asks);
    end(&process);
    let output = output_of(process, LIMIT);
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
    assert!(said(&output).contains("HUNG: python3"), "{}", said(&output));
    assert!(is_empty(directory.path()), "{:?}", mounts(directory.path()));
}

#[test]
fn a_test_that_leaves_a_daemon_behind_fails_and_names_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = "setsid sleep 1001 >/dev/null 2>&1 </dev/null & sleep 0.1";
    let output = output_of(start(directory.path(), "sh", script), LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("LEFT BEHIND by sh"), "{}", said(&output));
    assert!(said(&output).contains("sleep 1001"), "{}", said(&output));
    assert!(running("sleep 1001", directory.path()).is_empty() && is_empty(directory.path()));
}
