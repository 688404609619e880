//! Lines between zones that carry little, as the metadata service names them: which servers are beyond them, and how
//! much of one this client may use.

use super::Servers;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use vazao_meter::measures::{Link, Peer};
use vazao_model::ClusterMap;
use vazao_model::zone::{BitsPerSecond, Line};
use vazao_wire::proto;
use vazao_wire::transport;

/// What may be sent, of each thousand that a line carries. Headers take 44 of them and, where as much is sent the other
/// way, acknowledgements 40; where nothing is left over the line's queue fills.
const PAYLOAD_OF_THOUSAND: u64 = 915;

/// From a zone to another one.
type Direction = (String, String);

#[derive(Default)]
pub(super) struct Lines {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The zone of this client.
    zone: String,
    lines: Vec<Line>,
    /// Sessions that share a direction, as the latest renewal said and the one before it; one, where that is not known.
    sharing: [HashMap<Direction, u32>; 2],
    /// The transport was told of some.
    is_told: bool,
}

impl Known {
    /// What the transport is to know: the lines that end here, with the servers beyond them.
    fn here(&self, map: &ClusterMap) -> Vec<transport::Line> {
        let at_end = |line: &Line| {
            let beyond = line.beyond(&self.zone)?;
            let nodes = map.nodes.iter().filter(|node| node.zone == beyond);
            Some(transport::Line {
                name: beyond.to_owned(),
                addresses: nodes.map(|node| node.address.clone()).collect(),
                send: self.bytes_per_s(line.rate, &self.zone, beyond),
                receive: self.bytes_per_s(line.rate, beyond, &self.zone),
            })
        };
        if self.zone.is_empty() { Vec::new() } else { self.lines.iter().filter_map(at_end).collect() }
    }

    /// The lines that end here as links of this client, one for each direction, with what it has moved over them: so
    /// they are named as what limits it.
    fn links(&self, map: &ClusterMap, peers: &[Peer]) -> Vec<Link> {
        let links = |line: transport::Line| {
            let beyond = || peers.iter().filter(|peer| line.addresses.contains(&peer.address));
            let link = |name: String, rate: u64| Link { name, rate: Some(rate as f64), ..Link::default() };
            let sent_bytes = beyond().map(|peer| peer.written_bytes).sum();
            let received_bytes = beyond().map(|peer| peer.read_bytes).sum();
            let name = &line.name;
            [
                Link { sent_bytes, ..link(format!("line to zone {name}"), line.send) },
                Link { received_bytes, ..link(format!("line from zone {name}"), line.receive) },
            ]
        };
        self.here(map).into_iter().flat_map(links).collect()
    }

    /// How many share a direction. What one has just ceased to use it is said to use for a renewal more.
    fn sessions(&self, direction: &Direction) -> u32 {
        let said = self.sharing.iter().map(|sharing| sharing.get(direction).copied().unwrap_or(1));
        said.min().unwrap_or(1).max(1)
    }

    fn bytes_per_s(&self, rate: BitsPerSecond, from: &str, to: &str) -> u64 {
        let sessions = self.sessions(&(from.to_owned(), to.to_owned()));
        (rate.0 / 8).saturating_mul(PAYLOAD_OF_THOUSAND) / 1000 / u64::from(sessions)
    }
}

impl Servers {
    /// The metadata service has named the lines; this client is in `zone`.
    pub(crate) fn learn_lines(&self, zone: &str, lines: &[proto::Line]) {
        let line = |line: &proto::Line| {
            let zones = line.zones.clone().try_into().ok()?;
            Some(Line { zones, rate: BitsPerSecond(line.bits_per_s) })
        };
        {
            let mut known = self.lines.known.lock();
            *known = Known {
                zone: zone.to_owned(),
                lines: lines.iter().filter_map(line).collect(),
                sharing: Default::default(),
                is_told: known.is_told,
            };
        }
        self.set_lines();
    }

    /// How many sessions share what this one uses.
    pub(crate) fn learn_line_shares(&self, uses: &[proto::LineUse]) {
        let sharing = uses.iter().map(|told| ((told.from.clone(), told.to.clone()), told.sessions)).collect();
        {
            let mut known = self.lines.known.lock();
            if known.sharing.iter().all(|said| *said == sharing) {
                return;
            }
            known.sharing.swap(0, 1);
            known.sharing[0] = sharing;
        }
        self.set_lines();
    }

