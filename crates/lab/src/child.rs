//! Programs that a measurement starts and waits for; a request to stop ends them.

use crate::Error;
use crate::place::Stop;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often one looks whether to stop.
const POLL: Duration = Duration::from_millis(100);

/// Waits for a program's end and takes what it prints. Asked to stop, it asks the program, and still waits: a copy
/// takes away what it has begun.
#[allow(clippy::disallowed_methods, reason = "a thread of its own; the caller watches for Ctrl-C and kills")]
pub(crate) fn output(child: Child, what: &str, stop: &Stop) -> Result<Output, Error> {
    let handle = pidfd(&child);
    let (ended, end) = channel();
    let waiting = std::thread::Builder::new().name("child".to_owned()).spawn(move || {
        let _ = ended.send(child.wait_with_output());
    });
    waiting.map_err(Error::at(what))?;
    let mut is_asked = false;
    loop {
        match end.recv_timeout(POLL) {
            Ok(output) => {
                let output = output.map_err(Error::at(what))?;
                return stop.check().map_err(Error::at(what)).map(|()| output);
            }
            Err(RecvTimeoutError::Timeout) if !is_asked && stop.check().is_err() => {
                is_asked = true;
                if let Some(handle) = &handle {
                    // It may just have ended by itself.
                    let _ = pidfd_send_signal(handle, Signal::TERM);
                }
            }
            Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Failed(format!("{what}: its waiter is gone")));
            }
        }
    }
}

/// Runs a command to its end and returns what it printed; a failure carries what it said.
pub(crate) fn text(command: &mut Command, stop: &Stop) -> Result<String, Error> {
    let shown = format!("{:?}", command.get_args().collect::<Vec<_>>());
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output = output(child.map_err(Error::at(&shown))?, &shown, stop)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().chain(printed.lines()).last().unwrap_or("nothing").to_owned();
        return Err(Error::Failed(format!("{shown}: {}: {last}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|_| Error::Failed(format!("{shown}: printed no text")))
}

/// Names the process even when its number has been given to another. `None`: it cannot be asked.
fn pidfd(child: &Child) -> Option<OwnedFd> {
    let process = rustix::process::Pid::from_child(child);
    pidfd_open(process, PidfdFlags::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn what_a_program_prints_is_returned_and_its_failure_says_what_it_said() {
        let stop = Stop::default();
        assert_eq!(text(Command::new("echo").arg("seven"), &stop).unwrap(), "seven\n");
        let error = text(Command::new("sh").args(["-c", "echo no room >&2; exit 3"]), &stop).unwrap_err();
        assert!(error.to_string().ends_with("exit status: 3: no room"), "{error}");
    }

    /// An experiment of ten thousand copies went on for minutes after Ctrl-C.
    #[test]
    fn a_program_is_asked_to_end_when_the_measurement_is() {
        let asked = Arc::new(AtomicBool::new(false));
        let stop = Stop::new(Arc::clone(&asked));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| text(Command::new("sleep").arg("1000"), &stop));
            asked.store(true, Ordering::Relaxed);
            assert!(waiting.join().unwrap().unwrap_err().to_string().ends_with("interrupted"));
        });
    }
}
