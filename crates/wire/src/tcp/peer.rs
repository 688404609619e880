//! The TCP transport: a few connections to each server, shared by the calling threads.

use super::ahead::FAR_NS;
use super::buffers::SharedPool;
use super::dial::dial;
use super::in_flight::{Failed, InFlight};
use super::lines::{Beyond, Bulk, Pace, PacedLine};
use super::link::{Link, LinkParts};
use super::receiver;
use super::slow_requests::{Asked, Outgoing, RequestTimeout, SlowRequestWatchdog};
use super::socket::{self, Socket};
use super::unanswered::UnansweredConnects;
use super::watched::Watched;
use crate::interrupt;
use crate::key::ClusterKey;
use crate::local::Visit;
use crate::operation::Method;
use crate::service::{Fault, RequestId};
use crate::transport::{Completion, Line, LineUsed, OnSlow, Pending, Presence, Transport};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::cell::Cell;
use std::collections::HashMap;
use std::net::{IpAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_meter::{Accounts, Clock};
use vazao_model::Code;
use vazao_model::limits::SLOW_MS;

/// How a transport connects.
#[derive(Clone, Copy, Debug)]
pub struct TransportOptions {
    /// Connections to each server; threads beyond that share.
    pub connections_max: usize,
    /// A server that has not accepted within this time is unreachable.
    pub connect_ms_max: u32,
    /// Go in by the entrance of a server on this machine, where it has some.
    pub local: bool,
    /// A request that has waited this long is reported as slow, see [`Transport::watch`].
    pub slow_ms: u32,
}

impl Default for TransportOptions {
    fn default() -> TransportOptions {
        TransportOptions { connections_max: 8, connect_ms_max: 3_000, local: true, slow_ms: SLOW_MS }
    }
}

/// Carries requests over TCP.
pub struct TcpTransport {
    pub(super) own: Weak<TcpTransport>,
    peers: RwLock<HashMap<String, Arc<Peer>>>,
    key: ClusterKey,
    pub(super) options: TransportOptions,
    pub(super) clock: Arc<dyn Clock>,
    accounts: Arc<Accounts>,
    pool: Arc<SharedPool>,
    watch: Arc<SlowRequestWatchdog>,
    watched: Arc<Watched>,
    /// All waits for answers end: the process stops.
    is_hung_up: Arc<AtomicBool>,
    next_id: AtomicU64,
    /// Those that carry little.
    lines: Mutex<Vec<Arc<PacedLine>>>,
}

impl std::fmt::Debug for TcpTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TcpTransport")
    }
}

/// The connections to one server.
pub(super) struct Peer {
    address: String,
    pub(super) links: Vec<Place>,
    /// That for bulk, where it is beyond a line that carries little.
    pub(super) bulk: Place,
    /// Those by the entrances on this machine: as many for each core, one core after the other.
    local: Vec<Place>,
    cores: usize,
    /// Connections for asynchronous calls: one for each core by the entrances, otherwise only the first.
    tended: Vec<Place>,
    /// A thread is making one of these.
    is_connecting: AtomicBool,
    /// It has been entered that way.
    is_local: AtomicBool,
    /// Round-trip time of the latest handshake; see [`ahead`](super::ahead).
    pub(super) round_trip_ns: AtomicU64,
    /// The shortest that a connection has seen by the end of its handshake; `u64::MAX` while there was none.
    distance_ns: AtomicU64,
    unanswered: UnansweredConnects,
    /// This machine's address towards it, as last found out.
    source: Mutex<Option<IpAddr>>,
    /// The line that it is beyond, if that carries little.
    line: RwLock<Option<Arc<PacedLine>>>,
    is_beyond_line: AtomicBool,
}

/// Where one of the connections to a server is.
#[derive(Clone, Copy)]
pub(super) enum At {
    /// Among those by TCP.
    Remote(usize),
    /// Among those by the entrances.
    Local(usize),
    /// That for bulk over a line that carries little.
    Bulk,
}

