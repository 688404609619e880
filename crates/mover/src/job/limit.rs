//! What holds the copies of a job up at present: from what its streams waited for, and what the receiver says of its
//! own time with each block.

use crate::control::Counts;
use vazao_meter::bottleneck::{Resource as Named, Verdict};

/// What messages call the volume as an end of a copy.
pub(super) const VOLUME: &str = "the volume";

/// A verdict needs this much time; the one before stays until then.
const WINDOW_NS: u64 = 1_000_000_000;

/// Shorter round trips do not limit a copy.
const ROUND_TRIP_NS_MIN: u64 = 1_000_000;

/// Which resource it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    SourceDisk,
    SourceCpu,
    BandwidthLimit,
    Network,
    RoundTrip,
    DestinationDisk,
    DestinationCpu,
    /// Of a destination that does not tell more.
    Destination,
}

impl Resource {
    /// As JSON has it; the words of docs/bottleneck.md where it has one.
    pub(super) fn name(self) -> &'static str {
        match self {
            Resource::SourceDisk | Resource::DestinationDisk => "disk",
            Resource::SourceCpu | Resource::DestinationCpu => "cpu",
            Resource::BandwidthLimit => "bandwidth_limit",
            Resource::Network => "network",
            Resource::RoundTrip => "round_trip",
            Resource::Destination => "unknown",
        }
    }

    /// Which of the two nodes it belongs to; the far one where it lies between them.
    fn is_at_source(self) -> bool {
        matches!(self, Resource::SourceDisk | Resource::SourceCpu | Resource::BandwidthLimit)
    }
}

/// What most of the time went into.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limit {
    pub(super) resource: Resource,
    /// Of the time of all streams together.
    pub(super) share: f64,
}

impl Limit {
    /// The node it belongs to.
    pub(super) fn node<'n>(&self, source: &'n str, destination: &'n str) -> &'n str {
        if self.resource.is_at_source() { source } else { destination }
    }

    /// For people.
    pub(super) fn text(&self, source: &str, destination: &str) -> String {
        let node = self.node(source, destination);
        let what = match self.resource {
            Resource::SourceDisk => format!("reading the disk of {node}"),
            Resource::DestinationDisk => format!("writing the disk of {node}"),
            Resource::SourceCpu | Resource::DestinationCpu => format!("processors of {node}"),
            Resource::BandwidthLimit => "the bandwidth limit of the job".to_owned(),
            Resource::Network => format!("the network to {node}"),
            Resource::RoundTrip => format!("the round trip to {node}: too little is in flight"),
            Resource::Destination if node == VOLUME => format!("{node}: its servers, or the network to them"),
            Resource::Destination => format!("the network to {node}, or {node}"),
        };
        format!("{what} ({:.0}% of the time)", self.share * 100.0)
    }
}

/// A limit as a status has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) resource: String,
    pub(super) node: String,
    pub(super) percent: u32,
}

impl Shown {
    /// The limit that a job's counts show between its `ends`. Where that is the volume as a whole, `volume` tells which
    /// part of it, if it does.
    pub(super) fn of(limit: Option<Limit>, volume: Option<&Verdict>, ends: (&str, &str)) -> Shown {
        let (source, destination) = ends;
        let is_volume = limit.is_none_or(|limit| limit.node(source, destination) == VOLUME);
        let is_something =
            |verdict: &&Verdict| !matches!(verdict.resource, Named::Caller | Named::Idle | Named::Unknown);
        if let (true, Some(verdict)) = (is_volume, volume.filter(is_something)) {
            return Shown {
                text: verdict.text.clone(),
                resource: verdict.resource.name().to_owned(),
                node: verdict.place.clone(),
                percent: (verdict.score * 100.0) as u32,
            };
        }
        limit.map_or_else(Shown::default, |limit| Shown {
            text: limit.text(source, destination),
            resource: limit.resource.name().to_owned(),
            node: limit.node(source, destination).to_owned(),
            percent: (limit.share * 100.0) as u32,
        })
    }
}

