//! MooseFS: its master on the metadata service's host, a chunk server on each data server's, `mfsmount` on those of the
//! clients.

use super::super::installed::require;
use super::mounts::Mounts;
use super::{Daemon, System, answers, directory, own_nice, retried};
use crate::Error;
use crate::experiment::Lab;
use crate::experiment::testbed::Testbed;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const NAME: &str = "MooseFS";

const PROGRAMS: [(&str, &str); 4] = [
    ("mfsmaster", "moosefs-master"),
    ("mfschunkserver", "moosefs-chunkserver"),
    ("mfsmount", "moosefs-client"),
    ("mfssetgoal", "moosefs-client"),
];
const CLIENTS_PORT: u16 = 9421;
const CHUNKS_PORT: u16 = 9422;

pub(super) struct MooseFs<'a> {
    bed: &'a Testbed<'a>,
    mounts: Mounts<'a>,
    // After the mounts.
    _daemons: Vec<Daemon>,
}

impl<'a> MooseFs<'a> {
    pub(super) fn start(lab: &'a Lab, bed: &'a Testbed<'a>) -> Result<MooseFs<'a>, Error> {
        require(&PROGRAMS)?;
        let home = bed.directory().join("moosefs");
        directory(&home)?;
        let mut daemons = vec![master(lab, bed, &home)?];
        for number in 0..bed.servers().len() {
            daemons.push(chunk_server(lab, bed, &home, number)?);
        }
        let peer = MooseFs { bed, mounts: Mounts::new(lab, bed, "moosefs")?, _daemons: daemons };
        // One copy, as of everything here; refused until a chunk server has registered.
        peer.mount(1)?;
        let root = peer.mounts.mountpoint(1);
        let one_copy =
            || lab.text_of(bed.clients()[1].command("mfssetgoal").args(["-r", "1"]).arg(&root)).map(drop);
        let probe = root.join("probe");
        let writable = || fs::write(&probe, [7; 100]).map_err(Error::at(probe.display()));
        retried(lab, one_copy)?;
        retried(lab, writable)?;
        fs::remove_file(&probe).map_err(Error::at(probe.display()))?;
        peer.unmount(1)?;
        Ok(peer)
    }
}

fn master(lab: &Lab, bed: &Testbed<'_>, home: &Path) -> Result<Daemon, Error> {
    let host = bed.host_named("meta1")?;
    let (data, address) = (home.join("master"), host.address());
    directory(&data)?;
    let write = |name: &str, text: &str| {
        let path = home.join(name);
        fs::write(&path, text).map_err(Error::at(path.display()))
    };
    // An empty file system, as the package's own metadata.mfs.empty.
    fs::write(data.join("metadata.mfs"), "MFSM NEW").map_err(Error::at(data.display()))?;
    write("exports", "* / rw,alldirs,admin,maproot=0:0\n")?;
    write("topology", "")?;
    let home_text = home.display();
    write(
        "master.cfg",
        &format!(
            "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {home_text}/master\n\
             EXPORTS_FILENAME = {home_text}/exports\nTOPOLOGY_FILENAME = {home_text}/topology\n\
             MATOML_LISTEN_HOST = {address}\nMATOCS_LISTEN_HOST = {address}\nMATOCL_LISTEN_HOST = {address}\n\
             LOCK_MEMORY = 0\nNICE_LEVEL = {}\n",
            own_nice()
        ),
    )?;
    let mut command = host.command("mfsmaster");
    command.arg("-c").arg(home.join("master.cfg")).args(["-f", "start"]);
    let mut master = Daemon::start(command, "mfsmaster", home)?;
    master.wait_until(lab, || answers(host, CLIENTS_PORT))?;
    Ok(master)
}

fn chunk_server(lab: &Lab, bed: &Testbed<'_>, home: &Path, number: usize) -> Result<Daemon, Error> {
    let (host, master) = (&bed.servers()[number], bed.host_named("meta1")?);
    let chunks = bed.server_disks()[number].join("moosefs");
    let (name, data) = (format!("mfschunkserver{number}"), home.join(format!("chunks{number}")));
    directory(&chunks)?;
    directory(&data)?;
    let write = |path: PathBuf, text: String| fs::write(&path, text).map_err(Error::at(path.display()));
    write(home.join(format!("{name}.hdd")), format!("{}\n", chunks.display()))?;
    let (address, home_text) = (host.address(), home.display());
    write(
        home.join(format!("{name}.cfg")),
        format!(
            "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {}\nHDD_CONF_FILENAME = {home_text}/{name}.hdd\n\
             MASTER_HOST = {}\nBIND_HOST = {address}\nCSSERV_LISTEN_HOST = {address}\n\
             HDD_LEAVE_SPACE_DEFAULT = 256MiB\nALLOW_STARTING_WITH_INVALID_DISKS = 1\nLOCK_MEMORY = 0\nNICE_LEVEL = {}\n",
            data.display(),
            master.address(),
            own_nice()
        ),
    )?;
    let mut command = host.command("mfschunkserver");
    command.arg("-c").arg(home.join(format!("{name}.cfg"))).args(["-f", "start"]);
    let mut server = Daemon::start(command, &name, home)?;
    server.wait_until(lab, || answers(host, CHUNKS_PORT))?;
    Ok(server)
}

impl System for MooseFs<'_> {
    fn name(&self) -> &str {
        NAME
    }

    fn mount(&self, client: usize) -> Result<(), Error> {
        let master = self.bed.host_named("meta1")?.address().to_string();
        let mut command = self.bed.clients()[client].command("mfsmount");
        command.arg(self.mounts.mountpoint(client));
        command.args(["-f", "-H", &master, "-o", &format!("mfsnice={}", own_nice())]);
        self.mounts.mount(client, command)
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
