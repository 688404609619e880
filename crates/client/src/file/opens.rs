//! What this client tells the metadata service of the files it has open.
//!
//! The service notes what it shows this client to open, and asks about it when such a file loses its last name. So that
//! it need not note for ever, each renewal says of a *round*, a number from an earlier answer: of what you noted before
//! you sent that, these are still open. That is true once every open that began before the round arrived is over:
//! its file is among those known here, or closed.
//!
//! Opens are counted by periods, which change with renewals. A round that was there when a period began is spoken of
//! when all opens from before that period are over.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More open files than these are not told: the service then takes this client to have anything open.
pub(crate) const TOLD_MAX: usize = 4096;

/// Opens under way, and what may be said of rounds.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    period: AtomicUsize,
    /// Opens that began in periods of even and of odd number.
    underway: [AtomicUsize; 2],
    rounds: Mutex<Rounds>,
}

#[derive(Debug, Default)]
struct Rounds {
    /// The last one that arrived.
    latest: u64,
    /// The last one that had arrived when the present period began.
    at_period: u64,
}

/// An open under way: from before its request is sent until the file is known, or did not come.
#[derive(Debug)]
pub(crate) struct Opening {
    opens: Arc<Opens>,
    place: usize,
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.opens.underway[self.place].fetch_sub(1, Ordering::SeqCst);
    }
}

impl Opens {
    /// To be called before the request that opens is sent.
    pub(crate) fn begin(self: &Arc<Opens>) -> Opening {
        let place = self.period.load(Ordering::SeqCst) % 2;
        self.underway[place].fetch_add(1, Ordering::SeqCst);
        Opening { opens: Arc::clone(self), place }
    }

    /// A renewal is about to be sent: the round it may speak of, once what is open has been looked at after this; 0 for
    /// none.
    pub(crate) fn next_period(&self) -> u64 {
        let mut rounds = self.rounds.lock();
        let period = self.period.load(Ordering::SeqCst);
        // The place that the next period will count in: until it is empty, opens from before this period are under way.
        if self.underway[(period + 1) % 2].load(Ordering::SeqCst) != 0 {
            return 0;
        }
        self.period.store(period + 1, Ordering::SeqCst);
        let latest = rounds.latest;
        std::mem::replace(&mut rounds.at_period, latest)
    }

    /// True when an open is under way.
    pub(crate) fn is_any_underway(&self) -> bool {
        self.underway.iter().any(|count| count.load(Ordering::SeqCst) != 0)
    }

    /// The period that it is.
    pub(crate) fn period(&self) -> usize {
        self.period.load(Ordering::SeqCst)
    }

    /// True when all opens are over that had begun when it was `period`.
    pub(crate) fn are_over(&self, period: usize) -> bool {
        // Each step to another period waited for those that began two before it.
        let is_long_ago = self.period() >= period + 2;
        is_long_ago || !self.is_any_underway()
    }

    /// A renewal was answered with this round.
    pub(crate) fn arrived(&self, round: u64) {
        self.rounds.lock().latest = round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_spoken_of_once_all_opens_from_before_it_are_over() {
        let opens = Arc::new(Opens::default());
        assert_eq!(opens.next_period(), 0, "there was none yet");
        let early = opens.begin();
        opens.arrived(7);
        assert_eq!(opens.next_period(), 0);
        let late = opens.begin();
        opens.arrived(8);
        assert_eq!(opens.next_period(), 0, "one from before round 7 is under way");
        drop(early);
        opens.arrived(9);
        assert_eq!(opens.next_period(), 7, "the other one came later");
        opens.arrived(10);
        assert_eq!(opens.next_period(), 0);
        drop(late);
        assert_eq!(opens.next_period(), 9);
        assert_eq!(opens.next_period(), 10);
    }

    #[test]
    fn without_opens_each_renewal_speaks_of_the_round_before_the_last() {
        let opens = Arc::new(Opens::default());
        let mut told = Vec::new();
        for round in 1..=4 {
            told.push(opens.next_period());
            opens.arrived(round);
        }
        assert_eq!(told, [0, 0, 1, 2]);
    }
}
