//! A cluster within the test's process, over TCP on loopback, and mounts of its volume that never outlive a test.

use crate::watcher::Watcher;
use parking_lot::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use vazao_client::{Client, Options};
use vazao_disk::{Disk, RealDisk};
use vazao_fuse::{Mount, MountError, MountOptions, Uring};
use vazao_meta::{MetaOptions, MetaService};
use vazao_meter::Clock;
use vazao_model::VolumePath;
use vazao_store::DataService;
use vazao_testing::addresses::own_host;
use vazao_wire::key::ClusterKey;
use vazao_wire::service::Service;
use vazao_wire::tcp::{Server, ServerOptions, TcpTransport, TransportOptions};

const DATA_SERVERS: usize = 3;
const HEARTBEAT_TICKS: u64 = 20;
const TICK: Duration = Duration::from_millis(100);
const BUSY_NS_MAX: u64 = 3_000_000_000;

/// Set to 1 on a machine where FUSE cannot be used; the tests of mounts then say so and check nothing.
const NO_FUSE: &str = "VAZAO_TEST_NO_FUSE";

/// Set to `on` the tests of mounts run with requests over io_uring, and fail where the kernel does not offer it.
const TRANSPORT: &str = "VAZAO_TEST_URING";

/// Which way the requests of the mounts under test come: the same on every machine unless told otherwise.
pub(crate) fn wanted_transport() -> Uring {
    match std::env::var_os(TRANSPORT).is_some_and(|value| value == "on") {
        true => Uring::On,
        false => Uring::Off,
    }
}

/// True when mounts can be tested. Without a device it is false only where the environment says that this is known.
pub(crate) fn has_fuse() -> bool {
    if std::env::var_os(NO_FUSE).is_some_and(|value| value == "1") {
        eprintln!("{NO_FUSE}=1: mounts are not tested");
        return false;
    }
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        panic!("/dev/fuse: {error}; mounts cannot be tested here; {NO_FUSE}=1 leaves these tests out");
    }
    true
}

/// A running cluster.
pub(crate) struct Cluster {
    transport: Arc<TcpTransport>,
    meta: Arc<MetaService>,
    data: Vec<Arc<DataService>>,
    key: ClusterKey,
    /// The metadata service's, then those of the data servers.
    servers: Mutex<Vec<Server>>,
    meta_address: String,
    stopping: Arc<AtomicBool>,
    ticking: Option<JoinHandle<()>>,
    directory: TempDir,
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    std::fs::create_dir_all(path).expect("the test's directory is writable");
    Arc::new(RealDisk::open(path).expect("just created"))
}

impl Cluster {
    /// One metadata service on the embedded engine and some data servers.
    pub(crate) fn start() -> Cluster {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let clock = vazao_meter::clock::system();
        let key = ClusterKey::generate().expect("randomness");
        let mut servers = Vec::new();
        let mut serve = |service: Arc<dyn Service>, name: &str| {
            let options = ServerOptions { threads: 1, key: key.clone(), name: name.to_owned() };
            let any = format!("{}:0", own_host());
            let server = Server::start(&any, service, options, Arc::clone(&clock)).expect("a free port");
            let address = server.address().to_string();
            servers.push(server);
            address
        };
        let meta_disk = disk(&directory.path().join("meta"));
        let meta =
            MetaService::open(meta_disk, MetaOptions::default(), Arc::clone(&clock)).expect("a new volume");
        let meta_address = serve(Arc::clone(&meta) as Arc<dyn Service>, "meta");
        let data: Vec<Arc<DataService>> = (0..DATA_SERVERS)
            .map(|number| {
                let name = format!("data{number}");
                let disks = vec![(disk(&directory.path().join(&name)), name.clone())];
                let options = vazao_store::Options { name: name.clone(), ..vazao_store::Options::default() };
                let service = DataService::open(disks, options, Arc::clone(&clock)).expect("a new target");
                service.set_address(&serve(Arc::clone(&service) as Arc<dyn Service>, &name));
                service
            })
            .collect();
        let transport = TcpTransport::new(key.clone(), TransportOptions::default(), Arc::clone(&clock));
        let stopping = Arc::new(AtomicBool::new(false));
        let servers = Mutex::new(servers);
        let mut cluster =
            Cluster { transport, meta, data, key, servers, meta_address, stopping, ticking: None, directory };
        cluster.beat();
        cluster.ticking = Some(cluster.tick(clock));
        cluster
    }

