//! psplit and the benchmark over a real volume: servers in this process, real sockets, a temporary directory; tiny
//! amounts, so that what measures is itself run by every test run.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its cluster has failed")]

use clap::Parser;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vazao_client::Client;
use vazao_disk::{Disk, RealDisk};
use vazao_lab::{Command, Context};
use vazao_meta::{MetaOptions, MetaService};
use vazao_meter::clock;
use vazao_store::DataService;
use vazao_wire::key::ClusterKey;
use vazao_wire::service::Service;
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};

const DATA_SERVERS: usize = 2;
const REGISTER_NS_MAX: u64 = 10_000_000_000;

/// A metadata service and its data servers.
struct Cluster {
    address: String,
    meta: Arc<MetaService>,
    data: Vec<Arc<DataService>>,
    servers: Vec<Server>,
    stopping: Arc<AtomicBool>,
    ticking: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

fn transport() -> Arc<TcpTransport> {
    TcpTransport::new(ClusterKey::insecure(), TransportOptions::default(), clock::system())
}

fn disk(directory: &tempfile::TempDir, name: &str) -> Arc<dyn Disk> {
    let path = directory.path().join(name);
    std::fs::create_dir(&path).unwrap();
    Arc::new(RealDisk::open(&path).unwrap())
}

fn serve(listen: &str, service: Arc<dyn Service>) -> Server {
    let options = ServerOptions { threads: 1, key: ClusterKey::insecure(), name: "test".to_owned() };
    Server::start(listen, service, options, clock::system()).unwrap()
}

/// The metadata service wants its address before it serves: a port that was free a moment ago.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

impl Cluster {
    fn start() -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let address = free_address();
        let options = MetaOptions { address: address.clone(), ..MetaOptions::default() };
        let meta = MetaService::open(disk(&directory, "meta"), options, clock::system()).unwrap();
        let mut servers = vec![serve(&address, Arc::clone(&meta) as Arc<dyn Service>)];
        let mut data = Vec::new();
        for number in 0..DATA_SERVERS {
            let name = format!("data-{number}");
            let options = vazao_store::Options { name: name.clone(), ..Default::default() };
            let disks = vec![(disk(&directory, &name), name)];
            let service = DataService::open(disks, options, clock::system()).unwrap();
            let server = serve("127.0.0.1:0", Arc::clone(&service) as Arc<dyn Service>);
            service.set_address(&server.address().to_string());
            let deadline_ns = clock::system().now_ns() + REGISTER_NS_MAX;
            service.heartbeat(&*transport(), &address, deadline_ns).unwrap();
            servers.push(server);
            data.push(service);
        }
        let stopping = Arc::new(AtomicBool::new(false));
        let ticking = Some(tick(Arc::clone(&meta), data.clone(), Arc::clone(&stopping)));
        Cluster { address, meta, data, servers, stopping, ticking, _directory: directory }
    }

    fn client(&self) -> Client {
        Client::open(transport(), vec![self.address.clone()], vazao_client::Options::default()).unwrap()
    }

    /// Runs a command of the laboratory against this cluster; what it printed.
    fn run(&self, line: &str) -> Result<String, vazao_lab::Error> {
        let command =
            CommandLine::try_parse_from(std::iter::once("lab").chain(line.split(' '))).unwrap().command;
        let connect = || Ok(self.client());
        let mut output = Vec::new();
        vazao_lab::run(
            command,
            &mut Context {
                clock: clock::system(),
                connect: &connect,
                stop: Default::default(),
                output: &mut output,
            },
        )?;
        Ok(String::from_utf8(output).unwrap())
    }
}

/// Background work, as the daemon has it done: objects of removed files go away.
fn tick(meta: Arc<MetaService>, data: Vec<Arc<DataService>>, stopping: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let transport = transport();
        while !stopping.load(Ordering::SeqCst) {
            meta.tick(&*transport);
            data.iter().for_each(|service| service.tick());
            clock::system().sleep(Duration::from_millis(50));
        }
    })
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.ticking.take().map(JoinHandle::join);
        self.servers.iter_mut().for_each(Server::stop);
        self.data.iter().for_each(|service| assert!(service.close(), "its disks answer"));
        let _ = self.meta.close();
    }
}

#[derive(Parser)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

fn entries_at_root(cluster: &Cluster) -> usize {
    let client = cluster.client();
    let page = client.list(vazao_model::ids::ROOT, 0, 100, false).unwrap();
    client.close().unwrap();
    page.entries.len()
}

#[test]
fn psplit_measures_the_library_and_a_local_directory_in_turns() {
    let cluster = Cluster::start();
    let local = tempfile::tempdir().unwrap();
    for mode in ["read", "split", "generate"] {
        let place = local.path().display();
        let line = format!(
            "psplit {mode} vz:/ {place} --threads 1,4 --block 64K,1M --total 3000001 --repeat 2 --json -"
        );
        let results: vazao_lab::psplit::Results = serde_json::from_str(&cluster.run(&line).unwrap()).unwrap();
        assert_eq!(results.runs.len(), 2 * 2 * 2 * 2);
        for run in &results.runs {
            assert_eq!(
                (run.bytes, run.errors.as_slice()),
                (3_000_001, [].as_slice()),
                "{mode} {}",
                run.place
            );
        }
        assert!(results.unwatched_servers.is_empty(), "{:?}", results.unwatched_servers);
    }
    assert_eq!(entries_at_root(&cluster), 0, "psplit leaves nothing behind");
}

#[test]
fn psplit_verifies_while_reading_and_syncs_through_the_library() {
    let cluster = Cluster::start();
    let line = "psplit split vz:/ --threads 2 --block 4K --total 200K --repeat 1 --verify during --sync";
    let printed = cluster.run(line).unwrap();
    assert!(
        printed.contains("compared while reading") && printed.contains("synced within the time"),
        "{printed}"
    );
}

#[test]
fn the_benchmark_runs_all_its_parts_and_prints_goals() {
    let cluster = Cluster::start();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("bench.json").display().to_string();
    let printed = cluster.run(&format!("bench --scale small --repeat 2 --json {json}")).unwrap();
    for row in [
        "raw TCP stream",
        "library read, 1 thread",
        "library write, 8 threads",
        "creates",
        "lookups, 8",
        "listing",
    ] {
        assert!(printed.contains(row), "{row} is missing in\n{printed}");
    }
    assert_eq!(cluster.run(&format!("report {json}")).unwrap(), printed);
    assert_eq!(entries_at_root(&cluster), 0, "the benchmark leaves nothing behind");
}

#[test]
fn a_directory_of_the_volume_that_is_not_there_is_named() {
    let cluster = Cluster::start();
    for line in ["psplit read vz:/nowhere --total 1K", "bench vz:/nowhere --scale small"] {
        let error = cluster.run(line).unwrap_err().to_string();
        assert!(error.contains("vz:/nowhere") && error.contains("no such file"), "{error}");
    }
}