    /// The directions of lines that this client uses now.
    pub(crate) fn used_lines(&self) -> Vec<proto::LineUse> {
        let used = self.context.transport.used_lines();
        let zone = self.lines.known.lock().zone.clone();
        let direction =
            |from: &str, to: &str| proto::LineUse { from: from.to_owned(), to: to.to_owned(), sessions: 0 };
        let directions = |used: transport::LineUsed| {
            let sent = used.sent.then(|| direction(&zone, &used.name));
            sent.into_iter().chain(used.received.then(|| direction(&used.name, &zone)))
        };
        used.into_iter().flat_map(directions).collect()
    }

    /// See [`Known::links`].
    pub(crate) fn line_links(&self, peers: &[Peer]) -> Vec<Link> {
        let map = Arc::clone(&self.routes().map);
        self.lines.known.lock().links(&map, peers)
    }

    /// Says to the transport what is known now.
    pub(super) fn set_lines(&self) {
        let map = Arc::clone(&self.routes().map);
        let lines = {
            let mut known = self.lines.known.lock();
            if known.lines.is_empty() && !known.is_told {
                return;
            }
            known.is_told = !known.lines.is_empty();
            known.here(&map)
        };
        self.context.transport.set_lines(&lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::Node;

    fn node(address: &str, zone: &str) -> Node {
        Node { address: address.to_owned(), zone: zone.to_owned(), ..Node::default() }
    }

    fn known(zone: &str) -> Known {
        let line = |a: &str, b: &str, bits| Line { zones: [a.into(), b.into()], rate: BitsPerSecond(bits) };
        let lines = vec![line("rio", "bra", 2_000_000), line("sao", "rio", 8_000_000)];
        Known { zone: zone.to_owned(), lines, sharing: Default::default(), is_told: false }
    }

    #[test]
    fn servers_beyond_the_lines_that_end_here_are_paced_below_what_these_carry() {
        let nodes = vec![node("a:1", "rio"), node("b:1", "bra"), node("b:2", "bra"), node("c:1", "")];
        let map = ClusterMap { nodes, ..ClusterMap::default() };
        let lines = known("rio").here(&map);
        assert_eq!((lines[0].name.as_str(), lines[0].addresses.len()), ("bra", 2));
        assert_eq!((lines[0].send, lines[0].receive), (228_750, 228_750));
        assert_eq!((lines[1].name.as_str(), lines[1].send), ("sao", 915_000));
        assert_eq!(known("bra").here(&map)[0].addresses, ["a:1"]);
        assert!(known("").here(&map).is_empty() && known("lab").here(&map).is_empty());
    }

    #[test]
    fn what_is_moved_over_a_line_is_counted_for_each_direction() {
        let peer = |address: &str, written_bytes, read_bytes| Peer {
            address: address.to_owned(),
            written_bytes,
            read_bytes,
            ..Peer::default()
        };
        let nodes = vec![node("a:1", "rio"), node("b:1", "bra"), node("b:2", "bra")];
        let map = ClusterMap { nodes, ..ClusterMap::default() };
        let peers = [peer("a:1", 1, 2), peer("b:1", 10, 20), peer("b:2", 100, 200)];
        let links = known("rio").links(&map, &peers);
        let [to, from] = [&links[0], &links[1]];
        assert_eq!((to.name.as_str(), to.sent_bytes, to.received_bytes), ("line to zone bra", 110, 0));
        assert_eq!(
            (from.name.as_str(), from.sent_bytes, from.received_bytes),
            ("line from zone bra", 0, 220)
        );
        assert_eq!(to.rate, Some(228_750.0));
    }

    #[test]
    fn sessions_that_use_the_same_direction_share_it() {
        let mut known = known("rio");
        let say = |known: &mut Known, sessions| {
            known.sharing.swap(0, 1);
            known.sharing[0].insert(("rio".to_owned(), "bra".to_owned()), sessions);
            let line = &known.here(&ClusterMap::default())[0];
            (line.send, line.receive)
        };
        // The second time it is certain that they have not just ended.
        assert_eq!(say(&mut known, 3), (228_750, 228_750));
        assert_eq!(say(&mut known, 3), (228_750 / 3, 228_750));
        assert_eq!(say(&mut known, 2), (228_750 / 2, 228_750));
        assert_eq!(say(&mut known, 0), (228_750, 228_750));
    }
}
