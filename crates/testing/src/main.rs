//! `vazao-test-process PROGRAM [ARGUMENT...]`: runs one test in a place of its own.
//!
//! The test runner starts this around each test. The test gets a directory for its temporary files and a mark in its
//! environment. When the runner says that its time is over (SIGTERM), what its processes wait for is printed before
//! they are ended. What the test started or mounted and did not end is named, fails the test, and is taken away.

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vazao_meter::{Clock, SystemClock};
use vazao_testing::left_behind::{self, MARK};
use vazao_testing::report;

/// Seconds after which this program ends a test by itself: for runners that know no limits.
const SECONDS_MAX: &str = "VAZAO_TEST_SECONDS_MAX";

/// How long what a test has started may take to end after the test.
const ENDING: Duration = Duration::from_secs(2);

/// A test that is running.
struct Running {
    name: String,
    mark: String,
    directory: PathBuf,
    /// Leads a process group of its own: a signal to the runner's group comes here, and the test lives to be looked at.
    child: Child,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: vazao-test-process PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.iter().any(|argument| argument == "--list") {
        let error = Command::new(&program).args(arguments).exec();
        eprintln!("{}: {error}", program.display());
        return ExitCode::FAILURE;
    }
    match run(&program, &arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the test itself: its limit ends it")]
fn run(program: &OsString, arguments: &[OsString]) -> std::io::Result<ExitCode> {
    let mark = format!("test-{}", std::process::id());
    // A short name: addresses of Unix sockets have room for 107 bytes only.
    let directory = std::env::temp_dir().join(format!("t{}", std::process::id()));
    fs::create_dir(&directory)?;
    // Tests also act as other users, who have to get through to the mount points.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o711))?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let mut command = Command::new(program);
    command.args(arguments).env(MARK, &mark).env("TMPDIR", &directory).process_group(0);
    let child = command.spawn()?;
    let mut running = Running { name: name(program, arguments), mark, directory, child };
    let was_ended = watch(&running, signals);
    let status = running.child.wait()?;
    let left = running.end(was_ended.load(Ordering::SeqCst));
    Ok(exit_code(status, was_ended.load(Ordering::SeqCst) || left))
}

/// The test's name as a runner gives it: `PROGRAM --exact NAME`; without one, that of the program.
fn name(program: &OsString, arguments: &[OsString]) -> String {
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let named = arguments.iter().find(|argument| !argument.as_encoded_bytes().starts_with(b"-"));
    let program = Path::new(program).file_name().unwrap_or_default();
    match named.filter(|_| exact) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => program.to_string_lossy().into_owned(),
    }
}

/// Ends the test when a signal asks for it, or when its time is over. True afterwards.
fn watch(running: &Running, mut signals: Signals) -> Arc<AtomicBool> {
    let was_ended = Arc::new(AtomicBool::new(false));
    let test = Watched {
        name: running.name.clone(),
        mark: running.mark.clone(),
        directory: running.directory.clone(),
        process: running.child.id(),
        was_ended: Arc::clone(&was_ended),
    };
    let timed = test.clone();
    let seconds = std::env::var(SECONDS_MAX).ok().and_then(|text| text.parse().ok());
    if let Some(seconds) = seconds {
        std::thread::spawn(move || {
            SystemClock.sleep(Duration::from_secs(seconds));
            timed.end(true);
        });
    }
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // Ctrl-C asks for an end, not for a reason.
            test.end(signal == SIGTERM);
        }
    });
    was_ended
}

#[derive(Clone)]
struct Watched {
    name: String,
    mark: String,
    directory: PathBuf,
    process: u32,
    was_ended: Arc<AtomicBool>,
}

impl Watched {
    fn end(&self, is_told: bool) {
        if self.was_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        if is_told {
            eprintln!("\nHUNG: {} was ended when its time was over; it waited for:", self.name);
            for process in left_behind::processes(&self.mark) {
                eprint!("  {}", report::of_process(process));
            }
        }
        left_behind::abort(&left_behind::mounts(&self.directory));
        if let Some(group) = i32::try_from(self.process).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Running {
    /// Names and removes what is left of the test. True when there was something that it should have ended.
    #[allow(clippy::disallowed_methods, reason = "rm of files that no mount covers ends by itself")]
    fn end(&self, was_ended: bool) -> bool {
        let timeout = if was_ended { Duration::ZERO } else { ENDING };
        let left = left_behind::told(&self.mark, &self.directory, timeout);
        if !left.is_empty() && !was_ended {
            eprintln!("\nLEFT BEHIND by {}:\n{left}", self.name);
        }
        left_behind::remove(&self.mark, &self.directory);
        // On this file system alone: what could not be unmounted keeps its contents.
        let mut command = Command::new("rm");
        let _ = command.args(["-rf", "--one-file-system"]).arg(&self.directory).status();
        !left.is_empty()
    }
}

fn exit_code(status: ExitStatus, must_fail: bool) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    match u8::try_from(code) {
        Ok(0) if must_fail => ExitCode::FAILURE,
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}
