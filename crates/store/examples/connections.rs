//! What a data server moves and what memory it takes with 1, 32, 1,000 and 4,000 connections: reads of 64 KiB, 256 KiB
//! and 1 MiB from its page cache, every byte verified by the reader.
//!
//! `cargo run --release -p vazao-store --example connections -- DIRECTORY [ROUNDS]`. The server runs in a process of
//! its own (this program, started again). Each connection has one request under way; 32 threads at most keep them
//! going, each with its share, so that it is the server's connections that are measured, not the threads of 4,000
//! clients.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use vazao_disk::{Disk, RealDisk};
use vazao_meter::{Clock, SystemClock, cpu};
use vazao_model::checksum::{first_mismatch, piece_checksums};
use vazao_store::{DataService, Options};
use vazao_wire::key::ClusterKey;
use vazao_wire::service::Service;
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};
use vazao_wire::transport::{PendingCall, call, submit};
use vazao_wire::{op, proto};

const CONNECTIONS: [usize; 4] = [1, 32, 1000, 4000];
const CALL_BYTES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
const THREADS_MAX: usize = 32;
/// Threads of the server, as many as `vazao up` gives it on two cores.
const SERVER_THREADS: usize = 2;
const OBJECT_BYTES: usize = 256 << 20;
const TOTAL_BYTES: usize = 2 << 30;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn serve(directory: &str) -> Outcome<()> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(Path::new(directory))?);
    let options = Options { reserve_bytes: Some(0), ..Options::default() };
    let service = DataService::open(vec![(disk, directory.to_owned())], options, Arc::new(SystemClock))?;
    let response = proto::RegisterNodeResponse {
        cluster_id: 1,
        node: 1,
        targets: vec![1],
        epoch: 1,
        ..Default::default()
    };
    service.set_registration(0, &response)?;
    let service = Arc::new(service);
    let key = ClusterKey::insecure();
    let options = ServerOptions { threads: SERVER_THREADS, key, name: "data".to_owned() };
    let served: Arc<dyn Service> = Arc::<DataService>::clone(&service);
    let server = Server::start("127.0.0.1:0", served, options, Arc::new(SystemClock))?;
    println!("{}", server.address());
    std::io::stdin().lines().for_each(drop);
    drop(server);
    service.close();
    Ok(())
}

fn deadline_ns() -> u64 {
    SystemClock.now_ns() + 60_000_000_000
}

fn object() -> Option<proto::ObjectAddress> {
    Some(proto::ObjectAddress { target: 1, inode: 1, generation: 1, ..Default::default() })
}

/// A connection of its own.
fn connect() -> Arc<TcpTransport> {
    let options = TransportOptions { connections_max: 1, ..TransportOptions::default() };
    TcpTransport::new(ClusterKey::insecure(), options, Arc::new(SystemClock))
}

fn fill(address: &str) -> Outcome<()> {
    let transport = connect();
    let bytes: Vec<u8> = (0..1usize << 20).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect();
    for offset in (0..OBJECT_BYTES as u64).step_by(bytes.len()) {
        let checksums = piece_checksums(offset, &bytes);
        let request = proto::WriteRequest {
            object: object(),
            offset,
            checksums,
            sync: false,
            must_exist: false,
            lent: None,
        };
        submit::<op::Write>(&*transport, address, &request, &bytes, deadline_ns()).wait()?;
    }
    Ok(())
}

/// The connections of one thread, each with one request under way, `count` requests in all.
fn read_all(
    address: &str,
    mine: &[Arc<TcpTransport>],
    call_bytes: usize,
    first: usize,
    count: usize,
) -> Outcome<()> {
    let places = OBJECT_BYTES / call_bytes;
    let ask = |number: usize| {
        let offset = ((first + number * 7919) % places * call_bytes) as u64;
        let request = proto::ReadRequest { object: object(), offset, length: call_bytes as u32 };
        let transport = &*mine[number % mine.len()];
        (offset, submit::<op::Read>(transport, address, &request, &[], deadline_ns()))
    };
    let finish = |(offset, pending): (u64, PendingCall<op::Read>)| -> Outcome<()> {
        let (response, bytes) = pending.wait()?;
        if bytes.len() != call_bytes || first_mismatch(offset, &bytes, &response.checksums).is_some() {
            return Err(format!("{} wrong bytes at {offset}", bytes.len()).into());
        }
        Ok(())
    };
    let mut flying: std::collections::VecDeque<_> = (0..mine.len().min(count)).map(ask).collect();
    for number in flying.len()..count {
        finish(flying.pop_front().ok_or("nothing is under way")?)?;
        flying.push_back(ask(number));
    }
    flying.into_iter().try_for_each(finish)
}

