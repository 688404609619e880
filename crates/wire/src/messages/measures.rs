//! Measures as messages, and asking a node for its own.

use crate::operation::op;
use crate::proto;
use crate::service::Fault;
use crate::transport::{PendingCall, Transport, submit};
use vazao_meter::measures::{Connection, Cpu, Disk, Link, Measures, Part, Peer, Thread, Work};
use vazao_meter::{Occupied, machine};

/// Longest name or place that is believed: for people.
const TEXT_CHARS_MAX: usize = 256;

/// Things of one kind that are believed: disks, links, peers, connections, threads, buckets.
const THINGS_MAX: usize = 1024;

/// Asks the node at `address`, without waiting.
pub fn ask(
    transport: &dyn Transport,
    address: &str,
    with_clients: bool,
    deadline_ns: u64,
) -> PendingCall<op::Measure> {
    submit::<op::Measure>(transport, address, &proto::MeasureRequest { with_clients }, &[], deadline_ns)
}

/// What a node answered: its own measures, and those of the clients that it knows.
pub fn answer(asked: PendingCall<op::Measure>) -> Result<(Measures, Vec<Measures>), Fault> {
    let (response, _) = asked.wait()?;
    let clients = response.clients.into_iter().take(THINGS_MAX).map(Measures::from).collect();
    Ok((response.measures.map(Measures::from).unwrap_or_default(), clients))
}

/// Measures of this process with all that is the same for any: machine, CPU, links.
pub fn of_this_process(name: &str, part: Part, at_ns: u64) -> Measures {
    Measures {
        name: name.to_owned(),
        part,
        machine: machine::id(),
        instance: machine::instance(),
        at_ns,
        cpu: machine::cpu(),
        links: machine::links(),
        ..Measures::default()
    }
}

fn short(text: String) -> String {
    if text.len() <= TEXT_CHARS_MAX { text } else { text.chars().take(TEXT_CHARS_MAX).collect() }
}

fn few<A, B: From<A>>(things: Vec<A>) -> Vec<B> {
    things.into_iter().take(THINGS_MAX).map(B::from).collect()
}

fn all<'a, A, B: From<&'a A>>(things: &'a [A]) -> Vec<B> {
    things.iter().map(B::from).collect()
}

impl From<&Occupied> for proto::Occupied {
    fn from(o: &Occupied) -> Self {
        proto::Occupied { busy_ns: o.busy_ns, total_ns: o.total_ns, events: o.events }
    }
}

impl From<proto::Occupied> for Occupied {
    fn from(o: proto::Occupied) -> Self {
        Occupied { busy_ns: o.busy_ns, total_ns: o.total_ns, events: o.events }
    }
}

fn occupied(o: Option<proto::Occupied>) -> Occupied {
    o.map(Occupied::from).unwrap_or_default()
}

impl From<&Thread> for proto::ThreadMeasures {
    fn from(t: &Thread) -> Self {
        proto::ThreadMeasures { id: t.id, used_ns: t.used_ns, delayed_ns: t.delayed_ns }
    }
}

impl From<proto::ThreadMeasures> for Thread {
    fn from(t: proto::ThreadMeasures) -> Self {
        Thread { id: t.id, used_ns: t.used_ns, delayed_ns: t.delayed_ns }
    }
}

impl From<&Cpu> for proto::CpuMeasures {
    fn from(c: &Cpu) -> Self {
        proto::CpuMeasures {
            used_ns: c.used_ns,
            delayed_ns: c.delayed_ns,
            quota: c.quota,
            throttled_ns: c.throttled_ns,
            periods: c.periods,
            throttled_periods: c.throttled_periods,
            machine_cores: c.machine_cores,
            machine_busy_ns: c.machine_busy_ns,
            machine_stolen_ns: c.machine_stolen_ns,
            threads: all(&c.threads),
        }
    }
}

