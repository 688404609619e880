//! Experiment G14 without a peer: reads at random places of a large file through a channel, 512 KiB and 32 KiB.
//!
//! ```text
//! cargo run --release -p vazao-area --example random_reads -- [MIB [SECONDS]]
//! ```
//!
//! Server and client are one process with two event loops between them on the loopback; the ceiling beside each
//! figure is `pread` of the same places in the same file. It cannot say what a network does.

use prost::Message;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use vazao_area::{AreaConfig, AreaService, Options};
use vazao_client::Client;
use vazao_client::area::{Channel, ChannelOptions};
use vazao_meter::{Clock, SystemClock};
use vazao_model::Code;
use vazao_wire::key::ClusterKey;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};
use vazao_wire::{Method, proto};

const MIB: usize = 1 << 20;

/// Answers what a client asks of a metadata service, and hands the rest to the areas.
struct Node {
    area: Arc<AreaService>,
    address: std::sync::OnceLock<String>,
}

impl Service for Node {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let address = self.address.get().cloned().unwrap_or_default();
        let node =
            proto::Node { id: 1, name: "n1".into(), address, roles: vec![3], state: 1, ..Default::default() };
        let map = Some(proto::ClusterMap {
            cluster_id: 1,
            epoch: 1,
            nodes: vec![node],
            targets: vec![],
            ..Default::default()
        });
        match request.method {
            Method::OpenSession => responder.reply(
                &proto::OpenSessionResponse {
                    session: 1,
                    lease_ms: 60_000,
                    slots: 8,
                    map,
                    ..Default::default()
                }
                .encode_to_vec(),
            ),
            Method::GetClusterMap => responder.reply(&proto::GetClusterMapResponse { map }.encode_to_vec()),
            method if method.number() >> 8 == 3 => self.area.handle(request, responder),
            _ => responder.fail(&Fault::from(Code::Unsupported)),
        }
    }
}

/// The same places in every run (xorshift64).
fn places(size: u64, block: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let blocks = size / block as u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % blocks * block as u64
    })
}

/// MB/s of `read` over `seconds`.
fn rate(size: u64, block: usize, seconds: u64, mut read: impl FnMut(&mut [u8], u64)) -> f64 {
    let clock = SystemClock;
    let mut buffer = vec![0; block];
    let started_ns = clock.now_ns();
    let until_ns = started_ns + Duration::from_secs(seconds).as_nanos() as u64;
    let mut bytes = 0;
    for at in places(size, block) {
        read(&mut buffer, at);
        bytes += block;
        if clock.now_ns() > until_ns {
            break;
        }
    }
    bytes as f64 / 1e6 / ((clock.now_ns() - started_ns) as f64 / 1e9)
}

/// The same with `depth` reads in flight.
fn rate_in_flight(channel: &Channel, size: u64, block: usize, seconds: u64, depth: usize) -> f64 {
    let mut flying = std::collections::VecDeque::new();
    rate(size, block, seconds, |buffer, at| {
        flying.push_back(channel.start_read(at, block).expect("sent"));
        if flying.len() >= depth {
            let pending = flying.pop_front().expect("is full");
            pending.wait(buffer).expect("read");
        }
    })
}

/// The same with ranges by lists of `count`.
fn rate_of_lists(channel: &Channel, size: u64, block: usize, seconds: u64, count: usize) -> f64 {
    let mut list = Vec::new();
    rate(size, block, seconds, |_, at| {
        list.push((at, block));
        if list.len() == count {
            channel.read_list(&list).expect("read");
            list.clear();
        }
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let size_mib = arguments.next().unwrap_or(256);
    let seconds = arguments.next().unwrap_or(2) as u64;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("file");
    let block: Vec<u8> = (0..MIB).map(|i| ((i * 31) >> 3) as u8).collect();
    let file = std::fs::File::create_new(&path).expect("made");
    (0..size_mib).for_each(|i| file.write_all_at(&block, (i * MIB) as u64).expect("written"));
    let size = (size_mib * MIB) as u64;

    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let config = AreaConfig {
        name: "data".into(),
        path: directory.path().into(),
        read_only: true,
        owner: None,
        mounted_at: None,
    };
    let options = Options { name: "n1".into(), ..Options::default() };
    let area = AreaService::open(vec![config], options, Arc::clone(&clock)).expect("opens");
    let node = Arc::new(Node { area, address: Default::default() });
    let key = ClusterKey::insecure();
    let server_options = ServerOptions { threads: 2, key: key.clone(), name: "n1".into() };
    let server = Server::start("127.0.0.1:0", Arc::clone(&node) as _, server_options, Arc::clone(&clock));
    let server = server.expect("listens");
    let address = server.address().to_string();
    node.address.set(address.clone()).expect("once");
    let transport = TcpTransport::new(key, TransportOptions::default(), clock);
    let client = Client::open(transport, vec![address], Default::default()).expect("opens");
    let channel = client.area("n1", "data").open(b"file", &ChannelOptions::default()).expect("opens");

    let local = std::fs::File::open(&path).expect("opens");
    println!("file of {size_mib} MiB in the page cache, {seconds} s each, MB/s");
    println!("{:>10} {:>10} {:>10} {:>12} {:>10}", "block", "pread", "one", "8 in flight", "list of 8");
    for block in [512 * 1024, 32 * 1024] {
        let ceiling = rate(size, block, seconds, |buffer, at| {
            local.read_exact_at(buffer, at).expect("read");
        });
        let one = rate(size, block, seconds, |buffer, at| {
            assert_eq!(channel.read_at(buffer, at), Ok(block));
        });
        let eight = rate_in_flight(&channel, size, block, seconds, 8);
        let list = rate_of_lists(&channel, size, block, seconds, 8);
        println!("{:>7}KiB {ceiling:>10.0} {one:>10.0} {eight:>12.0} {list:>10.0}", block / 1024);
    }
}
