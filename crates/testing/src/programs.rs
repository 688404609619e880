//! Programs that a test runs, within a time.

use crate::report;
use crate::waiting::is_within;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long output of a program that has ended may keep coming: a daemon that it left behind holds its pipe.
const DRAIN: Duration = Duration::from_secs(5);

/// The longest run of a program: a test that needs longer starts it and looks at it meanwhile.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(110);

/// A program that has not been started.
pub trait RunBounded {
    /// Runs it to its end and returns what it said. Panics when it does not start or end, saying what it waits for.
    fn run_bounded(&mut self) -> Output;
}

impl RunBounded for Command {
    fn run_bounded(&mut self) -> Output {
        output_within(self, PROGRAM_TIMEOUT)
    }
}

/// A program that runs.
pub trait WaitBounded {
    /// Waits for its end. Panics when it does not come, saying what it waits for.
    fn wait_bounded(&mut self) -> ExitStatus;

    /// Kills it, and waits for its end for a moment: for those that take away what a test has left, and never panic.
    fn kill_bounded(&mut self);

    /// Waits for its end and returns what it said. Panics when it does not end, saying what it waits for.
    fn output_bounded(self) -> Output;
}

impl WaitBounded for Child {
    fn wait_bounded(&mut self) -> ExitStatus {
        end_of(self, PROGRAM_TIMEOUT)
    }

    fn kill_bounded(&mut self) {
        let _ = self.kill();
        is_within(DRAIN, || !matches!(self.try_wait(), Ok(None)));
    }

    fn output_bounded(self) -> Output {
        output_of(self, PROGRAM_TIMEOUT)
    }
}

/// Runs a program to its end, within `limit`. Panics when it does not start or end, saying what it waits for.
pub fn output_within(command: &mut Command, limit: Duration) -> Output {
    let shown = format!("{command:?}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{shown} does not start: {error}"));
    output_of(child, limit)
}

/// What a program says that was started with pipes, and how it ends. Panics when it does not end within `limit`.
pub fn output_of(mut child: Child, limit: Duration) -> Output {
    drop(child.stdin.take());
    let stdout = child.stdout.take().map(read_all);
    let stderr = child.stderr.take().map(read_all);
    let status = end_of(&mut child, limit);
    let received = |reader: Option<Receiver<Vec<u8>>>| {
        let Some(reader) = reader else { return Vec::new() };
        let mut bytes = Vec::new();
        loop {
            match reader.recv_timeout(DRAIN) {
                Ok(more) => bytes.extend(more),
                Err(RecvTimeoutError::Disconnected) => return bytes,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("a process that this program left behind holds its output open")
                }
            }
        }
    };
    Output { status, stdout: received(stdout), stderr: received(stderr) }
}

/// Waits for a program's end. Panics when it does not come within `limit`, saying what it waits for; the program is
/// killed then.
pub fn end_of(child: &mut Child, limit: Duration) -> ExitStatus {
    // A program that reads to the end of its input gets it.
    drop(child.stdin.take());
    let mut status = None;
    let has_ended = is_within(limit, || {
        status = child.try_wait().expect("a child of this process");
        status.is_some()
    });
    if let (true, Some(status)) = (has_ended, status) {
        return status;
    }
    let waits = report::of_process(child.id());
    let _ = child.kill();
    panic!("a program did not end within {} s:\n{waits}", limit.as_secs_f64());
}

/// Reads on a thread of its own, which ends with the pipe.
fn read_all(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_are_those_of_the_program() {
        let output = Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).run_bounded();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn more_output_than_a_pipe_holds_does_not_stop_the_program() {
        let output = Command::new("sh").args(["-c", "head -c 1000000 /dev/zero"]).run_bounded();
        assert_eq!(output.stdout.len(), 1_000_000);
    }

    #[test]
    fn a_program_that_does_not_end_is_named_with_what_it_waits_for_and_killed() {
        let hang = || output_within(Command::new("sleep").arg("1000"), Duration::from_millis(300));
        let said = std::panic::catch_unwind(hang).expect_err("it does not end");
        let said = said.downcast_ref::<String>().expect("a message");
        assert!(said.contains("sleep 1000") && said.contains("nanosleep"), "{said}");
    }
}
