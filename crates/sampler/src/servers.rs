//! Which processes of this machine serve a cluster: the owners of its nodes' listening ports.
//!
//! The cluster map knows addresses, not processes. For an address of this machine the kernel knows who listens there:
//! `/proc/net/tcp` gives the socket's inode, `/proc/PID/fd` its owner. That needs no help from the daemons and works
//! the same for `vazao up` and for nodes started by hand; it needs root, or daemons of the same user. Nodes on
//! other machines are named as not watched.

use crate::recorder::Watched;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use vazao_model::ClusterMap;

/// The `st` column of `/proc/net/tcp` for a listening socket.
const LISTENING: &str = "0A";

/// The servers that can be watched, and the names of those that cannot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Servers {
    /// One entry a process; a process of several nodes carries all their names.
    pub watched: Vec<Watched>,
    /// Nodes on other machines, or of other users.
    pub unwatched: Vec<String>,
}

/// Finds the processes behind the nodes of `map`.
pub fn find(map: &ClusterMap) -> Servers {
    let nodes: Vec<(String, String)> =
        map.nodes.iter().map(|n| (n.name.clone(), n.address.clone())).collect();
    find_listeners(&nodes)
}

/// Finds the processes that listen at the given addresses, as pairs of name and `host:port`.
pub fn find_listeners(nodes: &[(String, String)]) -> Servers {
    let sockets = listening_sockets();
    let owners = socket_owners();
    let mut by_process: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut unwatched = Vec::new();
    for (name, address) in nodes {
        let port = local_port(address);
        let inodes = sockets.iter().filter(|(listening, _)| Some(*listening) == port);
        match inodes.filter_map(|(_, inode)| owners.get(inode)).max() {
            Some(&pid) => by_process.entry(pid).or_default().push(name.clone()),
            None => unwatched.push(name.clone()),
        }
    }
    let watched =
        by_process.into_iter().map(|(pid, names)| Watched { name: names.join("+"), pid: Some(pid) });
    Servers { watched: watched.collect(), unwatched }
}

/// The port of `address` when it lies on this machine.
fn local_port(address: &str) -> Option<u16> {
    let mut resolved = address.to_socket_addrs().ok()?;
    resolved.find(|socket| is_local(socket.ip())).map(|socket| socket.port())
}

/// Only addresses of this machine can be bound to.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

/// Ports listened on with their sockets' inodes, IPv4 and IPv6.
fn listening_sockets() -> Vec<(u16, u64)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let lines = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    lines.flat_map(|text| text.lines().filter_map(listening_socket).collect::<Vec<_>>()).collect()
}

/// `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …`; addresses are `HEX:PORT`.
fn listening_socket(line: &str) -> Option<(u16, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    let is_listening = *fields.get(3)? == LISTENING;
    is_listening.then(|| Some((u16::from_str_radix(port, 16).ok()?, fields.get(9)?.parse().ok()?)))?
}

/// The process of each socket. Where several share one (a parent that passed it on), the youngest counts.
fn socket_owners() -> BTreeMap<u64, u32> {
    let mut owners = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        for descriptor in fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            let inode =
                target.to_str().and_then(|t| t.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode {
                let owner = owners.entry(inode).or_insert(pid);
                *owner = pid.max(*owner);
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listening_process_is_found_by_its_port_and_named_after_all_its_nodes() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let second = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let nodes = [("meta-1".to_owned(), address(&first)), ("data-1".to_owned(), address(&second))];
        let servers = find_listeners(&nodes);
        let expected = Watched { name: "meta-1+data-1".to_owned(), pid: Some(std::process::id()) };
        assert_eq!(servers, Servers { watched: vec![expected], unwatched: Vec::new() });
    }

    #[test]
    fn nodes_elsewhere_and_ports_nobody_listens_on_are_named_as_unwatched() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let nodes = [("far".to_owned(), "192.0.2.1:7000".to_owned()), ("down".to_owned(), closed)];
        assert_eq!(find_listeners(&nodes).unwatched, ["far", "down"]);
    }

    #[test]
    fn only_listening_sockets_count() {
        let line = |state: &str| {
            format!(
                "   0: 0100007F:1F90 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 4711 1 0"
            )
        };
        assert_eq!(listening_socket(&line("0A")), Some((8080, 4711)));
        assert_eq!(listening_socket(&line("01")), None);
        assert_eq!(listening_socket("  sl  local_address rem_address   st tx_queue"), None);
    }
}