impl From<proto::CpuMeasures> for Cpu {
    fn from(c: proto::CpuMeasures) -> Self {
        Cpu {
            used_ns: c.used_ns,
            delayed_ns: c.delayed_ns,
            quota: c.quota,
            throttled_ns: c.throttled_ns,
            periods: c.periods,
            throttled_periods: c.throttled_periods,
            machine_cores: c.machine_cores,
            machine_busy_ns: c.machine_busy_ns,
            machine_stolen_ns: c.machine_stolen_ns,
            threads: few(c.threads),
        }
    }
}

impl From<&Disk> for proto::DiskMeasures {
    fn from(d: &Disk) -> Self {
        proto::DiskMeasures {
            place: d.place.clone(),
            device: d.device.clone(),
            read_bytes: d.read_bytes,
            written_bytes: d.written_bytes,
            device_busy_ns: d.device_busy_ns,
            read_limit: d.read_limit,
            write_limit: d.write_limit,
            reads: Some((&d.reads).into()),
            writes: Some((&d.writes).into()),
            syncs: Some((&d.syncs).into()),
            waits: Some((&d.waits).into()),
        }
    }
}

impl From<proto::DiskMeasures> for Disk {
    fn from(d: proto::DiskMeasures) -> Self {
        Disk {
            place: short(d.place),
            device: short(d.device),
            read_bytes: d.read_bytes,
            written_bytes: d.written_bytes,
            device_busy_ns: d.device_busy_ns,
            read_limit: d.read_limit,
            write_limit: d.write_limit,
            reads: occupied(d.reads),
            writes: occupied(d.writes),
            syncs: occupied(d.syncs),
            waits: occupied(d.waits),
        }
    }
}

impl From<&Link> for proto::LinkMeasures {
    fn from(l: &Link) -> Self {
        proto::LinkMeasures {
            name: l.name.clone(),
            received_bytes: l.received_bytes,
            sent_bytes: l.sent_bytes,
            rate: l.rate,
            shaped: l.shaped,
        }
    }
}

impl From<proto::LinkMeasures> for Link {
    fn from(l: proto::LinkMeasures) -> Self {
        Link {
            name: short(l.name),
            received_bytes: l.received_bytes,
            sent_bytes: l.sent_bytes,
            rate: l.rate,
            shaped: l.shaped,
        }
    }
}

impl From<&Connection> for proto::ConnectionMeasures {
    fn from(c: &Connection) -> Self {
        proto::ConnectionMeasures {
            id: c.id,
            sent_bytes: c.sent_bytes,
            received_bytes: c.received_bytes,
            busy_us: c.busy_us,
            window_us: c.window_us,
            buffer_us: c.buffer_us,
            resent_bytes: c.resent_bytes,
            rtt_us: c.rtt_us,
            rtt_min_us: c.rtt_min_us,
            window_bytes: c.window_bytes,
            unsent_bytes: c.unsent_bytes,
            app_limited: c.is_app_limited,
        }
    }
}

impl From<proto::ConnectionMeasures> for Connection {
    fn from(c: proto::ConnectionMeasures) -> Self {
        Connection {
            id: c.id,
            sent_bytes: c.sent_bytes,
            received_bytes: c.received_bytes,
            busy_us: c.busy_us,
            window_us: c.window_us,
            buffer_us: c.buffer_us,
            resent_bytes: c.resent_bytes,
            rtt_us: c.rtt_us,
            rtt_min_us: c.rtt_min_us,
            window_bytes: c.window_bytes,
            unsent_bytes: c.unsent_bytes,
            is_app_limited: c.app_limited,
        }
    }
}

impl From<&Peer> for proto::PeerMeasures {
    fn from(p: &Peer) -> Self {
        proto::PeerMeasures {
            name: p.name.clone(),
            address: p.address.clone(),
            local: p.local.clone(),
            connections: all(&p.connections),
            waits: Some((&p.waits).into()),
            credit: Some((&p.credit).into()),
            in_flight: Some((&p.in_flight).into()),
            service_ns: p.service_ns,
            silent_ns: p.silent_ns,
            read_bytes: p.read_bytes,
            written_bytes: p.written_bytes,
        }
    }
}

