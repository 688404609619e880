//! A mount: attached, served by its threads, detached.

mod attach;
mod mountpoint;
mod progress;
mod transport;

pub use attach::Detach;
pub use progress::{Progress, Stage};

use crate::areas::Areas;
use crate::filesystem::FileSystem;
use crate::interrupts::Interrupts;
use crate::kernel::abi::ROOT_NODE;
use crate::kernel::device::{Device, DeviceError};
use crate::kernel::handshake::Trial;
use crate::kernel::in_flight::InFlight;
use crate::kernel::locks::LockWaiters;
use crate::kernel::nodes::Nodes;
use crate::kernel::serve::{Server, Timeouts};
use crate::kernel_cache::mappings::Mappings;
use crate::kernel_cache::notices::Notices;
use crate::kernel_cache::readdirplus::ReaddirplusPolicies;
use crate::kernel_cache::second_walks::SecondWalks;
use crate::kernel_cache::told::Told;
use crate::null::Null;
use crate::single::{Single, SingleFile};
use mountpoint::{FILE_SYSTEM_TYPE, State};

use crate::volume::VolumeFilesystem;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use vazao_client::{Client, Listener};
use vazao_model::limits::CACHE_LEASE_MS;
use vazao_model::{FileKind, InodeId, VolumePath};

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The volume's name, shown in `/proc/mounts` in front of the path.
    pub volume: String,
    /// The directory of the volume that becomes the mount's root.
    pub path: VolumePath,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permission bits. Without it every user that reaches the mount may do everything.
    pub default_permissions: bool,
    /// Refuses every change.
    pub read_only: bool,
    /// What `/proc/mounts` shows as its source; `None`: volume and path.
    pub source: Option<String>,
    /// Programs in it cannot be started.
    pub no_programs: bool,
    /// Shown to the kernel as mount(8)'s `noatime`; reading sets no access times in any case.
    pub no_access_times: bool,
    /// Every write is followed by an fsync.
    pub synchronous: bool,
    /// Set-user-id and set-group-id bits of programs take effect. Only root may ask for it.
    pub set_id: bool,
    /// Device inodes open the devices. Only root may ask for it.
    pub devices: bool,
    /// Threads that answer the kernel: as many requests as may wait for servers at once.
    pub threads: usize,
    /// How long the kernel may believe attributes: no longer than their lease anyhow.
    pub attribute_timeout: Duration,
    /// How long the kernel may believe names, and that there are none.
    pub entry_timeout: Duration,
    /// Largest read or write request. The kernel cuts it to `/proc/sys/fs/fuse/max_pages_limit` pages.
    pub request_bytes_max: u32,
    /// How far the kernel reads ahead of a sequential reader. More than 128 KiB only when root mounts.
    pub read_ahead_bytes: u32,
    /// Whether requests come over io_uring.
    pub uring: Uring,
    /// What is different for a measurement.
    pub trial: Trial,
}

/// Whether requests come over io_uring, which Linux offers from 6.14 on where the `fuse` module's parameter
/// `enable_uring` is set, or over the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Uring {
    /// Where it is offered.
    #[default]
    Auto,
    /// Mounting fails where it is not offered.
    On,
    /// Never.
    Off,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            volume: "vz".to_owned(),
            path: VolumePath::default(),
            allow_other: false,
            default_permissions: true,
            read_only: false,
            source: None,
            no_programs: false,
            no_access_times: false,
            synchronous: false,
            set_id: false,
            devices: false,
            threads: 48,
            attribute_timeout: Duration::from_millis(u64::from(CACHE_LEASE_MS)),
            entry_timeout: Duration::from_millis(u64::from(CACHE_LEASE_MS)),
            request_bytes_max: 1024 * 1024,
            read_ahead_bytes: 1024 * 1024,
            uring: Uring::Auto,
            trial: Trial::default(),
        }
    }
}

