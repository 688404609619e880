//! A peer's mounts: on each client's host a program in the foreground that serves one.

use super::super::system::is_mounted;
use super::{Daemon, directory};
use crate::experiment::Lab;
use crate::experiment::testbed::Testbed;
use crate::place::Stop;
use crate::{Error, child};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::process::Command;

/// What is still mounted is unmounted when dropped, also after a failure or a request to stop; with the network after
/// this process was killed.
pub(super) struct Mounts<'a> {
    lab: &'a Lab,
    bed: &'a Testbed<'a>,
    /// Names their directories, and the one of their programs' logs.
    name: &'static str,
    /// Of each client.
    programs: Mutex<Vec<Option<Daemon>>>,
}

impl<'a> Mounts<'a> {
    pub(super) fn new(lab: &'a Lab, bed: &'a Testbed<'a>, name: &'static str) -> Result<Mounts<'a>, Error> {
        let programs = Mutex::new(bed.clients().iter().map(|_| None).collect());
        let mounts = Mounts { lab, bed, name, programs };
        for (client, host) in bed.clients().iter().enumerate() {
            host.unmount_at_end(&mounts.mountpoint(client))?;
        }
        Ok(mounts)
    }

    pub(super) fn mountpoint(&self, client: usize) -> PathBuf {
        self.bed.directory().join(format!("{}-{client}", self.name))
    }

    /// Starts the program of a mount, and waits for the mount.
    pub(super) fn mount(&self, client: usize, command: Command) -> Result<(), Error> {
        let (mountpoint, home) = (self.mountpoint(client), self.bed.directory().join(self.name));
        directory(&mountpoint)?;
        let mut programs = self.programs.lock();
        // Kept before it is waited for: one that mounts too late is unmounted as well.
        let program = programs[client].insert(Daemon::start(command, &format!("mount{client}"), &home)?);
        program.wait_until(self.lab, || is_mounted(&mountpoint))
    }

    /// Unmounts, and waits for the program: what it has to tell its servers is told before the next mount asks them.
    pub(super) fn unmount(&self, client: usize) -> Result<(), Error> {
        if is_mounted(&self.mountpoint(client)) {
            self.umount(client, &[])?;
        }
        if let Some(program) = self.programs.lock()[client].take() {
            program.end(self.lab);
        }
        Ok(())
    }

    fn umount(&self, client: usize, options: &[&str]) -> Result<(), Error> {
        let mut command = self.bed.clients()[client].command("umount");
        child::text(command.args(options).arg(self.mountpoint(client)), &Stop::default()).map(drop)
    }
}

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for client in 0..self.bed.clients().len() {
            if !is_mounted(&self.mountpoint(client)) {
                continue;
            }
            // Lazily: a load that was not waited for may still be at work there. Its calls fail with the program's end.
            if let Err(error) = self.umount(client, &["--lazy"]) {
                tracing::warn!("{}: {error}", self.name);
            }
        }
    }
}