impl From<proto::PeerMeasures> for Peer {
    fn from(p: proto::PeerMeasures) -> Self {
        Peer {
            name: short(p.name),
            address: short(p.address),
            local: short(p.local),
            connections: few(p.connections),
            waits: occupied(p.waits),
            credit: occupied(p.credit),
            in_flight: occupied(p.in_flight),
            service_ns: p.service_ns,
            silent_ns: p.silent_ns,
            read_bytes: p.read_bytes,
            written_bytes: p.written_bytes,
        }
    }
}

impl From<&Measures> for proto::Measures {
    fn from(m: &Measures) -> Self {
        let part = match m.part {
            Part::Client => 0,
            Part::Server => 1,
            Part::Mount => 2,
        };
        let work = proto::WorkMeasures {
            operations: m.work.operations,
            read_bytes: m.work.read_bytes,
            written_bytes: m.work.written_bytes,
            latencies: m.work.latencies.clone(),
        };
        proto::Measures {
            name: m.name.clone(),
            part,
            machine: m.machine.clone(),
            zone: m.zone.clone(),
            instance: m.instance,
            at_ns: m.at_ns,
            cpu: Some((&m.cpu).into()),
            disks: all(&m.disks),
            links: all(&m.links),
            peers: all(&m.peers),
            waits: Some((&m.waits).into()),
            spent_ns: m.spent_ns.clone(),
            work: Some(work),
        }
    }
}

impl From<proto::Measures> for Measures {
    fn from(m: proto::Measures) -> Self {
        let part = match m.part {
            1 => Part::Server,
            2 => Part::Mount,
            _ => Part::Client,
        };
        let work = m.work.unwrap_or_default();
        let numbers = |numbers: Vec<u64>| numbers.into_iter().take(THINGS_MAX).collect();
        Measures {
            name: short(m.name),
            part,
            machine: short(m.machine),
            zone: short(m.zone),
            instance: m.instance,
            at_ns: m.at_ns,
            cpu: m.cpu.map(Cpu::from).unwrap_or_default(),
            disks: few(m.disks),
            links: few(m.links),
            peers: few(m.peers),
            waits: occupied(m.waits),
            spent_ns: numbers(m.spent_ns),
            work: Work {
                operations: work.operations,
                read_bytes: work.read_bytes,
                written_bytes: work.written_bytes,
                latencies: numbers(work.latencies),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_come_back_from_the_wire_as_they_went() {
        let mut measures = of_this_process("data1", Part::Server, 5);
        let waits = Occupied { busy_ns: 1, total_ns: 2, events: 3 };
        let disk = Disk { place: "/srv/d1".to_owned(), read_limit: Some(28e6), waits, ..Disk::default() };
        measures.disks = vec![disk];
        measures.zone = "rio".to_owned();
        let connection = Connection { id: 7, busy_us: 9, is_app_limited: true, ..Connection::default() };
        measures.peers = vec![Peer { connections: vec![connection], waits, silent_ns: 5, ..Peer::default() }];
        measures.work = Work { operations: 4, latencies: vec![0, 4], ..Work::default() };
        measures.spent_ns = vec![1, 2, 3];
        let back = Measures::from(proto::Measures::from(&measures));
        assert_eq!(back, measures);
    }

    #[test]
    fn endless_texts_and_lists_of_a_peer_are_cut() {
        let many = vec![proto::LinkMeasures { name: "x".repeat(1000), ..Default::default() }; 5000];
        let measures = Measures::from(proto::Measures { links: many, part: 99, ..Default::default() });
        assert_eq!((measures.links.len(), measures.links[0].name.len()), (THINGS_MAX, TEXT_CHARS_MAX));
        assert_eq!(measures.part, Part::Client);
    }
}
