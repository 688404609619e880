//! Hosts on one machine: network namespaces joined by a bridge that lives in a namespace of its own.
//!
//! ```text
//! host namespace          switch namespace
//! eth0 10.77.0.1/16 ───── port1 ─────────────────┐
//! eth0 10.77.0.2/16 ───── port2 ~ near2 ── far2 ── bridge 10.77.255.254     (a host with a delay)
//! ```
//! The machine's own namespace sees none of these links, and hosts of different networks never meet.

use super::Error;
use super::delay::{Delay, DelayBy, DelayLine, Interfaces};
use super::ledger::Ledger;
use super::line::{Carried, Line, site_of};
use super::link::{BitsPerSecond, shape};
use super::namespace::Namespace;
use super::probe::{self, End};
use super::undo::Made;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A machine that is busy for a moment gets so many looks before the delay is said to be wrong.
const DELAY_LOOKS: u32 = 4;

/// Hosts of one network: a Linux bridge has 1023 ports.
pub const HOSTS_MAX: usize = 1000;
/// Where the switch itself answers probes.
const SWITCH_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 254);
/// All hosts.
const NETWORK: &str = "10.77.0.0/16";
/// The bridge of the first site.
const BRIDGE: &str = "bridge";
const SWITCH_ETHERNET_ADDRESS: &str = "02:00:00:00:00:01";
/// A measured delay further off than this share contradicts its setting …
const DELAY_TOLERANCE: f64 = 0.15;
/// … unless it is only this much: what a busy processor adds.
const DELAY_TOLERANCE_MIN: Duration = Duration::from_millis(3);

/// A network of hosts. Dropping it kills what runs on them and removes them.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Arc<Host>>,
    lines: Vec<Arc<Line>>,
    switch: Arc<Namespace>,
    delay_by: DelayBy,
    ledger: Arc<Ledger>,
}

impl Network {
    /// Makes a network without hosts; delays will be the kernel's if it can, else a forwarder's.
    pub fn new() -> Result<Network, Error> {
        let mut network = Network::with_delay_by(DelayBy::Forwarder)?;
        network.delay_by = DelayBy::best(&network.switch)?;
        Ok(network)
    }

    /// Makes a network without hosts whose delays come from whom the caller says.
    pub fn with_delay_by(delay_by: DelayBy) -> Result<Network, Error> {
        let ledger = Arc::new(Ledger::open("a network of hosts")?);
        let switch = Namespace::create(&ledger, "switch")?;
        // Left to itself, a bridge takes and changes its address with its ports, and hosts lose sight of it.
        switch.ip(&["link", "add", BRIDGE, "address", SWITCH_ETHERNET_ADDRESS, "type", "bridge"])?;
        switch.ip(&["link", "set", BRIDGE, "up"])?;
        switch.ip(&["address", "add", &format!("{SWITCH_ADDRESS}/16"), "dev", BRIDGE])?;
        Ok(Network { hosts: Vec::new(), lines: Vec::new(), switch: Arc::new(switch), delay_by, ledger })
    }

    /// Adds a host, its link unbounded and without delay. `name` is at most 32 letters, digits and hyphens.
    pub fn add_host(&mut self, name: &str) -> Result<Arc<Host>, Error> {
        self.add_host_to(BRIDGE, name)
    }

    /// Adds a site that is reached by a line of `rate` each way.
    pub fn add_line(&mut self, rate: BitsPerSecond) -> Result<Arc<Line>, Error> {
        let line = Arc::new(Line::make(&self.switch, self.lines.len() + 1, rate)?);
        self.lines.push(line.clone());
        Ok(line)
    }

    /// Adds a host to the site beyond a line of this network.
    pub fn add_host_beyond(&mut self, line: &Arc<Line>, name: &str) -> Result<Arc<Host>, Error> {
        let known = self.lines.iter().position(|of_ours| Arc::ptr_eq(of_ours, line));
        let Some(index) = known else {
            return Err(Error::Refused(format!(
                "host {name}: the line is not of this network: add it there"
            )));
        };
        self.add_host_to(&site_of(index + 1), name)
    }