/// Why mounting or unmounting failed, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is nothing at the mountpoint.
    #[error("{0}: no such directory; create it first: mkdir -p {0}")]
    Missing(PathBuf),
    /// A file is at the mountpoint.
    #[error("{0}: not a directory; mount on an empty directory")]
    NotDirectory(PathBuf),
    /// The mountpoint has entries, which the mount would hide.
    #[error("{0}: directory not empty, and mounting would hide what is in it; use an empty directory")]
    NotEmpty(PathBuf),
    /// Something is mounted there.
    #[error("{0}: {1} is already mounted here; use another directory, or unmount it first: vazao umount {0}")]
    AlreadyMounted(PathBuf, String),
    /// The process behind a mount there is gone.
    #[error("{0}: a mount whose process is gone is in the way; remove it: vazao umount {0}")]
    Dead(PathBuf),
    /// No FUSE here.
    #[error(
        "/dev/fuse is missing; load the kernel module (modprobe fuse), or give the container the device (--device /dev/fuse)"
    )]
    NoDevice,
    /// The user may not mount.
    #[error(
        "not permitted to mount ({0}); mount as root, or install fuse3 and let others open /dev/fuse; a container needs CAP_SYS_ADMIN"
    )]
    NotPermitted(String),
    /// Not root, and no helper.
    #[error("fusermount3 is not installed, and without it only root can mount; install the package fuse3")]
    NoHelper,
    /// `allow_other` by an ordinary user.
    #[error(
        "allow_other is reserved to root here; add the line user_allow_other to /etc/fuse.conf, or leave the option away"
    )]
    AllowOtherNotPermitted,
    /// Something uses the mount.
    #[error(
        "{0}: in use; close the files and leave the directories below it (fuser -vm {0} lists who), then try again"
    )]
    Busy(PathBuf),
    /// Nothing of ours is mounted there.
    #[error("{0}: nothing is mounted here")]
    NotMounted(PathBuf),
    /// Another file system is mounted there.
    #[error("{0}: not a vazao mount but {1}; use umount")]
    OtherFileSystem(PathBuf, String),
    /// The path of the volume cannot be the root of a mount.
    #[error("cannot mount {0}: {1}")]
    Root(String, vazao_client::Error),
    /// The mount system call, or its helper, failed.
    #[error("{0}: mounting or unmounting failed: {1}")]
    Attach(PathBuf, String),
    /// The mountpoint could not be looked at.
    #[error("{0}: {1}")]
    Mountpoint(PathBuf, io::Error),
    /// The conversation with the kernel failed.
    #[error("/dev/fuse: {0}")]
    Device(io::Error),
    /// Requests over io_uring were demanded.
    #[error("no requests over io_uring: {0}; leave the option uring=on away to do without")]
    NoUring(String),
    /// What was written could not be stored before the end: a line for each file.
    #[error("unmounted, but not everything written could be stored, and is lost: {}", shortened(.0))]
    Unwritten(Vec<String>),
}

/// Lines that one message takes.
const LINES_SHOWN: usize = 8;

fn shortened(lines: &[String]) -> String {
    let shown = lines.iter().take(LINES_SHOWN).map(String::as_str);
    let mut shown: Vec<&str> = shown.collect();
    let more = lines.len().saturating_sub(LINES_SHOWN);
    let rest = format!("and {more} more, see the log");
    shown.extend((more > 0).then_some(rest.as_str()));
    shown.join("; ")
}

impl From<DeviceError> for MountError {
    fn from(error: DeviceError) -> MountError {
        match error {
            DeviceError::Device(errno) => MountError::Device(errno.into()),
            other => MountError::Device(io::Error::other(other)),
        }
    }
}

/// A mounted volume. Dropping it detaches it from the tree at once; [`Mount::unmount`] and [`Mount::wait`] end it in
/// order.
pub struct Mount {
    mountpoint: PathBuf,
    /// Of the kernel's device that stands for it.
    device: OnceLock<String>,
    end: Arc<End>,
    server: OnceLock<Weak<Server>>,
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mount({})", self.mountpoint.display())
    }
}

/// Tells when all threads are done, and how it ended.
#[derive(Debug, Default)]
pub(crate) struct End {
    outcome: Mutex<Option<Result<(), MountError>>>,
    reached: Condvar,
    is_storing: AtomicBool,
}

