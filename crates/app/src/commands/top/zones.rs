//! Zones in `vazao top`: who is in them, and what moves from one to another. Nothing is counted for it: clients and
//! mounts report what they read and wrote by server, and their own zones.

use crate::format::{self, Lean};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vazao_client::overview::Shown;
use vazao_meter::measures::Part;
use vazao_model::ClusterMap;

/// The zones of nodes, by the nodes' names. Empty where no node is in one.
#[derive(Default)]
pub(super) struct Zones(BTreeMap<String, String>);

impl Zones {
    pub(super) fn of(map: &ClusterMap) -> Zones {
        let nodes = map.nodes.iter().filter(|node| !node.zone.is_empty());
        Zones(nodes.map(|node| (node.name.clone(), node.zone.clone())).collect())
    }

    #[cfg(test)]
    pub(super) fn with<const N: usize>(nodes: [(&str, &str); N]) -> Zones {
        Zones(nodes.map(|(name, zone)| (name.to_owned(), zone.to_owned())).into())
    }

    fn of_node(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// `None`: in no zone.
    pub(super) fn zone<'a>(&'a self, shown: &'a Shown) -> Option<&'a str> {
        let of = &shown.change.of;
        match of.part {
            Part::Server => self.of_node(&of.name),
            Part::Client | Part::Mount => Some(of.zone.as_str()).filter(|zone| !zone.is_empty()),
        }
    }

    /// What moves from each zone to each other one, `None` being no zone; pairs without traffic are left out.
    pub(super) fn between<'a>(&'a self, shown: &'a [Shown]) -> Vec<Traffic<'a>> {
        let mut pairs: BTreeMap<Pair<'a>, (f64, f64)> = BTreeMap::new();
        // What servers count of the same bytes is not added.
        for observer in shown.iter().filter(|shown| shown.change.of.part != Part::Server) {
            let here = self.zone(observer);
            for peer in &observer.change.of.peers {
                let there = self.of_node(&peer.name);
                if here != there {
                    pairs.entry((there, here)).or_default().0 += observer.change.rate(peer.read_bytes);
                    pairs.entry((here, there)).or_default().1 += observer.change.rate(peer.written_bytes);
                }
            }
        }
        let traffic = |((from, to), (read, written))| Traffic { from, to, read, written };
        pairs.into_iter().map(traffic).filter(|traffic| traffic.rate() > 0.0).collect()
    }
}

/// From where, to where.
type Pair<'a> = (Option<&'a str>, Option<&'a str>);

/// File data that moves from one zone to another, bytes a second.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Traffic<'a> {
    from: Option<&'a str>,
    to: Option<&'a str>,
    /// By clients of `to`, from servers of `from`.
    read: f64,
    /// By clients of `from`, to servers of `to`.
    written: f64,
}

impl Traffic<'_> {
    fn rate(&self) -> f64 {
        self.read + self.written
    }
}

/// A line for each pair; empty where nothing moves between zones.
pub(super) fn table(between: &[Traffic<'_>]) -> String {
    let head = [
        ("FROM ZONE", Lean::Left),
        ("TO ZONE", Lean::Left),
        ("READ", Lean::Right),
        ("WRITTEN", Lean::Right),
        ("TOGETHER", Lean::Right),
    ];
    let row = |traffic: &Traffic<'_>| {
        let zone = |zone: Option<&str>| zone.unwrap_or("none").to_owned();
        let rates = [traffic.read, traffic.written, traffic.rate()].map(format::rate);
        [vec![zone(traffic.from), zone(traffic.to)], rates.to_vec()].concat()
    };
    let rows: Vec<Vec<String>> = between.iter().map(row).collect();
    if rows.is_empty() { String::new() } else { format::table(&head, &rows) }
}