    fn beat(&self) {
        use vazao_wire::transport::Transport;
        let deadline_ns = self.transport.clock().now_ns() + 5_000_000_000;
        for data in &self.data {
            data.heartbeat(&*self.transport, &self.meta_address, deadline_ns)
                .expect("the metadata service answers");
        }
    }

    fn tick(&self, clock: Arc<dyn Clock>) -> JoinHandle<()> {
        let meta_address = self.meta_address.clone();
        let (meta, data) = (Arc::clone(&self.meta), self.data.clone());
        let (transport, stopping) = (Arc::clone(&self.transport), Arc::clone(&self.stopping));
        std::thread::spawn(move || {
            for tick in 1.. {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                clock.sleep(TICK);
                meta.tick(&*transport);
                data.iter().for_each(|data| data.tick());
                if tick % HEARTBEAT_TICKS == 0 {
                    let deadline_ns = clock.now_ns() + 5_000_000_000;
                    for data in &data {
                        let _ = data.heartbeat(&*transport, &meta_address, deadline_ns);
                    }
                }
            }
        })
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Server>> {
        self.servers.lock()
    }

    /// A server stops answering; number 0 is the metadata service, the others are data servers.
    pub(crate) fn stop_server(&self, number: usize) {
        self.servers()[number].stop();
    }

    /// It answers again where it did before: at an address of this process alone, so that its port is free.
    pub(crate) fn start_server(&self, number: usize) {
        let address = self.servers()[number].address().to_string();
        let service: Arc<dyn Service> = match number {
            0 => Arc::clone(&self.meta) as _,
            _ => Arc::clone(&self.data[number - 1]) as _,
        };
        let options = ServerOptions { threads: 1, key: self.key.clone(), name: format!("again{number}") };
        let started = Server::start(&address, service, options, vazao_meter::clock::system());
        self.servers()[number] = started.expect("the port is free again");
    }

    /// Where in a file the stripe units of data server `number` begin.
    pub(crate) fn offsets_on_server(&self, number: usize, inode: u64) -> Vec<u64> {
        let client = self.client();
        let inode = vazao_model::InodeId(inode);
        let layout = client.layout(inode).expect("the cluster runs").expect("the file is striped");
        let length = client.attributes(inode).expect("the cluster runs").size;
        let targets = self.data[number - 1].target_ids();
        let unit_bytes = layout.distribution.strip_bytes_max();
        let map = client.map();
        let group = |unit: &u64| layout.groups[(unit % layout.groups.len() as u64) as usize];
        let is_there = |unit: &u64| map.members(group(unit)).iter().any(|member| targets.contains(member));
        (0..length / unit_bytes).filter(is_there).map(|unit| unit * unit_bytes).collect()
    }

    /// The files with the bytes of all objects, or of those of an inode.
    pub(crate) fn objects(&self, inode: Option<u64>) -> Vec<PathBuf> {
        let of_server =
            |n| ["objects", "groups"].map(|of| self.directory.path().join(format!("data{n}/{of}")));
        let mut directories: Vec<PathBuf> = (0..DATA_SERVERS).flat_map(of_server).collect();
        let start = inode.map(|inode| format!("{inode:016x}.")).unwrap_or_default();
        let mut objects = Vec::new();
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    directories.push(entry.path());
                } else if name.starts_with(&start) && name.ends_with(".data") {
                    objects.push(entry.path());
                }
            }
        }
        objects
    }

    /// Storage that all objects' bytes take on the data servers' disks.
    pub(crate) fn stored_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        // Objects may be removed while this looks.
        let sizes = self.objects(None).into_iter().filter_map(|path| std::fs::metadata(path).ok());
        sizes.map(|metadata| metadata.blocks() * 512).sum()
    }

    /// Requests that the metadata service has answered so far, but for those that keep sessions going.
    pub(crate) fn requests(&self) -> u64 {
        let mut page = vazao_meter::Exposition::new();
        self.meta.expose(&mut page);
        let text = page.finish();
        let counts = text.lines().filter(|line| line.starts_with("vazao_meta_request_seconds_count"));
        let looks = counts.filter(|line| line.contains("Lookup") || line.contains("GetAttributes"));
        looks.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }

    /// Requests of one method that the data servers have finished.
    pub(crate) fn finished(&self, method: &str) -> u64 {
        let start = format!("vazao_data_requests_total{{method=\"{method}\"}} ");
        let count = |service: &Arc<DataService>| {
            let mut metrics = vazao_meter::Exposition::new();
            service.expose(&mut metrics);
            let line =
                metrics.finish().lines().find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok());
            line.unwrap_or(0)
        };
        self.data.iter().map(count).sum()
    }

    /// A new session with the volume.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Options::default())
    }

    fn client_with(&self, options: Options) -> Client {
        let transport = Arc::clone(&self.transport) as _;
        Client::open(transport, vec![self.meta_address.clone()], options).expect("the cluster runs")
    }

    /// Mounts the volume's root.
    pub(crate) fn mount(&self) -> Mounted {
        self.mount_with(MountOptions::default())
    }

    /// Mounts a directory of the volume.
    pub(crate) fn mount_path(&self, path: &str) -> Mounted {
        let path = VolumePath::parse(path.as_bytes()).expect("valid");
        self.mount_with(MountOptions { path, ..MountOptions::default() })
    }

    pub(crate) fn mount_with(&self, options: MountOptions) -> Mounted {
        self.mount_client(self.client(), options)
    }

    /// Mounts the volume's root with another deadline of each call.
    pub(crate) fn mount_with_deadline(&self, deadline_ms: u32) -> Mounted {
        let client = self.client_with(Options { deadline_ms, ..Options::default() });
        self.mount_client(client, MountOptions::default())
    }

    fn mount_client(&self, client: Client, options: MountOptions) -> Mounted {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = MountOptions { uring: wanted_transport(), ..options };
        let mount = vazao_fuse::mount(client, directory.path(), options).expect("mountable");
        let _watcher = Watcher::start(directory.path());
        Mounted { mount, directory: Some(directory), _watcher }
    }

    /// Space outside of any mount, on the same disk as the cluster.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join("outside").join(name);
        std::fs::create_dir_all(&path).expect("writable");
        path
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(ticking) = self.ticking.take() {
            let _ = ticking.join();
        }
        self.servers().iter_mut().for_each(Server::stop);
        self.data.iter().for_each(|data| assert!(data.close(), "its disks answer"));
        let _ = self.meta.close();
    }
}