    fn add_host_to(&mut self, bridge: &str, name: &str) -> Result<Arc<Host>, Error> {
        let number = self.hosts.len() + 1;
        self.check_name(name, number)?;
        let namespace = Namespace::create(&self.ledger, &format!("host-{name}"))?;
        let address = address_of(number);
        let interfaces = Interfaces::of(number, bridge);
        let pair = ["type", "veth", "peer", "name", "eth0", "netns", namespace.name()];
        self.switch.ip(&[&["link", "add", &interfaces.port], &pair[..]].concat())?;
        self.switch.ip(&["link", "set", &interfaces.port, "master", bridge, "up"])?;
        namespace.ip(&["address", "add", &format!("{address}/16"), "dev", "eth0"])?;
        namespace.ip(&["link", "set", "eth0", "up"])?;
        let host = Arc::new(Host {
            name: name.to_owned(),
            address,
            namespace,
            interfaces,
            switch: self.switch.clone(),
            ledger: self.ledger.clone(),
            delay_by: self.delay_by,
            link: Mutex::default(),
        });
        self.hosts.push(host.clone());
        Ok(host)
    }

    /// All hosts, in the order in which they were added.
    pub fn hosts(&self) -> &[Arc<Host>] {
        &self.hosts
    }

    /// Who delays frames in this network.
    pub fn delay_by(&self) -> DelayBy {
        self.delay_by
    }

    fn check_name(&self, name: &str, number: usize) -> Result<(), Error> {
        let letters = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-');
        if name.is_empty() || name.len() > 32 || !letters {
            return Err(Error::Refused(format!(
                "{name:?} is no host name: use 1 to 32 letters, digits and hyphens"
            )));
        }
        if self.hosts.iter().any(|host| host.name == name) {
            return Err(Error::Refused(format!("there is a host {name} already: choose another name")));
        }
        if number > HOSTS_MAX {
            return Err(Error::Refused(format!(
                "a network has at most {HOSTS_MAX} hosts: make a second network"
            )));
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A remaining handle on a host must not keep the hosts alive.
        for host in &self.hosts {
            host.lock().line = None;
        }
        self.ledger.close();
    }
}

fn address_of(host_number: usize) -> Ipv4Addr {
    let index = host_number - 1;
    Ipv4Addr::new(10, 77, (index / 250) as u8, (index % 250 + 1) as u8)
}

#[derive(Debug, Default)]
struct Link {
    rate: Option<BitsPerSecond>,
    line: Option<DelayLine>,
}

/// A host of a [`Network`]; of no use once its network is dropped.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    link: Mutex<Link>,
    interfaces: Interfaces,
    namespace: Namespace,
    switch: Arc<Namespace>,
    ledger: Arc<Ledger>,
    delay_by: DelayBy,
}

