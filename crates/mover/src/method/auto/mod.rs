//! The copy method `auto`: measures while it copies, and changes streams or method where that pays.
//!
//! It begins with what is known of the pair of nodes and of files of such a size. Blocks of a large file go to
//! whichever connection is free, so that a connection can be added to its copy at any moment. Of shorter files each is
//! a trial of a method ([`trials`]). The best result is remembered for the pair, over restarts.

mod trials;

use super::build::{add_stream, build};
use super::{CopyMethod, Done, Method};
use crate::engine::Engines;
use crate::outgoing::Outgoing;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trials::{Class, Trial, Trials};
use vazao_wire::service::Fault;

/// More streams than this have never been seen to help.
const STREAMS_MAX: u32 = 32;

/// One more doubling has to make the copy faster by this factor, else the number stays: less is noise.
const FASTER: f64 = 1.15;

/// A rate that has fallen below this part of the best begins the search anew.
const FALLEN: f64 = 0.5;

/// A rate is measured over so many round trips, but not shorter or longer than this.
const WINDOW_ROUND_TRIPS: u64 = 16;
const WINDOW_NS: (u64, u64) = (300_000_000, 3_000_000_000);

/// Where the round trip is longer than this, one stream hardly fills a line: the first copy begins with several.
const LONG_NS: u64 = 10_000_000;

/// Streams that the first copy over a long line begins with: each begins slowly, and where windows are bounded to half
/// a megabyte so many fill 200 Mb/s over 100 ms.
const LONG_STREAMS: u32 = 8;

/// The controller looks this often whether the copy is over.
const LOOK: Duration = Duration::from_millis(50);

/// Pairs that are remembered.
const PAIRS_MAX: usize = 4096;

/// What was chosen, and why.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chosen {
    /// The method.
    pub(crate) method: Method,
    /// For people.
    pub(crate) why: String,
}

/// What is known of the way to a node.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Known {
    streams: u32,
    /// Bytes a second with them.
    rate: u64,
    round_trip_ns: u64,
}

/// What is known of the ways to all nodes, kept in a file.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    known: Mutex<BTreeMap<String, Known>>,
    trials: Mutex<BTreeMap<(String, Class), Trials>>,
    file: Option<PathBuf>,
}

/// A line `NODE CLASS METHOD RATE FILES PREFERRED`.
fn parse_trial(line: &str) -> Option<((String, Class), Trial, bool)> {
    let mut words = line.split_ascii_whitespace();
    let key = (words.next()?.to_owned(), Class::parse(words.next()?)?);
    let method = words.next()?.parse().ok()?;
    let rate: u64 = words.next()?.parse().ok()?;
    let trial = Trial { method, rate: rate as f64, files: words.next()?.parse().ok()? };
    Some((key, trial, words.next()? == "1"))
}