impl End {
    /// Everything is over.
    pub(crate) fn reach(&self, outcome: Result<(), MountError>) {
        *self.outcome.lock() = Some(outcome);
        self.reached.notify_all();
    }

    /// Nothing is asked any more, and no call is at work.
    pub(crate) fn begin_storing(&self) {
        self.is_storing.store(true, Ordering::SeqCst);
    }

    fn is_reached(&self) -> bool {
        self.outcome.lock().is_some()
    }
}

/// Mounts a directory of `client`'s volume. The client's session ends with the mount.
pub fn mount(client: Client, mountpoint: &Path, options: MountOptions) -> Result<Mount, MountError> {
    let mountpoint = check(mountpoint)?;
    let source = format!("{}:{}", options.volume, options.path);
    let root = client.resolve(&options.path, true).and_then(|root| match root.kind {
        FileKind::Directory => Ok(root.inode),
        _ => Err(vazao_model::Code::NotDirectory.into()),
    });
    let root = root.map_err(|error| MountError::Root(source.clone(), error))?;
    let door = Box::new(VolumeFilesystem::new(client.clone(), root));
    serve(Some(client), mountpoint, &source, root, door, options)
}

/// How far the kernel reads ahead in the areas of nodes: each of its requests goes to one node, and several of them
/// have to be on their way to keep that node and the way to it busy.
const AREAS_READ_AHEAD_BYTES: u32 = 4 << 20;

/// Mounts the areas of all nodes of `client`'s cluster as one tree. The client's session ends with the mount.
pub fn mount_areas(client: Client, mountpoint: &Path, options: MountOptions) -> Result<Mount, MountError> {
    let mountpoint = check(mountpoint)?;
    let root = InodeId(ROOT_NODE);
    let areas = Box::new(Areas::new(client, root));
    let read_ahead_bytes = options.read_ahead_bytes.max(AREAS_READ_AHEAD_BYTES);
    let options = MountOptions { read_ahead_bytes, ..options };
    // There are no invalidations for changes by local programs: the kernel's cached attributes expire by time.
    serve(None, mountpoint, "vazao:areas", root, areas, options)
}

/// Mounts a file system that keeps names in memory and throws data away, to be measured.
pub fn mount_null(mountpoint: &Path, options: MountOptions) -> Result<Mount, MountError> {
    let mountpoint = check(mountpoint)?;
    let root = InodeId(ROOT_NODE);
    serve(None, mountpoint, "vazao:null", root, Box::new(Null::new(root)), options)
}

/// Mounts a file system of one file, [`crate::SINGLE_NAME`], whose bytes are `file`'s.
pub fn mount_single(
    mountpoint: &Path,
    file: Arc<dyn SingleFile>,
    options: MountOptions,
) -> Result<Mount, MountError> {
    let mountpoint = check(mountpoint)?;
    let root = InodeId(ROOT_NODE);
    serve(None, mountpoint, "vazao:single", root, Box::new(Single::new(root, file)), options)
}