impl Host {
    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address, which all hosts of its network reach.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A command that runs on this host: its network, and otherwise the files, mounts and users of the machine.
    ///
    /// It replaces itself by `program`, so the child's id is the program's. What still runs on the host when the
    /// network is dropped is killed.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Runs `work` on a thread of this process that sees the host's network. Sockets opened there, and threads started
    /// there, stay on the host.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.namespace.inside(work)
    }

    /// Has what a program of this host mounts on `directory` unmounted with the network, also by [`super::sweep`] once
    /// this process was killed: a mount whose program is gone would stay, and fail every call.
    pub fn unmount_at_end(&self, directory: &Path) -> Result<(), Error> {
        self.ledger.record(&Made::Mount(directory.to_owned()))
    }

    /// Bounds the link to `rate` in each direction, or lifts the bound; also while data flows.
    pub fn set_rate(&self, rate: Option<BitsPerSecond>) -> Result<(), Error> {
        let mut link = self.lock();
        shape(&self.namespace, "eth0", rate)?;
        shape(&self.switch, self.switch_end(&link), rate)?;
        link.rate = rate;
        Ok(())
    }

    /// Has TCP of this host use a congestion control of the kernel's, for connections that begin from now on. It
    /// belongs to the route (ip-route(8), `congctl`): a namespace's setting takes only what all users may have.
    pub fn set_congestion_control(&self, name: &str) -> Result<(), Error> {
        let source = self.address.to_string();
        let way = ["route", "replace", NETWORK, "dev", "eth0", "proto", "kernel", "scope", "link"];
        self.namespace.ip(&[&way[..], &["src", &source, "congctl", name]].concat()).map(|_| ())
    }

    /// Delays the link in each direction, also while data flows, and measures whether it does.
    ///
    /// Fails if the round trip measured to the switch is more than 15% (or 3 ms) off the setting.
    pub fn set_delay(&self, delay: Delay) -> Result<(), Error> {
        delay.check()?;
        self.apply_delay(delay)?;
        // A link that loses everything answers no probe.
        if delay.loss_per_million > 500_000 { Ok(()) } else { self.verify(delay) }
    }

    /// The round trip between this host and the switch: twice its delay, and what the machine adds.
    pub fn measured_rtt(&self) -> Result<Duration, Error> {
        probe::round_trip(self.end(), self.switch_probe(), 3, Delay::ONE_WAY_MAX * 2 + Duration::from_secs(1))
    }

    /// The round trip between this host and another of its network.
    pub fn measured_rtt_to(&self, other: &Host) -> Result<Duration, Error> {
        probe::round_trip(self.end(), other.end(), 3, Delay::ONE_WAY_MAX * 4 + Duration::from_secs(1))
    }

    /// The payload that one TCP stream to `other` carries, in bits a second, measured for `measured` after `warm_up`.
    pub fn measured_tcp_rate_to(
        &self,
        other: &Host,
        warm_up: Duration,
        measured: Duration,
    ) -> Result<f64, Error> {
        probe::tcp_rate(self.end(), other.end(), warm_up, measured)
    }

    /// Bytes that its link has carried until now, whole frames: from the host, and to it.
    pub fn carried(&self) -> Result<Carried, Error> {
        let counted = |name: &str| self.namespace.counter("eth0", name);
        Ok(Carried { out_bytes: counted("tx_bytes")?, back_bytes: counted("rx_bytes")? })
    }

    /// Frames lost because the delay line had too much under way: not zero means that the experiment measured that.
    pub fn delay_overflowed(&self) -> u64 {
        self.lock().line.as_ref().map_or(0, DelayLine::overflowed)
    }

    fn apply_delay(&self, delay: Delay) -> Result<(), Error> {
        let mut link = self.lock();
        if link.line.is_none() {
            shape(&self.switch, &self.interfaces.port, None)?;
            link.line = Some(DelayLine::insert(&self.ledger, &self.switch, &self.interfaces, self.delay_by)?);
            shape(&self.switch, &self.interfaces.far, link.rate)?;
        }
        self.set_frame_size(delay, &link)?;
        let line = link.line.as_ref().expect("put in above");
        line.set(&self.switch, &self.interfaces, delay)
    }

    /// Lets a lossy link carry single packets, since losing 64 KiB at a time is not what a lossy link does.
    fn set_frame_size(&self, delay: Delay, link: &Link) -> Result<(), Error> {
        let packets = if delay.loss_per_million > 0 { "1" } else { "65535" };
        self.namespace.ip(&["link", "set", "eth0", "gso_max_segs", packets])?;
        self.switch.ip(&["link", "set", self.switch_end(link), "gso_max_segs", packets]).map(|_| ())
    }

    fn verify(&self, delay: Delay) -> Result<(), Error> {
        let wanted = delay.one_way * 2;
        let mut measured = Duration::ZERO;
        for _ in 0..DELAY_LOOKS {
            measured = self.measured_rtt()?;
            if measured.abs_diff(wanted) <= DELAY_TOLERANCE_MIN.max(wanted.mul_f64(DELAY_TOLERANCE)) {
                return Ok(());
            }
        }
        let name = &self.name;
        Err(Error::Refused(format!(
            "the link of host {name} was set to a round trip of {wanted:?} and has {measured:?}: \
             is this machine too busy to keep time?"
        )))
    }

    /// The interface of the switch by which data leaves for this host.
    fn switch_end(&self, link: &Link) -> &str {
        if link.line.is_some() { &self.interfaces.far } else { &self.interfaces.port }
    }

    fn end(&self) -> End<'_> {
        End { namespace: &self.namespace, address: self.address }
    }

    fn switch_probe(&self) -> End<'_> {
        End { namespace: &self.switch, address: SWITCH_ADDRESS }
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_an_address_of_its_own_that_is_not_the_switch() {
        let addresses: std::collections::BTreeSet<_> = (1..=HOSTS_MAX).map(address_of).collect();
        assert_eq!(addresses.len(), HOSTS_MAX);
        assert_eq!(address_of(1), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(address_of(251), Ipv4Addr::new(10, 77, 1, 1));
        assert!(!addresses.contains(&SWITCH_ADDRESS));
    }
}
