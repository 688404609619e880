//! All that takes part, round after round: servers, clients and mounts with their rates and limits.

use super::{Said, of_nodes};
use crate::Client;
use std::collections::BTreeMap;
use vazao_meter::bottleneck::{Scene, Steady, Verdict, judge, not_answering};
use vazao_meter::measures::{Measures, Part};
use vazao_meter::{Change, machine};

/// Rounds without a report after which a participant is no longer shown.
const ROUNDS_SILENT_MAX: u32 = 5;

/// One that takes part.
#[derive(Debug, Default)]
struct Followed {
    first: Measures,
    last: Measures,
    change: Option<Change>,
    steady: Steady,
    silent_rounds: u32,
}

/// What is known of one that takes part.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shown {
    /// What it did since the round before; of a client, since its report before.
    pub change: Change,
    /// What limits it.
    pub verdict: Verdict,
}

/// Follows all participants over rounds.
#[derive(Debug, Default)]
pub struct Overview {
    /// By instance: a name may come back as another process.
    followed: BTreeMap<u64, Followed>,
    /// Servers that do not answer, and since when on the client's clock.
    unanswered: BTreeMap<String, u64>,
}

impl Overview {
    /// Asks everybody through `client`. Returns the servers that do not answer first, then those of whom two counts are
    /// known, servers before mounts and clients. Clients and mounts report every two seconds once the overview is read.
    pub fn look(&mut self, client: &Client) -> Vec<Shown> {
        let own = machine::instance();
        let mut said = of_nodes(&client.core);
        said.clients.retain(|measures| measures.instance != own);
        self.take(said)
    }

    fn take(&mut self, said: Said) -> Vec<Shown> {
        for followed in self.followed.values_mut() {
            followed.silent_rounds += 1;
        }
        let mut shown = self.take_unanswered(&said);
        for measures in said.nodes.into_iter().chain(said.clients) {
            self.follow(measures);
        }
        self.followed.retain(|_, followed| followed.silent_rounds <= ROUNDS_SILENT_MAX);
        let unanswered = &self.unanswered;
        // What a server did before it fell silent is not what it does.
        let is_there =
            |f: &&mut Followed| f.last.part != Part::Server || !unanswered.contains_key(&f.last.name);
        let mut there: Vec<&mut Followed> = self.followed.values_mut().filter(is_there).collect();
        let all: Vec<Change> = there.iter().filter_map(|followed| followed.change.clone()).collect();
        let servers: Vec<Change> =
            all.iter().filter(|change| change.of.part == Part::Server).cloned().collect();
        let answered_none = shown.len();
        for followed in &mut there {
            let Some(change) = followed.change.clone() else { continue };
            let around = if change.of.part == Part::Server { &[][..] } else { &servers };
            let judged = in_vain(&change, unanswered);
            let verdict =
                followed.steady.take(judge(Scene { observer: &judged, servers: around, beside: &all }));
            shown.push(Shown { change, verdict });
        }
        let order = |part: Part| match part {
            Part::Server => 0,
            Part::Mount => 1,
            Part::Client => 2,
        };
        shown[answered_none..].sort_by(|a, b| {
            (order(a.change.of.part), &a.change.of.name).cmp(&(order(b.change.of.part), &b.change.of.name))
        });
        shown
    }

    fn follow(&mut self, measures: Measures) {
        let followed = self.followed.entry(key(&measures)).or_insert_with(|| Followed {
            first: measures.clone(),
            last: measures.clone(),
            ..Followed::default()
        });
        followed.silent_rounds = 0;
        if measures.at_ns > followed.last.at_ns {
            followed.change = Some(measures.since(&followed.last));
            followed.last = measures;
        }
    }

    /// Notes who does not answer, and says so.
    fn take_unanswered(&mut self, said: &Said) -> Vec<Shown> {
        let since = |(name, known_ns): &(String, u64)| {
            let asked_ns = said.at_ns.saturating_sub(*known_ns);
            (name.clone(), self.unanswered.get(name).map_or(asked_ns, |since_ns| asked_ns.min(*since_ns)))
        };
        self.unanswered = said.unanswered.iter().map(since).collect();
        let shown = |(name, since_ns): (&String, &u64)| {
            let seconds = said.at_ns.saturating_sub(*since_ns) as f64 / 1e9;
            let of = Measures { name: name.clone(), part: Part::Server, ..Measures::default() };
            Shown { change: Change { seconds, of }, verdict: not_answering(name, seconds) }
        };
        self.unanswered.iter().map(shown).collect()
    }

    /// The verdict on one of them by name, over all rounds since the first in which it was seen.
    pub fn whole(&self, name: &str) -> Option<Shown> {
        let since_first = |followed: &Followed| followed.last.since(&followed.first);
        let all: Vec<Change> = self.followed.values().map(since_first).collect();
        let servers: Vec<Change> =
            all.iter().filter(|change| change.of.part == Part::Server).cloned().collect();
        let followed = self.followed.values().find(|followed| followed.last.name == name)?;
        let change = since_first(followed);
        let verdict = judge(Scene { observer: &change, servers: &servers, beside: &all });
        Some(Shown { change, verdict })
    }
}

