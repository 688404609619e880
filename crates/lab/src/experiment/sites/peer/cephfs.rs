//! CephFS: a monitor and a metadata server on the metadata service's host, an object storage daemon (BlueStore in a
//! sparse file) on each data server's, `ceph-fuse` on those of the clients.
//!
//! There is no manager, as in the study's time: it is not in the way of data, and would be reported to over the line.
//! Objects of 4 MiB lie on all storage daemons by their hash. cephx is on, as by default; one file has the keys of all.

use super::super::installed::require;
use super::mounts::Mounts;
use super::{Daemon, System, answers, directory};
use crate::Error;
use crate::experiment::Lab;
use crate::experiment::testbed::Testbed;
use crate::hosts::Host;
use serde::Deserialize;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const NAME: &str = "CephFS";

const PROGRAMS: [(&str, &str); 7] = [
    ("ceph-mon", "ceph-mon"),
    ("monmaptool", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("ceph-mds", "ceph-mds"),
    ("ceph-fuse", "ceph-fuse"),
    ("ceph", "ceph-common"),
    ("ceph-authtool", "ceph-common"),
];
/// Of the monitor: the second version of Ceph's protocol, and the first.
const MONITOR_PORTS: [u16; 2] = [3300, 6789];
/// Bytes of a storage daemon's file, of which only what is written takes room.
const DISK_BYTES: u64 = 8 << 30;
/// The least that a storage daemon accepts for its caches.
const MEMORY_BYTES: u64 = 896 << 20;
/// Files written until all is taken to work: their objects lie on all storage daemons.
const PROBES: u32 = 16;
const POOLS: [&str; 2] = ["cephfs_metadata", "cephfs_data"];

pub(super) struct CephFs<'a> {
    cluster: Cluster<'a>,
    mounts: Mounts<'a>,
    // After the mounts.
    daemons: Vec<Daemon>,
}

/// How its programs find one another.
struct Cluster<'a> {
    lab: &'a Lab,
    bed: &'a Testbed<'a>,
    home: PathBuf,
}

impl<'a> CephFs<'a> {
    pub(super) fn start(lab: &'a Lab, bed: &'a Testbed<'a>) -> Result<CephFs<'a>, Error> {
        require(&PROGRAMS)?;
        let cluster = Cluster { lab, bed, home: bed.directory().join("cephfs") };
        let mut peer = CephFs { cluster, mounts: Mounts::new(lab, bed, "cephfs")?, daemons: Vec::new() };
        directory(&peer.cluster.home)?;
        let monitor = peer.cluster.start_monitor()?;
        peer.daemons.push(monitor);
        let mut storage: Vec<Daemon> = Vec::new();
        for number in 0..bed.servers().len() {
            storage.push(peer.cluster.start_storage(number)?);
        }
        for (number, daemon) in storage.iter_mut().enumerate() {
            daemon.wait_until(lab, || peer.cluster.is_up(number))?;
        }
        peer.daemons.extend(storage);
        let metadata = peer.cluster.start_metadata()?;
        peer.daemons.push(metadata);
        peer.probe()?;
        Ok(peer)
    }

    /// Writes until groups of objects on all storage daemons have begun to serve: the first sample would wait for that.
    fn probe(&self) -> Result<(), Error> {
        self.mount(1)?;
        let root = self.mounts.mountpoint(1);
        for number in 0..PROBES {
            let path = root.join(format!("probe-{number}"));
            // A call would wait for as long as a group does not serve: so it is another process's.
            let mut write = self.cluster.bed.clients()[1].command("timeout");
            write.args(["60", "dd", "if=/dev/zero", "bs=100", "count=1", "conv=fsync", "status=none"]);
            self.cluster.lab.text_of(write.arg(format!("of={}", path.display())))?;
            fs::remove_file(&path).map_err(Error::at(path.display()))?;
        }
        self.unmount(1)
    }
}

impl Cluster<'_> {
    fn start_monitor(&self) -> Result<Daemon, Error> {
        let host = self.bed.host_named("meta1")?;
        let id = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(Error::at("an id"))?;
        let text = configuration(&self.home, id.trim(), host.address());
        fs::write(self.file("ceph.conf"), text).map_err(Error::at(self.home.display()))?;
        for arguments in keys(&self.file("keyring"), self.bed.servers().len()) {
            self.lab.text_of(host.command("ceph-authtool").args(arguments))?;
        }
        let mut map = host.command("monmaptool");
        map.args(["--create", "--addv", "a", &monitor_addresses(host.address()), "--fsid", id.trim()]);
        self.lab.text_of(map.arg(self.file("monmap")))?;
        let mut make = self.command(host, "ceph-mon", "a");
        make.args(["--mkfs", "--monmap"]).arg(self.file("monmap")).arg("--keyring").arg(self.file("keyring"));
        self.lab.text_of(&mut make)?;
        let mut monitor = self.daemon(host, self.command(host, "ceph-mon", "a"), "ceph-mon")?;
        monitor.wait_until(self.lab, || MONITOR_PORTS.iter().all(|&port| answers(host, port)))?;
        Ok(monitor)
    }

