//! Measures of one process and its machine: counters since its start, and their growth.
//!
//! A server, a client, a mount: each can give its [`Measures`], here or over the network. Two of them taken one after
//! the other make a [`Change`], and [`crate::bottleneck`] judges changes. Nothing is measured here:
//! [`crate::machine`] reads the kernel's counters, and the code that blocks charges its waits.

use crate::accounts::Cause;
use crate::occupancy::Occupied;
use serde::{Deserialize, Serialize};

/// What kind of process it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A program that uses the library: a command, an experiment.
    #[default]
    Client,
    /// A node's daemon.
    Server,
    /// The process behind a mount.
    Mount,
}

/// CPU of the process, of its control group, and of its machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// CPU time used by all threads, also ended ones.
    pub used_ns: u64,
    /// Time that threads were ready to run and no processor was free for them (schedstat's run delay).
    pub delayed_ns: u64,
    /// Processors that the process's control group may use on average; `None` without a bound.
    pub quota: Option<f64>,
    /// Time that the group was held back because it had used up its quota, over all processors.
    pub throttled_ns: u64,
    /// Periods of the quota, and those of them in which it was used up.
    pub periods: u64,
    /// Periods in which the quota was used up.
    pub throttled_periods: u64,
    /// Processors of the machine.
    pub machine_cores: u32,
    /// CPU time spent on anything by anyone on the machine.
    pub machine_busy_ns: u64,
    /// CPU time that the machine's host gave to others.
    pub machine_stolen_ns: u64,
    /// Threads that have used most: CPU time and delay.
    pub threads: Vec<Thread>,
}

/// One thread.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub id: u32,
    /// CPU time used.
    pub used_ns: u64,
    /// Time ready to run without a processor.
    pub delayed_ns: u64,
}

/// A disk that the process has files on.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Disk {
    /// The directory, as people know it.
    pub place: String,
    /// Name of the block device; empty where there is none, or it is not known.
    pub device: String,
    /// Bytes that the device has read.
    pub read_bytes: u64,
    /// Bytes that the device has written.
    pub written_bytes: u64,
    /// Time with at least one request at the device.
    pub device_busy_ns: u64,
    /// Bytes a second that the process's control groups may read.
    pub read_limit: Option<f64>,
    /// Bytes a second that they may write.
    pub write_limit: Option<f64>,
    /// Threads of this process that waited for reads.
    pub reads: Occupied,
    /// Threads that waited for writes.
    pub writes: Occupied,
    /// Threads that waited for syncs.
    pub syncs: Occupied,
    /// Threads that waited for any of these.
    pub waits: Occupied,
}

/// A network interface as the process sees it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// What it carries each way, bytes a second, as its driver says.
    pub rate: Option<f64>,
    /// What a shaper (a token bucket) lets out, bytes a second.
    pub shaped: Option<f64>,
}

/// What the kernel counts for one TCP connection (tcp(7), `TCP_INFO`).
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Connection {
    /// Tells it from the others of the process.
    pub id: u64,
    /// Bytes sent and acknowledged.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Time with data sent and not yet acknowledged, or waiting to be sent.
    pub busy_us: u64,
    /// Part of it in which the receiver's window was closed.
    pub window_us: u64,
    /// Part of it in which the send buffer was too small.
    pub buffer_us: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Present round trip, smoothed.
    pub rtt_us: u32,
    /// Shortest round trip of the last minutes.
    pub rtt_min_us: u32,
    /// Bytes that may be in flight: the congestion window.
    pub window_bytes: u64,
    /// Bytes waiting to be sent for the first time.
    pub unsent_bytes: u64,
    /// The last measured delivery was bounded by what the sender had to send.
    pub is_app_limited: bool,
}

/// Another process that this one asks, or a host that asks this one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the node asked; empty for hosts that ask.
    pub name: String,
    /// Where it is: `host:port` of a node, the address of a host.
    pub address: String,
    /// This process's address on the connections.
    pub local: String,
    /// The connections that moved most.
    pub connections: Vec<Connection>,
    /// Threads blocked on an answer.
    pub waits: Occupied,
    /// Threads blocked because the peer allows no more requests in flight (credits).
    pub credit: Occupied,
    /// Requests under way, waited for or not.
    pub in_flight: Occupied,
    /// Sum of the times the peer took from arrival to answer, as it says itself.
    pub service_ns: u64,
    /// Time in which it answered nothing although it was asked, where it lasted long enough to be noticed.
    pub silent_ns: u64,
    /// Bytes of file data received.
    pub read_bytes: u64,
    /// Bytes of file data sent.
    pub written_bytes: u64,
}

/// Work done for users of the process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// Operations finished.
    pub operations: u64,
    /// Bytes of file data given out.
    pub read_bytes: u64,
    /// Bytes of file data taken in.
    pub written_bytes: u64,
    /// Operations by duration, in the buckets of [`crate::histogram`]; without the empty ones at the end.
    pub latencies: Vec<u64>,
}

