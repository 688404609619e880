//! Other file systems on the same hosts and links, from Debian's packages, with one copy of everything and otherwise
//! their defaults.

mod cephfs;
mod gluster;
mod moosefs;
mod mounts;

use super::system::System;
use crate::Error;
use crate::experiment::Lab;
use crate::experiment::testbed::Testbed;
use crate::hosts::Host;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How they are called in figures.
pub(super) const NAMES: [&str; 3] = [gluster::NAME, moosefs::NAME, cephfs::NAME];

/// How long one may take until it serves, or is mounted.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the program of a mount may go on without it.
const END_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Starts those that are installed; the others, and why, become gaps.
pub(super) fn start<'a>(
    lab: &'a Lab,
    bed: &'a Testbed<'a>,
    gaps: &mut Vec<String>,
) -> Result<Vec<Box<dyn System + 'a>>, Error> {
    if !lab.peers {
        gaps.push(format!("{} in the same hosts and links: with --peers", NAMES.join(", ")));
        return Ok(Vec::new());
    }
    let gluster = gluster::Gluster::start(lab, bed).map(|peer| Box::new(peer) as Box<dyn System>);
    let moosefs = moosefs::MooseFs::start(lab, bed).map(|peer| Box::new(peer) as Box<dyn System>);
    let cephfs = cephfs::CephFs::start(lab, bed).map(|peer| Box::new(peer) as Box<dyn System>);
    let mut peers = Vec::new();
    for (name, started) in NAMES.into_iter().zip([gluster, moosefs, cephfs]) {
        match started {
            Ok(peer) => peers.push(peer),
            Err(error) => gaps.push(format!("{name}: {error}")),
        }
        lab.check()?;
    }
    Ok(peers)
}

/// A program of a peer; killed when dropped.
struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts a command; what it says goes to a log in `directory`.
    fn start(mut command: Command, name: &str, directory: &Path) -> Result<Daemon, Error> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).map_err(Error::at(log.display()))?;
        let errors = output.try_clone().map_err(Error::at(log.display()))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().map_err(Error::at(name))?;
        Ok(Daemon { name: name.to_owned(), child, log })
    }

    /// Waits until `is_ready`; fails when the program ends before, or takes too long.
    fn wait_until(&mut self, lab: &Lab, mut is_ready: impl FnMut() -> bool) -> Result<(), Error> {
        let deadline_ns = lab.clock.now_ns() + READY_WITHIN.as_nanos() as u64;
        while !is_ready() {
            lab.check()?;
            let ended = !matches!(self.child.try_wait(), Ok(None));
            if ended || lab.clock.now_ns() > deadline_ns {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("nothing").to_owned();
                return Err(Error::Failed(format!("{}: is not ready; it said: {last}", self.name)));
            }
            lab.clock.sleep(POLL);
        }
        Ok(())
    }

    /// Waits until it has ended by itself; kills it when that takes too long.
    fn end(mut self, lab: &Lab) {
        let deadline_ns = lab.clock.now_ns() + END_WITHIN.as_nanos() as u64;
        while matches!(self.child.try_wait(), Ok(None)) {
            if lab.clock.now_ns() > deadline_ns {
                tracing::warn!(
                    "{}: has not ended within {} s, and is killed",
                    self.name,
                    END_WITHIN.as_secs()
                );
                return;
            }
            lab.clock.sleep(POLL);
        }
    }
}

impl Drop for Daemon {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        // One that has ended already is no trouble.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether something answers at a port of a host.
fn answers(host: &Host, port: u16) -> bool {
    let target = std::net::SocketAddr::from((host.address(), port));
    let connect = || std::net::TcpStream::connect_timeout(&target, Duration::from_secs(1)).is_ok();
    host.inside(connect).unwrap_or(false)
}

/// Tries again what may only work once daemons have found one another.
fn retried(lab: &Lab, mut work: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    let deadline_ns = lab.clock.now_ns() + READY_WITHIN.as_nanos() as u64;
    loop {
        let error = match work() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        lab.check()?;
        if lab.clock.now_ns() > deadline_ns {
            return Err(error);
        }
        lab.clock.sleep(POLL * 4);
    }
}

/// The priority of this process and so of our own daemons, for programs that would take a higher one.
fn own_nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

fn directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::at(path.display()))
}
