//! The clock of one machine: at a rate of its own, set forward and back, and not counting while the machine stands
//! still.

use super::SimClock;
use crate::network::Machine;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::Clock;

/// Rates of machines lie within so many parts in a million of true time: 1%, which leases allow for.
pub const RATE_PPM_MAX: i64 = 10_000;

/// How a machine stands still for a while. What it is sent meanwhile is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// Its processes are stopped: all clocks run on.
    Stopped,
    /// It is suspended: the monotonic clock stops.
    Suspended,
    /// It is a virtual machine that is frozen: its date alone runs on, as its host's does.
    Frozen,
}

/// A scale of a clock: what it showed at a moment, and since when it counts.
#[derive(Clone, Copy, Debug)]
struct Scale {
    shown_ns: u64,
    /// On the cluster's clock; in the future while it stands still.
    counts_from_ns: u64,
}

impl Scale {
    fn at(self, true_ns: u64, rate_ppm: i64) -> u64 {
        self.shown_ns + scaled(true_ns.saturating_sub(self.counts_from_ns), rate_ppm)
    }

    /// The same clock at another rate, or standing still for a while, from a moment on.
    fn from(self, true_ns: u64, rate_ppm: i64, still_ns: u64) -> Scale {
        let counts_from_ns = true_ns.max(self.counts_from_ns) + still_ns;
        Scale { shown_ns: self.at(true_ns, rate_ppm), counts_from_ns }
    }
}

/// What a clock counts while so much time passes.
fn scaled(true_ns: u64, rate_ppm: i64) -> u64 {
    (u128::from(true_ns) * u128::from((1_000_000 + rate_ppm).unsigned_abs()) / 1_000_000) as u64
}

/// The time that passes until a clock has counted so much, or a little more.
fn true_time(counted_ns: u64, rate_ppm: i64) -> u64 {
    let rate = u128::from((1_000_000 + rate_ppm).unsigned_abs());
    let true_ns = (u128::from(counted_ns) * 1_000_000).div_ceil(rate);
    u64::try_from(true_ns).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug)]
struct Scales {
    rate_ppm: i64,
    now: Scale,
    steady: Scale,
    wall: Scale,
    /// Until when it stands still, on the cluster's clock.
    still_until_ns: u64,
}

/// A machine's clock.
pub struct MachineClock {
    cluster: Arc<SimClock>,
    scales: Mutex<Scales>,
}

impl std::fmt::Debug for MachineClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MachineClock({:?})", self.scales.lock())
    }
}

impl MachineClock {
    /// A clock that shows what the cluster's shows.
    pub fn new(cluster: Arc<SimClock>) -> MachineClock {
        let now_ns = cluster.now_ns();
        let scale = |shown_ns| Scale { shown_ns, counts_from_ns: now_ns };
        let (now, wall) = (scale(now_ns), scale(cluster.wall_ns()));
        let scales = Scales { rate_ppm: 0, now, steady: now, wall, still_until_ns: 0 };
        MachineClock { cluster, scales: Mutex::new(scales) }
    }

    /// From now on it counts so many parts in a million more or less than passes.
    pub fn set_rate(&self, rate_ppm: i64) {
        let true_ns = self.cluster.now_ns();
        let mut scales = self.scales.lock();
        let former_ppm = scales.rate_ppm;
        let Scales { now, steady, wall, .. } = &mut *scales;
        [now, steady, wall].into_iter().for_each(|scale| *scale = scale.from(true_ns, former_ppm, 0));
        scales.rate_ppm = rate_ppm;
    }

    /// Sets the date forward or back.
    pub fn set_wall(&self, by_ms: i64) {
        let wall = &mut self.scales.lock().wall;
        wall.shown_ns = wall.shown_ns.saturating_add_signed(by_ms * 1_000_000);
    }

    /// The machine stands still from now on.
    pub(crate) fn pause(&self, pause: Pause, duration: Duration) {
        let (true_ns, still_ns) = (self.cluster.now_ns(), duration.as_nanos() as u64);
        let mut scales = self.scales.lock();
        let rate_ppm = scales.rate_ppm;
        scales.still_until_ns = scales.still_until_ns.max(true_ns + still_ns);
        if pause != Pause::Stopped {
            scales.now = scales.now.from(true_ns, rate_ppm, still_ns);
        }
        if pause == Pause::Frozen {
            scales.steady = scales.steady.from(true_ns, rate_ppm, still_ns);
        }
    }

