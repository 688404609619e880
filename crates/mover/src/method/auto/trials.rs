//! Which method suits files of one size class on the way to one node: what each did, and which is tried next.
//!
//! A file of some megabytes is over before streams could be added to it, so methods are compared from file to file. The
//! preferred one does nearly all; the others get a file now and then, and one takes over when it was clearly faster.

use crate::method::Method;

/// Files up to this size cost what beginning and ending them costs: a new connection would have to be made.
const TINY_BYTES_MAX: u64 = 256 << 10;

/// Files up to this size still mostly cost that; a new connection does not grow over them.
const SHORT_BYTES_MAX: u64 = 4 << 20;

/// Files by each method before they are compared: one says little.
const FILES_MIN: u32 = 3;

/// Until then one file of so many tries another method: less often where beginning costs most, for on a busy long link
/// one that begins anew is the last to end, and a job of a few short files waits for it.
const TRY_FIRST: [(Class, u64); 3] = [(Class::Tiny, 16), (Class::Short, 16), (Class::Middle, 4)];

/// Later, what is known may have changed: one file of so many.
const TRY_AGAIN: u64 = 64;

/// Another method takes over when it is faster by this factor: less is noise.
const FASTER: f64 = 1.08;

/// What the latest file counts in the mean.
const WEIGHT: f64 = 0.3;

/// A class of sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    /// Beginning and ending cost everything.
    Tiny,
    /// Beginning costs most.
    Short,
    /// Too short to learn anything while it runs.
    Middle,
}

impl Class {
    pub(super) fn of(bytes: u64) -> Class {
        match bytes {
            _ if bytes <= TINY_BYTES_MAX => Class::Tiny,
            _ if bytes <= SHORT_BYTES_MAX => Class::Short,
            _ => Class::Middle,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Class::Tiny => "tiny",
            Class::Short => "small",
            Class::Middle => "middle",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Class> {
        [Class::Tiny, Class::Short, Class::Middle].into_iter().find(|class| class.name() == text)
    }

    /// One file of how many tries another method at first.
    fn try_first(self) -> u64 {
        TRY_FIRST.iter().find(|(class, _)| *class == self).map_or(1, |(_, files)| *files)
    }

    /// The methods that may suit, the most likely one first: what experiment G9 shows of many files at once, which is
    /// how files of these sizes mostly come.
    pub(super) fn candidates(self, is_far: bool) -> &'static [Method] {
        const RPC: Method = Method::Rpc { block: None, window: None };
        const ONE: Method = Method::Streams(1);
        const FOUR: Method = Method::Streams(4);
        match (self, is_far) {
            // The connection of the nodes' requests stands already.
            (Class::Tiny, false) => &[RPC, ONE, Method::Nonblocking],
            (Class::Tiny, true) => &[RPC, FOUR, ONE],
            // Calls of many files take turns on that one connection.
            (Class::Short, false) => &[Method::Nonblocking, RPC, ONE],
            (Class::Short, true) => &[Method::Nonblocking, RPC, FOUR],
            (Class::Middle, false) => &[ONE, RPC, Method::Nonblocking, FOUR],
            // On a long way its window is wide already.
            (Class::Middle, true) => &[RPC, FOUR, Method::Streams(8), ONE],
        }
    }
}

/// What one method did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Trial {
    pub(super) method: Method,
    /// Bytes a second of one file, the latest ones counting most.
    pub(super) rate: f64,
    pub(super) files: u32,
}

/// What is known of one class on the way to one node.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Trials {
    pub(super) preferred: Option<Method>,
    pub(super) tried: Vec<Trial>,
    begun: u64,
}

impl Trials {
    fn files(&self, method: Method) -> u32 {
        self.trial(method).map_or(0, |trial| trial.files)
    }

    pub(super) fn trial(&self, method: Method) -> Option<&Trial> {
        self.tried.iter().find(|trial| trial.method == method)
    }

