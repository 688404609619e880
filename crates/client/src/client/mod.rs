//! A client: a session with one volume.

mod asynchronous;
mod heartbeat;
mod names;
mod namespace;
mod removal;
mod resolve;
mod types;

pub(crate) use names::ListNames;
pub use names::{Entry, Listed, NamePage, Page};
pub use namespace::PendingPage;
#[cfg(test)]
pub(crate) use removal::Statement;
pub use types::{Changes, NewInode, OpenMode, RenameMode, SetTime, VolumeSpace, XattrMode};

use crate::administration::Administration;
use crate::cache::{Asked, Listener};
use crate::config::{Config, Options};
use crate::core::{Core, Description, watching};
use crate::data::SendBuffer;
use crate::file::{self, Unstored};
use crate::locks::{LockPlace, Locks};
use crate::statistics::Statistics;
use crate::{Error, Result};
use heartbeat::Heartbeat;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vazao_meter::measures::{Measures, Part};
use vazao_model::limits::GOODBYE_MS_MAX;
use vazao_model::locks::{LockMode, LockRange};
use vazao_model::{ClusterMap, Code, InodeId};
use vazao_wire::tcp::{TcpTransport, TransportOptions};
use vazao_wire::transport::Transport;
use vazao_wire::{op, proto};

/// Timeout of opening a client: the user of a command wants to know soon that there is no cluster.
const OPEN_MS_MAX: u32 = 5_000;

