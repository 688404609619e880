//! What a data server costs beyond the reads and writes that it does: 1 GiB in requests of 256 KiB, through the
//! service in this process and by plain calls (and checksums) on a file of the same disk, interleaved.
//!
//! `cargo run --release -p vazao-store --example throughput -- DIRECTORY`

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, mpsc};
use vazao_disk::{Disk, DiskFile, Open, RealDisk};
use vazao_meter::{Clock, SystemClock, cpu};
use vazao_model::checksum::{first_mismatch, piece_checksums};
use vazao_store::{DataService, Options};
use vazao_wire::operation::Operation;
use vazao_wire::service::{Answer, Deferred, Fault, Request, Responder, Service};
use vazao_wire::{op, proto};

const REQUEST_BYTES: usize = 256 * 1024;
const TOTAL_BYTES: usize = 1 << 30;
/// The fastest of so many counts: other work on the machine only ever makes a round slower.
const ROUNDS: usize = 10;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Answers into one reused buffer, as a connection does.
#[derive(Default)]
struct Sink {
    buffer: Vec<u8>,
    failed: Option<Fault>,
    waiting: Option<mpsc::Receiver<Answer>>,
    deferred: usize,
}

impl Responder for Sink {
    fn reply(&mut self, _message: &[u8]) {}

    fn try_reply_with(
        &mut self,
        _message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        self.buffer.resize(length.max(self.buffer.len()), 0);
        fill(&mut self.buffer[..length]).unwrap_or_else(|fault| {
            self.failed = Some(fault);
            true
        })
    }

    fn fail(&mut self, fault: &Fault) {
        self.failed = Some(fault.clone());
    }

    fn defer(&mut self) -> Deferred {
        self.deferred += 1;
        let (done, waiting) = mpsc::sync_channel(1);
        self.waiting = Some(waiting);
        Deferred::new(move |answer| drop(done.send(answer)))
    }
}

/// One kind of request, over the whole object.
struct Server<'a> {
    service: &'a DataService,
    sink: Sink,
}

impl Server<'_> {
    fn send<O: Operation>(&mut self, request: &O::Request, attachment: &[u8]) -> Outcome<()> {
        let message = prost::Message::encode_to_vec(request);
        let deadline_ns = SystemClock.now_ns() + 30_000_000_000;
        let request = Request { method: O::METHOD, id: 1, message: &message, attachment, deadline_ns };
        self.service.handle(request, &mut self.sink);
        if let Some(waiting) = self.sink.waiting.take() {
            waiting.recv()??;
        }
        self.sink.failed.take().map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn read(&mut self, inode: u64) -> Outcome<()> {
        for offset in (0..TOTAL_BYTES as u64).step_by(REQUEST_BYTES) {
            let length = REQUEST_BYTES as u32;
            self.send::<op::Read>(&proto::ReadRequest { object: Some(address(inode)), offset, length }, &[])?;
        }
        Ok(())
    }

    fn write(&mut self, inode: u64, bytes: &[u8], checksums: &[u32]) -> Outcome<()> {
        for offset in (0..TOTAL_BYTES as u64).step_by(REQUEST_BYTES) {
            self.write_one(inode, offset, bytes, checksums, false)?;
        }
        Ok(())
    }

    fn write_one(
        &mut self,
        inode: u64,
        offset: u64,
        bytes: &[u8],
        checksums: &[u32],
        sync: bool,
    ) -> Outcome<()> {
        let object = Some(address(inode));
        let request = proto::WriteRequest {
            object,
            offset,
            checksums: checksums.to_vec(),
            sync,
            must_exist: false,
            lent: None,
        };
        self.send::<op::Write>(&request, bytes)
    }
}

fn address(inode: u64) -> proto::ObjectAddress {
    proto::ObjectAddress { target: 1, inode, generation: 1, ..Default::default() }
}

fn plain_read(file: &dyn DiskFile, buffer: &mut [u8]) -> Outcome<()> {
    for offset in (0..TOTAL_BYTES as u64).step_by(REQUEST_BYTES) {
        file.read_at(buffer, offset)?;
    }
    Ok(())
}

/// Verifies the checksums as a server has to, and writes.
fn plain_write(file: &dyn DiskFile, bytes: &[u8], checksums: &[u32]) -> Outcome<()> {
    for offset in (0..TOTAL_BYTES as u64).step_by(REQUEST_BYTES) {
        if first_mismatch(offset, bytes, checksums).is_some() {
            return Err("the checksums are wrong".into());
        }
        file.write_at(bytes, offset)?;
    }
    Ok(())
}

/// Seconds that `work` takes.
fn seconds(work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let start = SystemClock.now_ns();
    work()?;
    Ok((SystemClock.now_ns() - start) as f64 / 1e9)
}

/// Prints the rates of the fastest rounds, and what share of the plain one the service reaches.
fn report(name: &str, service: &[f64], plain: &[f64]) {
    let fastest = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let rate = |times: &[f64]| (TOTAL_BYTES >> 20) as f64 / fastest(times);
    let (ours, theirs) = (rate(service), rate(plain));
    println!("{name:<10} service {ours:>8.0} MiB/s   plain {theirs:>8.0} MiB/s   ratio {:.2}", ours / theirs);
}

/// Small objects: each is created, written and, in the second half, synced by itself.
fn small_objects(server: &mut Server<'_>) -> Outcome<()> {
    const COUNT: u64 = 2000;
    let bytes = vec![7; 20_000];
    let checksums = piece_checksums(0, &bytes);
    for sync in [false, true] {
        let first = 1000 + u64::from(sync) * COUNT;
        let time = seconds(|| {
            (first..first + COUNT).try_for_each(|inode| server.write_one(inode, 0, &bytes, &checksums, sync))
        })?;
        println!("new objects of 20 kB, sync {sync}: {:.0} per second", COUNT as f64 / time);
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let directory = std::env::args().nth(1).ok_or("usage: throughput DIRECTORY (an empty one)")?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(Path::new(&directory))?);
    let options = Options { reserve_bytes: Some(0), ..Options::default() };
    let service = DataService::open(vec![(Arc::clone(&disk), directory)], options, Arc::new(SystemClock))?;
    let response = proto::RegisterNodeResponse {
        cluster_id: 1,
        node: 1,
        targets: vec![1],
        epoch: 1,
        ..Default::default()
    };
    service.set_registration(0, &response)?;
    let bytes: Vec<u8> = (0..REQUEST_BYTES).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect();
    let checksums = piece_checksums(0, &bytes);
    let file = disk.open("plain", Open::Create)?;
    let mut server = Server { service: &service, sink: Sink::default() };
    let mut buffer = vec![0; REQUEST_BYTES];
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..=ROUNDS {
        times[0].push(seconds(|| server.write(1, &bytes, &checksums))?);
        times[1].push(seconds(|| plain_write(&*file, &bytes, &checksums))?);
        times[2].push(seconds(|| server.read(1))?);
        times[3].push(seconds(|| plain_read(&*file, &mut buffer))?);
    }
    println!("first write: service {:.2} s, plain {:.2} s", times[0].remove(0), times[1].remove(0));
    report("overwrite", &times[0], &times[1]);
    report("read", &times[2], &times[3]);
    println!("requests handed to the pool: {}", server.sink.deferred);
    small_objects(&mut server)?;
    let used = cpu::process_use(None)?;
    println!("resident peak {} MiB", used.resident_peak_bytes >> 20);
    service.close();
    Ok(())
}
