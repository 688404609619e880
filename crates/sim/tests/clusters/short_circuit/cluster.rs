//! A metadata service and a data server in this process, on real files, over loopback, with an open door.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use vazao_client::{Client, NewInode, OpenMode, Options};
use vazao_disk::{Disk, RealDisk};
use vazao_meta::{MetaOptions, MetaService};
use vazao_model::InodeId;
use vazao_model::ids::ROOT;
use vazao_store::DataService;
use vazao_wire::key::ClusterKey;
use vazao_wire::local::LocalServer;
use vazao_wire::service::Service;
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};

/// A client gives up after this long: tests of a server that is gone wait for it.
const DEADLINE_MS: u32 = 1_500;

pub(crate) struct Cluster {
    pub(crate) data: Arc<DataService>,
    pub(crate) door: LocalServer,
    pub(crate) data_server: Server,
    meta_server: Server,
    key: ClusterKey,
    directory: TempDir,
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    std::fs::create_dir_all(path).expect("the test's directory is writable");
    Arc::new(RealDisk::open(path).expect("just created"))
}

impl Cluster {
    /// With `targets` directories in the data server.
    pub(crate) fn start(targets: usize) -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let clock = vazao_meter::clock::system();
        let key = ClusterKey::generate().expect("randomness");
        let serve = |service: Arc<dyn Service>, name: &str| {
            let options = ServerOptions { threads: 1, key: key.clone(), name: name.to_owned() };
            Server::start("127.0.0.1:0", service, options, Arc::clone(&clock)).expect("a free port")
        };
        let meta_disk = disk(&directory.path().join("meta"));
        let meta = MetaService::open(meta_disk, MetaOptions::default(), Arc::clone(&clock)).expect("opens");
        let meta_server = serve(meta, "meta");
        let disks =
            (0..targets).map(|n| (disk(&directory.path().join(format!("target{n}"))), format!("t{n}")));
        let options = vazao_store::Options { reserve_bytes: Some(0), ..vazao_store::Options::default() };
        let data = DataService::open(disks.collect(), options, Arc::clone(&clock)).expect("a new target");
        let data_server = serve(Arc::clone(&data) as Arc<dyn Service>, "data");
        data.set_address(&data_server.address().to_string());
        let transport = TcpTransport::new(key.clone(), TransportOptions::default(), Arc::clone(&clock));
        let deadline_ns = clock.now_ns() + 5_000_000_000;
        let meta_address = meta_server.address().to_string();
        data.heartbeat(&*transport, &meta_address, deadline_ns).expect("registers");
        let door = LocalServer::open(Arc::clone(&data) as _, key.clone(), clock).expect("abstract sockets");
        data.announce_door(door.announcement());
        Cluster { data, door, data_server, meta_server, key, directory }
    }

    pub(crate) fn client(&self, short_circuit: bool) -> Client {
        let clock = vazao_meter::clock::system();
        let transport = TcpTransport::new(self.key.clone(), TransportOptions::default(), clock);
        let options = Options { short_circuit, deadline_ms: DEADLINE_MS, ..Options::default() };
        Client::open(transport, vec![self.meta_server.address().to_string()], options).expect("opens")
    }

    /// All data files (`data`) or all sidecars (`sums`).
    pub(crate) fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories = vec![self.directory.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).expect("readable").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == suffix) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// Flips a bit of the only data file or sidecar, past the server and the clients.
    pub(crate) fn flip(&self, suffix: &str, offset: u64) {
        let files = self.files(suffix);
        assert_eq!(files.len(), 1, "{files:?}");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&files[0]).expect("opens");
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("is there");
        file.write_all_at(&[byte[0] ^ 0x10], offset).expect("written");
    }
}

pub(crate) const READ_WRITE: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// A new file with these bytes, flushed.
pub(crate) fn create(client: &Client, name: &str, bytes: &[u8]) -> (InodeId, vazao_client::File) {
    let new = NewInode { mode: 0o644, ..NewInode::default() };
    let (attributes, file) = client.create_file(ROOT, name.as_bytes(), &new, true).expect("creates");
    file.write_at(bytes, 0).expect("writes");
    file.flush().expect("flushes");
    (attributes.inode, file)
}

/// Bytes read past servers and through them, so far.
pub(crate) fn bytes_by_way(client: &Client) -> (u64, u64) {
    let servers = client.statistics().servers;
    let local = servers.iter().map(|server| server.bytes_local).sum();
    (local, servers.iter().map(|server| server.bytes_read).sum())
}
