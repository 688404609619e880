//! What the options of a copy ask of the process that moves its bytes: which files, how fast, until when.

use super::meter::Counts;
use super::tree::Found;
use crate::failure::{Failure, Outcome};
use crate::location::show;
use crate::output::Output;
use crate::signals::Stop;
use clap::ValueEnum;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vazao_meter::Occupancy;
use vazao_meter::bottleneck::{SetRate, Verdict};
use vazao_mover::{Control, Filter, Timeouts};

/// The bandwidth limit is waited for in steps of this, so that Ctrl-C is heard.
const STEP: Duration = Duration::from_millis(50);

/// When a file that is there is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Overwrite {
    /// In any case
    #[default]
    Always,
    /// Never
    Never,
    /// Where the source was changed later
    Newer,
    /// Where size or time differ
    Different,
}

/// The options.
#[derive(Debug)]
pub(crate) struct Rules {
    filter: Filter,
    overwrite: Overwrite,
    /// What would be copied is only shown; the flag says whether as JSON.
    dry_run: Option<bool>,
    /// Each file is read again at its end and compared.
    pub(crate) checksum: bool,
    /// Each file is named when it is copied.
    is_verbose: bool,
    limit: Control,
    rate_bytes: u64,
    /// Threads that wait until more bytes may move.
    held: Occupancy,
    /// The time given to all of it, from the start on.
    job_ms: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::new(Filter::default(), Overwrite::Always, 0, 0)
    }
}

impl Rules {
    /// At most `rate_bytes` a second and `job_ms` milliseconds; 0 for no limit.
    pub(crate) fn new(filter: Filter, overwrite: Overwrite, rate_bytes: u64, job_ms: u64) -> Rules {
        let limit = Control::new(Timeouts::default(), rate_bytes);
        Rules {
            filter,
            overwrite,
            dry_run: None,
            checksum: false,
            is_verbose: false,
            limit,
            rate_bytes,
            held: Occupancy::new(),
            job_ms,
        }
    }

    /// Only shows what would be copied.
    pub(crate) fn dry(self, json: bool) -> Rules {
        Rules { dry_run: Some(json), ..self }
    }

    /// Whether files are compared at their end.
    pub(crate) fn comparing(self, checksum: bool) -> Rules {
        Rules { checksum, ..self }
    }

    /// Whether each file is named.
    pub(crate) fn naming(self, is_verbose: bool) -> Rules {
        Rules { is_verbose, ..self }
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    /// The copy starts: from now on its time counts.
    pub(crate) fn start(&self, now_ns: u64) {
        if self.job_ms > 0 {
            let deadline_ns = now_ns.saturating_add(self.job_ms.saturating_mul(1_000_000));
            self.limit.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        }
    }

    /// Fails once the time given is over.
    pub(crate) fn check(&self, now_ns: u64) -> Outcome {
        match now_ns >= self.limit.deadline_ns.load(Ordering::Relaxed) {
            true => Err(Failure::new(format!("not done within the {} ms given to it", self.job_ms))),
            false => Ok(()),
        }
    }

    /// Waits until `bytes` more may move.
    pub(crate) fn wait(&self, bytes: u64, now_ns: impl Fn() -> u64, stop: &Stop) -> Outcome {
        self.check(now_ns())?;
        if self.rate_bytes == 0 {
            return Ok(());
        }
        self.held.enter(now_ns());
        let waited = self.wait_for_rate(bytes, &now_ns, stop);
        self.held.leave(now_ns());
        waited
    }

    fn wait_for_rate(&self, bytes: u64, now_ns: impl Fn() -> u64, stop: &Stop) -> Outcome {
        loop {
            let now = now_ns();
            self.check(now)?;
            let ready_ns = self.limit.ready_ns(bytes, now);
            if ready_ns <= now {
                return Ok(());
            }
            if stop.wait(STEP.min(Duration::from_nanos(ready_ns - now))) {
                return Err(Failure::new("interrupted"));
            }
        }
    }

    /// What limited a copy that is over: `found`, or the rate that it was given.
    pub(crate) fn limits(&self, found: Verdict, counts: &Counts, now_ns: u64) -> Verdict {
        let seconds = counts.seconds.max(1e-9);
        found.or_set_rate(SetRate {
            what: "--bwlimit",
            allowed: self.rate_bytes as f64,
            moved: counts.bytes as f64 / seconds,
            waited: self.held.at(now_ns).busy_ns as f64 / 1e9 / seconds,
        })
    }

    /// Whether a directory below what is copied is looked into.
    pub(crate) fn enters(&self, below: &[u8]) -> bool {
        self.filter.enters(below)
    }

    /// Whether a file below what is copied is copied.
    pub(crate) fn takes(&self, below: &[u8]) -> bool {
        self.filter.takes_file(below)
    }

    /// Whether what is there is replaced.
    pub(crate) fn replaces(&self, found: &Found, there: &Found) -> bool {
        match self.overwrite {
            Overwrite::Always => true,
            Overwrite::Never => false,
            Overwrite::Newer => found.modified > there.modified,
            Overwrite::Different => (found.size, found.modified) != (there.size, there.modified),
        }
    }

    /// True when nothing is to be changed.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry_run.is_some()
    }

    /// Says that a file would be copied.
    pub(crate) fn show(&self, source: &str, destination: &str, bytes: u64) -> Outcome {
        let mut output = Output::new(self.dry_run == Some(true));
        if output.json {
            let line = serde_json::json!({ "source": source, "destination": destination, "bytes": bytes });
            output.value(&line)?;
        } else {
            output.line(&format!("{} → {}", show(source.as_bytes()), show(destination.as_bytes())))?;
        }
        output.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Identity;
    use super::*;
    use vazao_model::{FileKind, Timestamp};

    #[test]
    fn what_is_there_is_replaced_as_the_rule_says() {
        let file = |size, seconds| Found {
            identity: Identity::Ftp(0),
            kind: FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size,
            accessed: Timestamp::default(),
            modified: Timestamp { seconds, nanoseconds: 0 },
        };
        let replaces = |overwrite, found: &Found, there: &Found| {
            Rules::new(Filter::default(), overwrite, 0, 0).replaces(found, there)
        };
        let (old, new, longer) = (file(1, 10), file(1, 20), file(2, 10));
        assert!(replaces(Overwrite::Always, &old, &old) && !replaces(Overwrite::Never, &new, &old));
        assert!(replaces(Overwrite::Newer, &new, &old) && !replaces(Overwrite::Newer, &longer, &old));
        assert!(replaces(Overwrite::Different, &longer, &old) && !replaces(Overwrite::Different, &old, &old));
    }

    #[test]
    fn time_that_was_given_is_over_at_its_end() {
        let rules = Rules::new(Filter::default(), Overwrite::Always, 0, 5);
        rules.start(1_000_000);
        assert!(rules.check(5_999_999).is_ok());
        let failure = rules.check(6_000_000).expect_err("over");
        assert!(failure.message().is_some_and(|text| text.contains("5 ms")), "{failure:?}");
    }
}
