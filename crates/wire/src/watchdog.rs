//! Whether a file system still answers: what is under way on it, and when something last came back.
//!
//! A file system hangs when operations are under way and none of them has ended for a while: a slow one ends some. The
//! thread that waits for it cannot be woken, so that all there is to do is to notice, to say so, and to begin nothing
//! more on it.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::limits::{SLOW_MS, STUCK_MS};

const NS_A_MS: u64 = 1_000_000;

/// One operation.
#[derive(Clone, Copy)]
struct Begun {
    number: u64,
    since_ns: u64,
    what: &'static str,
}

#[derive(Default)]
struct Table {
    next: u64,
    under_way: Vec<Begun>,
    /// When one ended last.
    ended_ns: u64,
    /// The log has been told that it hangs.
    is_told: bool,
}

/// What a file system that has not answered for a while is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Silence {
    /// How long nothing has ended.
    pub ns: u64,
    /// Operations under way.
    pub under_way: usize,
    /// The one that has waited longest.
    pub what: &'static str,
    /// How long it has.
    pub oldest_ns: u64,
}

/// The operations under way on one file system.
pub struct Watchdog {
    /// As messages show it: `area data of node n1`.
    place: String,
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watchdog({})", self.place)
    }
}

/// An operation that counts as under way for as long as this lives.
#[must_use = "dropped at once it counts as ended"]
pub struct UnderWay<'a> {
    watchdog: &'a Watchdog,
    number: u64,
    /// Its end shows that the file system answers.
    is_sign: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.watchdog.end(self.number, self.is_sign);
    }
}

impl Watchdog {
    /// Watches the file system that messages call `place`.
    pub fn new(place: &str, clock: Arc<dyn Clock>) -> Watchdog {
        Watchdog { place: place.to_owned(), clock, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// As messages show it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// An operation begins that may wait for the file system.
    pub fn begin(&self, what: &'static str) -> UnderWay<'_> {
        UnderWay { watchdog: self, number: self.note(what), is_sign: true }
    }

    /// The same for one whose end says nothing: a file system that hangs may answer it from memory.
    pub fn begin_unsigned(&self, what: &'static str) -> UnderWay<'_> {
        UnderWay { watchdog: self, number: self.note(what), is_sign: false }
    }

    /// Notes an operation that has begun; [`Watchdog::end`] takes its number.
    pub fn note(&self, what: &'static str) -> u64 {
        let since_ns = self.clock.now_ns();
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.under_way.push(Begun { number, since_ns, what });
        number
    }

    /// An operation has ended. `is_sign`: that shows that the file system answers.
    pub fn end(&self, number: u64, is_sign: bool) {
        let now_ns = self.clock.now_ns();
        let mut table = self.table();
        if is_sign {
            table.ended_ns = now_ns;
        }
        if let Some(place) = table.under_way.iter().position(|begun| begun.number == number) {
            table.under_way.remove(place);
        }
    }

    /// How long nothing has ended although something is under way; `None` where nothing is.
    pub fn silence(&self) -> Option<Silence> {
        let now_ns = self.clock.now_ns();
        self.table().silence(now_ns)
    }

    /// True when nothing has ended for so long although something is under way.
    pub fn is_silent(&self, milliseconds: u32) -> bool {
        self.silence().is_some_and(|silence| silence.ns >= u64::from(milliseconds) * NS_A_MS)
    }

    /// What is wrong with the file system, for people; `None` when it answers.
    pub fn trouble(&self) -> Option<String> {
        self.silence().and_then(trouble)
    }

    /// Tells the log, once each time, that the file system hangs and that it answers again.
    pub fn tell(&self) {
        let trouble = self.trouble();
        let mut table = self.table();
        if std::mem::replace(&mut table.is_told, trouble.is_some()) == trouble.is_some() {
            return;
        }
        drop(table);
        match trouble {
            Some(trouble) => tracing::warn!(place = self.place, trouble, "a file system hangs"),
            None => tracing::info!(place = self.place, "the file system answers again"),
        }
    }
}

impl Table {
    fn silence(&self, now_ns: u64) -> Option<Silence> {
        // In the order in which they began.
        let oldest = self.under_way.first()?;
        let since_ns = oldest.since_ns.max(self.ended_ns);
        Some(Silence {
            ns: now_ns.saturating_sub(since_ns),
            under_way: self.under_way.len(),
            what: oldest.what,
            oldest_ns: now_ns.saturating_sub(oldest.since_ns),
        })
    }
}

fn trouble(silence: Silence) -> Option<String> {
    let seconds = |ns: u64| ns / (1000 * NS_A_MS);
    if silence.ns >= u64::from(SLOW_MS) * NS_A_MS {
        return Some(format!(
            "its file system has not answered for {} s; {} operations wait for it, {} first",
            seconds(silence.ns),
            silence.under_way,
            silence.what
        ));
    }
    // The rest of it goes on: a lost request, a file whose server is gone.
    (silence.oldest_ns >= u64::from(STUCK_MS) * NS_A_MS).then(|| {
        format!(
            "its file system has not answered {} for {} s, though it answers others",
            silence.what,
            seconds(silence.oldest_ns)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use vazao_meter::ManualClock;

    fn watchdog() -> (Arc<ManualClock>, Watchdog) {
        let clock = Arc::new(ManualClock::default());
        (Arc::clone(&clock), Watchdog::new("area a of node n1", clock))
    }

    #[test]
    fn a_slow_file_system_is_not_taken_for_one_that_hangs() {
        let (clock, watchdog) = watchdog();
        let _sync = watchdog.begin("a sync");
        for _ in 0..20 {
            let read = watchdog.begin("a read");
            clock.advance(Duration::from_secs(2));
            drop(read);
            assert!(!watchdog.is_silent(2_001) && watchdog.trouble().is_none());
        }
        clock.advance(Duration::from_secs(20));
        let trouble = watchdog.trouble().expect("silent");
        assert!(trouble.contains("for 20 s; 1 operations") && trouble.contains("a sync"), "{trouble}");
    }

    #[test]
    fn nothing_under_way_is_no_silence_however_long_it_lasts() {
        let (clock, watchdog) = watchdog();
        drop(watchdog.begin("a read"));
        clock.advance(Duration::from_secs(3600));
        assert_eq!(watchdog.silence(), None);
        let begun = watchdog.begin("a read");
        assert!(!watchdog.is_silent(1), "it has just been asked");
        drop(begun);
    }

    /// Background work on a disk that hung ended each second, for there was nothing to write: nothing reported
    /// the sync that was stuck.
    #[test]
    fn an_end_that_says_nothing_is_no_sign_of_life() {
        let (clock, watchdog) = watchdog();
        let _sync = watchdog.begin("a sync");
        for _ in 0..5 {
            let look = watchdog.begin_unsigned("background work");
            clock.advance(Duration::from_secs(1));
            drop(look);
        }
        let trouble = watchdog.trouble().expect("silent");
        assert!(trouble.contains("for 5 s; 1 operations") && trouble.contains("a sync"), "{trouble}");
        watchdog.end(watchdog.note("a look"), true);
        assert!(watchdog.trouble().is_none());
    }

    #[test]
    fn one_operation_that_never_ends_is_told_of_though_others_do() {
        let (clock, watchdog) = watchdog();
        let _lost = watchdog.begin("AreaStat");
        clock.advance(Duration::from_millis(u64::from(STUCK_MS)));
        drop(watchdog.begin("a read"));
        let trouble = watchdog.trouble().expect("one is stuck");
        assert!(trouble.contains("AreaStat") && trouble.contains("answers others"), "{trouble}");
    }
}
