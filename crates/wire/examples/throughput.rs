//! What the protocol alone can move over loopback: requests and answers without disks.
//!
//! `cargo run --release -p vazao-wire --example throughput [THREADS]` prints requests per second and MiB/s for several
//! shapes. The server runs in a process of its own (this program, started again), as in a real cluster.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use vazao_meter::{Clock, SystemClock};
use vazao_wire::key::ClusterKey;
use vazao_wire::operation::{Method, op};
use vazao_wire::proto;
use vazao_wire::service::{Request, Responder, Service};
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};
use vazao_wire::transport::{call, submit};

/// Answers reads with bytes that are there already, and takes writes.
struct Memory(Vec<u8>);

impl Service for Memory {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        match request.method {
            Method::Read => {
                let length = prost::Message::decode(request.message)
                    .map_or(0, |r: proto::ReadRequest| r.length as usize);
                responder.reply_with(&[], length, &mut |place| {
                    place.copy_from_slice(&self.0[..place.len()]);
                    Ok(())
                });
            }
            _ => responder.reply(&[]),
        }
    }
}

fn serve(threads: usize) -> std::io::Result<()> {
    let options = ServerOptions { threads, key: ClusterKey::insecure(), name: "memory".to_owned() };
    let server =
        Server::start("127.0.0.1:0", Arc::new(Memory(vec![7; 4 << 20])), options, Arc::new(SystemClock))?;
    println!("{}", server.address());
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

fn deadline_ns() -> u64 {
    SystemClock.now_ns() + 20_000_000_000
}

/// Runs `one` `count` times on each of `threads` threads and prints the rate.
fn measure(name: &str, threads: usize, count: usize, bytes: usize, one: impl Fn() + Sync) {
    let started_ns = SystemClock.now_ns();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..count).for_each(|_| one()));
        }
    });
    let seconds = (SystemClock.now_ns() - started_ns) as f64 / 1e9;
    let rate = (threads * count) as f64 / seconds;
    println!("{name:<42} {rate:>10.0} /s {:>9.0} MiB/s", rate * bytes as f64 / 1048576.0);
}

#[allow(clippy::disallowed_methods, reason = "it ends when its input does")]
fn main() -> std::io::Result<()> {
    let argument = std::env::args().nth(1);
    if let Some(threads) = argument.as_deref().and_then(|a| a.strip_prefix("--serve=")) {
        return serve(threads.parse().unwrap_or(1));
    }
    let threads = argument.unwrap_or_else(|| "1".to_owned());
    let mut server = Command::new(std::env::current_exe()?)
        .arg(format!("--serve={threads}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(server.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?).read_line(&mut address)?;
    let address = address.trim();
    let transport =
        TcpTransport::new(ClusterKey::insecure(), TransportOptions::default(), Arc::new(SystemClock));
    let ping = || {
        call::<op::Ping>(&*transport, address, &Default::default(), deadline_ns())
            .expect("the server is there");
    };
    measure("ping, 1 thread", 1, 20_000, 0, ping);
    measure("ping, 8 threads", 8, 20_000, 0, ping);
    let read = |length: u32, depth: usize| {
        let request = proto::ReadRequest { length, ..Default::default() };
        let flight: Vec<_> = (0..depth)
            .map(|_| submit::<op::Read>(&*transport, address, &request, &[], deadline_ns()))
            .collect();
        flight.into_iter().for_each(|pending| {
            pending.wait().expect("the server is there");
        });
    };
    for kib in [64u32, 256, 1024] {
        let length = kib * 1024;
        let count = (1usize << 31) / length as usize;
        measure(&format!("read {kib} KiB, 1 thread, 4 in flight"), 1, count / 4, 4 * length as usize, || {
            read(length, 4)
        });
        measure(&format!("read {kib} KiB, 4 threads, 1 in flight"), 4, count / 4, length as usize, || {
            read(length, 1)
        });
    }
    let bytes = vec![3u8; 256 * 1024];
    measure("write 256 KiB, 1 thread, 4 in flight", 1, 2048, 4 * bytes.len(), || {
        let write = || submit::<op::Write>(&*transport, address, &Default::default(), &bytes, deadline_ns());
        let flight: Vec<_> = (0..4).map(|_| write()).collect();
        flight.into_iter().for_each(|pending| {
            pending.wait().expect("the server is there");
        });
    });
    drop(server.stdin.take());
    server.wait().map(drop)
}
