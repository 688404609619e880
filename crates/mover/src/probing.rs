//! What a pair of nodes can do: bytes from memory or a disk of one to memory or a disk of the other, without a copy.
//!
//! Bounded in time and bytes on both sides. What goes to or comes from a disk lies in files without a name, in the area
//! that is asked about or in the daemon's own directory, and is gone with the probe.

use crate::receive::Receiver;
use crate::record::{DATA_BYTES_MAX, Greeting, HEADER_BYTES, Header, Kind};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call};
use vazao_wire::{op, transport};

/// Connections of a probe.
pub const STREAMS_MAX: u32 = 32;

/// One measurement lasts no longer.
pub const MILLISECONDS_MAX: u32 = 10_000;

/// Bytes of one measurement.
pub const BYTES_MAX: u64 = 64 << 30;

/// Bytes that a measurement of a disk writes there at most.
pub(crate) const SCRATCH_BYTES_MAX: u64 = 1 << 30;

/// Bytes that lie on the source's disk for a measurement of it, and the time that putting them there may take.
const SOURCE_BYTES: u64 = 256 << 20;
const SOURCE_NS_MAX: u64 = 10_000_000_000;

/// A peer that says nothing for this long has failed.
const SILENCE: Duration = Duration::from_secs(15);

/// A whole measurement with its preparation, as its requester waits for it.
const DEADLINE_NS: u64 = 45_000_000_000;

/// One thing to be measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Course {
    /// The bytes come from a disk: of this area, or of the daemon's own directory where it is empty.
    pub from_disk: Option<String>,
    /// The bytes go to a disk.
    pub to_disk: Option<String>,
    /// Connections at once.
    pub streams: u32,
    /// How long.
    pub milliseconds: u32,
    /// How much.
    pub bytes_max: u64,
}

