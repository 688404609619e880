//! What a copy counts while it runs: bytes, files, and which side was waited for; and the bar that shows it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Arc, Once};
use std::time::Duration;
use vazao_meter::{Clock, Counter};

/// How often the bar moves.
const REDRAW: Duration = Duration::from_millis(100);

/// Counts of one copy, shared by its threads.
pub(crate) struct Meter {
    clock: Arc<dyn Clock>,
    started_ns: u64,
    bar: ProgressBar,
    moving: Once,
    bytes: Counter,
    files: Counter,
    directories: Counter,
    failed: Counter,
    read_ns: Counter,
    write_ns: Counter,
}

/// The counts at the end.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Bytes of data copied.
    pub(crate) bytes: u64,
    /// Files and links copied.
    pub(crate) files: u64,
    /// Directories made, or found to be there.
    pub(crate) directories: u64,
    /// Those that failed.
    pub(crate) failed: u64,
    /// From first to last.
    pub(crate) seconds: f64,
    /// Seconds in reads of the source, over all threads.
    pub(crate) reading_s: f64,
    /// Seconds in writes of the destination, over all threads.
    pub(crate) writing_s: f64,
}

impl Meter {
    /// Starts counting; shows a bar on standard error when `visible`.
    pub(crate) fn new(clock: Arc<dyn Clock>, visible: bool) -> Meter {
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let template = "{bar:30} {percent:>3}%  {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        let started_ns = clock.now_ns();
        let [bytes, files, directories, failed, read_ns, write_ns] = std::array::from_fn(|_| Counter::new());
        let moving = Once::new();
        Meter { clock, started_ns, bar, moving, bytes, files, directories, failed, read_ns, write_ns }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// A file of `bytes` will be copied.
    pub(crate) fn announce(&self, bytes: u64) {
        self.bar.inc_length(bytes);
        // Not before: passwords are asked for at the beginning, and the bar would be drawn over the question.
        self.moving.call_once(|| self.bar.enable_steady_tick(REDRAW));
    }

    /// A read that began at `started_ns` is over.
    pub(crate) fn read(&self, started_ns: u64) {
        self.read_ns.add(self.now_ns().saturating_sub(started_ns));
    }

    /// A write that began at `started_ns` is over.
    pub(crate) fn wrote(&self, started_ns: u64) {
        self.write_ns.add(self.now_ns().saturating_sub(started_ns));
    }

    /// `bytes` have arrived.
    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes.add(bytes);
        self.bar.inc(bytes);
    }

    /// `bytes` were there already.
    pub(crate) fn was_there(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// One file or link is done.
    pub(crate) fn done(&self) {
        self.files.add(1);
    }

    /// A directory is there.
    pub(crate) fn entered(&self) {
        self.directories.add(1);
    }

    /// A line on standard error, above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// One has failed; `say` prints why, above the bar.
    pub(crate) fn failed(&self, say: impl FnOnce()) {
        self.failed.add(1);
        self.bar.suspend(say);
    }

    /// Takes the bar away and returns the counts.
    pub(crate) fn finish(&self) -> Counts {
        self.bar.finish_and_clear();
        Counts {
            bytes: self.bytes.get(),
            files: self.files.get(),
            directories: self.directories.get(),
            failed: self.failed.get(),
            seconds: self.now_ns().saturating_sub(self.started_ns) as f64 / 1e9,
            reading_s: self.read_ns.get() as f64 / 1e9,
            writing_s: self.write_ns.get() as f64 / 1e9,
        }
    }
}