/// Attaches and starts to answer. `watched` tells of changes that others make.
fn serve(
    watched: Option<Client>,
    mountpoint: PathBuf,
    source: &str,
    root: InodeId,
    door: Box<dyn FileSystem>,
    options: MountOptions,
) -> Result<Mount, MountError> {
    let shown = options.source.as_deref().unwrap_or(source);
    let descriptor = attach::attach(&mountpoint, shown, &options)?;
    let device = Arc::new(Device::new(descriptor));
    let end = Arc::new(End::default());
    // From here on dropping the mount detaches it again.
    let mount = Mount { mountpoint, device: OnceLock::new(), end: Arc::clone(&end), server: OnceLock::new() };
    let timeouts = Timeouts { attributes: options.attribute_timeout, entries: options.entry_timeout };
    let (nodes, told) = (Nodes { root }, Arc::new(Told::new()));
    let notices = Arc::new(Notices::new(nodes, Arc::clone(&told), Box::new(Arc::clone(&device))));
    if let Some(client) = watched {
        let listener = Arc::clone(&notices) as Arc<dyn Listener>;
        client.watch(listener).map_err(|error| MountError::Device(io::Error::other(error)))?;
    }
    let server = Arc::new(Server {
        door,
        nodes,
        timeouts,
        told,
        notifier: Arc::new(Arc::clone(&device)),
        notices: Arc::clone(&notices),
        interrupts: Interrupts::default(),
        lock_waiters: LockWaiters::default(),
        readdirplus: ReaddirplusPolicies::default(),
        second_walks: SecondWalks::default(),
        mappings: Mappings::default(),
        in_flight: InFlight::new(options.threads.max(1)),
    });
    // Set once each: this function has just made the mount.
    let _ = mount.server.set(Arc::downgrade(&server));
    transport::start(device, server, notices, &options, end)?;
    if let Ok(Some(mounted)) = mountpoint::find(&mount.mountpoint) {
        read_ahead(&mounted.device, options.read_ahead_bytes);
        let _ = mount.device.set(mounted.device);
    }
    Ok(mount)
}

/// The canonical mountpoint, when it can be mounted on.
fn check(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let given = || mountpoint.to_owned();
    let path = mountpoint::canonical(mountpoint).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing(given()),
        io::ErrorKind::NotADirectory => MountError::NotDirectory(given()),
        _ => MountError::Mountpoint(given(), error),
    })?;
    match mountpoint::state(&path).map_err(|error| MountError::Mountpoint(given(), error))? {
        State::Free => Ok(path),
        State::Missing => Err(MountError::Missing(path)),
        State::NotDirectory => Err(MountError::NotDirectory(path)),
        State::NotEmpty => Err(MountError::NotEmpty(path)),
        State::Dead => Err(MountError::Dead(path)),
        State::Mounted(mounted) if mounted.file_system == FILE_SYSTEM_TYPE => {
            Err(MountError::AlreadyMounted(path, mounted.source))
        }
        // An empty directory that happens to be another file system's root is as good as any.
        State::Mounted(_) => match std::fs::read_dir(&path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(path),
            Ok(false) => Err(MountError::NotEmpty(path)),
            Err(error) => Err(MountError::Mountpoint(path, error)),
        },
    }
}

/// Raises the kernel's read-ahead over the 128 KiB that the INIT exchange allows. Only root may; without it sequential
/// reads are slower and nothing else.
fn read_ahead(device: &str, read_ahead_bytes: u32) {
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&setting, (read_ahead_bytes / 1024).to_string()) {
        tracing::debug!("{setting}: {error}; the kernel reads 128 KiB ahead");
    }
}

impl Mount {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Number of the kernel's device that stands for it, as in `/proc/self/mountinfo`: its name among all mounts of the
    /// machine.
    pub fn device(&self) -> Option<&str> {
        self.device.get().map(String::as_str)
    }

    /// What it waits for, should it be about to end.
    pub fn progress(&self) -> Progress {
        let ended = Progress { stage: Stage::Ended, ..Progress::default() };
        let server = self.server.get().and_then(Weak::upgrade);
        let Some(server) = server.filter(|_| !self.end.is_reached()) else { return ended };
        let stage = match (self.end.is_storing.load(Ordering::SeqCst), server.interrupts.is_over()) {
            (true, _) => Stage::Storing,
            (false, true) => Stage::Draining,
            (false, false) => Stage::Serving,
        };
        let calls = server.interrupts.calls();
        let (unstored_files, unstored_bytes) = server.door.unstored_amount();
        Progress {
            stage,
            open_files: server.door.open_files(),
            calls: calls.into_iter().map(|call| (call.operation, call.caller)).collect(),
            unstored_files,
            unstored_bytes,
            silent_servers: server.door.silent_servers(),
        }
    }

    /// True once the kernel has nothing more to ask.
    pub fn is_ending(&self) -> bool {
        self.server.get().and_then(Weak::upgrade).is_none_or(|server| server.interrupts.is_over())
    }