/// The change with the time added that requests waited for servers that do not answer now. Its process notices a
/// silence only after some seconds; the client that looks meanwhile has asked those servers itself.
fn in_vain(change: &Change, unanswered: &BTreeMap<String, u64>) -> Change {
    let mut change = change.clone();
    let whole_ns = (change.seconds * 1e9) as u64;
    for peer in &mut change.of.peers {
        let is_answered = peer.service_ns > 0 || peer.read_bytes > 0 || peer.written_bytes > 0;
        if unanswered.contains_key(&peer.name) && !is_answered {
            peer.silent_ns = peer.silent_ns.max(whole_ns);
        }
    }
    change
}

/// Processes of different machines may have the same instance number.
fn key(measures: &Measures) -> u64 {
    let mut hash = measures.instance;
    for byte in measures.machine.bytes().chain(measures.name.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_meter::Occupied;
    use vazao_meter::bottleneck::Resource;
    use vazao_meter::measures::Peer;

    fn measures(name: &str, part: Part, at_s: u64, read_bytes: u64) -> Measures {
        let mut measures =
            Measures { name: name.to_owned(), part, at_ns: at_s * 1_000_000_000, ..Measures::default() };
        measures.work.read_bytes = read_bytes;
        measures
    }

    fn said(nodes: Vec<Measures>) -> Said {
        Said { nodes, ..Said::default() }
    }

    /// With a data server dead and a reader waiting for it for 15 s, `top` said "3 servers", left the dead one out, and
    /// named the limit of the reader's mount "nothing was asked for".
    #[test]
    fn a_server_that_does_not_answer_is_the_first_line_and_the_limit_of_those_who_wait_for_it() {
        let mut overview = Overview::default();
        let waiting = |at_s: u64| {
            let mut mount = measures("/m", Part::Mount, at_s, 0);
            let in_flight = Occupied { events: at_s, ..Occupied::default() };
            let dead = Peer { name: "data2".to_owned(), in_flight, ..Peer::default() };
            let alive = Peer { name: "data1".to_owned(), service_ns: at_s, in_flight, ..Peer::default() };
            mount.peers = vec![alive, dead];
            mount
        };
        let there = |at_s| vec![measures("data1", Part::Server, at_s, 0), waiting(at_s)];
        overview.take(said([there(1), vec![measures("data2", Part::Server, 1, 0)]].concat()));
        overview.take(said([there(3), vec![measures("data2", Part::Server, 3, 0)]].concat()));
        let round = |at_s: u64, silent_s: u64| Said {
            at_ns: at_s * 1_000_000_000,
            nodes: there(at_s),
            unanswered: vec![("data2".to_owned(), silent_s * 1_000_000_000)],
            ..Said::default()
        };
        overview.take(round(5, 0));
        let shown = overview.take(round(7, 0));
        let names: Vec<&str> = shown.iter().map(|shown| shown.change.of.name.as_str()).collect();
        assert_eq!(names, ["data2", "data1", "/m"]);
        assert!(shown[0].verdict.text.starts_with("no answer of data2 for 2 s"), "{}", shown[0].verdict.text);
        let limit = &shown[2].verdict;
        assert_eq!((limit.resource, limit.place.as_str()), (Resource::NoAnswer, "data2"), "{limit:?}");
        // The metadata service knows for how long.
        let text = overview.take(round(19, 16)).remove(0).verdict.text;
        assert!(text.starts_with("no answer of data2 for 16 s"), "{text}");
        let back = overview.take(said([there(21), vec![measures("data2", Part::Server, 21, 0)]].concat()));
        assert!(back.iter().all(|shown| shown.verdict.resource != Resource::NoAnswer), "{back:?}");
    }

    #[test]
    fn rates_appear_with_the_second_count_and_stay_until_the_next_report() {
        let mut overview = Overview::default();
        let server = |at_s, bytes| measures("data1", Part::Server, at_s, bytes);
        let client = |at_s, bytes| measures("client", Part::Client, at_s, bytes);
        assert!(overview.take(said(vec![client(1, 10), server(1, 0)])).is_empty());
        let shown = overview.take(said(vec![client(3, 50), server(2, 100)]));
        let names: Vec<&str> = shown.iter().map(|shown| shown.change.of.name.as_str()).collect();
        assert_eq!(names, ["data1", "client"]);
        assert_eq!(shown[1].change.rate(shown[1].change.of.work.read_bytes), 20.0);
        let again = overview.take(said(vec![client(3, 50), server(3, 100)]));
        assert_eq!(again[1].change, shown[1].change);
        assert_eq!(overview.whole("client").map(|whole| whole.change.seconds), Some(2.0));
    }

    #[test]
    fn one_that_is_gone_disappears_after_some_rounds() {
        let mut overview = Overview::default();
        overview.take(said(vec![measures("client", Part::Client, 1, 0)]));
        assert_eq!(overview.take(said(vec![measures("client", Part::Client, 2, 0)])).len(), 1);
        let left: Vec<usize> =
            (0..=ROUNDS_SILENT_MAX).map(|_| overview.take(Said::default()).len()).collect();
        assert_eq!((left[0], left.last().copied()), (1, Some(0)));
    }
}