/// Counts of all streams of a job, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Spent {
    /// Streams were there for so long, all together; 0 where a method does not count it.
    pub(super) stream: u64,
    pub(super) read: u64,
    pub(super) limit: u64,
    pub(super) send: u64,
    pub(super) confirm: u64,
    /// The receiver's time, in all, waiting for its disk, and waiting for bytes; 0 where it does not say.
    pub(super) receiver: u64,
    pub(super) disk: u64,
    pub(super) starved: u64,
}

impl Spent {
    pub(super) fn of(counts: &Counts) -> Spent {
        Spent {
            stream: counts.stream_ns.get(),
            read: counts.read_ns.get(),
            limit: counts.limit_ns.get(),
            send: counts.send_ns.get(),
            confirm: counts.confirm_ns.get(),
            receiver: counts.receiver_ns.get(),
            disk: counts.disk_ns.get(),
            starved: counts.starved_ns.get(),
        }
    }

    fn since(self, before: Spent) -> Spent {
        Spent {
            stream: self.stream.saturating_sub(before.stream),
            read: self.read.saturating_sub(before.read),
            limit: self.limit.saturating_sub(before.limit),
            send: self.send.saturating_sub(before.send),
            confirm: self.confirm.saturating_sub(before.confirm),
            receiver: self.receiver.saturating_sub(before.receiver),
            disk: self.disk.saturating_sub(before.disk),
            starved: self.starved.saturating_sub(before.starved),
        }
    }

    /// What most of it went into; `None` where nothing was spent.
    pub(super) fn judge(self, round_trip_ns: u64) -> Option<Limit> {
        let waited = self.send + self.confirm;
        let counted = self.read + self.limit + waited;
        let total = self.stream.max(counted);
        let own_cpu = if self.stream > 0 { total - counted } else { 0 };
        let far = |part: u64| match self.receiver.max(self.disk + self.starved) {
            0 => 0,
            all => (u128::from(waited) * u128::from(part) / u128::from(all)) as u64,
        };
        let way = if self.confirm > self.send && round_trip_ns >= ROUND_TRIP_NS_MIN {
            Resource::RoundTrip
        } else {
            Resource::Network
        };
        // A receiver that reports only its disk's time: the rest of our waiting cannot be attributed.
        let (disk, on_the_way, cpu, rest) = match self.receiver {
            0 => (self.disk.min(waited), 0, 0, waited - self.disk.min(waited)),
            _ => {
                let (disk, starved) = (far(self.disk), far(self.starved));
                (disk, starved, waited.saturating_sub(disk + starved), 0)
            }
        };
        let candidates = [
            (Resource::SourceDisk, self.read),
            (Resource::BandwidthLimit, self.limit),
            (Resource::SourceCpu, own_cpu),
            (Resource::DestinationDisk, disk),
            (way, on_the_way),
            (Resource::DestinationCpu, cpu),
            (Resource::Destination, rest),
        ];
        let (resource, spent) = candidates.into_iter().max_by_key(|&(_, spent)| spent)?;
        (spent > 0).then(|| Limit { resource, share: spent as f64 / total.max(1) as f64 })
    }
}

/// The present verdict of a job.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Present {
    before: Spent,
    before_ns: u64,
    limit: Option<Limit>,
}

impl Present {
    /// Time has passed.
    pub(super) fn note(&mut self, spent: Spent, round_trip_ns: u64, now_ns: u64) {
        if self.before_ns == 0 {
            (self.before, self.before_ns) = (spent, now_ns);
        }
        if now_ns.saturating_sub(self.before_ns) < WINDOW_NS {
            return;
        }
        // A window in which nothing ended says nothing.
        if let Some(limit) = spent.since(self.before).judge(round_trip_ns) {
            self.limit = Some(limit);
        }
        (self.before, self.before_ns) = (spent, now_ns);
    }

    pub(super) fn limit(&self) -> Option<Limit> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(spent: Spent, round_trip_ns: u64) -> Option<Resource> {
        spent.judge(round_trip_ns).map(|limit| limit.resource)
    }

