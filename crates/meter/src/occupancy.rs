//! Occupancy of an activity: how long at least one thread, and how many threads on average, were in it.

use parking_lot::{Mutex, MutexGuard};

/// What an [`Occupancy`] has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Occupied {
    /// Nanoseconds in which at least one thread was in it.
    pub busy_ns: u64,
    /// Nanoseconds summed over all threads. Divided by the elapsed time, their average number.
    pub total_ns: u64,
    /// How often one began.
    pub events: u64,
}

impl Occupied {
    /// The growth since `before`.
    pub fn since(&self, before: &Occupied) -> Occupied {
        Occupied {
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            events: self.events.saturating_sub(before.events),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    present: u64,
    changed_ns: u64,
    sums: Occupied,
}

impl State {
    fn advance(&mut self, now_ns: u64) {
        // Two threads may read the clock in one order and come here in the other.
        let passed_ns = now_ns.saturating_sub(self.changed_ns);
        self.changed_ns = self.changed_ns.max(now_ns);
        if self.present > 0 {
            self.sums.busy_ns += passed_ns;
            self.sums.total_ns = self.sums.total_ns.saturating_add(passed_ns.saturating_mul(self.present));
        }
    }
}

/// Counts threads in and out. What is under way counts as well: a sync that takes a minute shows while it lasts.
#[derive(Debug, Default)]
pub struct Occupancy(Mutex<State>);

impl Occupancy {
    /// An empty occupancy.
    pub const fn new() -> Occupancy {
        let sums = Occupied { busy_ns: 0, total_ns: 0, events: 0 };
        Occupancy(Mutex::new(State { present: 0, changed_ns: 0, sums }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// One begins.
    pub fn enter(&self, now_ns: u64) {
        let mut state = self.state();
        state.advance(now_ns);
        state.present += 1;
        state.sums.events += 1;
    }

    /// One ends.
    pub fn leave(&self, now_ns: u64) {
        let mut state = self.state();
        state.advance(now_ns);
        state.present = state.present.saturating_sub(1);
    }

    /// The sums so far.
    pub fn at(&self, now_ns: u64) -> Occupied {
        let mut state = self.state();
        state.advance(now_ns);
        state.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_waits_are_busy_once_and_counted_twice_in_the_total() {
        let occupancy = Occupancy::new();
        occupancy.enter(100);
        occupancy.enter(150);
        occupancy.leave(200);
        occupancy.leave(300);
        assert_eq!(occupancy.at(1000), Occupied { busy_ns: 200, total_ns: 250, events: 2 });
    }

    #[test]
    fn what_is_under_way_shows_before_it_ends() {
        let occupancy = Occupancy::new();
        occupancy.enter(10);
        assert_eq!(occupancy.at(60).busy_ns, 50);
        assert_eq!(occupancy.at(90).since(&Occupied { busy_ns: 50, total_ns: 50, events: 1 }).busy_ns, 30);
    }

    #[test]
    fn clocks_read_out_of_order_and_leaving_twice_do_no_harm() {
        let occupancy = Occupancy::new();
        occupancy.enter(100);
        occupancy.enter(90);
        occupancy.leave(95);
        occupancy.leave(120);
        occupancy.leave(130);
        assert_eq!(occupancy.at(200).busy_ns, 20);
    }
}