    /// Whether the machine stands still.
    pub(crate) fn stands_still(&self) -> bool {
        self.cluster.now_ns() < self.scales.lock().still_until_ns
    }

    /// The machine goes on at once.
    pub(crate) fn go_on(&self) {
        let true_ns = self.cluster.now_ns();
        let mut scales = self.scales.lock();
        scales.still_until_ns = 0;
        let Scales { now, steady, .. } = &mut *scales;
        [now, steady].into_iter().for_each(|scale| scale.counts_from_ns = scale.counts_from_ns.min(true_ns));
    }

    /// The moment on the cluster's clock at which this one will have come to `ns`, or shows a little more.
    pub(crate) fn cluster_ns(&self, ns: u64) -> u64 {
        let left_ns = ns.saturating_sub(self.now_ns());
        if left_ns == 0 {
            // Also while it stands still: what has passed is not waited for.
            return self.cluster.now_ns();
        }
        let Scales { rate_ppm, now, .. } = *self.scales.lock();
        let from_ns = self.cluster.now_ns().max(now.counts_from_ns);
        from_ns.saturating_add(true_time(left_ns, rate_ppm))
    }

    /// What this clock will show at a moment of the cluster's, should nothing happen to it.
    pub(crate) fn ns_at(&self, cluster_ns: u64) -> u64 {
        let Scales { rate_ppm, now, .. } = *self.scales.lock();
        now.at(cluster_ns, rate_ppm)
    }
}

impl Clock for MachineClock {
    fn now_ns(&self) -> u64 {
        self.ns_at(self.cluster.now_ns())
    }

    fn steady_ns(&self) -> u64 {
        let Scales { rate_ppm, steady, .. } = *self.scales.lock();
        steady.at(self.cluster.now_ns(), rate_ppm)
    }

    fn wall_ns(&self) -> u64 {
        let Scales { rate_ppm, wall, .. } = *self.scales.lock();
        wall.at(self.cluster.now_ns(), rate_ppm)
    }

    fn sleep(&self, duration: Duration) {
        let until_ns = self.now_ns().saturating_add(duration.as_nanos() as u64);
        let left_ns = self.cluster_ns(until_ns).saturating_sub(self.cluster.now_ns());
        self.cluster.sleep(Duration::from_nanos(left_ns));
    }

    fn can_wait(&self) -> bool {
        !self.cluster.is_working() && !self.stands_still()
    }
}

/// The clocks of a cluster's machines.
pub(crate) struct Clocks {
    cluster: Arc<SimClock>,
    seed: u64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    clocks: BTreeMap<Machine, Arc<MachineClock>>,
    /// They have rates of their own.
    are_drifting: bool,
}

impl Clocks {
    pub(crate) fn new(cluster: Arc<SimClock>, seed: u64) -> Clocks {
        Clocks { cluster, seed, known: Mutex::default() }
    }

    /// The rate of a machine: the ends of what is allowed are where a wrong rule fails.
    fn rate_ppm(&self, machine: Machine) -> i64 {
        let number = match machine {
            Machine::Server(number) => number as u64 * 2,
            Machine::Client(number) => number * 2 + 1,
        };
        let mut random = StdRng::seed_from_u64(self.seed ^ 0x7261_7465 ^ (number << 32));
        match random.random_range(0..3) {
            0 => -RATE_PPM_MAX,
            1 => RATE_PPM_MAX,
            _ => random.random_range(-RATE_PPM_MAX..=RATE_PPM_MAX),
        }
    }

    /// The clock of a machine.
    pub(crate) fn of(&self, machine: Machine) -> Arc<MachineClock> {
        let mut known = self.known.lock();
        if let Some(clock) = known.clocks.get(&machine) {
            return Arc::clone(clock);
        }
        let clock = Arc::new(MachineClock::new(Arc::clone(&self.cluster)));
        if known.are_drifting {
            clock.set_rate(self.rate_ppm(machine));
        }
        known.clocks.insert(machine, Arc::clone(&clock));
        clock
    }

    /// Gives all clocks, and those to come, rates of their own.
    pub(crate) fn drift(&self) {
        let mut known = self.known.lock();
        known.are_drifting = true;
        known.clocks.iter().for_each(|(machine, clock)| clock.set_rate(self.rate_ppm(*machine)));
    }

