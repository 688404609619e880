//! A terminal that is drawn anew: another screen than the shell's, keys as they are pressed, everything put back.
//!
//! The terminal's modes are set and put back by stty(1). Where that is missing, q needs the enter key and the width is
//! taken to be 80.

use crate::failure::{At, Outcome};
use crate::signals::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Write, stdin, stdout};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Another screen, and no cursor on it.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the upper left corner; to the end of a line and of the screen.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// A signal is noticed within this time.
const NAP: Duration = Duration::from_millis(100);

/// Where a terminal does not tell its width.
const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// The terminal while it is ours; dropping it gives it back as it was.
pub(crate) struct Screen {
    /// The modes as stty printed them; empty where there is no stty.
    before: String,
}

impl Screen {
    /// Takes the terminal over. Errors: standard input is none.
    pub(crate) fn open() -> Outcome<Screen> {
        let before = stty(&["-g"]).unwrap_or_default().trim().to_owned();
        if !before.is_empty() {
            stty(&["-icanon", "-echo"]);
        }
        let screen = Screen { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Its rows and columns.
    pub(crate) fn size(&self) -> (usize, usize) {
        let text = stty(&["size"]).unwrap_or_default();
        let mut numbers = text.split_ascii_whitespace().map(|n| n.parse().ok().filter(|n| *n > 0));
        (numbers.next().flatten().unwrap_or(ROWS), numbers.next().flatten().unwrap_or(COLUMNS))
    }

    /// Shows `text`, as much as there is room for.
    pub(crate) fn draw(&mut self, text: &str, rows: usize) -> Outcome {
        let lines = text.lines().take(rows.saturating_sub(1));
        let drawn = lines.fold(HOME.to_owned(), |all, line| all + line + CLEAR_LINE + "\r\n");
        write(&(drawn + CLEAR_REST))
    }

    /// Waits; true when `q` was pressed, or a signal asked for the end.
    pub(crate) fn wait_for_end(&mut self, duration: Duration, stop: &Stop) -> Outcome<bool> {
        let mut left = duration;
        while !left.is_zero() {
            let nap = left.min(NAP);
            if stop.is_asked() || self.is_q_pressed(nap)? {
                return Ok(true);
            }
            left -= nap;
        }
        Ok(stop.is_asked())
    }

    /// Looks for up to `nap`.
    fn is_q_pressed(&self, nap: Duration) -> Outcome<bool> {
        let input = stdin();
        let timeout = Timespec { tv_sec: 0, tv_nsec: nap.as_nanos() as _ };
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            other => drop(other.at("the terminal")?),
        }
        let mut keys = [0; 64];
        let count = rustix::io::read(&input, &mut keys).at("the terminal")?;
        // No bytes: the terminal is gone.
        Ok(count == 0 || keys[..count].iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing put back.
        let _ = write(LEAVE);
        if !self.before.is_empty() {
            stty(&[&self.before]);
        }
    }
}

/// Runs stty on the terminal; what it printed, or `None` when it did not work.
#[allow(clippy::disallowed_methods, reason = "stty asks the terminal and ends")]
fn stty(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("stty");
    let output = command.args(arguments).stdin(Stdio::inherit()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(text: &str) -> Outcome {
    let mut output = stdout();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).at("the terminal")
}