/// Connections by the entrances of one server, all cores together, unless there are more cores.
const LOCAL_LINKS: usize = 16;

impl Peer {
    fn new(address: &str, connections: usize) -> Peer {
        let cores = socket::entrances();
        let local = cores * (LOCAL_LINKS / cores).max(1);
        let places = |count: usize| (0..count).map(|_| Place::default()).collect();
        Peer {
            address: address.to_owned(),
            links: places(connections.max(1)),
            bulk: Place::default(),
            local: places(local),
            cores,
            tended: places(cores.min(LOCAL_LINKS)),
            is_connecting: AtomicBool::new(false),
            is_local: AtomicBool::new(false),
            round_trip_ns: AtomicU64::new(0),
            distance_ns: AtomicU64::new(u64::MAX),
            unanswered: UnansweredConnects::default(),
            source: Mutex::default(),
            line: RwLock::default(),
            is_beyond_line: AtomicBool::new(false),
        }
    }

    /// Says beyond which line it is, if any.
    fn set_line(self: &Arc<Peer>, line: Option<&Arc<PacedLine>>) {
        self.is_beyond_line.store(line.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.line.write(), line.cloned());
        if let Some(before) = before.filter(|before| line.is_none_or(|line| !Arc::ptr_eq(line, before))) {
            before.leave(&(Arc::clone(self) as Arc<dyn Beyond>));
        }
    }

    fn line(&self) -> Option<Arc<PacedLine>> {
        if !self.is_beyond_line.load(Ordering::Relaxed) {
            return None;
        }
        self.line.read().clone()
    }

    /// This machine's address towards it. Its name is looked up once: what asks for this is often repeated, and must
    /// not wait for a name server that is gone while there are connections.
    fn source(&self) -> Option<IpAddr> {
        let mut source = self.source.lock();
        *source = source.or_else(|| way_to(&self.address));
        *source
    }

    /// The calling thread's place. On this machine that depends on the core it is on.
    pub(super) fn at(&self) -> At {
        if !self.is_local.load(Ordering::Relaxed) {
            return At::Remote(thread_number() % self.links.len());
        }
        let of_core = self.local.len() / self.cores;
        At::Local(socket::current_core() % self.cores * of_core + thread_number() % of_core)
    }

    pub(super) fn place(&self, at: At) -> &Place {
        match at {
            At::Remote(number) => &self.links[number],
            At::Bulk => &self.bulk,
            At::Local(number) => &self.local[number],
        }
    }

    /// Those by the entrances that stand.
    #[cfg(test)]
    pub(super) fn local_links(&self) -> impl Iterator<Item = Arc<Link>> {
        self.local.iter().filter_map(Place::usable)
    }

    /// Number of the connection that an asynchronous call of this thread uses.
    fn tended_number(&self) -> usize {
        let core = if self.is_local.load(Ordering::Relaxed) { socket::current_core() } else { 0 };
        core % self.tended.len()
    }

    fn tended_link(&self, number: usize) -> Option<Arc<Link>> {
        self.tended[number].usable()
    }
}

impl Beyond for Peer {
    fn has_requests(&self) -> bool {
        self.bulk.usable().is_some_and(|link| !link.is_idle())
    }

    fn is_idle(&self) -> bool {
        self.bulk.usable().is_some_and(|link| link.is_idle())
    }

    fn pace(&self, pace: Pace) {
        if let Some(link) = self.bulk.usable() {
            link.pace(pace);
        }
    }
}

/// Backoff before a failed background connection is retried.
pub(super) const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// The place of one connection.
///
/// Lock order: `attempt`, `link`. A thread that connects holds `attempt`, for as long as the resolution of a name may
/// take; `link` is held for a moment only.
#[derive(Default)]
pub(super) struct Place {
    link: Mutex<Option<Arc<Link>>>,
    pub(super) attempt: Mutex<Attempt>,
}

/// How the last attempt at a connection ended.
#[derive(Default)]
pub(super) struct Attempt {
    pub(super) failed: Option<(u64, Fault)>,
    /// A background thread is making it.
    pub(super) is_expected: bool,
}