/// Counters of one process since its start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measures {
    /// What people call it: a node's name, `client`, a mountpoint.
    pub name: String,
    /// What it is.
    pub part: Part,
    /// The same for processes of one machine, different for others.
    pub machine: String,
    /// Of a client or mount the zone that it is in; empty: none. Those of servers are in the cluster map.
    #[serde(default)]
    pub zone: String,
    /// Differs from that of the same process after a restart.
    pub instance: u64,
    /// When, on the process's own clock.
    pub at_ns: u64,
    /// CPU.
    pub cpu: Cpu,
    /// Disks it has files on.
    pub disks: Vec<Disk>,
    /// Interfaces it sees, loopback excepted.
    pub links: Vec<Link>,
    /// Those it asks, or that ask it.
    pub peers: Vec<Peer>,
    /// Threads blocked on any answer.
    pub waits: Occupied,
    /// Nanoseconds by cause, in the order of [`Cause::ALL`].
    pub spent_ns: Vec<u64>,
    /// What was done.
    pub work: Work,
}

/// What happened between two [`Measures`] of one process: counters are growth, quantities of the moment the later ones.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    /// Elapsed time.
    pub seconds: f64,
    /// The growth.
    pub of: Measures,
}

impl Change {
    /// Nanoseconds as a share of the elapsed time.
    pub fn share(&self, nanoseconds: u64) -> f64 {
        if self.seconds > 0.0 { nanoseconds as f64 / 1e9 / self.seconds } else { 0.0 }
    }

    /// Bytes or events a second.
    pub fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// Seconds charged to a cause.
    pub fn spent_s(&self, cause: Cause) -> f64 {
        self.of.spent_ns.get(cause as usize).map_or(0.0, |ns| *ns as f64 / 1e9)
    }
}

impl Measures {
    /// What happened since `before`. A process that was restarted meanwhile began at zero.
    pub fn since(&self, before: &Measures) -> Change {
        let nothing = Measures::default();
        let is_same = self.instance == before.instance;
        let first = if is_same { before } else { &nothing };
        let started_ns = if is_same { before.at_ns } else { 0 };
        let spent = self.spent_ns.iter().enumerate();
        let of = Measures {
            name: self.name.clone(),
            part: self.part,
            machine: self.machine.clone(),
            zone: self.zone.clone(),
            instance: self.instance,
            at_ns: self.at_ns,
            cpu: self.cpu.since(&first.cpu),
            disks: grown(&self.disks, &first.disks, |a, b| a.place == b.place, Disk::since),
            links: grown(&self.links, &first.links, |a, b| a.name == b.name, Link::since),
            peers: grown(&self.peers, &first.peers, |a, b| a.is_same(b), Peer::since),
            waits: self.waits.since(&first.waits),
            spent_ns: spent
                .map(|(i, ns)| ns.saturating_sub(first.spent_ns.get(i).copied().unwrap_or(0)))
                .collect(),
            work: self.work.since(&first.work),
        };
        Change { seconds: self.at_ns.saturating_sub(started_ns) as f64 / 1e9, of }
    }
}

/// The growth of each thing, found among the earlier ones; new ones began at zero.
fn grown<T: Default>(
    now: &[T],
    before: &[T],
    is_same: impl Fn(&T, &T) -> bool,
    since: impl Fn(&T, &T) -> T,
) -> Vec<T> {
    let nothing = T::default();
    now.iter()
        .map(|thing| since(thing, before.iter().find(|b| is_same(thing, b)).unwrap_or(&nothing)))
        .collect()
}

impl Cpu {
    fn since(&self, before: &Cpu) -> Cpu {
        let thread = |now: &Thread, before: &Thread| Thread {
            id: now.id,
            used_ns: now.used_ns.saturating_sub(before.used_ns),
            delayed_ns: now.delayed_ns.saturating_sub(before.delayed_ns),
        };
        Cpu {
            used_ns: self.used_ns.saturating_sub(before.used_ns),
            delayed_ns: self.delayed_ns.saturating_sub(before.delayed_ns),
            quota: self.quota,
            throttled_ns: self.throttled_ns.saturating_sub(before.throttled_ns),
            periods: self.periods.saturating_sub(before.periods),
            throttled_periods: self.throttled_periods.saturating_sub(before.throttled_periods),
            machine_cores: self.machine_cores,
            machine_busy_ns: self.machine_busy_ns.saturating_sub(before.machine_busy_ns),
            machine_stolen_ns: self.machine_stolen_ns.saturating_sub(before.machine_stolen_ns),
            threads: grown(&self.threads, &before.threads, |a, b| a.id == b.id, thread),
        }
    }
}