    /// Starts one, without waiting until it is up.
    fn start_storage(&self, number: usize) -> Result<Daemon, Error> {
        let (host, number_text) = (&self.bed.servers()[number], number.to_string());
        let data = self.bed.server_disks()[number].join("cephfs");
        directory(&data)?;
        let id = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(Error::at("an id"))?;
        let given = self.ceph(&["osd", "new", id.trim()])?;
        if given.trim() != number_text {
            let given = given.trim();
            return Err(Error::Failed(format!("storage daemon {number}: the monitor calls it {given:?}")));
        }
        let command = || {
            let mut command = self.command(host, "ceph-osd", &number_text);
            command.arg("--osd-data").arg(&data);
            command
        };
        self.lab.text_of(command().args(["--mkfs", "--osd-uuid", id.trim()]))?;
        self.daemon(host, command(), &format!("ceph-osd{number}"))
    }

    fn start_metadata(&self) -> Result<Daemon, Error> {
        let host = self.bed.host_named("meta1")?;
        for pool in POOLS {
            self.ceph(&["osd", "pool", "create", pool])?;
        }
        self.ceph(&["fs", "new", "lab", POOLS[0], POOLS[1]])?;
        let mut server = self.daemon(host, self.command(host, "ceph-mds", "a"), "ceph-mds")?;
        let is_active = || self.ceph(&["mds", "stat"]).is_ok_and(|text| text.contains("=up:active"));
        server.wait_until(self.lab, is_active)?;
        Ok(server)
    }

    /// Whether the monitor has heard of a storage daemon that it serves.
    fn is_up(&self, number: usize) -> bool {
        self.ceph(&["osd", "dump", "--format", "json"]).is_ok_and(|dump| up_in(&dump).contains(&number))
    }

    /// Ceph's command line, beside the monitor.
    fn ceph(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = self.bed.host_named("meta1")?.command("ceph");
        command.arg("--conf").arg(self.file("ceph.conf")).args(["--connect-timeout", "30"]);
        self.lab.text_of(command.args(arguments))
    }

    /// A daemon's program with its id, which says what keys it has.
    fn command(&self, host: &Host, program: &str, id: &str) -> Command {
        let mut command = host.command(program);
        command.arg("--conf").arg(self.file("ceph.conf")).args(["--id", id]);
        command
    }

    fn daemon(&self, host: &Host, mut command: Command, name: &str) -> Result<Daemon, Error> {
        let address = host.address().to_string();
        command.args(["-f", "--public-addr", &address, "--cluster-addr", &address]);
        Daemon::start(command, name, &self.home)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }
}

fn monitor_addresses(host: Ipv4Addr) -> String {
    format!("[v2:{host}:{},v1:{host}:{}]", MONITOR_PORTS[0], MONITOR_PORTS[1])
}

/// `ceph.conf`: one copy, places of our own for all files, and otherwise the defaults.
fn configuration(home: &Path, id: &str, monitor: Ipv4Addr) -> String {
    let (home, monitor) = (home.display(), monitor_addresses(monitor));
    // Sockets of administration have a path that is too long for some directories; nothing here asks there.
    format!(
        "[global]\nfsid = {id}\nmon host = {monitor}\nkeyring = {home}/keyring\nadmin socket =\n\
         log file = {home}/$name.log\nmon cluster log file = {home}/cluster.log\ncrash dir = {home}\n\
         mon data = {home}/mon\nmon data avail crit = 1\nmds data = {home}/mds\n\
         mon allow pool size one = true\nosd pool default size = 1\nosd pool default min size = 1\n\
         osd memory target = {MEMORY_BYTES}\nbluestore block create = true\nbluestore block size = {DISK_BYTES}\n"
    )
}