impl Place {
    pub(super) fn usable(&self) -> Option<Arc<Link>> {
        self.link.lock().as_ref().filter(|link| link.is_usable()).map(Arc::clone)
    }
}

/// The address of this machine from which another one is reached.
fn way_to(address: &str) -> Option<IpAddr> {
    let place = address.to_socket_addrs().ok()?.next()?;
    let any = if place.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    // To connect such a socket chooses the way, and sends nothing.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(place).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

/// Locks the attempt at a connection; while another thread makes it, the request that waits is watched.
fn lock_attempt<'a>(
    place: &'a Place,
    clock: &dyn Clock,
    mut timeout: Option<&mut RequestTimeout<'_>>,
) -> Result<MutexGuard<'a, Attempt>, Fault> {
    loop {
        if interrupt::is_polled() {
            return Err(Code::Interrupted.into());
        }
        let now_ns = clock.now_ns();
        let until_ns = timeout.as_mut().map_or(u64::MAX, |timeout| timeout.until_ns(u64::MAX));
        let until_ns = interrupt::look_by_ns(now_ns, until_ns);
        if until_ns == u64::MAX {
            return Ok(place.attempt.lock());
        }
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        if let Some(attempt) = place.attempt.try_lock_for(left) {
            return Ok(attempt);
        }
    }
}

/// A small number for each thread, so that it keeps to one connection of each server.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<Option<usize>> = const { Cell::new(None) });
    NUMBER.with(|number| {
        let n = number.get().unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed));
        number.set(Some(n));
        n
    })
}

impl TcpTransport {
    /// A transport that proves `key` to every server.
    pub fn new(key: ClusterKey, options: TransportOptions, clock: Arc<dyn Clock>) -> Arc<TcpTransport> {
        Arc::new_cyclic(|own| TcpTransport {
            own: Weak::clone(own),
            peers: RwLock::default(),
            key,
            options,
            clock,
            accounts: Arc::default(),
            pool: Arc::default(),
            watch: Arc::new(SlowRequestWatchdog {
                slow_ns: u64::from(options.slow_ms) * 1_000_000,
                ..SlowRequestWatchdog::default()
            }),
            watched: Arc::default(),
            is_hung_up: Arc::default(),
            next_id: AtomicU64::new(random_start()),
            lines: Mutex::default(),
        })
    }

    pub(super) fn watched(&self) -> Arc<Watched> {
        Arc::clone(&self.watched)
    }

    /// What the callers of this transport waited for.
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    pub(super) fn known_peer(&self, address: &str) -> Option<Arc<Peer>> {
        self.peers.read().get(address).map(Arc::clone)
    }

    pub(super) fn peer(&self, address: &str) -> Arc<Peer> {
        if let Some(peer) = self.known_peer(address) {
            return peer;
        }
        let mut peers = self.peers.write();
        let peer = peers
            .entry(address.to_owned())
            .or_insert_with(|| Arc::new(Peer::new(address, self.options.connections_max)));
        Arc::clone(peer)
    }

    fn link(&self, peer: &Arc<Peer>, request: &Outgoing<'_>) -> Result<Arc<Link>, Fault> {
        if let Some(line) = peer.line()
            && let Some(bulk) = Bulk::of(request.method, request.message, request.attachment.len())
            && !peer.is_local.load(Ordering::Relaxed)
        {
            return self.bulk_link(peer, &line, bulk, request);
        }
        let at = peer.at();
        if peer.round_trip_ns.load(Ordering::Relaxed) > FAR_NS
            && let Some(link) = self.far_link(peer, at, request.attachment.len())
        {
            return Ok(link);
        }
        self.link_at(peer, at, socket::current_core(), request.sent_by_ns, Some(Asked::of(request)))
    }