fn parse(line: &str) -> Option<(String, Known)> {
    let mut words = line.split_ascii_whitespace();
    let node = words.next()?.to_owned();
    let streams = words.next()?.parse().ok().filter(|streams| (1..=STREAMS_MAX).contains(streams))?;
    let (rate, round_trip_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((node, Known { streams, rate, round_trip_ns }))
}

impl Pairs {
    /// Reads the file; what it does not have has to be found out again.
    pub(crate) fn load(file: PathBuf) -> Pairs {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let known = text.lines().filter_map(parse).take(PAIRS_MAX).collect();
        let mut trials: BTreeMap<(String, Class), Trials> = BTreeMap::new();
        for (key, trial, is_preferred) in text.lines().filter_map(parse_trial).take(PAIRS_MAX) {
            let of = trials.entry(key).or_default();
            if is_preferred {
                of.preferred = Some(trial.method);
            }
            of.tried.push(trial);
        }
        Pairs { known: Mutex::new(known), trials: Mutex::new(trials), file: Some(file) }
    }

    fn trials(&self) -> MutexGuard<'_, BTreeMap<(String, Class), Trials>> {
        self.trials.lock()
    }

    /// The method for a file of a class, and why.
    fn choose(&self, node: &str, class: Class, round_trip_ns: u64) -> (Method, String) {
        let mut trials = self.trials();
        if trials.len() >= PAIRS_MAX {
            trials.clear();
        }
        let of = trials.entry((node.to_owned(), class)).or_default();
        let (method, is_trial) = of.choose(class, round_trip_ns > LONG_NS);
        let rate = |method| of.trial(method).map(|trial| megabytes(trial.rate));
        let trip = milliseconds(round_trip_ns);
        let size = class.name();
        let why = match (rate(method), is_trial) {
            (_, true) => format!("round trip {trip}, a {size} file to compare {method} with others"),
            (Some(rate), false) => {
                format!("round trip {trip}, {size} files went at {rate} by {method} before")
            }
            (None, false) if matches!(method, Method::Rpc { .. }) => {
                format!("round trip {trip}, a {size} file: over the connection that stands")
            }
            (None, false) => format!("round trip {trip}, the first {size} file to {node}"),
        };
        (method, why)
    }

    /// A file by `method` went at `rate`.
    fn tried(&self, node: &str, class: Class, method: Method, rate: f64, is_far: bool) {
        let first = class.candidates(is_far).first().copied().unwrap_or_default();
        let is_news = {
            let mut trials = self.trials();
            let of = trials.entry((node.to_owned(), class)).or_default();
            let is_changed = of.note(method, rate, first);
            // Written down when it says something new: at first often, later seldom.
            is_changed || of.trial(method).is_some_and(|trial| trial.files.is_power_of_two())
        };
        if is_news {
            self.save(&self.known());
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock()
    }

    fn learn(&self, node: &str, now: Known) {
        let mut known = self.known();
        if known.len() >= PAIRS_MAX && !known.contains_key(node) {
            known.clear();
        }
        known.insert(node.to_owned(), now);
        self.save(&known);
    }

    /// Writes all of it down; who holds `known` is alone in this.
    fn save(&self, known: &BTreeMap<String, Known>) {
        let Some(file) = &self.file else { return };
        let line =
            |(node, k): (&String, &Known)| format!("{node} {} {} {}\n", k.streams, k.rate, k.round_trip_ns);
        let mut text: String = known.iter().map(line).collect();
        for ((node, class), of) in self.trials().iter() {
            for Trial { method, rate, files } in &of.tried {
                let preferred = u8::from(of.preferred == Some(*method));
                text += &format!("{node} {} {method} {} {files} {preferred}\n", class.name(), *rate as u64);
            }
        }
        let new = file.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
        if let Err(error) = written {
            tracing::debug!(%error, "what was learnt of a pair of nodes could not be kept");
        }
    }
}

/// The search for the number of streams.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Climb {
    streams: u32,
    /// The best number so far, and bytes a second with it.
    best: (u32, f64),
    is_settled: bool,
    /// The window after a change is not counted: connections begin slowly.
    is_fresh: bool,
}

impl Climb {
    fn new(streams: u32) -> Climb {
        Climb { streams, best: (streams, 0.0), is_settled: false, is_fresh: true }
    }

    /// A window with `rate` bytes a second is over. Returns how many streams are to be added.
    fn judge(&mut self, rate: f64) -> u32 {
        if std::mem::take(&mut self.is_fresh) {
            return 0;
        }
        if self.is_settled {
            if rate < self.best.1 * FALLEN {
                *self = Climb { is_fresh: false, ..Climb::new(self.streams) };
            }
            return 0;
        }
        if rate < self.best.1 * FASTER {
            self.is_settled = true;
            return 0;
        }
        self.best = (self.streams, rate);
        let more = self.streams.min(STREAMS_MAX - self.streams);
        (self.is_settled, self.is_fresh) = (more == 0, more > 0);
        self.streams += more;
        more
    }
}

/// The method.
pub(crate) struct Auto {
    /// What is known.
    pub(crate) pairs: Arc<Pairs>,
    /// Where it says what it does.
    pub(crate) chosen: Arc<Mutex<Option<Chosen>>>,
    /// For methods that have no thread of their own.
    pub(crate) engines: Engines,
}

/// One copy under way.
struct Running {
    copy: Arc<Outgoing>,
    state: Mutex<State>,
}