    /// Closes all open files within a given time, even those in use, and returns what could not be stored, a line for
    /// each file. The mount does not work afterwards.
    pub fn finisher(&self) -> impl FnOnce(Duration) -> Vec<String> + Send + use<> {
        let server = self.server.get().and_then(Weak::upgrade);
        move |left| {
            let Some(server) = server else { return Vec::new() };
            server.door.end_within(left);
            server.door.finish()
        }
    }

    /// What was written and is not stored, a line for each file.
    pub fn unstored(&self) -> Vec<String> {
        let server = self.server.get().and_then(Weak::upgrade);
        server.map_or_else(Vec::new, |server| server.door.unstored())
    }

    /// Blocks until it is unmounted, by whomever, and everything written is stored.
    pub fn wait(&self) -> Result<(), MountError> {
        let mut outcome = self.end.outcome.lock();
        loop {
            match outcome.take() {
                Some(ended) => {
                    // Other waiters see that it is over; the error is returned once.
                    *outcome = Some(Ok(()));
                    return ended;
                }
                None => self.end.reached.wait(&mut outcome),
            }
        }
    }

    /// Unmounts; [`Mount::wait`] returns when it is done. Fails with `Busy` while something is open in it.
    pub fn unmount(&self) -> Result<(), MountError> {
        attach::detach(&self.mountpoint, Detach::IfUnused)
    }

    /// Takes it out of the tree at once; what is open keeps working, and [`Mount::wait`] returns when the last is
    /// closed.
    pub fn detach(&self) -> Result<(), MountError> {
        attach::detach(&self.mountpoint, Detach::Lazily)
    }

    /// [`Mount::detach`] that ends all calls in it with an error, as far as this user may.
    pub fn abort(&self) -> Result<(), MountError> {
        attach::detach(&self.mountpoint, Detach::ByForce)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.end.is_reached()
            && let Err(error) = self.detach()
        {
            tracing::warn!("{error}");
        }
    }
}

/// Changes how the kernel treats the vazao mount at `mountpoint`: read-only or not, set-id bits, devices, programs.
pub fn remount(mountpoint: &Path, options: &MountOptions) -> Result<(), MountError> {
    let given = || mountpoint.to_owned();
    let path = mountpoint::canonical(mountpoint).map_err(|error| MountError::Mountpoint(given(), error))?;
    match mountpoint::find(&path).map_err(|error| MountError::Mountpoint(given(), error))? {
        None => Err(MountError::NotMounted(path)),
        Some(mounted) if mounted.file_system != FILE_SYSTEM_TYPE => {
            Err(MountError::OtherFileSystem(path, mounted.file_system))
        }
        Some(_) => attach::reattach(&path, options),
    }
}

/// A vazao mount in the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it is, without links and dots.
    pub mountpoint: PathBuf,
    /// See [`Mount::device`].
    pub device: String,
    /// The user it belongs to.
    pub user: Option<u32>,
}

/// The vazao mount at `mountpoint`, whether its process lives or not.
pub fn find(mountpoint: &Path) -> Result<Found, MountError> {
    let given = || mountpoint.to_owned();
    let path = mountpoint::canonical(mountpoint).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing(given()),
        _ => MountError::Mountpoint(given(), error),
    })?;
    match mountpoint::find(&path).map_err(|error| MountError::Mountpoint(given(), error))? {
        None => Err(MountError::NotMounted(path)),
        Some(mounted) if mounted.file_system != FILE_SYSTEM_TYPE => {
            Err(MountError::OtherFileSystem(path, mounted.file_system))
        }
        Some(mounted) => Ok(Found { mountpoint: path, device: mounted.device, user: mounted.user }),
    }
}

/// Unmounts the vazao mount at `mountpoint`, also one whose process is gone.
pub fn unmount(mountpoint: &Path, how: Detach) -> Result<(), MountError> {
    let path = find(mountpoint)?.mountpoint;
    // Only a busy one is looked at: a look waits for servers, and these may be why it is to be unmounted.
    match attach::detach(&path, how) {
        Err(MountError::Busy(_)) if mountpoint::is_dead(&path) => attach::detach(&path, Detach::Lazily),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests;
