//! Candidates between two processes: the links of either end, and the round trip between them.

use super::judge::Candidate;
use super::own::{candidate, percent, rate_text, throttled};
use super::verdict::{Direction, Kind, Resource};
use crate::measures::{Change, Connection, Link, Peer};

/// A round trip below this is that of one machine or one rack: what takes longer there is not the way.
const FAR_US: f64 = 1_000.0;

/// Round trips up to so many times the shortest mean that nothing queues on the way.
const FREE_WAY: f64 = 1.25;

/// What waits to be sent over a free way waits for the sender's own window, unless an end of the way is known full.
const SENDERS_WINDOW: f64 = 0.8;

/// A connection's first window: ten segments (RFC 6928).
const FIRST_WINDOW_BYTES: f64 = 14_600.0;

/// A window that is closed for more than this share of the time limits, however little is sent.
const WINDOW_CLOSED: f64 = 0.1;

/// A link counts as full from this share on: headers and acknowledgements are not counted everywhere.
const LINK_FULL: f64 = 0.85;

/// One way of a path, as its sender sees it: means over its connections, weighted by what they sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) bytes: u64,
    /// Shares of the time.
    busy: f64,
    window: f64,
    buffer: f64,
    /// Share of the bytes whose sender had more to send than the way took.
    backlogged: f64,
    rtt_us: f64,
    connections: usize,
}

/// How much of the time a quota kept one of the ends from sending or receiving.
fn held_back(sender: Option<&Change>, receiver: Option<&Change>) -> f64 {
    sender.into_iter().chain(receiver).map(throttled).fold(0.0, f64::max)
}

/// Sums up what the connections of one peer sent.
pub(super) fn flow(change: &Change, connections: &[Connection]) -> Flow {
    let active = || connections.iter().filter(|c| c.sent_bytes > 0);
    let bytes: u64 = active().map(|c| c.sent_bytes).sum();
    if bytes == 0 {
        return Flow::default();
    }
    let mean = |of: &dyn Fn(&Connection) -> f64| {
        active().map(|c| of(c) * c.sent_bytes as f64).sum::<f64>() / bytes as f64
    };
    let share = |us: u64| change.share(us.saturating_mul(1000)).min(1.0);
    Flow {
        bytes,
        busy: mean(&|c| share(c.busy_us)),
        window: mean(&|c| share(c.window_us)),
        buffer: mean(&|c| share(c.buffer_us)),
        backlogged: mean(&|c| f64::from(u8::from(!c.is_app_limited || c.unsent_bytes > 0))),
        rtt_us: mean(&|c| f64::from(c.rtt_us)),
        connections: active().count(),
    }
}

/// What is known of the path between the observer and one of those it asks.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    pub(super) observer: &'a Change,
    pub(super) peer: &'a Peer,
    /// The other end, where it said anything.
    pub(super) server: Option<&'a Change>,
    /// Paths of the observer that hold it up alike, this one included.
    pub(super) alike: usize,
}

