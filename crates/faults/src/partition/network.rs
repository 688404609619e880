//! Hosts on one machine whose links can be cut: network namespaces joined by a bridge in a namespace of its own.
//!
//! ```text
//! host namespace          switch namespace
//! eth0 10.78.0.1/24 ───── port1 ── bridge
//! eth0 10.78.0.2/24 ───── port2 ── bridge
//! ```
//! Nothing is left behind: the namespaces are mounted in the enclosure's own `/run`, and end with the last process in
//! it. A cut from one host to another is silent, as on a real network: the sender then takes an Ethernet address that
//! no host has for the receiver's. The other direction stays as it is. All hosts know the addresses of all others from
//! the beginning: to resolve them anew after a cut would take its own time.

use crate::failure::{Failure, Outcome};
use crate::tool::{command, run, tool};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;

/// An Ethernet address that no host has.
const NO_HOST: &str = "02:00:00:00:ff:ff";

/// The namespace of the bridge.
const SWITCH: &str = "switch";

/// Where named namespaces are (ip-netns(8)).
const NAMESPACES: &str = "/run/netns";

/// A host, by its place among the names that the network was made with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HostId(pub(crate) usize);

/// What is cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// What the first host sends to the second one gets lost, for each of these pairs.
    Ways(BTreeSet<(HostId, HostId)>),
    /// The host's cable is pulled: its interface loses the carrier, as does the port of the switch.
    Cable(HostId),
}

/// Hosts and their switch.
#[derive(Debug)]
pub(crate) struct Network {
    hosts: Vec<String>,
}

impl Network {
    /// Makes a network. To be called within the enclosure, whose `/run` is its own.
    pub(crate) fn make(hosts: &[&str]) -> Outcome<Network> {
        tool("ip", &["netns", "add", SWITCH])?;
        // Left to itself, a bridge takes and changes its address with its ports, and hosts lose sight of it.
        let bridge = ["link", "add", "bridge", "address", "02:00:00:00:00:01", "type", "bridge"];
        in_namespace(SWITCH, &bridge)?;
        in_namespace(SWITCH, &["link", "set", "bridge", "up"])?;
        let network = Network { hosts: hosts.iter().map(|&host| host.to_owned()).collect() };
        (0..hosts.len()).try_for_each(|host| network.add(HostId(host)))?;
        network.all_ways().try_for_each(|(from, to)| network.resolve(from, to, &ethernet_address(to)))?;
        Ok(network)
    }

    fn add(&self, host: HostId) -> Outcome {
        let (name, port) = (self.name(host), port(host));
        tool("ip", &["netns", "add", name])?;
        let address = ethernet_address(host);
        let peer = ["type", "veth", "peer", "name", "eth0", "address", &address, "netns", name];
        in_namespace(SWITCH, &[&["link", "add", &port], &peer[..]].concat())?;
        in_namespace(SWITCH, &["link", "set", &port, "master", "bridge", "up"])?;
        in_namespace(name, &["link", "set", "lo", "up"])?;
        in_namespace(name, &["address", "add", &format!("{}/24", self.address(host)), "dev", "eth0"])?;
        in_namespace(name, &["link", "set", "eth0", "up"]).map(drop)
    }

    /// A host's name.
    pub(crate) fn name(&self, host: HostId) -> &str {
        &self.hosts[host.0]
    }

    /// A host's address.
    pub(crate) fn address(&self, host: HostId) -> String {
        format!("10.78.0.{}", host.0 + 1)
    }

    /// A command that runs on a host: its network, and otherwise the files and mounts of the enclosure.
    pub(crate) fn command(&self, host: HostId, program: impl AsRef<OsStr>) -> Command {
        let mut command = command("nsenter");
        command.arg(format!("--net={NAMESPACES}/{}", self.name(host))).arg("--").arg(program);
        command
    }

    /// Cuts.
    pub(crate) fn cut(&self, cut: &Cut) -> Outcome {
        match cut {
            Cut::Cable(host) => in_namespace(SWITCH, &["link", "set", &port(*host), "down"]).map(drop),
            Cut::Ways(ways) => ways.iter().try_for_each(|(from, to)| self.resolve(*from, *to, NO_HOST)),
        }
    }

    /// Takes a cut back.
    pub(crate) fn heal(&self, cut: &Cut) -> Outcome {
        match cut {
            Cut::Cable(host) => in_namespace(SWITCH, &["link", "set", &port(*host), "up"]).map(drop),
            Cut::Ways(ways) => {
                ways.iter().try_for_each(|(from, to)| self.resolve(*from, *to, &ethernet_address(*to)))
            }
        }
    }

    fn all_ways(&self) -> impl Iterator<Item = (HostId, HostId)> + use<> {
        let count = self.hosts.len();
        let pairs = (0..count).flat_map(move |from| (0..count).map(move |to| (HostId(from), HostId(to))));
        pairs.filter(|(from, to)| from != to)
    }

    /// Has a host take this Ethernet address for another one's.
    fn resolve(&self, from: HostId, to: HostId, address: &str) -> Outcome {
        let to = self.address(to);
        let lasting = ["neighbour", "replace", &to, "lladdr", address, "dev", "eth0", "nud", "permanent"];
        in_namespace(self.name(from), &lasting).map(drop)
    }

    /// Tries a cut of each kind on the way from one host to a port of another: one that cuts nothing would let every
    /// round pass.
    pub(crate) fn check(&self, from: HostId, to: HostId, port: u16) -> Outcome {
        let way = BTreeSet::from([(from, to)]);
        let back = BTreeSet::from([(to, from)]);
        for cut in [Cut::Ways(way), Cut::Ways(back), Cut::Cable(to)] {
            self.cut(&cut)?;
            let is_cut = !self.reaches(from, to, port, 1);
            self.heal(&cut)?;
            // A new connection may need its first packet sent again.
            let is_healed = self.reaches(from, to, port, 20);
            if !is_cut || !is_healed {
                let text = self.describe(&cut);
                return Err(Failure::new(format!(
                    "cut {text}: it is cut: {is_cut}, it is healed: {is_healed}"
                )));
            }
        }
        Ok(())
    }

    fn reaches(&self, from: HostId, to: HostId, port: u16, seconds: u32) -> bool {
        let mut connect = self.command(from, "timeout");
        connect.args([&seconds.to_string(), "bash", "-c", &format!("</dev/tcp/{}/{port}", self.address(to))]);
        run(connect).is_ok()
    }

    /// A cut, for people.
    pub(crate) fn describe(&self, cut: &Cut) -> String {
        match cut {
            Cut::Cable(host) => format!("the cable of {}", self.name(*host)),
            Cut::Ways(ways) => {
                let way = |(from, to): &(HostId, HostId)| format!("{}→{}", self.name(*from), self.name(*to));
                ways.iter().map(way).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

fn ethernet_address(host: HostId) -> String {
    format!("02:00:00:00:01:{:02x}", host.0 + 1)
}

fn port(host: HostId) -> String {
    format!("port{}", host.0 + 1)
}

fn in_namespace(name: &str, arguments: &[&str]) -> Outcome<String> {
    tool("ip", &[&["-n", name], arguments].concat())
}
