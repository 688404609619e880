//! What happens to each message: lost, late, doubled, broken off, on a link that is cut, or the end of the server it
//! goes to.

mod endpoint;
mod links;

pub use endpoint::Endpoint;
pub(crate) use endpoint::OnMachine;
pub use links::{Cut, Machine};

use crate::clock::{MachineClock, SimClock};
use links::{Links, Message};
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vazao_wire::Method;
use vazao_wire::inline::{Fate, InlineTransport};

/// A late request arrives after at most this many others to its server: its repetition and newer ones are among them.
const LATE_AFTER_MAX: u32 = 24;

/// Requests that change objects. TCP doubles nothing: a repetition is made by its sender, with a number of its own or
/// in a later stream of its group, and what can be late is an earlier form of it.
const CHANGES: [Method; 7] = [
    Method::Write,
    Method::WriteList,
    Method::TruncateObject,
    Method::PunchObject,
    Method::CopyObjectRange,
    Method::RestoreBlock,
    Method::RemoveObjects,
];

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
    /// Requests that are answered, and of which a copy arrives after others: their requester had sent them twice.
    pub doubled: u32,
}

#[derive(Debug)]
struct State {
    random: StdRng,
    weather: Weather,
    /// Servers that have ended and have not been taken away yet.
    ended: BTreeSet<String>,
    ends: Vec<(String, End)>,
    links: Links,
    /// Where each server is, with its zone.
    servers: BTreeMap<String, (Machine, String)>,
}

/// The network between the parts of a cluster.
#[derive(Debug)]
pub struct Network {
    state: Mutex<State>,
}

impl Network {
    /// A calm network whose accidents are determined by `seed`.
    pub fn new(seed: u64) -> Network {
        let (random, weather, ended) = (StdRng::seed_from_u64(seed), Weather::default(), BTreeSet::new());
        let (ends, links, servers) = (Vec::new(), Links::default(), BTreeMap::new());
        Network { state: Mutex::new(State { random, weather, ended, ends, links, servers }) }
    }

    /// Says which machine serves at an address. One that is not known here has links that are never cut.
    pub(crate) fn place(&self, address: &str, machine: Machine, zone: &str) {
        self.state().servers.insert(address.to_owned(), (machine, zone.to_owned()));
    }

    /// The transport of a machine in a zone.
    pub(crate) fn endpoint(
        self: &Arc<Network>,
        (machine, zone): (Machine, &str),
        inner: &Arc<InlineTransport>,
        (cluster_clock, clock): (&Arc<SimClock>, Arc<MachineClock>),
    ) -> Arc<Endpoint> {
        let (network, inner, cluster_clock) =
            (Arc::clone(self), Arc::clone(inner), Arc::clone(cluster_clock));
        Arc::new(Endpoint { machine, zone: zone.to_owned(), network, inner, cluster_clock, clock })
    }

    /// Cuts a link.
    pub(crate) fn cut(&self, cut: Cut, now_ns: u64) {
        self.state().links.cut(cut, now_ns);
    }

    /// Cuts all links that enter or leave a zone.
    pub(crate) fn cut_off_zone(&self, zone: &str, duration: Duration, now_ns: u64) {
        self.state().links.cut_off_zone(zone, duration, now_ns);
    }

    /// Cuts all links of a machine.
    pub(crate) fn cut_off(&self, machine: Machine, duration: Duration, now_ns: u64) {
        self.state().links.cut_off(machine, duration, now_ns);
    }

    /// Makes all links whole.
    pub(crate) fn mend(&self) {
        self.state().links.mend();
    }

    /// Whether any link is cut.
    pub(crate) fn is_cut(&self, now_ns: u64) -> bool {
        self.state().links.are_cut(now_ns)
    }

    /// Whether a request from `requester` to the server at `address` does not arrive, or the answer to one.
    fn loses(&self, requester: (Machine, &str), address: &str, is_answer: bool, now_ns: u64) -> bool {
        let state = self.state();
        let Some((machine, zone)) = state.servers.get(address) else { return false };
        let server = (*machine, zone.as_str());
        let (from, to) = if is_answer { (server, requester) } else { (requester, server) };
        state.links.loses(&Message { from, to, is_answer }, now_ns)
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
        let Weather { lost, broken, killed, power_lost, late, doubled } = state.weather;
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
        let undoubled = in_time + late;
        if (undoubled..undoubled + doubled).contains(&drawn) && !CHANGES.contains(&method) {
            return Fate::Double(state.random.random_range(1..=LATE_AFTER_MAX));
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