impl Path<'_> {
    fn server_name(&self) -> &str {
        if self.peer.name.is_empty() { &self.peer.address } else { &self.peer.name }
    }

    /// The observer as the server sees it.
    fn seen_by_server(&self) -> Option<&Peer> {
        let own = Some(&self.peer.local).filter(|own| !own.is_empty())?;
        self.server?.of.peers.iter().find(|peer| peer.address == *own)
    }

    /// The way that carried more: its flow, its sender and its receiver where they have said anything, and whether it
    /// leads away from the observer.
    fn heavier(&self) -> (Flow, Option<&Change>, Option<&Change>, bool) {
        let out = flow(self.observer, &self.peer.connections);
        let back = match (self.server, self.seen_by_server()) {
            (Some(server), Some(peer)) => flow(server, &peer.connections),
            _ => Flow::default(),
        };
        let received: u64 = self.peer.connections.iter().map(|c| c.received_bytes).sum();
        match received > out.bytes {
            true => (back, self.server, Some(self.observer), false),
            false => (out, Some(self.observer), self.server, true),
        }
    }

    /// The shortest round trip that either end has seen.
    fn rtt_min_us(&self) -> f64 {
        let ends = self.seen_by_server().into_iter().chain([self.peer]);
        let seen = ends.flat_map(|peer| &peer.connections).map(|c| c.rtt_min_us).filter(|rtt| *rtt > 0);
        seen.min().map_or(0.0, f64::from)
    }

    /// Mean time from a request to its answer, and what the server had of it.
    fn latency_us(&self) -> Option<(f64, f64)> {
        let count = self.peer.in_flight.events as f64;
        (count > 0.0).then(|| {
            let of = |ns: u64| ns as f64 / 1e3 / count;
            (of(self.peer.in_flight.total_ns), of(self.peer.service_ns))
        })
    }

    /// Round trips: an answer takes as long as the way is, whatever the link carries.
    pub(super) fn round_trip(&self) -> Option<Candidate> {
        let (flow, sender, receiver, is_out) = self.heavier();
        let held_back = held_back(sender, receiver);
        let rtt_us = self.rtt_min_us();
        let (latency_us, service_us) = self.latency_us()?;
        if rtt_us < FAR_US || latency_us <= 0.0 {
            return None;
        }
        let far = (rtt_us / latency_us).min(1.0);
        // The receiver's window or the send buffer was closed, over a way that is long and not full.
        let is_queued = flow.rtt_us > 2.0 * rtt_us;
        let is_free = flow.rtt_us < FREE_WAY * rtt_us;
        let outside = (latency_us - service_us).max(0.0) / latency_us;
        let sending = if is_free { SENDERS_WINDOW * outside * (1.0 - held_back) } else { 0.0 };
        let narrow = if is_queued { 0.0 } else { flow.window + flow.buffer };
        let score = far.max(narrow.min(1.0)).max(sending);
        let rate = self.observer.rate(flow.bytes.max(self.carried_bytes(is_out)));
        // Of a sender that says nothing the connections are known from this end.
        let connections = if flow.connections > 0 { flow.connections } else { self.peer.connections.len() };
        let in_flight_bytes = rate * rtt_us / 1e6 / connections.max(1) as f64;
        let streams = match connections {
            0 | 1 => "one stream".to_owned(),
            count => format!("{count} streams, each"),
        };
        let name = self.server_name();
        // What fits into the first window of a connection is not held up by it: each request waits for the one before.
        let is_window = narrow > WINDOW_CLOSED || in_flight_bytes >= FIRST_WINDOW_BYTES;
        let (text, kind) = match is_window {
            true => (
                format!(
                    "network to {name}: {streams} limited by its window ({:.0} KiB / {:.1} ms)",
                    in_flight_bytes / 1024.0,
                    rtt_us / 1e3
                ),
                Kind::Window,
            ),
            false => (
                format!(
                    "network to {name}: {} as long as the round trip of {:.1} ms",
                    self.at_a_time(),
                    rtt_us / 1e3
                ),
                Kind::OneAtATime,
            ),
        };
        Some(candidate(Resource::RoundTrip, name, None, score, text).of_kind(kind))
    }

    /// How many requests are waited for at once.
    fn at_a_time(&self) -> String {
        let waits = if self.peer.waits.busy_ns > 0 { &self.peer.waits } else { &self.peer.in_flight };
        match (waits.total_ns as f64 / waits.busy_ns.max(1) as f64).round() as u64 {
            0 | 1 => "one answer is waited for at a time, and takes".to_owned(),
            count => format!("{count} answers are waited for at a time, and each takes"),
        }
    }

    /// Both ends have one address: what lies between them is memory and processor time, no link.
    fn is_within_one_host(&self) -> bool {
        let host = self.peer.address.rsplit_once(':').map_or("", |(host, _)| host);
        !host.is_empty() && host == self.peer.local
    }

    /// The rate of a link: known ceilings at either end first, then what the sender's connections say.
    pub(super) fn link(&self) -> Option<Candidate> {
        if self.is_within_one_host() {
            return None;
        }
        let (flow, sender, receiver, is_out) = self.heavier();
        let rate = self.observer.rate(flow.bytes.max(self.carried_bytes(is_out)));
        let mut best = sender.and_then(|sender| known(sender, Direction::OutOf));
        if let Some(other) = receiver.and_then(|receiver| known(receiver, Direction::Into)) {
            best = Some(match best {
                Some(first) if first.score >= other.score => first,
                _ => other,
            });
        }
        if let Some(known) = best.filter(|known| known.score >= LINK_FULL) {
            return Some(known);
        }
        let (latency_us, service_us) = self.latency_us()?;
        let moving = ((latency_us - service_us - self.rtt_min_us()) / latency_us.max(1e-9)).clamp(0.0, 1.0);
        let pressed = ((flow.busy - flow.window - flow.buffer).max(0.0) * 1.25).min(1.0) * flow.backlogged;
        // An end that its quota keeps from sending or receiving makes a way look full.
        let score = moving.min(pressed) * (1.0 - held_back(sender, receiver));
        let end = self.narrow_end(sender, receiver, is_out);
        let text = format!(
            "network {}: {}, data waited to get through {} of the time",
            end.words,
            rate_text(rate),
            percent(pressed)
        );
        let found = candidate(Resource::Network, &end.place, None, score, text);
        Some(found.of_kind(Kind::Way).going(end.direction))
    }

    fn carried_bytes(&self, is_out: bool) -> u64 {
        let of = |c: &Connection| if is_out { c.sent_bytes } else { c.received_bytes };
        self.peer.connections.iter().map(of).sum()
    }

    /// Which end of a full way is the narrow one. The direction is that of the bytes, seen from there.
    fn narrow_end(&self, sender: Option<&Change>, receiver: Option<&Change>, is_out: bool) -> NarrowEnd {
        let (observer, server) = (self.observer.of.name.as_str(), self.server_name());
        let of_observer = if is_out { Direction::OutOf } else { Direction::Into };
        let of_server = if is_out { Direction::Into } else { Direction::OutOf };
        let at = |place: &str, direction: Direction, words: String| NarrowEnd {
            place: place.to_owned(),
            direction,
            words,
        };
        if self.alike > 1 {
            let others = if is_out { "to" } else { "from" };
            let words = format!("{} {observer} ({others} {} servers alike)", of_observer.words(), self.alike);
            return at(observer, of_observer, words);
        }
        // A link that is shaped one way is usually the same the other way, where its rate cannot be seen from here.
        let is_mirrored = |change: &Change, out: bool| {
            change.of.links.iter().any(|link| {
                let carried = change.rate(if out { link.sent_bytes } else { link.received_bytes });
                link.shaped.is_some_and(|rate| (0.85..1.1).contains(&(carried / rate)))
            })
        };
        let is_receivers = receiver.is_some_and(|receiver| is_mirrored(receiver, false));
        if is_receivers || sender.is_some_and(|sender| is_mirrored(sender, true)) {
            let is_observers = is_receivers != is_out;
            let place = if is_observers { observer } else { server };
            let direction = if is_observers { of_observer } else { of_server };
            return at(place, direction, format!("{} {place}", direction.words()));
        }
        let (from, to) = if is_out { (observer, server) } else { (server, observer) };
        at(server, of_server, format!("from {from} to {to}"))
    }
}

/// The narrow end of a way.
struct NarrowEnd {
    place: String,
    direction: Direction,
    words: String,
}

/// The fullest link of a process, one way, against a rate that is stated or set.
pub(super) fn known(change: &Change, direction: Direction) -> Option<Candidate> {
    let out = direction == Direction::OutOf;
    let full = |link: &Link| {
        let carried = change.rate(if out { link.sent_bytes } else { link.received_bytes });
        let ceiling = match (link.rate, link.shaped.filter(|_| out)) {
            (Some(rate), Some(shaped)) => Some(rate.min(shaped)),
            (rate, shaped) => rate.or(shaped),
        };
        let share = carried / ceiling.filter(|ceiling| *ceiling > 0.0)?;
        let name = &change.of.name;
        let text = format!("network {} {name} ({}): {}", direction.words(), link.name, rate_text(carried));
        // What a bucket saved up before comes on top of its rate.
        let share = share.min(1.0);
        let found = candidate(Resource::Network, name, Some(share), share, text);
        Some(found.of_kind(Kind::Link).going(direction))
    };
    change.of.links.iter().filter_map(full).max_by(|a, b| a.score.total_cmp(&b.score))
}