    /// The connection for bulk to a server beyond a line, at its share of that.
    fn bulk_link(
        &self,
        peer: &Arc<Peer>,
        line: &PacedLine,
        bulk: Bulk,
        request: &Outgoing<'_>,
    ) -> Result<Arc<Link>, Fault> {
        let at = At::Bulk;
        let core = socket::current_core();
        let link = self.link_at(peer, at, core, request.sent_by_ns, Some(Asked::of(request)))?;
        receiver::assist(&link);
        let beyond = Arc::clone(peer) as Arc<dyn Beyond>;
        link.pace(line.enter(&beyond, bulk, self.clock.now_ns()));
        Ok(link)
    }

    /// The connection at a place, which is made where there is none. The request that waits for it, if one does, is
    /// reported once it has waited long.
    pub(super) fn link_at(
        &self,
        peer: &Peer,
        at: At,
        core: usize,
        deadline_ns: u64,
        asked: Option<Asked>,
    ) -> Result<Arc<Link>, Fault> {
        let asked_ns = self.clock.now_ns();
        let place = peer.place(at);
        if let Some(link) = place.usable() {
            return Ok(link);
        }
        let mut timeout = asked.map(|asked| self.connect_timeout(peer, asked));
        let mut attempt = lock_attempt(place, &*self.clock, timeout.as_mut())?;
        // Another thread may have connected it meanwhile.
        if let Some(link) = place.usable() {
            peer.unanswered.note_answer();
            return Ok(link);
        }
        // An attempt that failed while this thread waited for the lock counts as its own. Otherwise the threads of a
        // crowd would wait for one connect timeout after the other, far beyond their deadlines.
        if let Some((_, fault)) = attempt.failed.as_ref().filter(|(failed_ns, _)| *failed_ns > asked_ns) {
            return Err(fault.clone());
        }
        drop(place.link.lock().take());
        match self.connect(peer, core, deadline_ns, timeout.as_mut()) {
            Ok(link) => {
                peer.round_trip_ns.store(link.round_trip_ns(), Ordering::Relaxed);
                let distance_ns = Some(link.distance_ns()).filter(|ns| *ns > 0);
                peer.distance_ns.fetch_min(distance_ns.unwrap_or(u64::MAX), Ordering::Relaxed);
                let link = Arc::new(link);
                if link.round_trip_ns() > FAR_NS {
                    receiver::assist(&link);
                }
                self.put(place, &link);
                Ok(link)
            }
            Err(fault) => {
                // That this thread's call is given up says nothing to others.
                if fault.code != Code::Interrupted {
                    attempt.failed = Some((self.clock.now_ns(), fault.clone()));
                }
                Err(fault)
            }
        }
    }

    /// Puts a new connection in its place.
    fn put(&self, place: &Place, link: &Arc<Link>) {
        *place.link.lock() = Some(Arc::clone(link));
        // Race: a concurrent hang-up either finds the link in its place or is seen here.
        if self.is_hung_up.load(Ordering::SeqCst) {
            link.break_off(&hung_up());
        }
    }

    /// The slow-request watchdog of a request that waits for a connection: it waits since the first in a row did.
    fn connect_timeout<'a>(&'a self, peer: &'a Peer, asked: Asked) -> RequestTimeout<'a> {
        let since_ns = peer.unanswered.begin(self.clock.now_ns(), self.watch.slow_ns);
        let asked = Asked { submitted_ns: asked.submitted_ns.min(since_ns), ..asked };
        RequestTimeout::new(&self.watch, &self.clock, &peer.address, &asked)
    }

    /// Connects; on this machine by the entrance of `core`.
    fn connect(
        &self,
        peer: &Peer,
        core: usize,
        deadline_ns: u64,
        timeout: Option<&mut RequestTimeout<'_>>,
    ) -> Result<Link, Fault> {
        let limit_ns = u64::from(self.options.connect_ms_max) * 1_000_000;
        let deadline_ns = deadline_ns.min(self.clock.now_ns() + limit_ns);
        let connected = self.connect_until(peer, core, deadline_ns, timeout);
        let now_ns = self.clock.now_ns();
        match &connected {
            Err(_) if now_ns >= deadline_ns => peer.unanswered.note_unanswered(now_ns),
            _ => peer.unanswered.note_answer(),
        }
        connected
    }

