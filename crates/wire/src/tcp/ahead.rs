//! Connections made in the background before a call needs them, each by a short-lived thread.
//!
//! A connection takes two round trips before its first request, which is expensive over a long distance. A caller
//! that is about to talk to several servers has all of these connections made in parallel. A thread without a
//! connection of its own to a server uses another thread's until its own is established.

use super::link::Link;
use super::peer::{At, CONNECT_AGAIN, Peer, Place, TcpTransport};
use super::socket;
use std::sync::Arc;

/// Round trips longer than this are worth not waiting for: on the same network they are ten times shorter, and the
/// thread that connects costs more.
pub(super) const FAR_NS: u64 = 5_000_000;

/// So many bytes of one request fill more than what TCP sends at once over a connection that has rested: one that has
/// just sent sends them sooner. Threads that take turns, each on its own, would begin slowly each time.
const MANY_BYTES: usize = 64 * 1024;

/// A thread that connects nests a few calls.
const STACK_BYTES: usize = 256 * 1024;

impl TcpTransport {
    /// The calling thread's connection to a server far away or, until that is established, another thread's. A
    /// request of many `bytes` gets the first connection that can send them at once.
    pub(super) fn far_link(&self, peer: &Arc<Peer>, at: At, bytes: usize) -> Option<Arc<Link>> {
        let mut usable = peer.links.iter().filter_map(Place::usable);
        if bytes >= MANY_BYTES
            && let Some(free) = usable.find(|link| link.is_free_to_send())
        {
            return Some(free);
        }
        if let Some(link) = peer.place(at).usable() {
            return Some(link);
        }
        let other = peer.links.iter().find_map(Place::usable)?;
        let connect_ns = u64::from(self.options.connect_ms_max) * 1_000_000;
        self.make_link(peer, at, self.clock.now_ns() + connect_ns);
        Some(other)
    }

    /// Whether the calling thread's next request to `address` is sent without connecting first.
    pub(super) fn has_link(&self, address: &str) -> bool {
        let Some(peer) = self.known_peer(address) else { return false };
        let place = peer.place(peer.at());
        place.usable().is_some() || place.attempt.is_locked()
    }

    /// Whether the calling thread has a connection to `address`; it is made where it is missing.
    pub(super) fn is_link_ready(&self, address: &str) -> bool {
        let peer = self.peer(address);
        if peer.place(peer.at()).usable().is_some() {
            return true;
        }
        let connect_ns = u64::from(self.options.connect_ms_max) * 1_000_000;
        self.make_link(&peer, peer.at(), self.clock.now_ns() + connect_ns);
        false
    }

    /// Has the calling thread's connections made.
    pub(super) fn make_links(&self, addresses: &[&str], deadline_ns: u64) {
        for address in addresses {
            let peer = self.peer(address);
            self.make_link(&peer, peer.at(), deadline_ns);
        }
    }

    /// Has the connection at a place made, unless it exists, has just failed, or is being made.
    fn make_link(&self, peer: &Arc<Peer>, at: At, deadline_ns: u64) {
        let place = peer.place(at);
        let Some(mut attempt) = place.attempt.try_lock() else { return };
        let now_ns = self.clock.now_ns();
        let again_ns = u64::try_from(CONNECT_AGAIN.as_nanos()).unwrap_or(u64::MAX);
        let has_failed = attempt
            .failed
            .as_ref()
            .is_some_and(|(failed_ns, _)| now_ns.saturating_sub(*failed_ns) < again_ns);
        if attempt.is_expected || has_failed || place.usable().is_some() {
            return;
        }
        let (own, core) = (self.own.clone(), socket::current_core());
        let theirs = Arc::clone(peer);
        let thread = std::thread::Builder::new().name("vazao-connect".to_owned()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            let connected = own.upgrade().map(|own| own.link_at(&theirs, at, core, deadline_ns, None));
            if let Some(Err(fault)) = connected {
                tracing::debug!(%fault, "cannot connect ahead of a request");
            }
            theirs.place(at).attempt.lock().is_expected = false;
        });
        // Without a thread the next call that needs the connection makes it.
        attempt.is_expected = spawned.is_ok();
    }
}
