//! The delay of a host's link: by the kernel's `netem` where it has it, else by a forwarder in user space.
//!
//! Either way the link is cut open between the host's port and the bridge, and a second pair of interfaces is put in:
//! `port ~ near = far - bridge`. The gap `~` is closed by a bridge of two ports that both delay what leaves (netem), or
//! by two tap devices with the forwarder between them. The token bucket towards the host moves to `far`, so that
//! frames wait for the rate first and travel then, in both directions. A host's taps are macvtap interfaces, which need
//! nothing but a device node to be opened.

use super::Error;
use super::forwarder::Forwarder;
use super::ledger::Ledger;
use super::namespace::Namespace;
use super::tool;
use super::undo::Made;
use rustix::fs::{FileType, Mode, OFlags, makedev, mknodat, open};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Frames that the kernel's `netem` may hold: 200 ms of 10 Gb/s in small frames. Its default loses beyond 1000.
const NETEM_FRAMES_MAX: &str = "200000";
/// Frames that wait in a tap for the forwarder to run.
const TAP_FRAMES_MAX: &str = "10000";

/// How long a frame travels between a host and the bridge, and how many are lost on the way, each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// The time of one way; a round trip takes twice as long, plus that of the other host.
    pub one_way: Duration,
    /// Frames lost of a million.
    pub loss_per_million: u32,
}

impl Delay {
    /// The longest one way: beyond any cable on Earth, and within what the forwarder's queue is made for.
    pub const ONE_WAY_MAX: Duration = Duration::from_secs(2);

    /// A delay without loss.
    pub fn one_way(one_way: Duration) -> Delay {
        Delay { one_way, loss_per_million: 0 }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        if self.one_way > Self::ONE_WAY_MAX {
            let asked = self.one_way;
            return Err(Error::Refused(format!("a delay of {asked:?} one way is too long: at most 2 s")));
        }
        if self.loss_per_million > 1_000_000 {
            let asked = self.loss_per_million;
            return Err(Error::Refused(format!(
                "{asked} frames of a million cannot be lost: at most 1000000"
            )));
        }
        Ok(())
    }
}

/// Who delays frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayBy {
    /// The kernel's `netem`.
    Kernel,
    /// Threads of this process.
    Forwarder,
}

impl DelayBy {
    /// `netem` if this kernel has it.
    pub(crate) fn best(switch: &Namespace) -> Result<DelayBy, Error> {
        if switch.tc(&["qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]).is_err() {
            return Ok(DelayBy::Forwarder);
        }
        switch.tc(&["qdisc", "del", "dev", "lo", "root"])?;
        Ok(DelayBy::Kernel)
    }
}

/// The names of one host's interfaces in the switch.
#[derive(Debug)]
pub(crate) struct Interfaces {
    pub(crate) port: String,
    pub(crate) near: String,
    pub(crate) far: String,
    /// The bridge of the host's site.
    pub(crate) bridge: String,
}

impl Interfaces {
    pub(crate) fn of(host_number: usize, bridge: &str) -> Interfaces {
        let name = |role: &str| format!("{role}{host_number}");
        Interfaces { port: name("port"), near: name("near"), far: name("far"), bridge: bridge.to_owned() }
    }
}

/// A link cut open and delayed.
#[derive(Debug)]
pub(crate) enum DelayLine {
    Kernel,
    Forwarder(Forwarder),
}

impl DelayLine {
    /// Cuts the link open and closes the gap again, as yet without delay.
    pub(crate) fn insert(
        ledger: &Ledger,
        switch: &Namespace,
        link: &Interfaces,
        by: DelayBy,
    ) -> Result<DelayLine, Error> {
        // These ends only pass frames on: the switch must not answer for its own address there.
        switch.ip(&["link", "set", &link.port, "nomaster", "arp", "off"])?;
        switch.ip(&["link", "add", &link.near, "type", "veth", "peer", "name", &link.far])?;
        switch.ip(&["link", "set", &link.near, "arp", "off", "up"])?;
        switch.ip(&["link", "set", &link.far, "master", &link.bridge, "up"])?;
        match by {
            DelayBy::Kernel => join_by_bridge(switch, link).map(|()| DelayLine::Kernel),
            DelayBy::Forwarder => {
                let towards_host = open_tap(ledger, switch, &link.port)?;
                let towards_bridge = open_tap(ledger, switch, &link.near)?;
                Forwarder::start(towards_host, towards_bridge).map(DelayLine::Forwarder)
            }
        }
    }