    fn connect_until(
        &self,
        peer: &Peer,
        core: usize,
        deadline_ns: u64,
        mut timeout: Option<&mut RequestTimeout<'_>>,
    ) -> Result<Link, Fault> {
        let address = peer.address.as_str();
        let unreachable =
            |why: String| Fault::new(Code::Unreachable, format!("cannot connect to {address}: {why}"));
        let resolved = address.to_socket_addrs().map_err(|e| unreachable(e.to_string()))?;
        let mut failure = unreachable("the name has no address".to_owned());
        for place in resolved {
            if self.is_hung_up.load(Ordering::SeqCst) {
                return Err(hung_up());
            }
            let is_over = || {
                if let Some(timeout) = &mut timeout {
                    timeout.until_ns(deadline_ns);
                }
                self.is_hung_up.load(Ordering::SeqCst) || interrupt::is_polled()
            };
            match dial(place, &*self.clock, deadline_ns, is_over) {
                Ok(stream) => {
                    // A machine may get another address.
                    *peer.source.lock() = stream.local_addr().ok().map(|own| own.ip().to_canonical());
                    let core = core % peer.cores;
                    if let Some(link) = self.enter(peer, &stream, core, deadline_ns, timeout.as_deref_mut()) {
                        return Ok(link);
                    }
                    let socket = Socket::Tcp(stream);
                    return Link::establish(socket, address, &self.key, self.parts(), deadline_ns, timeout);
                }
                Err(_) if interrupt::is_polled() => return Err(Code::Interrupted.into()),
                Err(error) => failure = unreachable(error.to_string()),
            }
        }
        Err(failure)
    }

    fn parts(&self) -> LinkParts {
        LinkParts {
            clock: Arc::clone(&self.clock),
            accounts: Arc::clone(&self.accounts),
            pool: Arc::clone(&self.pool),
            watch: Arc::clone(&self.watch),
            watched: Arc::clone(&self.watched),
            is_hung_up: Arc::clone(&self.is_hung_up),
        }
    }

    /// Goes in by the entrance of `core` of the server at the other end of `stream`; `None` where there is none, or not
    /// the right server behind it.
    fn enter(
        &self,
        peer: &Peer,
        stream: &TcpStream,
        core: usize,
        deadline_ns: u64,
        timeout: Option<&mut RequestTimeout<'_>>,
    ) -> Option<Link> {
        let entered = self.options.local.then(|| socket::enter(stream, core)).flatten();
        let link = entered.and_then(|stream| {
            let deadline_ns = deadline_ns.min(self.clock.now_ns() + ENTER_NS_MAX);
            let socket = Socket::Local(stream);
            match Link::establish(socket, &peer.address, &self.key, self.parts(), deadline_ns, timeout) {
                Ok(link) => Some(link),
                Err(fault) => {
                    tracing::debug!(%fault, "the way within this machine is not taken");
                    None
                }
            }
        });
        peer.is_local.store(link.is_some(), Ordering::Relaxed);
        link
    }