    /// All machines run.
    pub(crate) fn go_on(&self) {
        self.known.lock().clocks.values().for_each(|clock| clock.go_on());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn clocks() -> (Arc<SimClock>, MachineClock) {
        let cluster = Arc::new(SimClock::default());
        cluster.sleep(SECOND * 5);
        let machine = MachineClock::new(Arc::clone(&cluster));
        (cluster, machine)
    }

    #[test]
    fn a_clock_that_drifts_counts_less_or_more_than_passes_and_its_sleeps_are_longer_or_shorter() {
        for rate_ppm in [-10_000, -1, 7, 10_000] {
            let (cluster, machine) = clocks();
            machine.set_rate(rate_ppm);
            cluster.sleep(SECOND * 1000);
            let counted_ns = (machine.now_ns() - 5_000_000_000) as i64;
            assert_eq!(counted_ns, 1_000_000_000_000 + rate_ppm * 1_000_000);
            let (machine_ns, cluster_ns) = (machine.now_ns(), cluster.now_ns());
            machine.sleep(SECOND);
            assert!((1_000_000_000..=1_000_000_002).contains(&(machine.now_ns() - machine_ns)), "{rate_ppm}");
            let slept_ns = (cluster.now_ns() - cluster_ns) as i64;
            assert!((slept_ns - 1_000_000_000 + rate_ppm * 1000).abs() < 110_000, "{slept_ns}");
        }
    }

    #[test]
    fn a_change_of_rate_moves_no_clock() {
        let (cluster, machine) = clocks();
        machine.set_rate(10_000);
        cluster.sleep(SECOND * 100);
        let shown = (machine.now_ns(), machine.steady_ns(), machine.wall_ns());
        machine.set_rate(-10_000);
        assert_eq!((machine.now_ns(), machine.steady_ns(), machine.wall_ns()), shown);
    }

    #[test]
    fn a_deadline_on_one_clock_is_the_same_moment_on_another() {
        let (cluster, machine) = clocks();
        machine.set_rate(-10_000);
        cluster.sleep(SECOND * 3);
        let deadline_ns = machine.now_ns() + 2_000_000_000;
        let at_ns = machine.cluster_ns(deadline_ns);
        assert!(machine.ns_at(at_ns) - deadline_ns <= 1, "{at_ns}");
        cluster.sleep(Duration::from_nanos(at_ns - cluster.now_ns()));
        assert!((deadline_ns..=deadline_ns + 1).contains(&machine.now_ns()));
    }

    #[test]
    fn a_date_that_is_set_moves_no_other_clock() {
        let (_, machine) = clocks();
        let (now_ns, wall_ns) = (machine.now_ns(), machine.wall_ns());
        machine.set_wall(-3_000);
        assert_eq!((machine.now_ns(), machine.wall_ns()), (now_ns, wall_ns - 3_000_000_000));
    }

    /// A server that started on a frozen machine moved all clocks to the end of the pause.
    #[test]
    fn what_has_passed_is_not_waited_for_on_a_machine_that_stands_still() {
        let (cluster, machine) = clocks();
        machine.pause(Pause::Frozen, SECOND * 4);
        machine.sleep(Duration::ZERO);
        assert_eq!(machine.cluster_ns(machine.now_ns()), cluster.now_ns());
        assert_eq!(cluster.now_ns(), 5_000_000_000);
    }

    #[test]
    fn a_machine_that_stands_still_counts_on_the_clocks_that_run_on() {
        for (pause, counted) in
            [(Pause::Stopped, [9, 9, 9]), (Pause::Suspended, [5, 9, 9]), (Pause::Frozen, [5, 5, 9])]
        {
            let (cluster, machine) = clocks();
            let shown = |clock: &MachineClock| [clock.now_ns(), clock.steady_ns(), clock.wall_ns()];
            let before = shown(&machine);
            machine.pause(pause, SECOND * 4);
            cluster.sleep(SECOND * 3);
            assert!(machine.stands_still());
            cluster.sleep(SECOND * 6);
            assert!(!machine.stands_still());
            let seconds: Vec<u64> = shown(&machine)
                .iter()
                .zip(before)
                .map(|(now, before)| (now - before) / 1_000_000_000)
                .collect();
            assert_eq!(seconds, counted, "{pause:?}");
        }
    }
}