impl Disk {
    fn since(&self, before: &Disk) -> Disk {
        Disk {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            device_busy_ns: self.device_busy_ns.saturating_sub(before.device_busy_ns),
            reads: self.reads.since(&before.reads),
            writes: self.writes.since(&before.writes),
            syncs: self.syncs.since(&before.syncs),
            waits: self.waits.since(&before.waits),
            ..self.clone()
        }
    }
}

impl Link {
    fn since(&self, before: &Link) -> Link {
        Link {
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            ..self.clone()
        }
    }
}

impl Connection {
    fn since(&self, before: &Connection) -> Connection {
        Connection {
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            window_us: self.window_us.saturating_sub(before.window_us),
            buffer_us: self.buffer_us.saturating_sub(before.buffer_us),
            resent_bytes: self.resent_bytes.saturating_sub(before.resent_bytes),
            ..self.clone()
        }
    }
}

impl Peer {
    /// Counts the other's figures to this one's: one node asked in two ways.
    pub fn add(&mut self, other: &Peer) {
        let sum = |a: &mut Occupied, b: &Occupied| {
            // At the same time or one after the other: at most the sum.
            a.busy_ns = a.busy_ns.saturating_add(b.busy_ns);
            a.total_ns = a.total_ns.saturating_add(b.total_ns);
            a.events = a.events.saturating_add(b.events);
        };
        sum(&mut self.waits, &other.waits);
        sum(&mut self.credit, &other.credit);
        sum(&mut self.in_flight, &other.in_flight);
        self.service_ns = self.service_ns.saturating_add(other.service_ns);
        self.silent_ns = self.silent_ns.max(other.silent_ns);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
    }

    fn is_same(&self, other: &Peer) -> bool {
        self.address == other.address
    }

    fn since(&self, before: &Peer) -> Peer {
        Peer {
            name: self.name.clone(),
            address: self.address.clone(),
            local: self.local.clone(),
            connections: grown(
                &self.connections,
                &before.connections,
                |a, b| a.id == b.id,
                Connection::since,
            ),
            waits: self.waits.since(&before.waits),
            credit: self.credit.since(&before.credit),
            in_flight: self.in_flight.since(&before.in_flight),
            service_ns: self.service_ns.saturating_sub(before.service_ns),
            silent_ns: self.silent_ns.saturating_sub(before.silent_ns),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

impl Work {
    fn since(&self, before: &Work) -> Work {
        let earlier = |index: usize| before.latencies.get(index).copied().unwrap_or(0);
        let grown = self.latencies.iter().enumerate().map(|(i, n)| n.saturating_sub(earlier(i)));
        Work {
            operations: self.operations.saturating_sub(before.operations),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            latencies: grown.collect(),
        }
    }

    /// Adds operations by duration.
    pub fn add_latencies(&mut self, buckets: &[u64]) {
        if self.latencies.len() < buckets.len() {
            self.latencies.resize(buckets.len(), 0);
        }
        for (sum, count) in self.latencies.iter_mut().zip(buckets) {
            *sum = sum.saturating_add(*count);
            self.operations = self.operations.saturating_add(*count);
        }
    }

    /// Adds what was done elsewhere.
    pub fn add(&mut self, other: &Work) {
        self.add_latencies(&other.latencies);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(other.written_bytes);
    }

    /// The duration below which the share `q` of the operations lies, nanoseconds; `None` when there were none.
    pub fn latency_ns(&self, q: f64) -> Option<u64> {
        crate::histogram::quantile_of(&self.latencies, q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_grow_quantities_stay_and_new_things_begin_at_zero() {
        let disk = |place: &str, read_bytes| Disk { place: place.to_owned(), read_bytes, ..Disk::default() };
        let before = Measures { at_ns: 1_000_000_000, disks: vec![disk("/a", 10)], ..Measures::default() };
        let mut after = Measures { at_ns: 3_000_000_000, ..Measures::default() };
        after.disks = vec![disk("/b", 7), Disk { read_limit: Some(5.0), ..disk("/a", 30) }];
        let change = after.since(&before);
        assert_eq!(change.seconds, 2.0);
        assert_eq!(change.of.disks[0].read_bytes, 7);
        assert_eq!((change.of.disks[1].read_bytes, change.of.disks[1].read_limit), (20, Some(5.0)));
        assert_eq!(change.rate(change.of.disks[1].read_bytes), 10.0);
    }

    #[test]
    fn a_restarted_process_began_at_zero() {
        let work = |operations| Work { operations, ..Work::default() };
        let before = Measures { instance: 1, at_ns: 9_000_000_000, work: work(1000), ..Measures::default() };
        let after = Measures { instance: 2, at_ns: 1_000_000_000, work: work(3), ..Measures::default() };
        let change = after.since(&before);
        assert_eq!((change.seconds, change.of.work.operations), (1.0, 3));
    }
}
