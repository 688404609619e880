//! A listening server: its threads, its metrics, its end.

use super::bounds::Bounds;
use super::egress::SharedLink;
use super::event_loop::{EventLoop, Listener};
use super::inbox::Inbox;
use super::peer::TcpTransport;
use super::socket;
use super::takeover::{LoopThreads, TakeoverWatch};
use super::watched::Watched;
use crate::key::ClusterKey;
use crate::service::Service;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_meter::measures::Peer;
use vazao_meter::{Accounts, Cause, Clock, Counter, Exposition, Gauge};

/// How a server runs.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Event-loop threads.
    pub threads: usize,
    /// The key that clients must have.
    pub key: ClusterKey,
    /// Name of its threads.
    pub name: String,
}

/// What a server counts.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) connections: Gauge,
    pub(super) requests: Counter,
    pub(super) refused: Counter,
    pub(super) stalled: Counter,
    pub(super) received_bytes: Counter,
    pub(super) sent_bytes: Counter,
    pub(super) accounts: Accounts,
}

/// What a server's threads share.
pub(super) struct Shared {
    pub(super) service: Arc<dyn Service>,
    pub(super) key: ClusterKey,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) inboxes: Vec<Arc<Inbox>>,
    pub(super) metrics: Metrics,
    pub(super) watched: Arc<Watched>,
    pub(super) bounds: Arc<Bounds>,
    pub(super) stopping: AtomicBool,
    /// Handlers may be held up by a disk.
    pub(super) may_hang: bool,
    pub(super) threads: LoopThreads,
}

/// A running server; it stops when dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    name: String,
    takeover: Option<TakeoverWatch>,
    /// Those of the threads at entrances of this machine.
    entrances: Vec<Arc<Inbox>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.address)
    }
}

impl Server {
    /// Listens on `listen` (`host:port`, port 0 for a free one) and serves. Errors: the address is taken or not ours.
    pub fn start(
        listen: &str,
        service: Arc<dyn Service>,
        options: ServerOptions,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Server> {
        Server::start_within(listen, service, options, clock, Bounds::default())
    }

    /// Serves within other bounds than the usual ones.
    pub(super) fn start_within(
        listen: &str,
        service: Arc<dyn Service>,
        options: ServerOptions,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(listen)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot listen on {listen}: {e}")))?;
        let address = listener.local_addr()?;
        let count = options.threads.max(1);
        let inboxes = (0..count).map(|_| Inbox::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            may_hang: service.may_hang(),
            service,
            key: options.key,
            clock,
            inboxes,
            metrics: Metrics::default(),
            watched: Arc::default(),
            bounds: Arc::new(bounds),
            stopping: AtomicBool::new(false),
            threads: LoopThreads::default(),
        });
        let takeover = shared.may_hang.then(|| TakeoverWatch::start(&shared, &options.name)).transpose()?;
        let mut server = Server { shared, address, name: options.name, takeover, entrances: Vec::new() };
        let mut listener = Some(Listener::Tcp(listener));
        for index in 0..count {
            let inbox = Arc::clone(&server.shared.inboxes[index]);
            server.spawn(index.to_string(), inbox, listener.take())?;
        }
        Ok(server)
    }

    fn spawn(&mut self, number: String, inbox: Arc<Inbox>, listener: Option<Listener>) -> io::Result<()> {
        let event_loop = EventLoop::new(Arc::clone(&self.shared), inbox, listener)?;
        self.shared.threads.start(event_loop, format!("{}-{number}", self.name))
    }

    /// Opens Unix sockets for clients of this machine, with a thread for each core: for services whose requests are
    /// so short that waking another core takes longer than all the rest. Errors: the names are taken by another
    /// process.
    pub fn open_entrances(&mut self) -> io::Result<()> {
        for core in 0..socket::entrances() {
            let inbox = Arc::new(Inbox::new()?);
            let entrance = socket::open_entrance(self.address, core)?;
            self.entrances.push(Arc::clone(&inbox));
            self.spawn(format!("c{core}"), inbox, Some(Listener::Entrance { socket: entrance, core }))?;
        }
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[cfg(test)]
    pub(super) fn bounds(&self) -> &Bounds {
        &self.shared.bounds
    }

    #[cfg(test)]
    pub(super) fn paces(&self) -> Vec<u64> {
        self.shared.watched.paces()
    }

    /// What shares this machine's link among the connections of this server and those of a transport.
    pub fn shared_link(&self, transport: &TcpTransport) -> SharedLink {
        SharedLink::new(Arc::clone(&self.shared.watched), transport.watched())
    }

    /// Those connected, by host, with what the kernel counts for their connections.
    pub fn peers(&self) -> Vec<Peer> {
        self.shared.watched.peers()
    }

    /// Stops serving: sends what sockets take at once, closes all connections, joins the threads. Those that a disk
    /// holds up are left behind.
    pub fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.inboxes.iter().chain(&self.entrances).for_each(|inbox| inbox.wake());
        if let Some(takeover) = self.takeover.take() {
            takeover.stop();
        }
        self.shared.threads.join(&*self.shared.clock);
    }

    /// Adds this server's metrics.
    pub fn expose(&self, exposition: &mut Exposition) {
        let metrics = &self.shared.metrics;
        let bounds = &self.shared.bounds;
        let mut gauge = |name: &str, help: &str, value: f64| exposition.gauge(name, help, &[], value);
        gauge("vazao_connections", "Open connections.", metrics.connections.get() as f64);
        gauge(
            "vazao_unfinished_bytes",
            "Memory for requests of which a part has arrived.",
            bounds.unfinished.claimed_bytes() as f64,
        );
        gauge(
            "vazao_unsent_bytes",
            "Memory for answers that their peers have not taken.",
            bounds.unsent.claimed_bytes() as f64,
        );
        let mut count = |name: &str, help: &str, counter: &Counter| {
            exposition.counter(name, help, &[], counter.get() as f64);
        };
        count("vazao_requests_total", "Requests received.", &metrics.requests);
        count(
            "vazao_connections_refused_total",
            "Connections closed for breaking the protocol.",
            &metrics.refused,
        );
        let help = "Connections closed for not going on with a request, or not taking answers.";
        count("vazao_connections_stalled_total", help, &metrics.stalled);
        count("vazao_received_bytes_total", "Bytes received.", &metrics.received_bytes);
        count("vazao_sent_bytes_total", "Bytes sent.", &metrics.sent_bytes);
        let help = "Time of the event-loop threads by cause; compute includes handling requests.";
        exposition.accounts(
            "vazao_loop_seconds_total",
            help,
            &metrics.accounts,
            &[Cause::Compute, Cause::Idle],
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
