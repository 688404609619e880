//! Wall clocks of processes, which can be set while they run: by libfaketime, which reads from a file by how much each
//! clock is off. The monotonic clock is the machine's, as it is when a real machine's clock is set.

use crate::daemons::Surroundings;
use crate::failure::{Failure, Outcome};
use crate::tool::{command, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library for programs of several threads.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// Where Debian's package puts libraries: below, by architecture.
const LIBRARIES: &str = "/usr/lib";

/// One clock for each process.
#[derive(Clone, Debug)]
pub(super) struct WallClocks {
    library: PathBuf,
    directory: PathBuf,
}

impl WallClocks {
    /// Clocks that are right, kept in `directory`.
    pub(super) fn new(directory: PathBuf, processes: usize) -> Outcome<WallClocks> {
        let Some(library) = library() else {
            return Err(Failure::new(format!("{LIBRARY} is missing: install the package faketime")));
        };
        fs::create_dir_all(&directory).map_err(Failure::at(directory.display()))?;
        let clocks = WallClocks { library, directory };
        (0..processes).try_for_each(|process| clocks.set(process, 0))?;
        Ok(clocks)
    }

    fn file(&self, process: usize) -> PathBuf {
        self.directory.join(format!("offset-{process}"))
    }

    /// From now on the process's clock is off by so many seconds.
    pub(super) fn set(&self, process: usize, offset_s: i64) -> Outcome {
        let (file, new) = (self.file(process), self.directory.join("new"));
        // By rename: a clock that is read in between is either of both, and never half a number.
        fs::write(&new, format!("{offset_s:+}\n")).map_err(Failure::at(new.display()))?;
        fs::rename(&new, &file).map_err(Failure::at(file.display()))
    }

    /// What a process's clock shows, in seconds since 1970.
    pub(super) fn shown_s(&self, process: usize) -> Outcome<i64> {
        let mut date = self.command(process, Path::new("date"));
        date.arg("+%s");
        run(date)?.trim().parse().map_err(Failure::new)
    }
}

impl Surroundings for WallClocks {
    fn command(&self, process: usize, program: &Path) -> Command {
        let mut command = command(program);
        command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", self.file(process));
        // A jump happens at once, and only the clock is another one: neither the monotonic clock nor times of files.
        command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command.env("NO_FAKE_STAT", "1").env("FAKETIME_DISABLE_SHM", "1");
        command
    }

    fn address(&self, _process: usize) -> Option<String> {
        None
    }
}

fn library() -> Option<PathBuf> {
    let places = fs::read_dir(LIBRARIES).ok()?.flatten().map(|entry| entry.path());
    places.map(|place| place.join("faketime").join(LIBRARY)).find(|library| library.exists())
}

/// What the machine's clock shows, in seconds since 1970.
pub(super) fn machine_s() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}