    /// The method for the next file; true when it is one to compare with.
    pub(super) fn choose(&mut self, class: Class, is_far: bool) -> (Method, bool) {
        let candidates = class.candidates(is_far);
        let first = candidates.first().copied().unwrap_or(Method::Streams(1));
        let preferred = self.preferred.unwrap_or(first);
        self.begun += 1;
        let others = || candidates.iter().copied().filter(|&method| method != preferred);
        let other = match others().min_by_key(|&method| self.files(method)) {
            Some(unknown) if self.files(unknown) < FILES_MIN => {
                self.begun.is_multiple_of(class.try_first()).then_some(unknown)
            }
            Some(_) if self.begun.is_multiple_of(TRY_AGAIN) => {
                let turn = (self.begun / TRY_AGAIN) as usize % others().count().max(1);
                others().nth(turn)
            }
            _ => None,
        };
        other.map_or((preferred, false), |method| (method, true))
    }

    /// A file by `method` went at `rate` bytes a second. True when another method is preferred from now on.
    pub(super) fn note(&mut self, method: Method, rate: f64, first: Method) -> bool {
        match self.tried.iter_mut().find(|trial| trial.method == method) {
            Some(trial) => {
                trial.rate += (rate - trial.rate) * WEIGHT;
                trial.files = trial.files.saturating_add(1);
            }
            None => self.tried.push(Trial { method, rate, files: 1 }),
        }
        let preferred = self.preferred.unwrap_or(first);
        let known = self.tried.iter().filter(|trial| trial.files >= FILES_MIN);
        let Some(best) = known.max_by(|a, b| a.rate.total_cmp(&b.rate)) else { return false };
        let best = *best;
        let Some(present) = self.trial(preferred) else { return false };
        let is_better = best.method != preferred && best.rate > present.rate * FASTER;
        if is_better {
            self.preferred = Some(best.method);
        }
        is_better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies `files` files where each method has its rate; returns how many went by which.
    fn run(trials: &mut Trials, files: usize, rate: impl Fn(Method) -> f64) -> Vec<(Method, usize)> {
        let candidates = Class::Tiny.candidates(true);
        let mut by: Vec<(Method, usize)> = candidates.iter().map(|&method| (method, 0)).collect();
        for _ in 0..files {
            let (method, _) = trials.choose(Class::Tiny, true);
            by.iter_mut().filter(|(of, _)| *of == method).for_each(|(_, count)| *count += 1);
            trials.note(method, rate(method), candidates[0]);
        }
        by
    }

    #[test]
    fn the_method_that_turns_out_fastest_does_nearly_all() {
        let mut trials = Trials::default();
        let by = run(&mut trials, 1000, |method| if method == Method::Streams(1) { 2e6 } else { 1e6 });
        assert_eq!(trials.preferred, Some(Method::Streams(1)));
        let most = by.iter().find(|(method, _)| *method == Method::Streams(1)).map_or(0, |(_, count)| *count);
        assert!(most > 850, "{by:?}");
    }

    #[test]
    fn a_little_more_changes_nothing_and_what_becomes_slow_is_left() {
        let mut trials = Trials::default();
        let first = Class::Tiny.candidates(true)[0];
        run(&mut trials, 1000, |method| if method == first { 1e6 } else { 1.05e6 });
        assert_eq!(trials.preferred, None);
        run(&mut trials, 200, |method| if method == first { 1e5 } else { 1.1e6 });
        assert!(trials.preferred.is_some_and(|method| method != first));
    }

    #[test]
    fn a_class_is_read_as_it_is_written() {
        assert_eq!([16 << 10, 1 << 20, 5 << 20].map(Class::of), [Class::Tiny, Class::Short, Class::Middle]);
        for class in [Class::Tiny, Class::Short, Class::Middle] {
            assert_eq!(Class::parse(class.name()), Some(class));
            assert!(!class.candidates(true).is_empty() && !class.candidates(false).is_empty());
        }
        assert_eq!(Class::parse("long"), None);
    }
}
