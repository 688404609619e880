//! What happens to each request: lost, late, broken off, or the end of the server it goes to.

use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use vazao_wire::Method;
use vazao_wire::inline::Fate;

/// A late request arrives after at most this many others to its server: its repetition and newer ones are among them.
const LATE_AFTER_MAX: u32 = 24;

/// Requests that change objects.
const CHANGES: [Method; 5] =
    [Method::Write, Method::WriteList, Method::TruncateObject, Method::PunchObject, Method::CopyObjectRange];

/// How a daemon ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The process; its machine goes on, and nothing that was written is lost.
    Kill,
    /// The machine; what was not synced may be lost.
    PowerLoss,
}

/// How often things go wrong, in thousandths of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weather {
    /// Requests and answers that never arrive.
    pub lost: u32,
    /// Connections that break before or after a request was handled.
    pub broken: u32,
    /// Requests in the middle of which the server is killed.
    pub killed: u32,
    /// Requests in the middle of which the server loses power.
    pub power_lost: u32,
    /// Requests to data servers that arrive after their requester has sent them again, and others.
    pub late: u32,
}

#[derive(Debug)]
struct State {
    random: StdRng,
    weather: Weather,
    /// Servers that have ended and have not been taken away yet.
    ended: BTreeSet<String>,
    ends: Vec<(String, End)>,
}

/// The network between the parts of a cluster.
#[derive(Debug)]
pub struct Network {
    state: Mutex<State>,
}

impl Network {
    /// A calm network whose accidents are determined by `seed`.
    pub fn new(seed: u64) -> Network {
        let (random, weather) = (StdRng::seed_from_u64(seed), Weather::default());
        Network { state: Mutex::new(State { random, weather, ended: BTreeSet::new(), ends: Vec::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the weather.
    pub fn set_weather(&self, weather: Weather) {
        self.state().weather = weather;
    }

    /// Servers that ended in the middle of a request since this was last asked.
    pub(crate) fn take_ends(&self) -> Vec<(String, End)> {
        let mut state = self.state();
        state.ended.clear();
        std::mem::take(&mut state.ends)
    }

    /// The fate of the next request to `address`.
    pub(crate) fn fate(&self, address: &str, method: Method) -> Fate {
        let mut state = self.state();
        if state.ended.contains(address) {
            return Fate::BreakBefore;
        }
        let Weather { lost, broken, killed, power_lost, late } = state.weather;
        let drawn = state.random.random_range(0..1000);
        let is_before = state.random.random_bool(0.5);
        if drawn < killed + power_lost {
            let end = if drawn < killed { End::Kill } else { End::PowerLoss };
            state.ended.insert(address.to_owned());
            state.ends.push((address.to_owned(), end));
        }
        let in_time = killed + power_lost + broken + lost;
        if (in_time..in_time + late).contains(&drawn) && CHANGES.contains(&method) {
            return Fate::Delay(state.random.random_range(1..=LATE_AFTER_MAX));
        }
        match (drawn < killed + power_lost + broken, drawn < killed + power_lost + broken + lost, is_before) {
            (true, _, true) => Fate::BreakBefore,
            (true, _, false) => Fate::BreakAfter,
            (false, true, true) => Fate::LoseRequest,
            (false, true, false) => Fate::LoseAnswer,
            (false, false, _) => Fate::Deliver,
        }
    }
}
