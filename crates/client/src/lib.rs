//! The client library: the namespace, striping, read-ahead, write-behind, retries and deadlines.
//!
//! A [`Client`] is a session with one volume; a [`File`] is an open file of it. All calls are synchronous in the
//! caller's thread and end by their deadline. The library knows nothing of FUSE or of the command line.

pub mod area;
mod budget;
mod cached;
mod call;
mod completion;
pub mod config;
mod core;
mod data;
mod ending;
pub mod error;
mod file;
mod hand_off_mutex;
mod in_flight;
mod integrity;
mod invalidations;
mod local;
mod locks;
pub mod measure;
mod members;
mod metadata_cache;
mod names;
mod namespace;
mod opens;
mod options;
mod outages;
pub mod overview;
mod pace;
mod probe;
mod registry;
mod resolve;
mod retry;
mod routes;
mod scrub;
mod session;
pub mod statistics;
mod unresponsive;

#[cfg(test)]
mod tests;

pub use completion::{Completion, Readiness};
pub use config::Config;
pub use error::{Error, Result};
pub use file::{Convert, Converted, File, Seek, SharedBytes, Strided, Unsent, Unstored};
pub use integrity::{MetadataFinding, MetadataReport};
pub use invalidations::{Asked, Listener};
pub use local::SendBuffer;
pub use locks::{LockPlace, Obstacle};
pub use names::{Listed, NamePage};
pub use namespace::PendingPage;
pub use options::Options;
pub use probe::Probe;
pub use scrub::{ScrubFinding, ScrubOrder, ScrubReport, ScrubState};
pub use statistics::{ServerStatistics, Statistics};
pub use vazao_wire::interrupt;

use crate::core::Core;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_model::{Attributes, ClusterMap, FileKind, InodeId, Timestamp};
use vazao_wire::tcp::{TcpTransport, TransportOptions};
use vazao_wire::transport::Transport;

/// Timeout of opening a client: the user of a command wants to know soon that there is no cluster.
const OPEN_MS_MAX: u32 = 5_000;

/// Changes of attributes; `None` leaves as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length; cuts or extends with zeros.
    pub size: Option<u64>,
    /// Time of last read.
    pub accessed: Option<SetTime>,
    /// Time of last change of contents.
    pub modified: Option<SetTime>,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// This one.
    At(Timestamp),
}

/// What a new inode shall be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewInode {
    /// Its type.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub device: u32,
    /// Target of a symbolic link.
    pub contents: Vec<u8>,
    /// Permission bits taken away, unless the directory has a default access control list.
    pub umask: u32,
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenMode {
    /// Reads are allowed.
    pub read: bool,
    /// Writes are allowed.
    pub write: bool,
    /// Cut to nothing first.
    pub truncate: bool,
}

/// What rename does with an existing new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// Replaces it.
    #[default]
    Replace,
    /// Fails with `Exists`.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// What setting an extended attribute demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// Nothing.
    #[default]
    Either,
    /// That it is new.
    Create,
    /// That it is there.
    Replace,
}

/// An entry of a directory listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its inode.
    pub inode: InodeId,
    /// Its type.
    pub kind: FileKind,
    /// Where a listing continues after it.
    pub cookie: u64,
    /// Its attributes, where asked for.
    pub attributes: Option<Attributes>,
}

impl Entry {
    /// The same as it is listed.
    pub fn listed(&self) -> Listed<'_> {
        Listed {
            name: &self.name,
            inode: self.inode,
            kind: self.kind,
            cookie: self.cookie,
            attributes: self.attributes.as_ref(),
        }
    }
}

/// A page of a directory listing, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Entries in cookie order.
    pub entries: Vec<Entry>,
    /// True when there are none after these.
    pub end: bool,
    /// The directory above.
    pub parent: InodeId,
    /// As of when it shows the directory.
    pub asked: Asked,
}

/// Space of the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VolumeSpace {
    /// Sum over serving targets.
    pub capacity_bytes: u64,
    /// Sum over serving targets.
    pub available_bytes: u64,
    /// In use on the file systems of the targets, by any program; reserves are neither used nor available.
    pub used_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
}

/// A connection to one volume. Cheap to clone; usable from any number of threads.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.core.meta_name())
    }
}

impl Client {
    /// Opens a session with the metadata service at `meta` over `transport`.
    pub fn open(transport: Arc<dyn Transport>, meta: Vec<String>, options: Options) -> Result<Client> {
        Client::open_over(Arc::clone(&transport), transport, meta, options)
    }

    fn open_over(
        transport: Arc<dyn Transport>,
        watch_transport: Arc<dyn Transport>,
        meta: Vec<String>,
        options: Options,
    ) -> Result<Client> {
        let background = options.background;
        let deadline_ms = options.deadline_ms.min(OPEN_MS_MAX);
        let core = Arc::new(Core::new(transport, watch_transport, meta, options));
        unresponsive::watch(&core);
        core.open_session(0, core.clock.now_ns() + u64::from(deadline_ms) * 1_000_000)?;
        if background {
            session::spawn_heartbeat(&core)?;
        }
        Ok(Client { core })
    }

    /// Opens a session with the cluster that a configuration names, over TCP.
    pub fn connect(config: &Config) -> Result<Client> {
        Client::connect_with(config, config.options())
    }

    /// [`Client::connect`] with other options than the configuration asks for.
    pub fn connect_with(config: &Config, options: Options) -> Result<Client> {
        let key = config.key()?;
        let (connections_max, local) = (options.connections_max, options.short_circuit);
        let wire_options = TransportOptions { connections_max, local, ..TransportOptions::default() };
        let watch_options = TransportOptions { connections_max: 1, ..wire_options };
        let clock = vazao_meter::clock::system();
        let watch_transport = TcpTransport::new(key.clone(), watch_options, Arc::clone(&clock));
        let transport = TcpTransport::new(key, wire_options, clock);
        Client::open_over(transport, watch_transport, config.meta.clone(), options)
    }

    /// The cluster as last heard.
    pub fn map(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.core.routes().map)
    }

    /// The cluster as the metadata service knows it now.
    pub fn refresh_map(&self) -> Result<Arc<ClusterMap>> {
        self.core.refresh_map(self.core.deadline_ns())
    }

    /// Memory for bytes that will be given to [`File::write_shared`]: data servers of this machine find them there.
    /// Its contents are unspecified.
    pub fn send_buffer(&self, length: usize) -> SendBuffer {
        self.core.send_buffer(length)
    }

    /// Turns the short circuit on or off from the next read on: for measuring one against the other.
    pub fn set_short_circuit(&self, is_on: bool) {
        self.core.short_circuit.store(is_on, Ordering::Relaxed);
    }

    /// What has been moved and what it has waited for.
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// What has to happen every [`vazao_model::limits::HEARTBEAT_MS`]; only for clients without a thread of their own.
    pub fn tick(&self) -> Result<()> {
        self.core.tick()
    }

    /// Ends every wait for servers, now and from now on: what is asked fails with `Cancelled`. For a program that is to
    /// end whatever its servers do.
    pub fn hang_up(&self) {
        self.core.transport.hang_up();
        self.core.watch_transport.hang_up();
    }

    /// Ends the session; files still open are flushed. That the metadata service does not hear of it is no error: the
    /// session's lease ends by itself.
    pub fn close(self) -> Result<()> {
        let mut outcome = Ok(());
        for open in self.core.registry.all() {
            outcome = outcome.and(open.flush(false)).and(open.check_losses());
        }
        self.leave_session();
        outcome
    }
}
