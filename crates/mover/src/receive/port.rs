//! The port for data connections: who comes in is greeted by the event loop.

use super::Receiver;
use super::conversation::Conversation;
use super::ftp::Endpoint;
use super::strangers::Strangers;
use crate::engine::{Engine, Engines, Inbox, Machine, Step};
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_model::Code;
use vazao_model::limits::GREETING_CONNECTIONS_MAX;
use vazao_wire::service::Fault;

/// Data connections at once: with 256 KiB each they would take a gibibyte if all were in the middle of a record.
const CONNECTIONS_MAX: usize = 4096;

/// Connections taken in one turn.
const ACCEPTS: usize = 64;

/// When no connection can be taken, the next try comes this much later.
const PAUSE_NS: u64 = 100_000_000;

/// Tokens of measurements that have been given out.
const PROBES_MAX: usize = 64;

/// What all data connections share.
pub(super) struct PortShared {
    pub(super) receiver: Arc<Receiver>,
    /// Loops of conversations that have found their file.
    pub(super) engines: Engines,
    connections: AtomicUsize,
    /// Those that have not been greeted.
    strangers: Arc<Strangers>,
    /// Their tokens; where the bytes are written, if they are.
    probes: Mutex<VecDeque<([u8; 16], Option<String>)>>,
}

impl PortShared {
    /// Where the bytes of a measurement are written, if they are. Refuses one that was not asked for.
    pub(super) fn probe(&self, token: &[u8; 16]) -> Result<Option<String>, Fault> {
        let probes = self.probes.lock();
        let known = probes.iter().find(|(other, _)| other == token);
        let unknown = || Fault::new(Code::Unauthenticated, "data connection: an unknown measurement");
        known.map(|(_, area)| area.clone()).ok_or_else(unknown)
    }

    /// A connection is over.
    pub(super) fn leave(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The listening port.
pub(crate) struct DataPort {
    address: SocketAddr,
    shared: Arc<PortShared>,
    engine: Inbox,
    /// Opened when it is first asked for.
    ftp: Mutex<Option<Endpoint>>,
}

impl std::fmt::Debug for DataPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataPort({})", self.address)
    }
}

impl DataPort {
    /// Listens on `listen`. Connections are greeted by `engine`, and go on in `engines` or in threads of their own.
    pub(crate) fn open(
        listen: &str,
        receiver: Arc<Receiver>,
        engine: &Engine,
        engines: Engines,
    ) -> std::io::Result<DataPort> {
        let listener = TcpListener::bind(listen)
            .map_err(|e| std::io::Error::new(e.kind(), format!("cannot listen for data on {listen}: {e}")))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(PortShared {
            receiver,
            engines,
            connections: AtomicUsize::new(0),
            strangers: Strangers::new(GREETING_CONNECTIONS_MAX),
            probes: Mutex::default(),
        });
        let inbox = engine.inbox();
        engine.add(Box::new(Listener { listener, shared: Arc::clone(&shared), engine: inbox.clone() }));
        Ok(DataPort { address, shared, engine: inbox, ftp: Mutex::default() })
    }

    /// Where the FTP endpoint listens, which is opened where it is not.
    pub(crate) fn ftp(&self) -> Result<SocketAddr, Fault> {
        let mut ftp = self.ftp.lock();
        if let Some(endpoint) = &*ftp {
            return Ok(endpoint.address());
        }
        let opened = Endpoint::open(self.address.ip(), Arc::clone(&self.shared), &self.engine);
        let endpoint =
            opened.map_err(|error| Fault::new(Code::Overloaded, format!("listening for FTP: {error}")))?;
        let address = endpoint.address();
        *ftp = Some(endpoint);
        Ok(address)
    }

    /// Ends the FTP sessions.
    pub(crate) fn close(&self) {
        let ftp = self.ftp.lock();
        ftp.iter().for_each(Endpoint::close);
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Data connections at present.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Lets a measurement in, whose bytes are written to an area if one is given.
    pub(crate) fn admit_probe(&self, to_disk: Option<String>) -> Result<[u8; 16], Fault> {
        let token = super::random()?;
        let mut probes = self.shared.probes.lock();
        probes.push_back((token, to_disk));
        while probes.len() > PROBES_MAX {
            probes.pop_front();
        }
        Ok(token)
    }
}

struct Listener {
    listener: TcpListener,
    shared: Arc<PortShared>,
    engine: Inbox,
}

impl Machine for Listener {
    fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    fn advance(&mut self, now_ns: u64) -> Result<Step, Fault> {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((socket, peer)) => {
                    let is_full = self.shared.connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX;
                    if is_full || socket.set_nonblocking(true).is_err() {
                        continue;
                    }
                    let Ok(stranger) = self.shared.strangers.enter(&socket) else { continue };
                    let _ = socket.set_nodelay(true);
                    self.shared.connections.fetch_add(1, Ordering::Relaxed);
                    let (shared, peer) = (Arc::clone(&self.shared), peer.to_string());
                    self.engine.add(Box::new(Conversation::new(socket, peer, stranger, shared)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Step::Wait { read: true, write: false, until_ns: u64::MAX });
                }
                // Out of descriptors, most likely: those that are there go on, and later there will be some.
                Err(_) => {
                    return Ok(Step::Wait { read: false, write: false, until_ns: now_ns + PAUSE_NS });
                }
            }
        }
        Ok(Step::Again)
    }

    fn ended(self: Box<Self>, _outcome: Result<(), Fault>) {}
}