/// A connection to one volume. Cheap to clone; usable from any number of threads.
#[derive(Clone)]
pub struct Client {
    pub(crate) core: Arc<Core>,
    heartbeat: Arc<Heartbeat>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.core.context.meta_name())
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
        core.servers.watch();
        let lock_holder = Arc::downgrade(&core);
        core.meta.set_lock_holder(lock_holder);
        core.meta.open_session(0, core.context.clock.now_ns() + u64::from(deadline_ms) * 1_000_000)?;
        let heartbeat = Arc::new(Heartbeat::default());
        if background {
            heartbeat::spawn(&heartbeat, &core)?;
        }
        Ok(Client { core, heartbeat })
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

    /// The zone that this client is in: the one that it was given, else that of this machine's address, by the ranges
    /// of the cluster. Empty: none.
    pub fn zone(&self) -> String {
        self.core.meta.zone()
    }

    /// The cluster as last heard.
    pub fn map(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.core.servers.routes().map)
    }

    /// The cluster as the metadata service knows it now.
    pub fn refresh_map(&self) -> Result<Arc<ClusterMap>> {
        self.core.meta.refresh_map(self.core.context.deadline_ns())
    }

    /// Memory for bytes that will be given to [`File::write_shared`]: data servers of this machine find them there.
    /// Its contents are unspecified.
    pub fn send_buffer(&self, length: usize) -> SendBuffer {
        self.core.data.send_buffer(length)
    }

    /// Turns the short circuit on or off from the next read on: for measuring one against the other.
    pub fn set_short_circuit(&self, is_on: bool) {
        self.core.data.short_circuit.store(is_on, Ordering::Relaxed);
    }

    /// What has been moved and what it has waited for.
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// What has to happen every [`vazao_model::limits::HEARTBEAT_MS`]; only for clients without a thread of their own.
    pub fn tick(&self) -> Result<()> {
        self.heartbeat.tick(&self.core)
    }

    /// Ends every wait for servers, now and from now on: what is asked fails with `Cancelled`. For a program that is to
    /// end whatever its servers do.
    pub fn hang_up(&self) {
        self.core.context.transport.hang_up();
        self.core.context.watch_transport.hang_up();
    }

    /// Ends the session; files still open are flushed. That the metadata service does not hear of it is no error: the
    /// session's lease ends by itself.
    pub fn close(self) -> Result<()> {
        let mut outcome = Ok(());
        for open in self.core.registry.all() {
            outcome = outcome.and(file::flush(&open, false)).and(open.check_losses());
        }
        self.leave_session();
        outcome
    }

    /// Calls that begin from now on are done or given up within `left`, all of them together; each has a second,
    /// however.
    pub fn end_within(&self, left: Duration) {
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let ends_by_ns = self.core.context.clock.now_ns().saturating_add(left_ns);
        self.core.context.ends_by_ns.fetch_min(ends_by_ns, Ordering::SeqCst);
    }

    /// How long one call may take.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(u64::from(self.core.context.options.deadline_ms))
    }

    /// What of all open files is not stored.
    pub fn unstored(&self) -> Vec<Unstored> {
        self.core.registry.all().iter().filter_map(|open| open.unstored()).collect()
    }

    /// Servers that calls of this client wait for, as messages name them, and for how many seconds.
    pub fn silent_servers(&self) -> Vec<(String, u64)> {
        self.core.servers.silent()
    }

    /// Ends the session. Nothing is lost when the metadata service does not answer: its lease ends by itself.
    pub(crate) fn leave_session(&self) {
        let core: &Core = &self.core;
        core.context.closed.store(true, Ordering::Relaxed);
        let request = proto::CloseSessionRequest { session: core.meta.session.id() };
        let deadline_ns = core
            .context
            .deadline_ns()
            .min(core.context.clock.now_ns() + u64::from(GOODBYE_MS_MAX) * 1_000_000);
        if let Err(error) = core.meta.ask_until::<op::CloseSession>(&request, deadline_ns) {
            tracing::info!(%error, "the session was not closed, and ends with its lease");
        }
    }

    /// Locks a range for `place`'s owner, in whatever way it held it before. Waits, when `give_up` is given, until the
    /// lock is free or `give_up` says true. Errors: `Locked`, `Deadlock`, `NoLocks`, `Interrupted`.
    pub fn lock(
        &self,
        place: LockPlace,
        range: LockRange,
        mode: LockMode,
        process: u32,
        give_up: Option<&dyn Fn() -> bool>,
    ) -> Result<()> {
        self.core.lock(place, range, mode, process, give_up, u64::MAX)
    }

    /// Lets go of a range. What was written under the lock is to be flushed before.
    pub fn unlock(&self, place: LockPlace, range: LockRange) -> Result<()> {
        self.core.locks.unlock(place, range)
    }

    /// The locks that are held here.
    pub fn locks(&self) -> &Locks {
        &self.core.locks
    }

    /// From now on answers may be remembered, and `listener` hears of changes by others. To be called once. A client
    /// without a thread of its own fetches changes by [`Client::fetch_changes`].
    pub fn watch(&self, listener: Arc<dyn Listener>) -> Result<()> {
        if !self.core.cache.stream.listen(listener) {
            return Err(Error::new(Code::InUse, "this client watches already"));
        }
        if self.core.context.options.background { watching::spawn(&self.core) } else { self.fetch_changes() }
    }

    /// Fetches the changes that are there, without waiting for any.
    pub fn fetch_changes(&self) -> Result<()> {
        let (session, pending) = self.core.submit_watch(0);
        self.core.finish_watch(session, pending.wait()).map(|_| ())
    }

    /// To be taken before a call whose answer may be remembered.
    pub fn asked(&self) -> Asked {
        self.core.cache.asked()
    }

    /// How long attributes may be believed that a call begun at `asked` has shown; zero: not at all.
    pub fn attributes_lease(&self, asked: Asked, inode: InodeId) -> Duration {
        self.core.cache.believable_for(asked, inode, &[])
    }

    /// The same for where a name leads, or that it leads nowhere.
    pub fn entry_lease(&self, asked: Asked, parent: InodeId, name: &[u8]) -> Duration {
        self.core.cache.believable_for(asked, parent, name)
    }

    /// Says what people call this client in displays: a mountpoint, a command.
    pub fn describe(&self, name: &str, part: Part) {
        *self.core.description.lock() = Description { name: name.to_owned(), part };
    }

    /// What this client and its machine count.
    pub fn measures(&self) -> Measures {
        self.core.measures()
    }

    /// What an operator does with servers and their data.
    pub fn administration(&self) -> Administration<'_> {
        Administration::new(&self.core)
    }
}