/// Bytes a second over all connections, which are made before the time begins.
fn measure(address: &str, connections: usize, call_bytes: usize) -> Outcome<f64> {
    let threads = connections.min(THREADS_MAX);
    let gate = Barrier::new(threads + 1);
    let each = TOTAL_BYTES / call_bytes / threads;
    let work = |thread: usize| -> Outcome<()> {
        let mine: Vec<_> = (thread..connections).step_by(threads).map(|_| connect()).collect();
        let made = mine.iter().try_for_each(|transport| {
            call::<op::Ping>(&**transport, address, &Default::default(), deadline_ns()).map(drop)
        });
        gate.wait();
        gate.wait();
        // Whatever happens, the others are met at the gate.
        let read = match made {
            Ok(()) => read_all(address, &mine, call_bytes, thread * 104_729, each),
            Err(fault) => Err(fault.into()),
        };
        gate.wait();
        gate.wait();
        read
    };
    let (seconds, outcomes) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        gate.wait();
        let start_ns = SystemClock.now_ns();
        gate.wait();
        gate.wait();
        let seconds = (SystemClock.now_ns() - start_ns) as f64 / 1e9;
        gate.wait();
        (seconds, workers.into_iter().map(|worker| worker.join()).collect::<Vec<_>>())
    });
    for outcome in outcomes {
        outcome.map_err(|_| "a thread panicked")??;
    }
    Ok((each * threads * call_bytes) as f64 / seconds)
}

fn start(directory: &str) -> Outcome<(Child, String)> {
    let mut server = Command::new(std::env::current_exe()?)
        .args(["--serve", directory])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut address)?;
    Ok((server, address.trim().to_owned()))
}

#[allow(clippy::disallowed_methods, reason = "it ends when its input does")]
fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, directory] = &arguments[..]
        && flag == "--serve"
    {
        return serve(directory);
    }
    let directory = arguments.first().ok_or("usage: connections DIRECTORY (an empty one) [ROUNDS]")?;
    let rounds: usize = arguments.get(1).map_or(Ok(3), |rounds| rounds.parse())?;
    println!(
        "connections  call KiB     MiB/s (median of {rounds})  server CPU s/GiB  resident MiB, most ever"
    );
    for connections in CONNECTIONS {
        // A server of its own for each number: what it took before does not count.
        let (mut server, address) = start(directory)?;
        fill(&address)?;
        for call_bytes in CALL_BYTES {
            let before = cpu::process_use(Some(server.id()))?;
            let rates = (0..rounds).map(|_| measure(&address, connections, call_bytes));
            let mut rates = rates.collect::<Outcome<Vec<f64>>>()?;
            rates.sort_by(f64::total_cmp);
            let after = cpu::process_use(Some(server.id()))?;
            let cpu_s = after.user_s + after.system_s - before.user_s - before.system_s;
            let gib = (rounds * TOTAL_BYTES) as f64 / f64::from(1 << 30);
            println!(
                "{connections:>11}  {:>8}  {:>24.0}  {:>16.3}  {:>8.1}, {:.1}",
                call_bytes >> 10,
                rates[rounds / 2] / f64::from(1 << 20),
                cpu_s / gib,
                after.resident_bytes as f64 / f64::from(1 << 20),
                after.resident_peak_bytes as f64 / f64::from(1 << 20),
            );
        }
        drop(server.stdin.take());
        server.wait()?;
    }
    Ok(())
}