    /// Sets the delay, also while frames are under way.
    pub(crate) fn set(&self, switch: &Namespace, link: &Interfaces, delay: Delay) -> Result<(), Error> {
        match self {
            DelayLine::Forwarder(forwarder) => forwarder.set(delay.one_way, delay.loss_per_million),
            DelayLine::Kernel => {
                for device in [&link.port, &link.near] {
                    let arguments = netem_arguments(device, delay);
                    switch.tc(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
                }
            }
        }
        Ok(())
    }

    /// Frames that the forwarder lost because too much was under way; the kernel's are counted by the kernel.
    pub(crate) fn overflowed(&self) -> u64 {
        match self {
            DelayLine::Kernel => 0,
            DelayLine::Forwarder(forwarder) => forwarder.overflowed(),
        }
    }
}

fn join_by_bridge(switch: &Namespace, link: &Interfaces) -> Result<(), Error> {
    let joint = format!("joint-{}", link.port);
    switch.ip(&["link", "add", &joint, "type", "bridge"])?;
    switch.ip(&["link", "set", &joint, "up"])?;
    switch.ip(&["link", "set", &link.port, "master", &joint])?;
    switch.ip(&["link", "set", &link.near, "master", &joint]).map(|_| ())
}

fn netem_arguments(device: &str, delay: Delay) -> Vec<String> {
    let fixed = ["qdisc", "replace", "dev", device, "root", "netem", "limit", NETEM_FRAMES_MAX, "delay"];
    let mut arguments: Vec<String> = fixed.map(str::to_owned).to_vec();
    arguments.push(format!("{}us", delay.one_way.as_micros()));
    if delay.loss_per_million > 0 {
        arguments.push("loss".to_owned());
        arguments.push(format!("{:.4}%", f64::from(delay.loss_per_million) / 10_000.0));
    }
    arguments
}

/// Puts a tap on an interface that takes all its frames and speaks for it.
fn open_tap(ledger: &Ledger, switch: &Namespace, device: &str) -> Result<File, Error> {
    let tap = format!("tap-{device}");
    let kind = ["txqueuelen", TAP_FRAMES_MAX, "type", "macvtap", "mode", "passthru"];
    switch.ip(&[&["link", "add", "link", device, "name", &tap], &kind[..]].concat()).map_err(|error| {
        match error {
            Error::Tool { output, .. } if output.contains("Unknown device type") => {
                let remedy =
                    "load the module macvtap, or use a kernel with CONFIG_MACVTAP or CONFIG_NET_SCH_NETEM";
                Error::Missing { thing: "macvtap".to_owned(), remedy }
            }
            other => other,
        }
    })?;
    switch.ip(&["link", "set", &tap, "arp", "off", "allmulticast", "on", "up"])?;
    let (major, minor) = tap_numbers(switch, &tap)?;
    open_device(ledger, &tap, makedev(major, minor))
}

/// The kernel's own node `/dev/tapN` counts interfaces of one namespace, so two networks would meet in one name.
fn open_device(ledger: &Ledger, tap: &str, device: u64) -> Result<File, Error> {
    let path = Path::new("/dev").join(format!("{}-{tap}", ledger.name()));
    ledger.record(&Made::File(path.clone()))?;
    mknodat(rustix::fs::CWD, &path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, device)
        .map_err(Error::at_call(path.display()))?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open(&path, flags, Mode::empty()).map_err(Error::at_call(path.display()));
    std::fs::remove_file(&path).map_err(Error::at(path.display()))?;
    opened.map(File::from)
}

/// The device numbers of a tap: only its own namespace's view of `/sys` shows them.
fn tap_numbers(switch: &Namespace, tap: &str) -> Result<(u32, u32), Error> {
    let script = format!("cat /sys/class/net/{tap}/macvtap/tap*/dev");
    let text = tool::run("ip", &["netns", "exec", switch.name(), "sh", "-c", &script])?;
    let numbers = text.trim().split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    numbers
        .ok_or_else(|| Error::Refused(format!("the device numbers of {tap} are unreadable: {}", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netem_is_told_the_delay_in_microseconds_and_the_loss_only_if_there_is_one() {
        let plain = netem_arguments("port1", Delay::one_way(Duration::from_millis(50)));
        assert_eq!(plain.join(" "), "qdisc replace dev port1 root netem limit 200000 delay 50000us");
        let lossy = netem_arguments("near1", Delay { one_way: Duration::ZERO, loss_per_million: 5_000 });
        assert!(lossy.join(" ").ends_with("delay 0us loss 0.5000%"));
    }

    #[test]
    fn a_delay_that_no_link_has_is_refused() {
        Delay::one_way(Duration::from_secs(3)).check().expect_err("too long");
        Delay { one_way: Duration::ZERO, loss_per_million: 1_000_001 }.check().expect_err("more than all");
        Delay { one_way: Duration::from_secs(2), loss_per_million: 1_000_000 }
            .check()
            .expect("the limits themselves");
    }
}
