//! Methods and receiver against one another over real sockets, in one process.

mod bad_input;
mod batch;
mod conformance;
mod cuts;
mod ftp_endpoint;
mod ftp_servers;
mod probes;

use crate::control::{Control, Counts, Timeouts};
use crate::engine::Engines;
use crate::method::Method;
use crate::method::build::build;
use crate::outgoing::{Destination, Manner, Outgoing, Started, Surroundings, begin};
use crate::source::{FileSource, Source};
use crate::{Mover, Options};
use parking_lot::Mutex;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;
use vazao_area::{AreaConfig, AreaService};
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_testing::waiting::wait_until;
use vazao_wire::key::ClusterKey;
use vazao_wire::service::{Fault, Request, Responder, Service};
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};

/// Nothing in these tests takes longer than this unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A node's end waits this long for what is under way.
const END_NS_MAX: u64 = 5_000_000_000;

/// Every method, with the settings that change its course.
const METHODS: &[&str] = &[
    "auto",
    "blocking",
    "blocking:buffer=262144",
    "streams:4",
    "nonblocking",
    "rpc",
    "rpc:block=16384,window=3",
    "ftp",
];

struct Roles {
    area: Arc<AreaService>,
    mover: Arc<Mover>,
}

impl Service for Roles {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        match request.method.number() {
            0x0320.. => self.mover.handle(request, responder),
            _ => self.area.handle(request, responder),
        }
    }
}

/// What serves a node.
type Daemon = (Server, Arc<Mover>, Arc<AreaService>);

/// A node `n9` that receives into its area `in`, and what a sender needs.
struct World {
    directory: TempDir,
    clock: Arc<dyn Clock>,
    transport: Arc<TcpTransport>,
    node: Mutex<Option<Daemon>>,
    engines: Engines,
    copies_in_max: usize,
}

impl World {
    fn new() -> World {
        World::with(64)
    }

    fn with(copies_in_max: usize) -> World {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for name in ["in", "out", "own"] {
            std::fs::create_dir(directory.path().join(name)).expect("made");
        }
        let clock = vazao_meter::clock::system();
        let key = ClusterKey::insecure();
        let transport = TcpTransport::new(key, TransportOptions::default(), Arc::clone(&clock));
        let engines = Engines::new(Arc::clone(&clock));
        let world = World { directory, clock, transport, node: Mutex::new(None), engines, copies_in_max };
        world.start();
        world
    }

    fn start(&self) {
        let areas = vec![AreaConfig {
            name: "in".to_owned(),
            path: self.path("in"),
            read_only: false,
            owner: None,
            mounted_at: None,
        }];
        let options = vazao_area::Options { name: "n9".to_owned(), ..Default::default() };
        let area = AreaService::open(areas, options, Arc::clone(&self.clock)).expect("opens");
        let no_client = || Err(vazao_client::Error::new(Code::Unreachable, "no cluster"));
        let mut options = Options::new("n9", self.path("own"), "127.0.0.1:0");
        options.copies_in_max = self.copies_in_max;
        let mover =
            Mover::open(options, Arc::clone(&area), no_client, Arc::clone(&self.clock)).expect("opens");
        let roles = Arc::new(Roles { area: Arc::clone(&area), mover: Arc::clone(&mover) });
        let options = ServerOptions { threads: 2, key: ClusterKey::insecure(), name: "n9".to_owned() };
        let server = Server::start("127.0.0.1:0", roles, options, Arc::clone(&self.clock)).expect("listens");
        *self.node.lock() = Some((server, mover, area));
    }

    /// The receiving daemon ends, in order or not: what it has in memory is gone.
    fn restart(&self) {
        self.end();
        self.start();
    }

    fn end(&self) {
        let Some((mut server, mover, area)) = self.node.lock().take() else { return };
        server.stop();
        let until_ns = self.clock.now_ns() + END_NS_MAX;
        mover.close(until_ns);
        area.close(until_ns);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn address(&self) -> String {
        let node = self.node.lock();
        node.as_ref().map(|(server, ..)| server.address().to_string()).expect("runs")
    }

    fn to(&self, name: &str) -> Destination {
        let address = self.address();
        Destination { node: "n9".into(), address, area: "in".into(), path: name.as_bytes().to_vec() }
    }

    fn around(&self) -> Surroundings {
        self.around_with(Timeouts::default(), 0)
    }

    fn around_with(&self, timeouts: Timeouts, rate_bytes: u64) -> Surroundings {
        Surroundings {
            transport: Arc::clone(&self.transport) as _,
            clock: Arc::clone(&self.clock),
            control: Arc::new(Control::new(timeouts, rate_bytes)),
            counts: Arc::new(Counts::default()),
            node: "n1".to_owned(),
        }
    }

    fn source(&self, name: &str) -> Arc<dyn Source> {
        let path = self.path("out").join(name);
        let file = File::open(&path).expect("opened");
        Arc::new(FileSource::new(file, format!("n1:/out/{name}"), None).expect("a source"))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Arc<dyn Source> {
        std::fs::write(self.path("out").join(name), bytes).expect("written");
        self.source(name)
    }

    fn arrived(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path("in").join(name)).ok()
    }

    /// Names in the area, hidden ones too.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("in")).expect("listed");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// Sends all blocks by a method and waits for the end of it.
    fn send(&self, method: &str, copy: &Arc<Outgoing>) -> Result<(), Fault> {
        let method: Method = method.parse().expect("a method");
        let (sender, receiver) = channel();
        let done = move |outcome| sender.send(outcome).expect("is awaited");
        build(method, &self.engines).start(Arc::clone(copy), Box::new(done));
        receiver.recv_timeout(TIMEOUT).expect("ends")
    }

    /// A whole copy.
    fn copy(&self, method: &str, source: Arc<dyn Source>, name: &str) -> Result<Surroundings, Fault> {
        let around = self.around();
        match begin(source, around.clone(), self.to(name), Manner::default())? {
            Started::Complete => {}
            Started::Ready(copy) => {
                self.send(method, &copy)?;
                copy.end()?;
            }
        }
        Ok(around)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end();
    }
}

/// Bytes that differ everywhere, the same in every run.
fn noise(length: usize) -> Vec<u8> {
    use rand::{RngExt, SeedableRng};
    let mut bytes = vec![0; length];
    rand::rngs::StdRng::seed_from_u64(length as u64).fill(&mut bytes[..]);
    bytes
}
