//! The end of a mount's process: it unmounts when asked to, says what it waits for, and gives up when told to.
//!
//! | asked by | what happens |
//! |---|---|
//! | `umount`, `vazao umount` | the kernel ends the conversation; what is not stored is stored |
//! | a first signal | unmounts, or, while something is in use, detaches and ends with the last close |
//! | a second signal, `vazao umount --force` | calls in it fail; what cannot be stored within [`STORE_NS`] is lost |
//! | a third signal | the process ends at once |
//!
//! After [`TELL_NS`] the log and the line of `vazao umount` ([`line`]) say what the unmount waits for; what is lost is
//! always reported.

pub(crate) mod line;

use crate::signals::Stop;
use line::Line;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vazao_fuse::{Mount, MountError};
use vazao_meter::Clock;

/// A mount that is to end and has not is explained after this; then again, each time after twice as long.
pub(crate) const TELL_NS: u64 = 5_000_000_000;

/// It is explained at least this often.
const TELL_AGAIN_NS_MAX: u64 = 600_000_000_000;

/// How long a mount that is to give up goes on storing, and how long it has for everything.
const STORE_NS: u64 = 3_000_000_000;
const GIVE_UP_NS: u64 = 5_000_000_000;

/// How often signals and followers are looked at, and followers told.
const LOOK: Duration = Duration::from_millis(100);
const SAY_EVERY_NS: u64 = 500_000_000;

/// What has become of giving up: lost files, a line each, once everything was tried.
type GivenUp = Arc<Mutex<Option<Vec<String>>>>;

/// Looks after the end of one mount.
pub(crate) struct Attendant<'a> {
    mount: &'a Mount,
    stop: &'a Stop,
    line: Option<Line>,
    clock: Arc<dyn Clock>,
    /// Signals obeyed so far.
    obeyed: usize,
    /// When it was to end.
    ending_ns: Option<u64>,
    told_ns: u64,
    tell_after_ns: u64,
    said_ns: u64,
    giving_up: Option<(u64, GivenUp)>,
}