impl Course {
    /// `memory to memory`.
    pub fn name(&self) -> String {
        let place = |disk: &Option<String>| if disk.is_some() { "disk" } else { "memory" };
        format!("{} to {}", place(&self.from_disk), place(&self.to_disk))
    }
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measured {
    /// Bytes that the other node has counted.
    pub bytes: u64,
    /// From the first byte to the last confirmation.
    pub elapsed_ns: u64,
    /// The shortest round trip seen.
    pub round_trip_ns: u64,
}

impl Measured {
    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Has the node at `from` send to the node at `to`, both `host:port` of their daemons.
pub fn probe(
    transport: &dyn Transport,
    clock: &dyn Clock,
    from: &str,
    to: &str,
    course: &Course,
) -> Result<Measured, Fault> {
    let request = proto::OpenProbeRequest {
        to_disk: course.to_disk.is_some(),
        area: course.to_disk.clone().unwrap_or_default(),
    };
    let deadline_ns = clock.now_ns() + DEADLINE_NS;
    let opened = call::<op::OpenProbe>(transport, to, &request, deadline_ns)?;
    let request = proto::RunProbeRequest {
        address: crate::outgoing::data_address(to, opened.port)?,
        token: opened.token,
        streams: course.streams,
        milliseconds: course.milliseconds,
        bytes_max: course.bytes_max,
        from_disk: course.from_disk.is_some(),
        area: course.from_disk.clone().unwrap_or_default(),
    };
    let pending = transport::submit::<op::RunProbe>(transport, from, &request, &[], deadline_ns);
    let (answer, _) = pending.wait()?;
    let proto::RunProbeResponse { bytes, elapsed_ns, round_trip_ns } = answer;
    Ok(Measured { bytes, elapsed_ns, round_trip_ns })
}

/// One measurement at a time: two would measure each other.
static BUSY: AtomicBool = AtomicBool::new(false);

struct Busy;

impl Busy {
    fn take(node: &str) -> Result<Busy, Fault> {
        match BUSY.swap(true, Ordering::SeqCst) {
            false => Ok(Busy),
            true => Err(Fault::new(Code::Overloaded, format!("node {node}: another probe is running"))),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.store(false, Ordering::SeqCst);
    }
}

/// Sends, as the source of a probe.
pub(crate) fn run(
    receiver: &Receiver,
    request: &proto::RunProbeRequest,
) -> Result<proto::RunProbeResponse, Fault> {
    let token: [u8; 16] = request.token.as_slice().try_into().map_err(|_| refused("a token of 16 bytes"))?;
    if !(1..=STREAMS_MAX).contains(&request.streams) {
        return Err(refused("1 to 32 streams"));
    }
    if !(1..=MILLISECONDS_MAX).contains(&request.milliseconds)
        || !(1..=BYTES_MAX).contains(&request.bytes_max)
    {
        return Err(refused("a time of up to 10 s and up to 64 GiB"));
    }
    let _busy = Busy::take(receiver.node())?;
    let source = match request.from_disk {
        true => Some(prepare(receiver, request)?),
        false => None,
    };
    let sending = Sending {
        address: &request.address,
        token,
        clock: &*receiver.clock,
        length_ns: u64::from(request.milliseconds) * 1_000_000,
        source: source.as_ref().map(|(file, bytes)| (file, *bytes)),
        share: request.bytes_max / u64::from(request.streams),
        streams: u64::from(request.streams),
        started_ns: AtomicU64::new(0),
        round_trip_ns: AtomicU64::new(u64::MAX),
        is_failed: AtomicBool::new(false),
    };
    let barrier = Barrier::new(request.streams as usize);
    let counted: Vec<Result<u64, Fault>> = std::thread::scope(|scope| {
        let (sending, barrier) = (&sending, &barrier);
        let threads: Vec<_> =
            (0..sending.streams).map(|number| scope.spawn(move || sending.stream(number, barrier))).collect();
        let panicked = || Err(Fault::new(Code::Internal, "a stream of the probe panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let bytes = counted.into_iter().sum::<Result<u64, Fault>>()?;
    let elapsed_ns = receiver.clock.now_ns().saturating_sub(sending.started_ns.load(Ordering::SeqCst));
    let round_trip_ns = sending.round_trip_ns.load(Ordering::SeqCst);
    Ok(proto::RunProbeResponse { bytes, elapsed_ns, round_trip_ns })
}

fn refused(what: &str) -> Fault {
    Fault::new(Code::BadRequest, format!("RunProbe: needs {what}"))
}

/// A file on the source's disk that is not in its page cache, and its length.
fn prepare(receiver: &Receiver, request: &proto::RunProbeRequest) -> Result<(File, u64), Fault> {
    let file = receiver.scratch(&request.area)?;
    let fault = |error: std::io::Error| receiver.scratch_fault(&request.area, &error);
    let buffer = noise();
    let wanted = SOURCE_BYTES.min(request.bytes_max);
    let deadline_ns = receiver.clock.now_ns() + SOURCE_NS_MAX;
    let mut written = 0;
    while written < wanted && receiver.clock.now_ns() < deadline_ns {
        let length = buffer.len().min((wanted - written) as usize);
        file.write_all_at(&buffer[..length], written).map_err(fault)?;
        written += length as u64;
        if written.is_multiple_of(16 << 20) {
            // Otherwise all of it is in memory before the disk begins, and the time is over then.
            file.sync_data().map_err(fault)?;
        }
    }
    file.sync_all().map_err(fault)?;
    // A system that keeps the pages has them read from memory; there is no other way to ask it.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok((file, written))
}

/// Bytes that nothing on the way can make fewer.
fn noise() -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut bytes = vec![0; DATA_BYTES_MAX];
    for eight in bytes.chunks_exact_mut(8) {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        eight.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

struct Sending<'a> {
    address: &'a str,
    token: [u8; 16],
    clock: &'a dyn Clock,
    length_ns: u64,
    source: Option<(&'a File, u64)>,
    /// Bytes of each stream at most.
    share: u64,
    streams: u64,
    started_ns: AtomicU64,
    round_trip_ns: AtomicU64,
    is_failed: AtomicBool,
}

impl Sending<'_> {
    /// One connection from its beginning to its end. Returns what the other end counted.
    fn stream(&self, number: u64, barrier: &Barrier) -> Result<u64, Fault> {
        let opened = self.open();
        self.is_failed.fetch_or(opened.is_err(), Ordering::SeqCst);
        // All begin together; one that cannot says so to the others.
        if barrier.wait().is_leader() {
            self.started_ns.store(self.clock.now_ns(), Ordering::SeqCst);
        }
        barrier.wait();
        let socket = opened?;
        if self.is_failed.load(Ordering::SeqCst) {
            return Ok(0);
        }
        self.send(&socket, number)?;
        socket.shutdown(Shutdown::Write).map_err(|error| self.fault(&error))?;
        match self.hear(&socket)? {
            Header::Finished { offset, .. } => Ok(offset),
            other => Err(Fault::new(Code::BadRequest, format!("{}: {other:?} at the end", self.address))),
        }
    }

    fn open(&self) -> Result<TcpStream, Fault> {
        let mut addresses = self.address.to_socket_addrs().map_err(|error| self.fault(&error))?;
        let address = addresses
            .next()
            .ok_or_else(|| Fault::new(Code::Unreachable, format!("{}: no such host", self.address)))?;
        let asked_ns = self.clock.now_ns();
        let socket = TcpStream::connect_timeout(&address, SILENCE).map_err(|error| self.fault(&error))?;
        self.round_trip_ns.fetch_min(self.clock.now_ns().saturating_sub(asked_ns), Ordering::SeqCst);
        let set =
            socket.set_read_timeout(Some(SILENCE)).and_then(|()| socket.set_write_timeout(Some(SILENCE)));
        set.map_err(|error| self.fault(&error))?;
        let greeting = Greeting { kind: Kind::Probe, copy: [0; 16], token: self.token, buffer_bytes: 0 };
        (&socket).write_all(&greeting.to_bytes()).map_err(|error| self.fault(&error))?;
        match self.hear(&socket)? {
            Header::Welcome => Ok(socket),
            other => Err(Fault::new(Code::BadRequest, format!("{}: {other:?} to a greeting", self.address))),
        }
    }

    /// The next record; a fault of the other end is one here.
    fn hear(&self, mut socket: &TcpStream) -> Result<Header, Fault> {
        let mut bytes = [0; HEADER_BYTES];
        socket.read_exact(&mut bytes).map_err(|error| self.fault(&error))?;
        match Header::parse(&bytes)? {
            Header::Fault { code, length } => {
                let mut text = vec![0; length as usize];
                socket.read_exact(&mut text).map_err(|error| self.fault(&error))?;
                Err(Fault::new(code, String::from_utf8_lossy(&text).into_owned()))
            }
            other => Ok(other),
        }
    }

    fn send(&self, mut socket: &TcpStream, number: u64) -> Result<(), Fault> {
        let mut buffer = noise();
        let until_ns = self.started_ns.load(Ordering::SeqCst) + self.length_ns;
        let (start, share) = match self.source {
            Some((_, bytes)) => (bytes / self.streams * number, self.share.min(bytes / self.streams)),
            None => (0, self.share),
        };
        let mut sent = 0;
        while sent < share && self.clock.now_ns() < until_ns {
            let length = buffer.len().min((share - sent) as usize);
            if let Some((file, _)) = self.source {
                file.read_exact_at(&mut buffer[..length], start + sent)
                    .map_err(|error| self.fault(&error))?;
            }
            if let Err(error) = socket.write_all(&buffer[..length]) {
                // A destination that cannot go on has said why.
                return Err(self.hear(socket).err().unwrap_or_else(|| self.fault(&error)));
            }
            sent += length as u64;
        }
        Ok(())
    }

    fn fault(&self, error: &std::io::Error) -> Fault {
        let code = match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Code::Timeout,
            _ => Code::Unreachable,
        };
        Fault::new(code, format!("data connection to {}: {error}", self.address))
    }
}

/// Below this part of what the way carries, a disk is what limits.
const CLEARLY: f64 = 0.9;

/// Below this part of the best, one stream is limited by itself.
const ALONE: f64 = 0.8;

/// Rates of all courses of a pair.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rates {
    /// Memory to memory, by streams.
    pub memory: Vec<(u32, f64)>,
    /// Disk to memory, the best.
    pub source_disk: Option<f64>,
    /// Memory to disk, the best.
    pub destination_disk: Option<f64>,
    /// The shortest round trip.
    pub round_trip_ns: u64,
}

impl Rates {
    /// The number of streams from which on more are no faster, and their rate.
    pub fn best(&self) -> (u32, f64) {
        let most = self.memory.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
        let enough = self.memory.iter().filter(|&&(_, rate)| rate >= most * CLEARLY);
        enough.min_by_key(|&&(streams, _)| streams).copied().unwrap_or((1, most))
    }

    /// What limits a copy from `from` to `to`, for people.
    pub fn limit(&self, from: &str, to: &str) -> String {
        let (streams, way) = self.best();
        let mb = |rate: f64| format!("{:.1} MB/s", rate / 1e6);
        let disks = [(from, "reads", self.source_disk), (to, "takes", self.destination_disk)];
        let slowest = disks.into_iter().filter_map(|(node, does, rate)| Some((node, does, rate?)));
        let slowest = slowest.filter(|&(.., rate)| rate < way * CLEARLY).min_by(|a, b| a.2.total_cmp(&b.2));
        if let Some((node, does, rate)) = slowest {
            return format!("the disk of {node}: it {does} {}, and the way carries {}", mb(rate), mb(way));
        }
        let one = self.memory.iter().find(|&&(streams, _)| streams == 1).map(|&(_, rate)| rate);
        match one {
            Some(one) if one < way * ALONE => format!(
                "one stream: {} at a round trip of {:.1} ms; {streams} streams reach {}",
                mb(one),
                self.round_trip_ns as f64 / 1e6,
                mb(way)
            ),
            _ => format!("the way from {from} to {to}: {}, with any number of streams", mb(way)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_slowest_of_disk_way_and_single_stream() {
        let near = Rates {
            memory: vec![(1, 631e6), (4, 640e6)],
            source_disk: Some(277e6),
            destination_disk: Some(500e6),
            round_trip_ns: 200_000,
        };
        assert_eq!(near.best(), (1, 631e6));
        assert!(near.limit("n1", "n9").starts_with("the disk of n1: it reads 277.0 MB/s"));
        let far = Rates { memory: vec![(1, 5e6), (4, 20e6), (16, 24e6)], ..near.clone() };
        assert_eq!(far.best().0, 16);
        assert!(far.limit("n1", "n9").starts_with("one stream: 5.0 MB/s"), "{}", far.limit("n1", "n9"));
        let even = Rates { source_disk: Some(630e6), destination_disk: None, ..near };
        assert!(even.limit("n1", "n9").starts_with("the way from n1 to n9"));
        assert_eq!(Rates::default().best(), (1, 0.0));
    }
}