/// Arguments of `ceph-authtool`, call by call: a file with the keys of all programs and what each may do.
fn keys(file: &Path, storage_daemons: usize) -> Vec<Vec<String>> {
    let all = "allow *";
    let key = |name: &str, may: &[(&str, &str)]| {
        let mut arguments = vec![file.display().to_string(), "--gen-key".to_owned()];
        arguments.extend(["--name", name].map(str::to_owned));
        arguments.extend(may.iter().flat_map(|(whose, what)| ["--cap", *whose, *what].map(str::to_owned)));
        arguments
    };
    let mut calls = vec![
        key("mon.", &[("mon", all)]),
        key("client.admin", &[("mon", all), ("osd", all), ("mds", all)]),
        key("mds.a", &[("mon", "allow profile mds"), ("osd", all), ("mds", "allow")]),
    ];
    let storage = [("mon", "allow profile osd"), ("osd", all)];
    calls.extend((0..storage_daemons).map(|number| key(&format!("osd.{number}"), &storage)));
    // The first one makes the file.
    calls[0].push("--create-keyring".to_owned());
    calls
}

/// Of what `ceph osd dump` prints as JSON, what is used here.
#[derive(Deserialize)]
struct Dump {
    osds: Vec<Storage>,
}

#[derive(Deserialize)]
struct Storage {
    osd: usize,
    up: u8,
}

/// The storage daemons that are up. None in what cannot be read.
fn up_in(dump: &str) -> Vec<usize> {
    let dump = serde_json::from_str(dump).unwrap_or(Dump { osds: Vec::new() });
    dump.osds.into_iter().filter(|storage| storage.up == 1).map(|storage| storage.osd).collect()
}

impl System for CephFs<'_> {
    fn name(&self) -> &str {
        NAME
    }

    fn mount(&self, client: usize) -> Result<(), Error> {
        let host = &self.cluster.bed.clients()[client];
        let mut command = self.cluster.command(host, "ceph-fuse", "admin");
        command.arg("-f").arg(self.mounts.mountpoint(client));
        self.mounts.mount(client, command)
    }

    fn unmount(&self, client: usize) -> Result<(), Error> {
        self.mounts.unmount(client)
    }

    fn directory(&self, client: usize) -> PathBuf {
        self.mounts.mountpoint(client)
    }

    fn is_spread(&self) -> bool {
        self.cluster.bed.line().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_one_copy_and_all_files_in_the_directory() {
        let text = configuration(Path::new("/home/of/it"), "7-7", Ipv4Addr::new(10, 77, 0, 1));
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
            line.map(str::trim)
        };
        assert_eq!(value("fsid"), Some("7-7"));
        assert_eq!(value("mon host"), Some("[v2:10.77.0.1:3300,v1:10.77.0.1:6789]"));
        assert_eq!(value("osd pool default size"), Some("1"));
        assert_eq!(value("osd memory target"), Some("939524096"));
        for key in ["keyring", "log file", "mon cluster log file", "mon data", "mds data"] {
            assert!(value(key).is_some_and(|path| path.starts_with("/home/of/it/")), "{key}");
        }
    }

    #[test]
    fn every_program_has_a_key_and_the_first_call_makes_the_file() {
        let calls: Vec<String> = keys(Path::new("/k"), 2).into_iter().map(|call| call.join(" ")).collect();
        assert_eq!(calls.iter().filter(|call| call.contains("--create-keyring")).count(), 1);
        assert_eq!(calls[0], "/k --gen-key --name mon. --cap mon allow * --create-keyring");
        for name in ["client.admin", "mds.a", "osd.0", "osd.1"] {
            let has_key =
                |call: &&String| call.starts_with(&format!("/k --gen-key --name {name} --cap mon "));
            assert_eq!(calls.iter().filter(has_key).count(), 1, "{name}: {calls:?}");
        }
    }

    #[test]
    fn a_storage_daemon_that_is_known_but_down_is_not_up() {
        let dump = r#"{"epoch":9,"osds":[{"osd":0,"up":1,"in":1},{"osd":1,"up":0,"in":1},{"osd":2,"up":1}]}"#;
        assert_eq!(up_in(dump), [0, 2]);
        assert!(up_in("").is_empty());
    }
}
