//! All that takes part, round after round: servers, clients and mounts with their rates and limits.

use crate::Client;
use std::collections::BTreeMap;
use vazao_meter::bottleneck::{Scene, Steady, Verdict, judge};
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
}

impl Overview {
    /// Asks everybody through `client` and returns those of whom two counts are known, servers first. Clients and
    /// mounts report every two seconds once the overview is read.
    pub fn look(&mut self, client: &Client) -> Vec<Shown> {
        let own = machine::instance();
        let (nodes, clients) = client.measures_of_nodes(true);
        let others = clients.into_iter().filter(|measures| measures.instance != own);
        self.take(nodes.into_iter().chain(others).collect())
    }

    fn take(&mut self, all: Vec<Measures>) -> Vec<Shown> {
        for followed in self.followed.values_mut() {
            followed.silent_rounds += 1;
        }
        for measures in all {
            let key = key(&measures);
            let followed = self.followed.entry(key).or_insert_with(|| Followed {
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
        self.followed.retain(|_, followed| followed.silent_rounds <= ROUNDS_SILENT_MAX);
        let changes = || self.followed.values().filter_map(|followed| followed.change.clone());
        let servers: Vec<Change> = changes().filter(|change| change.of.part == Part::Server).collect();
        let mut shown = Vec::new();
        for followed in self.followed.values_mut() {
            let Some(change) = followed.change.clone() else { continue };
            let around = if change.of.part == Part::Server { &[][..] } else { &servers };
            let verdict = followed.steady.take(judge(Scene { observer: &change, servers: around }));
            shown.push(Shown { change, verdict });
        }
        let order = |part: Part| match part {
            Part::Server => 0,
            Part::Mount => 1,
            Part::Client => 2,
        };
        shown.sort_by(|a, b| {
            (order(a.change.of.part), &a.change.of.name).cmp(&(order(b.change.of.part), &b.change.of.name))
        });
        shown
    }

    /// The verdict on one of them by name, over all rounds since the first in which it was seen.
    pub fn whole(&self, name: &str) -> Option<Shown> {
        let since_first = |followed: &Followed| followed.last.since(&followed.first);
        let servers: Vec<Change> =
            self.followed.values().filter(|f| f.last.part == Part::Server).map(since_first).collect();
        let followed = self.followed.values().find(|followed| followed.last.name == name)?;
        let change = since_first(followed);
        let verdict = judge(Scene { observer: &change, servers: &servers });
        Some(Shown { change, verdict })
    }
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

    fn measures(name: &str, part: Part, at_s: u64, read_bytes: u64) -> Measures {
        let mut measures =
            Measures { name: name.to_owned(), part, at_ns: at_s * 1_000_000_000, ..Measures::default() };
        measures.work.read_bytes = read_bytes;
        measures
    }

    #[test]
    fn rates_appear_with_the_second_count_and_stay_until_the_next_report() {
        let mut overview = Overview::default();
        let server = |at_s, bytes| measures("data1", Part::Server, at_s, bytes);
        let client = |at_s, bytes| measures("client", Part::Client, at_s, bytes);
        assert!(overview.take(vec![client(1, 10), server(1, 0)]).is_empty());
        let shown = overview.take(vec![client(3, 50), server(2, 100)]);
        let names: Vec<&str> = shown.iter().map(|shown| shown.change.of.name.as_str()).collect();
        assert_eq!(names, ["data1", "client"]);
        assert_eq!(shown[1].change.rate(shown[1].change.of.work.read_bytes), 20.0);
        let again = overview.take(vec![client(3, 50), server(3, 100)]);
        assert_eq!(again[1].change, shown[1].change);
        assert_eq!(overview.whole("client").map(|whole| whole.change.seconds), Some(2.0));
    }

    #[test]
    fn one_that_is_gone_disappears_after_some_rounds() {
        let mut overview = Overview::default();
        overview.take(vec![measures("client", Part::Client, 1, 0)]);
        assert_eq!(overview.take(vec![measures("client", Part::Client, 2, 0)]).len(), 1);
        let left: Vec<usize> = (0..=ROUNDS_SILENT_MAX).map(|_| overview.take(Vec::new()).len()).collect();
        assert_eq!((left[0], left.last().copied()), (1, Some(0)));
    }
}
