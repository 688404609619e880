//! GlusterFS: a brick on each data server's host, distributed (each file lies on one of them), and its FUSE client.
//!
//! It has no metadata service: names are on the bricks. `glusterd` has fixed places below `/run` and `/var/lib`: each
//! runs in a mount namespace of its own. Bricks, which it starts, end with the hosts.

use super::super::installed::require;
use super::mounts::Mounts;
use super::{Daemon, System, answers, directory, retried};
use crate::Error;
use crate::experiment::Lab;
use crate::experiment::testbed::Testbed;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const NAME: &str = "GlusterFS";

const PROGRAMS: [(&str, &str); 3] =
    [("glusterd", "glusterfs-server"), ("gluster", "glusterfs-cli"), ("glusterfs", "glusterfs-client")];
const PORT: u16 = 24007;
const VOLUME: &str = "lab";
const START: &str = "umount --all --lazy --types fuse.vazao; mount -t tmpfs none /run && mkdir /run/gluster && mkdir -p \"$0/lib\" \"$0/log\" && \
    mount --bind \"$0/lib\" /var/lib/glusterd && mount --bind \"$0/log\" /var/log/glusterfs && \
    exec glusterd --no-daemon --log-file=\"$0/glusterd.log\"";

pub(super) struct Gluster<'a> {
    lab: &'a Lab,
    bed: &'a Testbed<'a>,
    mounts: Mounts<'a>,
    // After the mounts.
    daemons: Vec<Daemon>,
}

impl<'a> Gluster<'a> {
    pub(super) fn start(lab: &'a Lab, bed: &'a Testbed<'a>) -> Result<Gluster<'a>, Error> {
        require(&PROGRAMS)?;
        let mut peer = Gluster { lab, bed, mounts: Mounts::new(lab, bed, "gluster")?, daemons: Vec::new() };
        let home = peer.home();
        for (number, host) in bed.servers().iter().enumerate() {
            let own = home.join(number.to_string());
            directory(&own)?;
            let mut command = host.command("unshare");
            command.args(["--mount", "sh", "-c", START]).arg(&own);
            let mut daemon = Daemon::start(command, &format!("glusterd{number}"), &home)?;
            daemon.wait_until(lab, || answers(host, PORT))?;
            peer.daemons.push(daemon);
        }
        peer.make_volume()?;
        Ok(peer)
    }

    fn home(&self) -> PathBuf {
        self.bed.directory().join("gluster")
    }

    /// The command line of the first server, in the namespaces of its daemon.
    fn cli(&self, arguments: &[&str]) -> Result<(), Error> {
        let process = self.daemons.first().map(|daemon| daemon.child.id()).unwrap_or_default();
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &process.to_string(),
            "--mount",
            "--net",
            "--",
            "gluster",
            "--mode=script",
        ]);
        self.lab.text_of(command.args(arguments)).map(drop)
    }

    fn make_volume(&self) -> Result<(), Error> {
        let servers = self.bed.servers();
        for other in servers.iter().skip(1) {
            retried(self.lab, || self.cli(&["peer", "probe", &other.address().to_string()]))?;
        }
        let mut bricks = Vec::new();
        for (host, disk) in servers.iter().zip(self.bed.server_disks()) {
            let brick = disk.join("gluster");
            directory(&brick)?;
            bricks.push(format!("{}:{}", host.address(), brick.display()));
        }
        let mut create = vec!["volume", "create", VOLUME];
        create.extend(bricks.iter().map(String::as_str));
        create.push("force");
        // Refused until every peer knows the others.
        retried(self.lab, || self.cli(&create))?;
        retried(self.lab, || self.cli(&["volume", "start", VOLUME, "force"]))
    }

    fn log_of(&self, client: usize) -> PathBuf {
        self.home().join(format!("mount{client}-glusterfs.log"))
    }
}

fn mount_command(mut command: Command, server: &str, log: &Path, mountpoint: &Path) -> Command {
    command.arg(format!("--volfile-server={server}")).arg(format!("--volfile-id={VOLUME}"));
    command.arg(format!("--log-file={}", log.display())).arg("--no-daemon").arg(mountpoint);
    command
}

impl System for Gluster<'_> {
    fn name(&self) -> &str {
        NAME
    }

    fn mount(&self, client: usize) -> Result<(), Error> {
        let server = self.bed.servers()[0].address().to_string();
        let command = self.bed.clients()[client].command("glusterfs");
        let mountpoint = self.mounts.mountpoint(client);
        self.mounts.mount(client, mount_command(command, &server, &self.log_of(client), &mountpoint))
    }

    fn unmount(&self, client: usize) -> Result<(), Error> {
        self.mounts.unmount(client)
    }

    fn directory(&self, client: usize) -> PathBuf {
        self.mounts.mountpoint(client)
    }

    fn is_spread(&self) -> bool {
        self.bed.line().is_some()
    }
}
