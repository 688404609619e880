//! The way to the door of one data server: whether there is one on this machine, and the connection through it.

use crate::core::Context;
use parking_lot::RwLock;
use prost::Message;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vazao_wire::local::Visit;
use vazao_wire::{Method, local, proto};

/// A server that does not answer within this time is not asked for descriptors now: it is read from as ever.
pub(crate) const ASK_NS_MAX: u64 = 1_000_000_000;

/// A server elsewhere, or without a door, is asked again after this time: it may have been started anew.
const ELSEWHERE_NS: u64 = 60_000_000_000;

/// A door that could not be gone through is tried again after this time.
const CLOSED_NS: u64 = 5_000_000_000;

/// What is known of one server's door.
#[derive(Debug, Default)]
pub(crate) struct LocalDoor {
    state: RwLock<State>,
    /// Of its objects; 0 while that is not known.
    chunk_bytes: AtomicU64,
    /// Its server is on this machine, as far as addresses tell.
    is_here: OnceLock<bool>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unknown,
    /// Not before this time.
    Closed(u64),
    Open(Arc<Visit>),
}

impl LocalDoor {
    /// Whether the server at `address` is on this machine: where that is an address of this machine. Asks no server.
    pub(crate) fn is_here(&self, context: &Context, address: &str) -> bool {
        *self.is_here.get_or_init(|| {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
            host.is_some() && context.transport.local_address(address) == host
        })
    }

    /// The size of its chunks; 0 while that is not known.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.load(Ordering::Relaxed)
    }

    /// Notes the size of its chunks.
    pub(crate) fn set_chunk_bytes(&self, bytes: u64) {
        self.chunk_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The connection through the door of the server at `address`. `None` when there is none, or while another thread
    /// finds that out.
    pub(crate) fn visit(&self, context: &Context, address: &str) -> Option<Arc<Visit>> {
        let now_ns = context.clock.now_ns();
        match &*self.state.try_read()? {
            State::Open(visit) if visit.is_alive() => return Some(Arc::clone(visit)),
            State::Closed(until_ns) if now_ns < *until_ns => return None,
            _ => {}
        }
        let mut state = self.state.try_write()?;
        if let State::Open(visit) = &*state
            && visit.is_alive()
        {
            return Some(Arc::clone(visit));
        }
        let (new, visit) = match enter(context, address, now_ns) {
            Ok(visit) => (State::Open(Arc::clone(&visit)), Some(visit)),
            Err(pause_ns) => (State::Closed(now_ns.saturating_add(pause_ns)), None),
        };
        *state = new;
        visit
    }
}

/// Asks a server for its door and goes through it. Err: for how long not to try again.
fn enter(context: &Context, address: &str, now_ns: u64) -> Result<Arc<Visit>, u64> {
    let deadline_ns = now_ns + ASK_NS_MAX;
    let message = proto::LocalDoorRequest {}.encode_to_vec();
    let pending = context.transport.submit(address, Method::LocalDoor, &message, &[], deadline_ns);
    // A server that does not know the method is as good as one that is elsewhere.
    let received = pending.wait().map_err(|_| ELSEWHERE_NS)?;
    let door = proto::LocalDoorResponse::decode(received.message.as_slice()).map_err(|_| ELSEWHERE_NS)?;
    if door.name.is_empty() || door.host == 0 || door.host != local::host() {
        return Err(ELSEWHERE_NS);
    }
    let visit = context.transport.visit(&door.name, deadline_ns).map_err(|fault| {
        tracing::debug!(%fault, address, "no short circuit to a data server of this machine");
        CLOSED_NS
    })?;
    tracing::debug!(address, "reading a data server of this machine directly");
    Ok(Arc::new(visit))
}