/// A mount that is taken away when the test ends, whichever way it ends.
pub(crate) struct Mounted {
    pub(crate) mount: Mount,
    directory: Option<TempDir>,
    _watcher: Watcher,
}

impl Mounted {
    /// A path in the mount.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.as_ref().expect("there until it is dropped").path()
    }

    /// Unmounts in order; fails when something in it is still open.
    ///
    /// A program that another test is starting at this moment has this one's descriptors too, until it is executed:
    /// hence the timeout.
    pub(crate) fn unmount(self) {
        let clock = vazao_meter::clock::system();
        let deadline_ns = clock.now_ns() + BUSY_NS_MAX;
        loop {
            match self.mount.unmount() {
                Err(MountError::Busy(_)) if clock.now_ns() < deadline_ns => clock.sleep(TICK),
                Err(error) => panic!("{error}; open in it: {:?}", open_beneath(self.root())),
                Ok(()) => break,
            }
        }
        self.mount.wait().expect("everything could be stored");
    }
}

/// The descriptors of all processes, as `/proc` names them, that lead beneath `root`, each with where to.
fn open_beneath(root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let entries = |directory: PathBuf| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let descriptors = entries("/proc".into()).flat_map(|process| entries(process.path().join("fd")));
    let opened = descriptors.filter_map(|descriptor| {
        let target = std::fs::read_link(descriptor.path()).ok()?;
        target.starts_with(root).then(|| (descriptor.path(), target))
    });
    opened.collect()
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An unmounted one says NotMounted here.
        let _ = self.mount.detach();
        if let Some(directory) = self.directory.take()
            && std::fs::remove_dir(directory.path()).is_err()
        {
            // Never walk into a mount that would not go away: removing the directory would remove the volume's files.
            let _ = directory.keep();
        }
    }
}

/// Runs the test's body with a cluster, unless this machine is known to have no FUSE.
pub(crate) fn with_cluster(body: impl FnOnce(&Cluster)) {
    if has_fuse() {
        body(&Cluster::start());
    }
}

/// Runs the test's body in a mount of a new volume.
pub(crate) fn with_mount(body: impl FnOnce(&Mounted)) {
    with_cluster(|cluster| {
        let mounted = cluster.mount();
        body(&mounted);
        mounted.unmount();
    });
}

/// errno of an error.
pub(crate) fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    let error = result.expect_err("it must fail");
    rustix::io::Errno::from_io_error(&error).unwrap_or_else(|| panic!("{error} has no errno"))
}