/// The same for programs.
pub(super) fn to_json(between: &[Traffic<'_>]) -> Vec<Value> {
    let one = |traffic: &Traffic<'_>| {
        json!({
            "from": traffic.from,
            "to": traffic.to,
            "read_bytes_per_second": traffic.read,
            "written_bytes_per_second": traffic.written,
            "bytes_per_second": traffic.rate(),
        })
    };
    between.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_meter::Change;
    use vazao_meter::bottleneck::Verdict;
    use vazao_meter::measures::{Measures, Peer};

    /// A participant that read and wrote so much from and to servers in two seconds.
    fn part(part: Part, zone: &str, moved: &[(&str, u64, u64)]) -> Shown {
        let peer = |&(name, read_bytes, written_bytes): &(&str, u64, u64)| Peer {
            name: name.to_owned(),
            read_bytes,
            written_bytes,
            ..Peer::default()
        };
        let peers = moved.iter().map(peer).collect();
        let of = Measures { part, zone: zone.to_owned(), peers, ..Measures::default() };
        Shown { change: Change { seconds: 2.0, of }, verdict: Verdict::default() }
    }

    fn traffic<'a>(from: &'a str, to: &'a str, read: f64, written: f64) -> Traffic<'a> {
        let zone = |name: &'a str| Some(name).filter(|name| !name.is_empty());
        Traffic { from: zone(from), to: zone(to), read, written }
    }

    #[test]
    fn what_is_read_comes_from_the_servers_zone_and_what_is_written_goes_there() {
        let zones = Zones::with([("data1", "rio"), ("data2", "bra")]);
        let all = [
            part(Part::Client, "rio", &[("data1", 999, 999), ("data2", 400, 60)]),
            part(Part::Mount, "bra", &[("data1", 20, 8), ("data2", 7, 7)]),
            part(Part::Mount, "rio", &[("data2", 100, 0)]),
        ];
        assert_eq!(
            zones.between(&all),
            [traffic("bra", "rio", 250.0, 4.0), traffic("rio", "bra", 10.0, 30.0)]
        );
    }

    #[test]
    fn clients_and_servers_in_no_zone_are_told_apart_from_those_in_one() {
        let zones = Zones::with([("data1", "rio")]);
        let all = [
            part(Part::Client, "", &[("data1", 0, 2), ("data3", 50, 50)]),
            part(Part::Client, "oslo", &[("data1", 4, 0), ("data3", 6, 0)]),
        ];
        assert_eq!(
            zones.between(&all),
            [traffic("", "oslo", 3.0, 0.0), traffic("", "rio", 0.0, 1.0), traffic("rio", "oslo", 2.0, 0.0)]
        );
    }

    #[test]
    fn nothing_is_between_zones_where_there_are_none_or_nothing_leaves_them() {
        let moved = [("data1", 50, 50)];
        assert_eq!(Zones::default().between(&[part(Part::Client, "", &moved)]), []);
        let zones = Zones::with([("data1", "rio"), ("data2", "bra")]);
        let idle = part(Part::Client, "rio", &[("data1", 50, 50), ("data2", 0, 0)]);
        // A server's peers are hosts that ask it, and the askers have counted the same bytes.
        let server = part(Part::Server, "", &[("data2", 50, 50)]);
        assert_eq!(zones.between(&[idle, server]), []);
        assert_eq!((table(&[]), to_json(&[])), (String::new(), Vec::new()));
    }

    #[test]
    fn each_pair_is_a_line_and_an_object() {
        let between = [traffic("", "rio", 2048.0, 1024.0), traffic("rio", "bra", 0.0, 1024.0)];
        let text = table(&between);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "FROM ZONE TO ZONE READ WRITTEN TOGETHER",
                "none rio 2.0 KiB/s 1.0 KiB/s 3.0 KiB/s",
                "rio bra 0 B/s 1.0 KiB/s 1.0 KiB/s"
            ],
            "{text}"
        );
        assert_eq!(
            to_json(&between)[0],
            json!({
                "from": null, "to": "rio", "bytes_per_second": 3072.0,
                "read_bytes_per_second": 2048.0, "written_bytes_per_second": 1024.0,
            })
        );
    }
}
