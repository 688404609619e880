//! Operations a second of the metadata service inside one process, and its memory with many files.
//!
//! `cargo run --release -p vazao-meta --example ops -- [FILES] [DIRECTORY]` — without a directory on a disk in memory.

use prost::Message;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use vazao_disk::{Disk, MemoryDisk, RealDisk};
use vazao_meta::{MetaOptions, MetaService};
use vazao_meter::{Clock, clock, cpu};
use vazao_wire::service::{Answer, Deferred, Fault, Request, Responder, Service};
use vazao_wire::{Operation, op, proto};

/// Requests between two flushes: what a loop thread finds on its connections under load.
const BATCH: usize = 16;

const ROOT: u64 = 1;

struct Inbox {
    answer: Option<Answer>,
    sender: Sender<Answer>,
}

impl Responder for Inbox {
    fn reply(&mut self, message: &[u8]) {
        self.answer = Some(Ok((message.to_vec(), Vec::new())));
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        _length: usize,
        _fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        self.reply(message);
        true
    }

    fn fail(&mut self, fault: &Fault) {
        self.answer = Some(Err(fault.clone()));
    }

    fn defer(&mut self) -> Deferred {
        let sender = self.sender.clone();
        Deferred::new(move |answer| drop(sender.send(answer)))
    }
}

struct Bench {
    service: Arc<MetaService>,
    clock: Arc<dyn Clock>,
    sent: usize,
}

impl Bench {
    fn call<O: Operation>(&mut self, request: &O::Request) -> O::Response {
        let (sender, deferred) = channel();
        let mut inbox = Inbox { answer: None, sender };
        let message = request.encode_to_vec();
        let request =
            Request { method: O::METHOD, id: 0, message: &message, attachment: &[], deadline_ns: u64::MAX };
        self.service.handle(request, &mut inbox);
        self.sent += 1;
        if self.sent.is_multiple_of(BATCH) {
            self.service.flush().expect("the log is written");
        }
        let answer = inbox.answer.unwrap_or_else(|| {
            self.service.flush().expect("the log is written");
            deferred.recv().expect("answered")
        });
        let (message, _) = answer.expect("no error");
        O::Response::decode(message.as_slice()).expect("an answer decodes")
    }

    fn measure(&mut self, what: &str, count: u64, mut work: impl FnMut(&mut Bench, u64)) {
        let before = cpu::process_use(None).unwrap_or_default();
        let started_ns = self.clock.now_ns();
        (0..count).for_each(|n| work(self, n));
        let seconds = (self.clock.now_ns() - started_ns) as f64 / 1e9;
        let used = cpu::process_use(None).unwrap_or_default();
        let cpu_seconds = used.user_s + used.system_s - before.user_s - before.system_s;
        println!(
            "{what:<24} {:>9.0} /s  {seconds:>6.2} s, CPU {cpu_seconds:>6.2} s, resident {:>3} MiB, peak {:>3} MiB",
            count as f64 / seconds,
            used.resident_bytes >> 20,
            used.resident_peak_bytes >> 20,
        );
    }
}

/// A number below `count` that jumps about.
fn scattered(n: u64, count: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count
}

fn name(n: u64) -> Vec<u8> {
    format!("file-{n:08}").into_bytes()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let files: u64 = arguments.next().map_or(100_000, |n| n.parse().expect("FILES is a number"));
    let directory = arguments.next();
    let disk: Arc<dyn Disk> = match &directory {
        Some(path) => Arc::new(RealDisk::open(Path::new(path)).expect("DIRECTORY can be opened")),
        None => Arc::new(MemoryDisk::new(1)),
    };
    let clock = clock::system();
    let started_ns = clock.now_ns();
    let service = MetaService::open(disk, MetaOptions::default(), Arc::clone(&clock)).expect("opens");
    println!("opened in {:.3} s", (clock.now_ns() - started_ns) as f64 / 1e9);
    let mut bench = Bench { service, clock, sent: 0 };
    let session = bench.call::<op::OpenSession>(&proto::OpenSessionRequest::default()).session;
    run(&mut bench, session, files);
    bench.measure("close", 1, |bench, _| bench.service.close().expect("closes"));
}

fn run(bench: &mut Bench, session: u64, files: u64) {
    let exists =
        bench.call::<op::List>(&proto::ListRequest { directory: ROOT, limit: 1, ..Default::default() });
    let mut inodes = Vec::new();
    if exists.entries.is_empty() {
        bench.measure("create in one directory", files, |bench, n| {
            let once = Some(proto::Once { session, slot: (n % 64) as u32, sequence: n / 64 + 1, seat: 0 });
            let created = bench.call::<op::Create>(&proto::CreateRequest {
                once,
                parent: ROOT,
                name: name(n),
                kind: 1,
                mode: 0o644,
                exclusive: true,
                ..Default::default()
            });
            inodes
                .extend(created.inode.and_then(|inode| inode.attributes).map(|attributes| attributes.inode));
        });
    }
    bench.measure("lookup, scattered", files.min(500_000), |bench, n| {
        bench.call::<op::Lookup>(&proto::LookupRequest {
            parent: ROOT,
            name: name(scattered(n, files)),
            seat: 0,
        });
    });
    bench.measure("lookup, the same 1,000", files.min(500_000), |bench, n| {
        bench.call::<op::Lookup>(&proto::LookupRequest { parent: ROOT, name: name(n % 1000), seat: 0 });
    });
    let mut list = |what: &str, with_attributes: bool| {
        let mut cookie = 0;
        let mut left = true;
        let pages = files.div_ceil(4096) + 1;
        bench.measure(what, pages, |bench, _| {
            if left {
                let request =
                    proto::ListRequest { directory: ROOT, cookie, limit: 4096, with_attributes, seat: 0 };
                let page = bench.call::<op::List>(&request);
                cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
                left = !page.end;
            }
        });
        assert!(!left, "the listing did not end");
    };
    list("list, pages of 4,096", false);
    list("list with attributes", true);
    open_and_unlink(bench, session, &inodes);
}

/// By a client that tells what it has open.
fn open_and_unlink(bench: &mut Bench, session: u64, inodes: &[u64]) {
    let mut round = 0;
    let mut renew = |bench: &mut Bench, _| {
        let covers_round = Some(round);
        let request = proto::RenewSessionRequest { session, covers_round, ..Default::default() };
        round = bench.call::<op::RenewSession>(&request).round;
    };
    (0..2).for_each(|n| renew(bench, n));
    let count = inodes.len() as u64;
    bench.measure("open", count, |bench, n| {
        let inode = inodes[scattered(n, count) as usize];
        bench.call::<op::Open>(&proto::OpenRequest { inode, session, ..Default::default() });
    });
    bench.measure("renewal after these", 2, &mut renew);
    bench.measure("unlink", count, |bench, n| {
        let sequence = count / 64 + n / 64 + 2;
        let once = Some(proto::Once { session, slot: (n % 64) as u32, sequence, seat: 0 });
        let request = proto::UnlinkRequest { once, parent: ROOT, name: name(n), ..Default::default() };
        bench.call::<op::Unlink>(&request);
    });
}