    /// Connects to every address that `address` resolves to, and sends nothing.
    fn look(&self, address: &str, deadline_ns: u64) -> Presence {
        let Ok(resolved) = address.to_socket_addrs() else { return Presence::Unknown };
        let mut presence = Presence::Unknown;
        let is_over = || self.is_hung_up.load(Ordering::SeqCst);
        for place in resolved {
            match dial(place, &*self.clock, deadline_ns, is_over) {
                Ok(_) => return Presence::Somebody,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    presence = Presence::Nobody;
                }
                Err(_) => return Presence::Unknown,
            }
        }
        presence
    }

    fn try_submit(&self, address: &str, request: &Outgoing<'_>) -> Result<Arc<Link>, Fault> {
        let peer = self.peer(address);
        let link = self.link(&peer, request)?;
        link.submit(request, &mut None)?;
        Ok(link)
    }

    /// Makes the connection for asynchronous calls at `number` in the background, unless one is being made.
    fn get_tended(&self, peer: &Arc<Peer>, number: usize) {
        if peer.is_connecting.swap(true, Ordering::SeqCst) {
            return;
        }
        let (own, peer_too) = (self.own.clone(), Arc::clone(peer));
        let thread = std::thread::Builder::new().name("vazao-connect".to_owned());
        let spawned = thread.spawn(move || {
            if let Some(transport) = own.upgrade() {
                let deadline_ns = u64::from(transport.options.connect_ms_max) * 1_000_000;
                let deadline_ns = transport.clock.now_ns() + deadline_ns;
                let connected = transport.connect(&peer_too, number, deadline_ns, None).map(Arc::new);
                match connected.and_then(receiver::spawn) {
                    Ok(link) => {
                        transport.put(&peer_too.tended[number], &link);
                    }
                    Err(fault) => {
                        tracing::debug!(%fault, "cannot connect for asynchronous calls: requests block instead");
                        transport.clock.sleep(CONNECT_AGAIN);
                    }
                }
            }
            peer_too.is_connecting.store(false, Ordering::SeqCst);
        });
        if spawned.is_err() {
            peer.is_connecting.store(false, Ordering::SeqCst);
        }
    }

    /// Breaks every connection off, and makes no more.
    fn break_off_all(&self) {
        self.is_hung_up.store(true, Ordering::SeqCst);
        let peers: Vec<Arc<Peer>> = self.peers.read().values().map(Arc::clone).collect();
        for peer in &peers {
            for place in peer.links.iter().chain([&peer.bulk]).chain(&peer.local).chain(&peer.tended) {
                let link = place.link.lock().clone();
                if let Some(link) = link {
                    link.break_off(&hung_up());
                }
            }
        }
    }

    /// Says which servers are beyond which line.
    fn set_peers_beyond(&self, lines: &[Line]) {
        let beyond: Vec<(Vec<Arc<Peer>>, Arc<PacedLine>)> = {
            let mut known = self.lines.lock();
            let present = lines.iter().map(|line| {
                let is_it = |known: &&Arc<PacedLine>| known.name() == line.name;
                let paced = known.iter().find(is_it).cloned();
                let paced = paced.unwrap_or_else(|| Arc::new(PacedLine::new(&line.name)));
                (line.addresses.iter().map(|address| self.peer(address)).collect(), paced)
            });
            let present: Vec<_> = present.collect();
            *known = present.iter().map(|(_, paced)| Arc::clone(paced)).collect();
            present
        };
        let peers: Vec<Arc<Peer>> = self.peers.read().values().map(Arc::clone).collect();
        for peer in peers {
            let is_beyond = |(peers, _): &&(Vec<Arc<Peer>>, _)| peers.iter().any(|it| Arc::ptr_eq(it, &peer));
            peer.set_line(beyond.iter().find(is_beyond).map(|(_, paced)| paced));
        }
        beyond.iter().zip(lines).for_each(|((_, paced), line)| paced.set_rates(line));
    }

    fn new_id(&self, method: Method, address: &str) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        tracing::trace!(request = %RequestId(id), method = method.name(), address, "request");
        id
    }
}

impl Drop for TcpTransport {
    fn drop(&mut self) {
        // Their receiver threads keep the connections alive.
        let peers = self.peers.get_mut();
        let tended = peers.values().flat_map(|peer| &peer.tended);
        // A connection within a busy machine may have had a slow handshake, and so a receiver thread, too.
        let others = peers.values().flat_map(|peer| peer.links.iter().chain([&peer.bulk]).chain(&peer.local));
        for place in tended.chain(others) {
            let link = place.link.lock().take_if(|link| link.has_receiver());
            if let Some(link) = link {
                link.break_off(&Fault::new(Code::Disconnected, "the client was closed"));
            }
        }
    }
}

