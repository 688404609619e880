//! How much has to be under way to a data server to keep the link to it busy: its rate times its round trip.
//!
//! The rate is the best that was seen lately; where it was bounded by what was under way it grows with that. The round
//! trip is the shortest that was seen, so that requests waiting behind one another do not count as distance. Twice the
//! product is what TCP itself aims at when it probes for more (the gain of two of BBR, Cardwell et al. 2016): a window
//! that is too small doubles with each measurement, and one that fills the link has nothing to gain.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A rate is measured over at least this long, and over at least two round trips: answers come in bursts.
const MEASURE_NS_MIN: u64 = 50_000_000;

/// The best rate of this long ago still counts, so that a pause does not make it forgotten.
const REMEMBERED_NS: u64 = 10_000_000_000;

/// A round trip below this is no distance: the usual window does, and its buffers stay in the processor's cache. The
/// shortest that a writer nearby sees is that of its own queue.
const NEAR_NS_MAX: u64 = 1_000_000;

/// What is under way in the time of a round trip, times this, keeps a link busy and finds out whether it could do more.
const GAIN: u128 = 2;

/// What is known of the way to one server.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    wanted_bytes: AtomicU64,
    /// The shortest of all answers, and of what the transport knows of the way; 0 while nothing is known. It says which
    /// of several servers is near: a large answer over a narrow link takes long from next door, too.
    distance_ns: AtomicU64,
    /// What of it decides between copies.
    pub(crate) copies: CopyPace,
}

/// How a server has answered reads that other servers could have answered, too.
#[derive(Debug, Default)]
pub(crate) struct CopyPace {
    /// From asking to the answer, as a rule; 0 while that is not known.
    usual_ns: AtomicU64,
    /// When that was noted last.
    noted_ns: AtomicU64,
    avoided_until_ns: AtomicU64,
    /// When it answered last, whatever it was asked and said.
    heard_ns: AtomicU64,
    /// When it was last found to be silent; 0: it never was, or was heard since.
    silent_ns: AtomicU64,
    under_way: AtomicU64,
}

/// A new time counts so much of the usual one.
const USUAL_OF: u64 = 8;

/// A server that did not answer is avoided for this long, where there are others.
const AVOIDED_NS: u64 = 1_000_000_000;

/// A server that was silent gets no changes for this long, where others pass them on: within two heartbeats the map
/// says who leads without it.
const SILENT_NS: u64 = 5_000_000_000;

impl CopyPace {
    /// An answer took so long.
    pub(crate) fn note(&self, elapsed_ns: u64, now_ns: u64) {
        let before_ns = self.usual_ns();
        let usual_ns = match before_ns {
            0 => elapsed_ns,
            _ => before_ns - before_ns / USUAL_OF + elapsed_ns / USUAL_OF,
        };
        self.usual_ns.store(usual_ns.max(1), Ordering::Relaxed);
        self.noted_ns.store(now_ns, Ordering::Relaxed);
    }

    /// An answer that was not waited for takes at least so long.
    pub(crate) fn note_at_least(&self, elapsed_ns: u64, now_ns: u64) {
        let usual_ns = self.usual_ns();
        if usual_ns > 0 && elapsed_ns > usual_ns {
            self.note(elapsed_ns, now_ns);
        }
    }

    /// The usual time, where it was seen lately: one that was slow is tried again after a while.
    pub(crate) fn usual_lately_ns(&self, now_ns: u64) -> u64 {
        let age_ns = now_ns.saturating_sub(self.noted_ns.load(Ordering::Relaxed));
        if age_ns < AVOIDED_NS { self.usual_ns() } else { 0 }
    }

