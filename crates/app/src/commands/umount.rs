//! `vazao umount`: takes a mount away, and says how its process ends.

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::mounted::TELL_NS;
use crate::mounted::line::Following;
use clap::Args;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;
use vazao_fuse::{Detach, Found, MountError};
use vazao_meter::Clock;

/// How often is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(100);

/// Interval of the messages that say what the command waits for.
const TELL_AGAIN_NS: u64 = 15_000_000_000;

/// Arguments of `vazao umount`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  vazao umount /mnt/v\n\nIt returns when everything written is stored, and says what it waits for after 5 s."
)]
pub(crate) struct Arguments {
    /// Take it out of the tree now; what is open in it keeps working until it is closed
    #[arg(short, long, conflicts_with = "force")]
    lazy: bool,
    /// End all calls in it; what cannot be stored within seconds is lost, and told
    #[arg(short, long)]
    force: bool,
    /// Where it is mounted
    mountpoint: PathBuf,
}

/// Takes it away.
pub(crate) fn run(_context: &Context, arguments: Arguments) -> Outcome {
    let how = match (arguments.lazy, arguments.force) {
        (true, _) => Detach::Lazily,
        (false, true) => Detach::ByForce,
        (false, false) => Detach::IfUnused,
    };
    let mount = vazao_fuse::find(&arguments.mountpoint).map_err(|error| Failure::new(error.to_string()))?;
    let mut following = Following::begin(&mount);
    if let (Some(following), Detach::ByForce) = (&mut following, how) {
        following.give_up();
    }
    let detached = detach(&mount, how);
    match following {
        Some(following) => Watch::new(&mount, how, following, detached).run(),
        // Its process is gone, or of a version that says nothing.
        None => detached.recv().unwrap_or(Ok(())).map_err(|error| Failure::new(error.to_string())),
    }
}

type Detached = Receiver<Result<(), MountError>>;

/// Unmounts in a thread of its own: the system call itself waits for pages of mappings to be stored.
fn detach(mount: &Found, how: Detach) -> Detached {
    let (mountpoint, (say, said)) = (mount.mountpoint.clone(), channel());
    let work = move || {
        // The receiver is gone once the command has ended.
        let _ = say.send(vazao_fuse::unmount(&mountpoint, how));
    };
    if let Err(error) = std::thread::Builder::new().name("umount".to_owned()).spawn(work) {
        tracing::error!("no thread to unmount in: {error}");
    }
    said
}

/// A mount on its way out.
struct Watch<'a> {
    mount: &'a Found,
    how: Detach,
    following: Following,
    detached: Detached,
    is_detached: bool,
    begun_ns: u64,
    tell_at_ns: u64,
    clock: std::sync::Arc<dyn Clock>,
}

impl<'a> Watch<'a> {
    fn new(mount: &'a Found, how: Detach, following: Following, detached: Detached) -> Watch<'a> {
        let clock = vazao_meter::clock::system();
        let begun_ns = clock.now_ns();
        let tell_at_ns = begun_ns + TELL_NS;
        Watch { mount, how, following, detached, is_detached: false, begun_ns, tell_at_ns, clock }
    }

    fn run(mut self) -> Outcome {
        while !(self.is_detached && self.following.is_over) {
            match self.detached.try_recv() {
                Ok(Err(error)) if !self.is_over_anyhow(&error) => return Err(self.refused(&error)),
                Ok(_) | Err(TryRecvError::Disconnected) => self.is_detached = true,
                Err(TryRecvError::Empty) => {}
            }
            match self.following.is_over {
                true => self.clock.sleep(LOOK),
                false => self.following.listen(LOOK),
            }
            if self.clock.now_ns() >= self.tell_at_ns {
                if self.how == Detach::Lazily && self.is_detached {
                    self.tell("goes on");
                    return Ok(());
                }
                self.tell(if self.is_detached { "has not ended yet" } else { "is not unmounted yet" });
                self.tell_at_ns = self.clock.now_ns() + TELL_AGAIN_NS;
            }
        }
        self.outcome()
    }

    /// By force the process may have ended, and its mount with it, before it could be detached.
    fn is_over_anyhow(&self, error: &MountError) -> bool {
        self.how == Detach::ByForce && matches!(error, MountError::NotMounted(_))
    }

    fn place(&self) -> String {
        self.mount.mountpoint.display().to_string()
    }

    fn log(&self) -> String {
        self.following.log.as_ref().map(|log| format!("; its log is {log}")).unwrap_or_default()
    }

    /// What it waits for.
    fn tell(&self, verb: &str) {
        let (process, log) = (self.following.process, self.log());
        let nothing = || "it says nothing, and may be stopped itself".to_owned();
        let waits = self.following.waits.clone().unwrap_or_else(nothing);
        eprintln!("vazao: {}: the mount's process {process} {verb}: {waits}{log}", self.place());
    }

    /// Why it was not unmounted.
    fn refused(&mut self, error: &MountError) -> Failure {
        // What it waits for is why, as a rule.
        let until_ns = self.begun_ns + TELL_NS;
        while self.following.waits.is_none() && !self.following.is_over && self.clock.now_ns() < until_ns {
            self.following.listen(LOOK);
        }
        let waits = self.following.waits.as_ref().and_then(|waits| waits.split("; `kill").next());
        match (error, waits) {
            (MountError::Busy(_), Some(waits)) => Failure::new(format!(
                "{error}; now {waits}; --lazy takes it away and leaves it to its users, --force ends them"
            )),
            _ => Failure::new(error.to_string()),
        }
    }

    fn outcome(&self) -> Outcome {
        if !self.following.lost.is_empty() {
            let lost = self.following.lost.to_vec();
            return Err(Failure::new(format!(
                "{}: {}{}",
                self.place(),
                MountError::Unwritten(lost),
                self.log()
            )));
        }
        if !self.following.has_said_all {
            return Err(Failure::new(format!(
                "{}: unmounted, but its process {} ended without a word whether everything was stored{}",
                self.place(),
                self.following.process,
                self.log()
            )));
        }
        Ok(())
    }
}