/// What outstanding requests fail with when the process stops. A retry would fail in the same way.
fn hung_up() -> Fault {
    Fault::new(Code::Cancelled, "this process is stopping")
}

/// A server of this machine answers the handshake at once; a slower peer is a different process.
const ENTER_NS_MAX: u64 = 1_000_000_000;

/// Request ids start at a random number, so that those of two clients differ in the logs.
fn random_start() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness ids of two clients may coincide in the logs; nothing else depends on it.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes) >> 1
}

impl Transport for TcpTransport {
    fn is_connected(&self, address: &str) -> bool {
        self.has_link(address)
    }

    fn is_ready(&self, address: &str) -> bool {
        self.is_link_ready(address)
    }

    fn connect_ahead(&self, addresses: &[&str], deadline_ns: u64) {
        self.make_links(addresses, deadline_ns);
    }

    fn local_address(&self, address: &str) -> Option<IpAddr> {
        self.peer(address).source()
    }

    fn round_trip_ns(&self, address: &str) -> u64 {
        self.known_peer(address).map_or(0, |peer| peer.round_trip_ns.load(Ordering::Relaxed))
    }

    fn distance_ns(&self, address: &str) -> u64 {
        let known = self.known_peer(address).map(|peer| peer.distance_ns.load(Ordering::Relaxed));
        known.filter(|ns| *ns < u64::MAX).unwrap_or(0)
    }

    fn presence(&self, address: &str, deadline_ns: u64) -> Presence {
        self.look(address, deadline_ns)
    }

    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        self.submit_sent_by(address, method, message, attachment, deadline_ns, deadline_ns)
    }

    fn submit_sent_by(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        sent_by_ns: u64,
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let (id, submitted_ns) = (self.new_id(method, address), self.clock.now_ns());
        let sent_by_ns = sent_by_ns.min(deadline_ns);
        let request = Outgoing { id, method, message, attachment, submitted_ns, sent_by_ns, deadline_ns };
        match self.try_submit(address, &request) {
            Ok(link) => Box::new(InFlight::new(link, Asked::of(&request))),
            Err(fault) => Box::new(Failed { id, fault }),
        }
    }

    fn is_tended(&self, address: &str) -> bool {
        let peer = self.peer(address);
        let number = peer.tended_number();
        match peer.tended_link(number) {
            // An asynchronous caller must not block on credits either.
            Some(link) => link.has_room(),
            None => {
                self.get_tended(&peer, number);
                false
            }
        }
    }

    fn submit_then(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
        then: Completion,
    ) {
        let peer = self.peer(address);
        let Some(link) = peer.tended_link(peer.tended_number()) else {
            return then(self.submit(address, method, message, attachment, deadline_ns));
        };
        let (id, submitted_ns) = (self.new_id(method, address), self.clock.now_ns());
        let sent_by_ns = deadline_ns;
        let request = Outgoing { id, method, message, attachment, submitted_ns, sent_by_ns, deadline_ns };
        let mut then = Some(then);
        let outcome = link.submit(&request, &mut then);
        if let (Err(fault), Some(then)) = (outcome, then) {
            then(Box::new(Failed { id, fault }));
        }
    }

    fn watch(&self, on_slow: OnSlow) {
        // Only the first: a transport belongs to one client.
        let _ = self.watch.on_slow.set(on_slow);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    fn can_visit(&self) -> bool {
        true
    }

    fn visit(&self, door: &[u8], deadline_ns: u64) -> Result<Visit, Fault> {
        Visit::begin(door, &self.key, Arc::clone(&self.clock), deadline_ns)
    }

    fn set_lines(&self, lines: &[Line]) {
        self.set_peers_beyond(lines);
    }

    fn used_lines(&self) -> Vec<LineUsed> {
        let now_ns = self.clock.now_ns();
        self.lines.lock().iter().filter_map(|line| line.used(now_ns)).collect()
    }

    fn hang_up(&self) {
        self.break_off_all();
    }

    fn peers(&self) -> Vec<vazao_meter::measures::Peer> {
        self.watched.peers()
    }
}