struct State {
    left: u32,
    outcome: Result<(), Fault>,
    done: Option<Done>,
}

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds streams, unless the copy is over.
    fn add(self: &Arc<Running>, count: u32) {
        for _ in 0..count {
            {
                let mut state = self.state();
                if state.done.is_none() {
                    return;
                }
                state.left += 1;
            }
            let one = Arc::clone(self);
            add_stream(Arc::clone(&self.copy), Box::new(move |outcome| one.ended(outcome)));
        }
    }

    fn ended(&self, outcome: Result<(), Fault>) {
        let mut state = self.state();
        state.left -= 1;
        if state.outcome.is_ok() {
            state.outcome = outcome;
        }
        if state.left == 0 {
            let (outcome, done) = (state.outcome.clone(), state.done.take());
            drop(state);
            if let Some(done) = done {
                done(outcome);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.state().done.is_none()
    }
}

/// `48 ms`, `0.1 ms`.
fn milliseconds(nanoseconds: u64) -> String {
    let ms = nanoseconds as f64 / 1e6;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

fn megabytes(rate: f64) -> String {
    format!("{:.1} MB/s", rate / 1e6)
}

impl Auto {
    /// The first choice for a copy to `node`.
    fn first(&self, node: &str, round_trip_ns: u64) -> (u32, String) {
        if let Some(known) = self.pairs.known().get(node) {
            let why = format!(
                "{} streams did {} to {node} before, round trip {}",
                known.streams,
                megabytes(known.rate as f64),
                milliseconds(known.round_trip_ns)
            );
            return (known.streams, why);
        }
        match round_trip_ns > LONG_NS {
            true => {
                (LONG_STREAMS, format!("first copy to {node}, round trip {}", milliseconds(round_trip_ns)))
            }
            false => (1, format!("first copy to {node}, a near one")),
        }
    }

    /// For a copy under a bandwidth limit, which more streams do not lift. `None`: there is no limit.
    fn limited(copy: &Outgoing) -> Option<(u32, String)> {
        let streams = if copy.begin_ns() > LONG_NS { LONG_STREAMS } else { 1 };
        let why = || "under the job's bandwidth limit, more streams are no faster".to_owned();
        copy.around.control.is_limited().then(|| (streams, why()))
    }

    fn say(&self, streams: u32, why: String) {
        self.say_method(Method::Streams(streams), why);
    }

    fn say_method(&self, method: Method, why: String) {
        let chosen = Chosen { method, why };
        *self.chosen.lock() = Some(chosen);
    }

    /// Sends a file that is too short to learn from while it runs, and notes how fast it went.
    fn start_trial(&self, copy: Arc<Outgoing>, done: Done) {
        let (class, node) = (Class::of(copy.grid.size), copy.to.node.clone());
        let round_trip_ns = copy.begin_ns();
        let (method, why) = self.pairs.choose(&node, class, round_trip_ns);
        self.say_method(method, why);
        let (clock, pairs) = (Arc::clone(&copy.around.clock), Arc::clone(&self.pairs));
        let (started_ns, bytes) = (clock.now_ns(), copy.grid.size.saturating_sub(copy.finished_bytes()));
        // A rate that was asked for tells nothing of methods.
        let is_limited = copy.around.control.is_limited();
        let noted = move |outcome: Result<(), Fault>| {
            if outcome.is_ok() && bytes > 0 && !is_limited {
                let seconds = clock.now_ns().saturating_sub(started_ns).max(1) as f64 / 1e9;
                pairs.tried(&node, class, method, bytes as f64 / seconds, round_trip_ns > LONG_NS);
            }
            done(outcome);
        };
        build(method, &self.engines).start(copy, Box::new(noted));
    }

    /// Measures a copy and adds streams, until it is over.
    fn steer(&self, running: &Arc<Running>, mut climb: Climb) {
        let (copy, clock) = (&running.copy, &running.copy.around.clock);
        let (mut since_ns, mut before) = (clock.now_ns(), copy.finished_bytes());
        while !running.is_over() {
            clock.sleep(LOOK);
            let (now_ns, round_trip_ns) = (clock.now_ns(), copy.round_trip_ns());
            let window_ns =
                (round_trip_ns.saturating_mul(WINDOW_ROUND_TRIPS)).clamp(WINDOW_NS.0, WINDOW_NS.1);
            if now_ns.saturating_sub(since_ns) < window_ns {
                continue;
            }
            let bytes = copy.finished_bytes();
            // Not one block was confirmed: the window is too short for a rate.
            if bytes == before {
                continue;
            }
            let rate = bytes.saturating_sub(before) as f64 * 1e9 / (now_ns - since_ns) as f64;
            (since_ns, before) = (now_ns, bytes);
            let last = climb;
            let more = climb.judge(rate);
            if more > 0 {
                let (streams, trip) = (climb.streams, milliseconds(round_trip_ns));
                let why = format!(
                    "round trip {trip}, {} streams were limited to {}",
                    last.streams,
                    megabytes(rate)
                );
                self.say(streams, why);
                running.add(more);
            } else if climb.is_settled && !last.is_settled {
                let (best, rate) = climb.best;
                let trip = milliseconds(round_trip_ns);
                let why = format!(
                    "round trip {trip}, {} from {best} streams on, more are no faster",
                    megabytes(rate)
                );
                self.say(climb.streams, why);
                let known = Known { streams: best, rate: rate as u64, round_trip_ns };
                self.pairs.learn(&copy.to.node, known);
            }
        }
    }
}

impl CopyMethod for Auto {
    fn name(&self) -> String {
        Method::Auto.to_string()
    }

    fn start(&self, copy: Arc<Outgoing>, done: Done) {
        if copy.grid.size <= LARGE_BYTES {
            return self.start_trial(copy, done);
        }
        let limited = Auto::limited(&copy);
        let is_limited = limited.is_some();
        let (streams, why) = limited.unwrap_or_else(|| self.first(&copy.to.node, copy.begin_ns()));
        let blocks = u32::try_from(copy.grid.blocks()).unwrap_or(u32::MAX);
        // More connections than blocks would only be opened and closed.
        let streams = streams.min(blocks).max(1);
        self.say(streams, why);
        let state = State { left: 1, outcome: Ok(()), done: Some(done) };
        let running = Arc::new(Running { copy, state: Mutex::new(state) });
        running.add(streams);
        let (pairs, chosen, engines) =
            (Arc::clone(&self.pairs), Arc::clone(&self.chosen), self.engines.clone());
        let method = Auto { pairs, chosen, engines };
        let steered = Arc::clone(&running);
        let work = move || method.steer(&steered, Climb::new(streams));
        if !is_limited {
            // Without a thread it stays as it is.
            let _ = std::thread::Builder::new().name("auto".to_owned()).stack_size(STACK_BYTES).spawn(work);
        }
        // The one that held the copy open until all streams were there.
        running.ended(Ok(()));
    }
}

/// Smaller files are over before anything could be learnt from them.
const LARGE_BYTES: u64 = 32 << 20;

/// The controller nests a few calls.
const STACK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Climbs on a line of which each stream gets `one` bytes a second, and all together `line`.
    fn settle(start: u32, one: f64, line: f64) -> Climb {
        let mut climb = Climb::new(start);
        for _ in 0..50 {
            climb.judge((f64::from(climb.streams) * one).min(line));
        }
        climb
    }

    #[test]
    fn streams_are_added_until_the_line_is_full_and_no_further() {
        let full = settle(1, 10e6, 25e6);
        assert!(full.is_settled);
        assert_eq!((full.best.0, full.streams), (4, 8));
        assert_eq!(settle(1, 1e9, 1e9).best.0, 1);
        assert_eq!(settle(4, 1e6, 1e12).streams, STREAMS_MAX);
    }

    #[test]
    fn a_line_that_trembles_changes_nothing_and_one_that_breaks_down_does() {
        let mut climb = settle(1, 1e8, 1e8);
        let streams = climb.streams;
        for round in 0..100 {
            climb.judge(if round % 2 == 0 { 1.1e8 } else { 0.8e8 });
        }
        assert_eq!(climb.streams, streams);
        climb.judge(1e7);
        assert!(!climb.is_settled, "a line ten times slower is looked at again");
    }

    #[test]
    fn what_was_learnt_is_read_again_and_nonsense_is_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("pairs");
        let known = Known { streams: 8, rate: 5, round_trip_ns: 48_000_000 };
        Pairs::load(file.clone()).learn("n9", known);
        assert_eq!(Pairs::load(file.clone()).known().get("n9"), Some(&known));
        std::fs::write(&file, "n9 0 1 1\nn8 x\n\nn7 99999 1 1\nn6 4 100 200\n").expect("written");
        let pairs = Pairs::load(file);
        assert_eq!(pairs.known().keys().collect::<Vec<_>>(), ["n6"]);
        let engines = Engines::new(vazao_meter::clock::system());
        let auto = Auto { pairs: Arc::new(pairs), chosen: Arc::default(), engines };
        assert_eq!(auto.first("n6", 0).0, 4);
        assert_eq!(auto.first("n5", 100_000_000).0, LONG_STREAMS);
        assert_eq!(auto.first("n5", 100_000).0, 1);
    }

    #[test]
    fn trials_of_methods_are_read_again_too() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("pairs");
        let pairs = Pairs::load(file.clone());
        let rpc = pairs.choose("n9", Class::Tiny, 0).0;
        assert_eq!(rpc.to_string(), "rpc");
        (0..4).for_each(|_| pairs.tried("n9", Class::Tiny, rpc, 1e6, false));
        (0..4).for_each(|_| pairs.tried("n9", Class::Tiny, Method::Nonblocking, 3e6, false));
        pairs.learn("n9", Known { streams: 2, rate: 5, round_trip_ns: 1 });
        let again = Pairs::load(file);
        let (method, why) = again.choose("n9", Class::Tiny, 0);
        assert_eq!(method, Method::Nonblocking, "{why}");
        assert!(why.contains("3.0 MB/s"), "{why}");
        assert_eq!(again.known().get("n9").map(|known| known.streams), Some(2));
    }
}
