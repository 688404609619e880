//! A file system that is measured: its mounts on the clients' hosts.

use crate::Error;
use crate::experiment::Lab;
use crate::experiment::testbed::Testbed;
use std::fs;
use std::path::{Path, PathBuf};

/// A file system that serves, and can be mounted by each client.
pub(super) trait System {
    /// What it is called in figures.
    fn name(&self) -> &str;
    /// Mounts it on a client's host. What a mount before has kept in memory is gone.
    fn mount(&self, client: usize) -> Result<(), Error>;
    /// Unmounts it; also where it is not mounted.
    fn unmount(&self, client: usize) -> Result<(), Error>;
    /// The directory to work in, which is there once it is mounted.
    fn directory(&self, client: usize) -> PathBuf;
    /// Whether files lie on both sides of a line, so that large ones take too long.
    fn is_spread(&self) -> bool;
}

/// A directory of our volume, placed in its own way.
pub(super) struct Volume<'a> {
    lab: &'a Lab,
    bed: &'a Testbed<'a>,
    name: &'static str,
    directory: &'static str,
    is_spread: bool,
}

/// How ours is called in figures.
pub(super) const OURS: &str = "Vazão";

impl<'a> Volume<'a> {
    /// Files lie near the client that writes them.
    pub(super) fn near_writer(lab: &'a Lab, bed: &'a Testbed<'a>) -> Result<Volume<'a>, Error> {
        Volume::new(lab, bed, OURS, "near", "near-writer")
    }

    /// Files lie on all servers, as those of the study.
    pub(super) fn everywhere(lab: &'a Lab, bed: &'a Testbed<'a>) -> Result<Volume<'a>, Error> {
        let name = if bed.line().is_some() { "Vazão everywhere" } else { OURS };
        Volume::new(lab, bed, name, "everywhere", "everywhere")
    }

    fn new(
        lab: &'a Lab,
        bed: &'a Testbed<'a>,
        name: &'static str,
        directory: &'static str,
        place: &str,
    ) -> Result<Volume<'a>, Error> {
        directory_placed(lab, bed, directory, place)?;
        Ok(Volume { lab, bed, name, directory, is_spread: place == "everywhere" && bed.line().is_some() })
    }

    fn mountpoint(&self, client: usize) -> PathBuf {
        self.bed.directory().join(format!("{}-{client}", self.directory))
    }
}

/// Makes a directory of the volume whose files are placed so. The second client does it, which is beside the metadata
/// service.
pub(super) fn directory_placed(lab: &Lab, bed: &Testbed<'_>, name: &str, place: &str) -> Result<(), Error> {
    let directory = format!("vz:/{name}");
    lab.text_of(bed.vazao(1)?.args(["mkdir", &directory]))?;
    lab.text_of(bed.vazao(1)?.args(["layout", &directory, "--place", place])).map(drop)
}

impl System for Volume<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn mount(&self, client: usize) -> Result<(), Error> {
        let mountpoint = self.mountpoint(client);
        fs::create_dir_all(&mountpoint).map_err(Error::at(mountpoint.display()))?;
        let mut command = self.bed.vazao(client)?;
        command.arg("mount").arg("--log-file").arg(mountpoint.with_extension("log"));
        self.lab.text_of(command.arg("vz:/").arg(&mountpoint)).map(drop)
    }

    fn unmount(&self, client: usize) -> Result<(), Error> {
        let mountpoint = self.mountpoint(client);
        if is_mounted(&mountpoint) { self.bed.unmount(client, &mountpoint) } else { Ok(()) }
    }

    fn directory(&self, client: usize) -> PathBuf {
        self.mountpoint(client).join(self.directory)
    }

    fn is_spread(&self) -> bool {
        self.is_spread
    }
}

/// Whether something is mounted there (proc_pid_mountinfo(5)).
pub(super) fn is_mounted(directory: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let wanted = directory.display().to_string();
    table.lines().any(|line| line.split(' ').nth(4) == Some(wanted.as_str()))
}

/// The mounts of a system on both clients; unmounted when dropped.
pub(super) struct Mounted<'a> {
    system: &'a dyn System,
    clients: usize,
}

impl<'a> Mounted<'a> {
    pub(super) fn new(system: &'a dyn System, clients: usize) -> Result<Mounted<'a>, Error> {
        let mounted = Mounted { system, clients };
        (0..clients).try_for_each(|client| system.mount(client))?;
        Ok(mounted)
    }

    /// Makes the mounts anew.
    pub(super) fn again(&self) -> Result<(), Error> {
        (0..self.clients).try_for_each(|client| self.system.unmount(client))?;
        (0..self.clients).try_for_each(|client| self.system.mount(client))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        for client in 0..self.clients {
            if let Err(error) = self.system.unmount(client) {
                tracing::warn!("{}: {error}", self.system.name());
            }
        }
    }
}
