//! A connection that is cut in every phase of a write: nothing is lost, and the writer does not notice.

use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use vazao_client::{Client, File, NewInode, OpenMode, Options};
use vazao_disk::MemoryDisk;
use vazao_meta::{MetaOptions, MetaService};
use vazao_model::ids::ROOT;
use vazao_store::DataService;
use vazao_wire::key::ClusterKey;
use vazao_wire::service::Service;
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};
use vazao_wire::transport::Transport;

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// Where the next cut is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    is_to_server: bool,
    after_bytes: u64,
}

type Plan = Arc<Mutex<Option<Cut>>>;

/// A way to `server` that is cut as planned, once for each plan. Returns its address.
fn proxy(server: String, plan: Plan) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (Ok(near), Ok(far)) = (near, TcpStream::connect(&server)) else { return };
            for is_to_server in [true, false] {
                let ends = (near.try_clone().expect("cloned"), far.try_clone().expect("cloned"));
                let (from, to) = if is_to_server { ends } else { (ends.1, ends.0) };
                let plan = Arc::clone(&plan);
                std::thread::spawn(move || pump(from, to, is_to_server, &plan));
            }
        }
    });
    address
}

fn pump(mut from: TcpStream, mut to: TcpStream, is_to_server: bool, plan: &Plan) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let (mut forward, mut is_cut) = (length, false);
        {
            let mut plan = plan.lock();
            if let Some(cut) = plan.as_mut().filter(|cut| cut.is_to_server == is_to_server) {
                forward = length.min(cut.after_bytes as usize);
                cut.after_bytes -= forward as u64;
                is_cut = cut.after_bytes == 0;
            }
            if is_cut {
                *plan = None;
            }
        }
        if to.write_all(&buffer[..forward]).is_err() || is_cut {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

struct Cluster {
    transport: Arc<TcpTransport>,
    meta_address: String,
    plan: Plan,
    _servers: Vec<Server>,
}

impl Cluster {
    fn start() -> Cluster {
        let clock = vazao_meter::clock::system();
        let key = ClusterKey::generate().expect("randomness");
        let mut servers = Vec::new();
        let mut serve = |service: Arc<dyn Service>, name: &str| {
            let options = ServerOptions { threads: 1, key: key.clone(), name: name.to_owned() };
            let server =
                Server::start("127.0.0.1:0", service, options, Arc::clone(&clock)).expect("a free port");
            let address = server.address().to_string();
            servers.push(server);
            address
        };
        let meta =
            MetaService::open(Arc::new(MemoryDisk::new(1)), MetaOptions::default(), Arc::clone(&clock));
        let meta_address = serve(meta.expect("a new volume") as Arc<dyn Service>, "meta");
        let disks = vec![(Arc::new(MemoryDisk::new(2)) as _, "disk".to_owned())];
        let options = vazao_store::Options { reserve_bytes: Some(0), ..vazao_store::Options::default() };
        let data = DataService::open(disks, options, Arc::clone(&clock)).expect("a new target");
        let plan = Plan::default();
        data.set_address(&proxy(serve(Arc::clone(&data) as Arc<dyn Service>, "data"), Arc::clone(&plan)));
        let transport = TcpTransport::new(key.clone(), TransportOptions::default(), Arc::clone(&clock));
        let deadline_ns = transport.clock().now_ns() + 5_000_000_000;
        data.heartbeat(&*transport, &meta_address, deadline_ns).expect("it joins");
        Cluster { transport, meta_address, plan, _servers: servers }
    }

    fn client(&self) -> Client {
        let options = Options { connections_max: 1, short_circuit: false, ..Options::default() };
        let transport = Arc::clone(&self.transport) as Arc<dyn Transport>;
        Client::open(transport, vec![self.meta_address.clone()], options).expect("the cluster runs")
    }
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 7) as u8 ^ seed as u8).collect()
}

fn whole(file: &File, length: usize) -> Vec<u8> {
    let mut found = vec![0; length];
    assert_eq!(file.read_at(&mut found, 0).expect("is whole"), length);
    found
}

#[test]
fn a_connection_cut_in_any_phase_of_a_write_or_a_sync_costs_a_repetition_and_no_byte() {
    const LENGTH: usize = 600_000;
    let cluster = Cluster::start();
    let client = cluster.client();
    let new = NewInode { mode: 0o600, ..Default::default() };
    let inode = client.create(ROOT, b"f", &new).expect("the cluster runs").inode;
    let file = client.open_file(inode, MODE).expect("the cluster runs");
    file.write_at(&pattern(0, LENGTH), 0).expect("fair weather");
    file.sync().expect("fair weather");
    let to_server = |after_bytes| Cut { is_to_server: true, after_bytes };
    let to_client = |after_bytes| Cut { is_to_server: false, after_bytes };
    // In the header, in the message, in the attachment, right before its end; before the answer and within it.
    let cuts = [1, 31, 33, 60, 5_000, 130_000, 262_144, 500_000].map(to_server);
    let cuts = cuts.into_iter().chain([1, 20, 40].map(to_client));
    for (seed, cut) in (1..).zip(cuts) {
        let bytes = pattern(seed, LENGTH);
        *cluster.plan.lock() = Some(cut);
        file.write_at(&bytes, 0).unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        file.flush().unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        assert_eq!(*cluster.plan.lock(), None, "{cut:?} took place");
        file.sync().unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        assert!(whole(&file, LENGTH) == bytes, "{cut:?}");
        let other = cluster.client().open_file(inode, MODE).expect("the cluster runs");
        assert!(whole(&other, LENGTH) == bytes, "{cut:?}: from elsewhere");
    }
    for (seed, cut) in (50..).zip([to_server(1), to_server(40), to_client(1), to_client(30)]) {
        let bytes = pattern(seed, LENGTH);
        file.write_at(&bytes, 0).expect("fair weather");
        file.flush().expect("fair weather");
        *cluster.plan.lock() = Some(cut);
        file.sync().unwrap_or_else(|error| panic!("{cut:?} in the sync: {error}"));
        assert_eq!(*cluster.plan.lock(), None, "{cut:?} took place");
        assert!(whole(&file, LENGTH) == bytes, "{cut:?} in the sync");
    }
}
