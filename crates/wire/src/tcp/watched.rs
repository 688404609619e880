//! The connections that are open, so that what the kernel counts for them can be asked at any moment from any thread.

use super::pacing;
use super::socket::Socket;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_meter::measures::{Connection, Peer};
use vazao_meter::tcp_info;

/// Connections of one peer that are reported one by one: those that moved most.
const CONNECTIONS_MAX: usize = 32;

/// Hosts that are reported: those that moved most.
const PEERS_MAX: usize = 128;

/// All open connections of a server or a client.
#[derive(Debug, Default)]
pub(super) struct Watched {
    open: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Open {
    stream: Arc<Socket>,
    /// What the connections are grouped by.
    address: String,
    /// Both ends are on this machine.
    is_within: bool,
}

/// A connection's entry; it ends with this.
#[derive(Debug)]
pub(super) struct Entry {
    watched: Arc<Watched>,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let gone = self.watched.open.lock().remove(&self.id);
        // Closed outside the lock.
        drop(gone);
    }
}

impl Watched {
    /// Watches a connection to or from `address`.
    pub(super) fn enter(self: &Arc<Watched>, stream: &Arc<Socket>, address: String) -> Entry {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let is_within = stream.tcp().is_none_or(is_within_machine);
        self.open.lock().insert(id, Open { stream: Arc::clone(stream), address, is_within });
        Entry { watched: Arc::clone(self), id }
    }

    /// What the kernel counts for each of those that leave the machine.
    pub(super) fn counts(&self) -> Vec<Connection> {
        let open = self.open.lock();
        let leaving = open.iter().filter(|(_, open)| !open.is_within);
        leaving.filter_map(|(&id, open)| tcp_info::connection(open.stream.tcp()?, id)).collect()
    }

    /// How fast one sends at most; `None`: it has ended, or that cannot be asked.
    pub(super) fn pace_of(&self, id: u64) -> Option<u64> {
        self.open.lock().get(&id).and_then(|open| open.stream.tcp()).and_then(pacing::get)
    }

    /// Has one that sends at the one pace send at the other.
    pub(super) fn change_pace(&self, id: u64, from: u64, to: u64) {
        let open = self.open.lock();
        if let Some(stream) = open.get(&id).and_then(|open| open.stream.tcp())
            && pacing::get(stream) == Some(from)
        {
            pacing::set_rate(stream, to);
        }
    }

    /// How fast those that are paced send at most.
    #[cfg(test)]
    pub(super) fn paces(&self) -> Vec<u64> {
        let open = self.open.lock();
        let paces = open.values().filter_map(|open| open.stream.tcp()).filter_map(pacing::get);
        paces.filter(|pace| *pace != super::lines::UNPACED).collect()
    }

    /// The kernel's counters, by peer.
    pub(super) fn peers(&self) -> Vec<Peer> {
        let mut peers: BTreeMap<String, Peer> = BTreeMap::new();
        for (&id, open) in self.open.lock().iter() {
            // Of a connection within the machine the kernel counts nothing.
            let Some(stream) = open.stream.tcp() else { continue };
            let Some(connection) = tcp_info::connection(stream, id) else { continue };
            let peer = peers.entry(open.address.clone()).or_insert_with(|| Peer {
                address: open.address.clone(),
                local: stream.local_addr().map_or(String::new(), |local| local.ip().to_string()),
                ..Peer::default()
            });
            peer.connections.push(connection);
        }
        let mut peers: Vec<Peer> = peers.into_values().collect();
        let moved = |c: &Connection| c.sent_bytes.saturating_add(c.received_bytes);
        let all_moved = |p: &Peer| p.connections.iter().map(moved).fold(0u64, u64::saturating_add);
        for peer in &mut peers {
            peer.connections.sort_by_key(|connection| std::cmp::Reverse(moved(connection)));
            peer.connections.truncate(CONNECTIONS_MAX);
        }
        peers.sort_by_key(|peer| std::cmp::Reverse(all_moved(peer)));
        peers.truncate(PEERS_MAX);
        peers
    }
}

fn is_within_machine(stream: &TcpStream) -> bool {
    let ends = stream.local_addr().and_then(|local| Ok((local.ip(), stream.peer_addr()?.ip())));
    ends.is_ok_and(|(local, peer)| local == peer || peer.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn open_connections_are_counted_by_peer_until_they_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let watched = Arc::new(Watched::default());
        let mut entries = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).expect("connects");
            let (mut served, _) = listener.accept().expect("accepted");
            client.write_all(b"hello").expect("sent");
            let client = Arc::new(Socket::Tcp(client));
            served.read_exact(&mut [0; 5]).expect("received");
            entries.push((watched.enter(&client, address.to_string()), served));
        }
        let peers = watched.peers();
        assert_eq!((peers.len(), peers[0].connections.len()), (1, 2));
        assert!(watched.counts().is_empty(), "they leave no machine");
        // One that is paced for a line meanwhile keeps that.
        let (first, second) = (entries[0].0.id, entries[1].0.id);
        watched.change_pace(first, crate::tcp::lines::UNPACED, 200_000);
        watched.change_pace(second, 1, 200_000);
        assert_eq!((watched.paces(), watched.pace_of(first)), (vec![200_000], Some(200_000)));
        watched.change_pace(first, 200_000, crate::tcp::lines::UNPACED);
        assert_eq!(watched.paces(), []);
        assert_eq!((peers[0].address.clone(), peers[0].local.as_str()), (address.to_string(), "127.0.0.1"));
        drop(entries.pop());
        assert_eq!(watched.peers()[0].connections.len(), 1);
        drop(entries);
        assert!(watched.peers().is_empty());
    }
}