    pub(crate) fn usual_ns(&self) -> u64 {
        self.usual_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn avoid(&self, now_ns: u64) {
        self.avoided_until_ns.store(now_ns.saturating_add(AVOIDED_NS), Ordering::Relaxed);
    }

    pub(crate) fn is_avoided(&self, now_ns: u64) -> bool {
        now_ns < self.avoided_until_ns.load(Ordering::Relaxed)
    }

    /// It has answered.
    pub(crate) fn heard(&self, now_ns: u64) {
        self.heard_ns.store(now_ns, Ordering::Relaxed);
        if self.silent_ns.load(Ordering::Relaxed) != 0 {
            self.silent_ns.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn heard_ns(&self) -> u64 {
        self.heard_ns.load(Ordering::Relaxed)
    }

    /// It does not answer.
    pub(crate) fn note_silence(&self, now_ns: u64) {
        self.silent_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    pub(crate) fn is_silent(&self, now_ns: u64) -> bool {
        let silent_ns = self.silent_ns.load(Ordering::Relaxed);
        silent_ns != 0 && now_ns.saturating_sub(silent_ns) < SILENT_NS
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::Relaxed)
    }
}

/// A read under way to a server that others could answer; over when dropped.
pub(crate) struct CopyRead(Arc<Pace>);

impl CopyRead {
    pub(crate) fn begin(pace: &Arc<Pace>) -> CopyRead {
        pace.copies.under_way.fetch_add(1, Ordering::Relaxed);
        CopyRead(Arc::clone(pace))
    }
}

impl Drop for CopyRead {
    fn drop(&mut self) {
        self.0.copies.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    /// 0 while nothing has come back.
    shortest_ns: u64,
    /// The present measurement.
    since_ns: u64,
    bytes: u64,
    /// The best rates, in bytes a second, of the present ten seconds and of those before.
    epoch_ns: u64,
    best: u64,
    best_before: u64,
}

impl Pace {
    /// An answer has come `elapsed_ns` after its request; with it went `bytes` in either direction.
    pub(crate) fn note(&self, bytes: u64, elapsed_ns: u64, now_ns: u64) {
        let mut state = self.state.lock();
        let elapsed_ns = elapsed_ns.max(1);
        if state.shortest_ns == 0 || elapsed_ns < state.shortest_ns {
            state.shortest_ns = elapsed_ns;
            self.note_distance(elapsed_ns);
        }
        let measured_ns = now_ns.saturating_sub(state.since_ns);
        let long_enough_ns = MEASURE_NS_MIN.max(state.shortest_ns.saturating_mul(2));
        if state.since_ns == 0 || measured_ns > long_enough_ns.saturating_mul(4) {
            // Nothing was asked for meanwhile: that says nothing about the link.
            (state.since_ns, state.bytes) = (now_ns, 0);
            return;
        }
        state.bytes = state.bytes.saturating_add(bytes);
        if measured_ns < long_enough_ns {
            return;
        }
        let rate = u128::from(state.bytes) * 1_000_000_000 / u128::from(measured_ns);
        state.take_rate(u64::try_from(rate).unwrap_or(u64::MAX), now_ns);
        (state.since_ns, state.bytes) = (now_ns, 0);
        self.wanted_bytes.store(state.wanted_bytes(), Ordering::Relaxed);
    }

    /// It is at most so far away; 0 says nothing.
    pub(crate) fn note_distance(&self, at_most_ns: u64) {
        let before_ns = self.distance_ns();
        if at_most_ns > 0 && (before_ns == 0 || at_most_ns < before_ns) {
            self.distance_ns.store(at_most_ns, Ordering::Relaxed);
        }
    }

    /// How far away it is at most; 0 while that is not known.
    pub(crate) fn distance_ns(&self) -> u64 {
        self.distance_ns.load(Ordering::Relaxed)
    }

    /// Bytes worth having under way; 0 while that is not known, and for a server nearby.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.wanted_bytes.load(Ordering::Relaxed)
    }
}

impl State {
    fn take_rate(&mut self, rate: u64, now_ns: u64) {
        if now_ns.saturating_sub(self.epoch_ns) > REMEMBERED_NS {
            (self.epoch_ns, self.best_before, self.best) = (now_ns, self.best, 0);
        }
        self.best = self.best.max(rate);
    }

    fn wanted_bytes(&self) -> u64 {
        if self.shortest_ns <= NEAR_NS_MAX {
            return 0;
        }
        let rate = self.best.max(self.best_before);
        let bytes = GAIN * u128::from(rate) * u128::from(self.shortest_ns) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Keeps `window` bytes, but at most `bound`, under way over a link for a while; what it then thinks of it.
    fn learn(pace: &Pace, link_rate: u64, round_trip_ns: u64, bound: u64, from_ns: u64, seconds: u64) -> u64 {
        let request = 256 * 1024;
        let mut now_ns = from_ns;
        while now_ns < from_ns + seconds * 1_000_000_000 {
            let window = pace.wanted_bytes().clamp(1 << 20, bound);
            let by_link_ns = request * 1_000_000_000 / link_rate;
            let by_window_ns = request * round_trip_ns / window;
            now_ns += by_link_ns.max(by_window_ns);
            let waiting_ns = (window * 1_000_000_000 / link_rate).saturating_sub(round_trip_ns);
            pace.note(request, round_trip_ns + waiting_ns, now_ns);
        }
        pace.wanted_bytes()
    }

    #[test]
    fn a_long_link_gets_what_fills_it_within_two_seconds() {
        let pace = Pace::default();
        // 200 Mb/s, 100 ms: 2.5 MB.
        let wanted = learn(&pace, 25_000_000, 100 * MS, 32 << 20, 1, 2);
        assert!((2_500_000..=6_000_000).contains(&wanted), "{wanted}");
        // Standing behind each other is no distance: it does not go on growing.
        let later = learn(&pace, 25_000_000, 100 * MS, 32 << 20, 2_000_000_000, 60);
        assert!(later <= 6_000_000, "{later}");
    }

    #[test]
    fn a_server_next_door_wants_nothing_beyond_the_usual() {
        let pace = Pace::default();
        assert_eq!(learn(&pace, 4_000_000_000, MS / 10, 32 << 20, 1, 1), 0);
    }

    #[test]
    fn a_pause_says_nothing_about_the_link() {
        let pace = Pace::default();
        let wanted = learn(&pace, 25_000_000, 100 * MS, 32 << 20, 1, 3);
        pace.note(100, 150 * MS, 8_000_000_000);
        pace.note(100, 150 * MS, 8_300_000_000);
        assert_eq!(pace.wanted_bytes(), wanted);
    }

    #[test]
    fn the_distance_is_the_shortest_that_anything_took() {
        let pace = Pace::default();
        pace.note_distance(0);
        assert_eq!(pace.distance_ns(), 0, "not known");
        pace.note(1 << 20, 60 * MS, 1);
        pace.note(1 << 20, 90 * MS, 1);
        assert_eq!(pace.distance_ns(), 60 * MS);
        pace.note_distance(MS / 10);
        pace.note_distance(MS);
        pace.note(1 << 20, 50 * MS, 2);
        assert_eq!(pace.distance_ns(), MS / 10);
    }

    #[test]
    fn no_figure_is_too_large() {
        let pace = Pace::default();
        pace.note(u64::MAX, u64::MAX / 8, 1);
        pace.note(u64::MAX, u64::MAX / 8, u64::MAX / 2);
        assert!(pace.wanted_bytes() > 0);
    }
}