    #[test]
    fn what_most_of_the_time_went_into_is_named_with_the_end_it_belongs_to() {
        let spent = Spent { stream: 100, ..Spent::default() };
        let told = Spent { receiver: 100, ..spent };
        for (spent, round_trip_ns, expected) in [
            (Spent { read: 60, send: 30, ..spent }, 0, Resource::SourceDisk),
            (Spent { limit: 90, ..spent }, 0, Resource::BandwidthLimit),
            (Spent { read: 10, send: 10, ..spent }, 0, Resource::SourceCpu),
            (Spent { send: 90, disk: 80, starved: 5, ..told }, 0, Resource::DestinationDisk),
            (Spent { send: 90, disk: 10, starved: 5, ..told }, 0, Resource::DestinationCpu),
            (Spent { send: 90, disk: 5, starved: 90, ..told }, 50_000_000, Resource::Network),
            (Spent { confirm: 90, disk: 5, starved: 90, ..told }, 50_000_000, Resource::RoundTrip),
            (Spent { confirm: 90, disk: 5, starved: 90, ..told }, 50_000, Resource::Network),
            (Spent { confirm: 90, disk: 70, ..Spent::default() }, 0, Resource::DestinationDisk),
            (Spent { confirm: 90, ..Spent::default() }, 0, Resource::Destination),
        ] {
            assert_eq!(named(spent, round_trip_ns), Some(expected), "{spent:?}");
        }
        assert_eq!(named(Spent::default(), 0), None);
    }

    /// A copy of an area into the volume ended with "the network to the volume, or the volume".
    #[test]
    fn of_the_volume_the_part_is_named_that_its_client_waited_for() {
        let disk = Verdict {
            resource: Named::Disk,
            place: "data2".to_owned(),
            score: 0.98,
            text: "disk of data2 (/srv/d2, sdc): busy 99%, 28.1 MB/s".to_owned(),
            ..Verdict::default()
        };
        let ends = ("n1", VOLUME);
        let limit = |resource| Some(Limit { resource, share: 0.9 });
        let shown = Shown::of(limit(Resource::Destination), Some(&disk), ends);
        assert_eq!((shown.text.as_str(), shown.node.as_str()), (disk.text.as_str(), "data2"));
        assert_eq!((shown.resource.as_str(), shown.percent), ("disk", 98));
        let reading = Shown::of(limit(Resource::SourceDisk), Some(&disk), ends);
        assert_eq!(reading.text, "reading the disk of n1 (90% of the time)");
        let nothing = Verdict { resource: Named::Unknown, ..disk };
        let unknown = Shown::of(limit(Resource::Destination), Some(&nothing), ends);
        assert_eq!(unknown.text, "the volume: its servers, or the network to them (90% of the time)");
        assert_eq!(unknown.node, VOLUME);
        assert_eq!(Shown::of(None, None, ends), Shown::default());
    }

    #[test]
    fn a_verdict_needs_its_time_and_stays_where_nothing_is_known() {
        let mut present = Present::default();
        let spent = |read, send| Spent { stream: read + send, read, send, ..Spent::default() };
        present.note(spent(0, 0), 0, 1);
        present.note(spent(5, 1), 0, WINDOW_NS / 2);
        assert_eq!(present.limit(), None);
        present.note(spent(9, 1), 0, 1 + WINDOW_NS);
        assert_eq!(present.limit().map(|limit| limit.resource), Some(Resource::SourceDisk));
        present.note(spent(9, 1), 0, 1 + 2 * WINDOW_NS);
        assert_eq!(present.limit().map(|limit| limit.resource), Some(Resource::SourceDisk));
        present.note(spent(10, 900), 0, 1 + 3 * WINDOW_NS);
        assert_eq!(present.limit().map(|limit| limit.resource), Some(Resource::Destination));
        let text = present.limit().map(|limit| limit.text("n1", "n9"));
        assert!(text.is_some_and(|text| text.contains("n9")));
    }
}
