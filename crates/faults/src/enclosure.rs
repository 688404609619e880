//! A place from which nothing gets out: a mount namespace and a process namespace of our own.
//!
//! Mounts end with it, and so does every process, however this program ends: killed, interrupted or done. And the
//! machine can seem to have started anew in it: the kernel's boot id is a file of ours, since what a daemon concludes
//! from an unchanged one (that the page cache has survived) would be wrong after a loss of power.

use crate::failure::{Failure, Outcome};
use crate::tool::{command, tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Set for the program inside.
const INSIDE: &str = "VAZAO_FAULTS_INSIDE";

/// Where the kernel shows that it has started anew (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Lets go of the copies of mounts that others have: their `umount` would wait until all of this has ended.
const ALONE: &str = r#"umount --all --lazy --types fuse.vazao; exec "$0" "$@""#;

/// The inside of it, once entered.
#[derive(Debug)]
pub struct Enclosure {
    boot_id: PathBuf,
    boots: u64,
}

impl Enclosure {
    /// Runs this program again inside, with the same arguments; `None` when it is inside already.
    #[allow(clippy::disallowed_methods, reason = "the run itself, within: its end is the end")]
    pub fn enter() -> Outcome<Option<ExitCode>> {
        if std::env::var_os(INSIDE).is_some() {
            return Ok(None);
        }
        let program = std::env::current_exe().map_err(Failure::at("finding this program"))?;
        // The first process of a namespace of processes takes everything with it; this one dies with us.
        let mut inside = command("setpriv");
        inside.args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"]);
        inside.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", ALONE]);
        inside.arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "1");
        let status = inside.status().map_err(Failure::at("setpriv and unshare (util-linux)"))?;
        Ok(Some(
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        ))
    }

    /// Gives the inside a `/run` of its own, in memory, and returns a directory in it: whatever is written there goes
    /// with the last process inside, and so do namespaces of the network that are named there.
    pub fn own_run() -> Outcome<PathBuf> {
        tool("mount", &["-t", "tmpfs", "-o", "size=4g,mode=755", "vazao-faults", "/run"])?;
        let scratch = PathBuf::from("/run/vazao-faults");
        fs::create_dir(&scratch).map_err(Failure::at(scratch.display()))?;
        Ok(scratch)
    }

    /// Prepares the inside. `scratch` is where the boot id is kept.
    pub fn prepare(scratch: &Path) -> Outcome<Enclosure> {
        let mut enclosure = Enclosure { boot_id: scratch.join("boot_id"), boots: 0 };
        enclosure.boot()?;
        tool("mount", &["--bind", &enclosure.boot_id.to_string_lossy(), BOOT_ID])?;
        Ok(enclosure)
    }

    /// The machine seems to have started anew, for every look from here on.
    pub fn boot(&mut self) -> Outcome {
        self.boots += 1;
        let (run, boots) = (std::process::id(), self.boots);
        let id = format!("{boots:08x}-{run:04x}-4000-8000-{:012x}\n", u64::from(run) << 16 | boots);
        // In place: what is mounted over the kernel's file is this file, not its name.
        fs::write(&self.boot_id, id).map_err(Failure::at(self.boot_id.display()))
    }
}