impl<'a> Attendant<'a> {
    pub(crate) fn new(mount: &'a Mount, stop: &'a Stop, line: Option<Line>) -> Attendant<'a> {
        let clock = vazao_meter::clock::system();
        Attendant {
            mount,
            stop,
            line,
            clock,
            obeyed: 0,
            ending_ns: None,
            told_ns: 0,
            tell_after_ns: TELL_NS,
            said_ns: 0,
            giving_up: None,
        }
    }

    /// Returns once `has_ended`, with the line by which followers are to be told how.
    pub(crate) fn run(mut self, has_ended: &AtomicBool) -> Option<Line> {
        while !has_ended.load(Ordering::SeqCst) {
            self.stop.wait_for_more(LOOK);
            self.obey();
            self.note_end();
            self.explain();
            self.say();
            self.end_if_given_up(has_ended);
        }
        self.line
    }

    fn obey(&mut self) {
        let signals = self.stop.count();
        if let Some(line) = self.line.as_mut().filter(|_| self.mount.is_ending()) {
            line.close();
        }
        let must_give_up = self.line.as_mut().is_some_and(Line::listen);
        if signals > self.obeyed && self.obeyed == 0 {
            self.obeyed = 1;
            self.unmount();
            // A signal after the unmount asks why the process is still there.
            if self.mount.is_ending() {
                self.tell_after_ns = 0;
            }
        }
        if signals > self.obeyed || must_give_up {
            self.obeyed = signals;
            self.give_up();
        }
    }

    /// Unmounts; what is in use goes on until it is closed.
    fn unmount(&self) {
        if self.mount.is_ending() {
            return;
        }
        let outcome = match self.mount.unmount() {
            Err(MountError::Busy(path)) => {
                tracing::warn!("{}: in use; it ends when the last file in it is closed", path.display());
                self.mount.detach()
            }
            other => other,
        };
        match outcome {
            // Detached before, or just now by another process.
            Ok(()) | Err(MountError::NotMounted(_)) => {}
            Err(error) => tracing::error!("{error}"),
        }
    }

    fn note_end(&mut self) {
        if self.ending_ns.is_none() && (self.obeyed > 0 || self.mount.is_ending()) {
            let now_ns = self.clock.now_ns();
            (self.ending_ns, self.told_ns) = (Some(now_ns), now_ns);
        }
    }

    /// Tells the log what is waited for, when it is time to.
    fn explain(&mut self) {
        let Some(ending_ns) = self.ending_ns else { return };
        let now_ns = self.clock.now_ns();
        if now_ns.saturating_sub(self.told_ns) < self.tell_after_ns || self.giving_up.is_some() {
            return;
        }
        self.told_ns = now_ns;
        self.tell_after_ns = (self.tell_after_ns * 2).clamp(TELL_NS, TELL_AGAIN_NS_MAX);
        let seconds = now_ns.saturating_sub(ending_ns) / 1_000_000_000;
        tracing::warn!(
            "the mount was to end {seconds} s ago and has not: {}; {}",
            self.mount.progress(),
            self.remedy()
        );
    }

    fn remedy(&self) -> String {
        let process = std::process::id();
        match self.obeyed {
            0 => format!("`kill {process}` twice gives up what cannot be stored"),
            _ => format!("`kill {process}` once more gives up what cannot be stored"),
        }
    }

    /// Tells the followers the same, as often as they have to know that it lives.
    fn say(&mut self) {
        let now_ns = self.clock.now_ns();
        let Some(line) = &mut self.line else { return };
        if !line.is_followed() || now_ns.saturating_sub(self.said_ns) < SAY_EVERY_NS {
            return;
        }
        self.said_ns = now_ns;
        let signals = if self.obeyed == 0 { "twice" } else { "once more" };
        line.waits(&self.mount.progress().to_string(), signals);
    }

    /// Ends calls in the mount, and stores what can be stored soon.
    fn give_up(&mut self) {
        if self.giving_up.is_some() {
            return;
        }
        let seconds = STORE_NS / 1_000_000_000;
        tracing::warn!("the mount gives up: what cannot be stored within {seconds} s is lost");
        if let Err(error) = self.mount.abort() {
            tracing::debug!("{error}");
        }
        let (given_up, finish) = (GivenUp::default(), self.mount.finisher());
        let done = Arc::clone(&given_up);
        let work = move || {
            let lost = finish(Duration::from_nanos(STORE_NS));
            *done.lock() = Some(lost);
        };
        if let Err(error) = std::thread::Builder::new().name("give-up".to_owned()).spawn(work) {
            tracing::error!("no thread to store what can be stored: {error}");
        }
        self.giving_up = Some((self.clock.now_ns() + GIVE_UP_NS, given_up));
    }

    /// Ends the process when everything was tried, or the time for it is over.
    fn end_if_given_up(&mut self, has_ended: &AtomicBool) {
        let Some((until_ns, given_up)) = &self.giving_up else { return };
        let tried = given_up.lock().clone();
        // A mount whose conversation is over ends by itself as soon as everything was tried.
        let is_due = tried.is_some() && !self.mount.is_ending();
        if !is_due && self.clock.now_ns() < *until_ns || has_ended.load(Ordering::SeqCst) {
            return;
        }
        let lost = without_repetitions(tried.unwrap_or_default(), self.mount.unstored());
        lost.iter().for_each(|line| tracing::error!("not stored when the mount gave up, and lost: {line}"));
        if lost.is_empty() {
            tracing::warn!("the mount has given up; everything written was stored");
        }
        if let Some(line) = &mut self.line {
            line.ended(&lost);
        }
        std::process::exit(i32::from(!lost.is_empty()));
    }
}

/// Lines of which the part before the first colon names the file: one for each.
fn without_repetitions(first: Vec<String>, second: Vec<String>) -> Vec<String> {
    let mut lines = BTreeMap::new();
    for line in first.into_iter().chain(second) {
        let file = line.split(':').next().unwrap_or_default().to_owned();
        lines.entry(file).or_insert(line);
    }
    lines.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_of_once() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let told = without_repetitions(lines(&["inode 7: a", "inode 8: b"]), lines(&["inode 7: c"]));
        assert_eq!(told, ["inode 7: a", "inode 8: b"]);
    }
}
