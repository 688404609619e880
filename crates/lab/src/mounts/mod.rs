//! Small operations and streams through mounts: the same work on each of several directories, in turns, so that a mount
//! can be compared with the local disk and with a file system that does nothing (`vazao lab nullfs`), which is the
//! ceiling of the kernel's interface.

mod results;
pub mod worker;

pub use results::{FORMAT, Results, Row};

use crate::machine::Machine;
use crate::report;
use crate::size::{MIB, parse_size};
use crate::{Context, Error};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Dropping what the kernel remembers: names and attributes, or pages too.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

macro_rules! operations {
    ($($variant:ident = $name:literal, $about:literal;)*) => {
        /// What is done.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Operation {
            $(#[doc = $about] $variant,)*
        }

        impl Operation {
            /// Its name in tables and orders.
            pub fn name(self) -> &'static str {
                match self { $(Operation::$variant => $name,)* }
            }

            /// The operation of that name.
            pub fn named(name: &str) -> Option<Operation> {
                match name { $($name => Some(Operation::$variant),)* _ => None }
            }
        }
    };
}

operations! {
    Create = "create", "Making empty files: open with O_EXCL, and close.";
    StatHot = "stat-hot", "Asking for attributes that the kernel remembers.";
    StatCold = "stat-cold", "Asking for attributes that the kernel has forgotten.";
    ReadDirectory = "readdir", "Listing names, counted each.";
    OpenClose = "open-close", "Opening to read, and closing.";
    Unlink = "unlink", "Removing empty files.";
    WriteSmall = "write-4k", "Making files of 4 KiB: create, write, close.";
    ReadSmall = "read-4k", "Reading them when the kernel has forgotten them: open, read, close.";
    UnlinkSmall = "unlink-4k", "Removing them.";
    WriteSequential = "write-seq", "Writing a file in calls of 1 MiB, with an fsync at the end.";
    ReadSequential = "read-seq", "Reading it, the kernel having forgotten it, in calls of 1 MiB.";
    ReadRandom = "read-random", "Reading blocks of 32 KiB of it here and there, the kernel having forgotten it.";
    RemoveData = "remove-data", "Removing it; not measured.";
}

impl Operation {
    fn is_in_bytes(self) -> bool {
        matches!(self, Operation::WriteSequential | Operation::ReadSequential)
    }

    /// What the kernel shall forget first, in the terms of [`DROP_CACHES`].
    fn forget(self) -> Option<&'static str> {
        match self {
            Operation::StatCold | Operation::ReadDirectory => Some("2"),
            Operation::ReadSmall | Operation::ReadSequential | Operation::ReadRandom => Some("3"),
            _ => None,
        }
    }
}

const SMALL: &[Operation] = &[
    Operation::Create,
    Operation::StatHot,
    Operation::StatCold,
    Operation::ReadDirectory,
    Operation::OpenClose,
    Operation::Unlink,
    Operation::WriteSmall,
    Operation::ReadSmall,
    Operation::UnlinkSmall,
];

const DATA: &[Operation] =
    &[Operation::WriteSequential, Operation::ReadSequential, Operation::ReadRandom, Operation::RemoveData];

const EXAMPLES: &str = "Examples:
  vazao lab mounts null=/mnt/null vazao=/mnt/v local=/var/tmp
  vazao lab mounts vazao=/mnt/v --files 2000 --processes 1 --data 0 --json -
  ./x bench-mount          # makes the mounts too

It works in a directory lab-mounts-… of each and removes it at the end. Ratios are to the first.
As root it drops the kernel's caches before what is cold; servers' caches stay.";

/// `vazao lab mounts`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories to compare
    #[arg(value_name = "NAME=DIRECTORY", required = true)]
    pub places: Vec<String>,
    /// Files of all processes together
    #[arg(long, default_value = "20000", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub files: u64,
    /// Data of all processes together; 0 leaves streams away
    #[arg(long, default_value = "512M", value_parser = size_or_none)]
    pub data: u64,
    /// Numbers of processes at once, each in a directory of its own
    #[arg(long, value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub processes: Vec<u32>,
    /// Repetitions, in turns
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Write every value to a file, or - for the output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

/// A directory to work in, by name.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    directory: PathBuf,
}

/// Runs it and prints or writes its results.
pub fn run(args: &Args, context: &mut Context<'_>) -> Result<(), Error> {
    let results = measure(args, context)?;
    if let Some(target) = &args.json {
        report::deliver(target, &report::to_json(&results)?, context)?;
    }
    if args.json.as_deref() != Some("-") {
        report::print(&results.report(false), context)?;
    }
    Ok(())
}

fn places(args: &Args, context: &Context<'_>) -> Result<Vec<Place>, Error> {
    let unique = format!("lab-mounts-{}-{:x}", std::process::id(), context.clock.now_ns());
    let place = |text: &String| {
        let wrong = || Error::Usage(format!("{text}: give a name and a directory, as null=/mnt/null"));
        let (name, directory) =
            text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
        Ok(Place { name: name.to_owned(), directory: Path::new(directory).join(&unique) })
    };
    args.places.iter().map(place).collect()
}

/// Measures all places in turns. Errors: a failed call; never slowness.
pub fn measure(args: &Args, context: &Context<'_>) -> Result<Results, Error> {
    let places = places(args, context)?;
    let mut results = Results {
        format: FORMAT.to_owned(),
        started_ns: context.clock.wall_ns(),
        machine: Machine::here(),
        places: places.iter().map(|place| place.name.clone()).collect(),
        files: args.files,
        data_bytes: args.data,
        dropped_caches: forget("1").is_ok(),
        rows: Vec::new(),
    };
    let measured = measure_all(args, context, &places, &mut results);
    let removed: Result<Vec<()>, Error> = places.iter().map(Place::remove).collect();
    measured.and(removed.map(drop)).map(|()| results)
}

impl Place {
    fn remove(&self) -> Result<(), Error> {
        match std::fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::at(self.directory.display())(error))
            }
            _ => Ok(()),
        }
    }
}

fn measure_all(
    args: &Args,
    context: &Context<'_>,
    places: &[Place],
    results: &mut Results,
) -> Result<(), Error> {
    for repetition in 0..args.repeat {
        for &processes in &args.processes {
            for place in places {
                let directory = place.directory.join(format!("{repetition}.{processes}"));
                let crew = Crew::start(&directory, processes)?;
                crew.measure(args, context, &place.name, results)?;
            }
        }
    }
    Ok(())
}

/// Makes the kernel forget; only root may.
fn forget(what: &str) -> std::io::Result<()> {
    std::fs::write(DROP_CACHES, what)
}

/// A process that works, and the pipes to it.
struct Worker {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Processes that work at the same time.
struct Crew {
    workers: Vec<Worker>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // One that has ended already is no trouble.
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

impl Crew {
    fn start(directory: &Path, processes: u32) -> Result<Crew, Error> {
        let program = std::env::current_exe().map_err(Error::at("finding this program"))?;
        let mut crew = Crew { workers: Vec::new() };
        for number in 0..processes {
            let mut command = Command::new(&program);
            command.args(["lab", "mounts-worker"]).arg(directory.join(number.to_string()));
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = command.spawn().map_err(Error::at(program.display()))?;
            let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
                return Err(Error::Failed("a process without its pipes".to_owned()));
            };
            crew.workers.push(Worker { process, orders, answers: BufReader::new(answers) });
        }
        Ok(crew)
    }

    fn measure(
        mut self,
        args: &Args,
        context: &Context<'_>,
        place: &str,
        results: &mut Results,
    ) -> Result<(), Error> {
        let processes = self.workers.len() as u64;
        let data = if args.data == 0 { &[] } else { DATA };
        // Until each process has made its directory.
        self.carry_out(Operation::Create, 0)?;
        for &operation in SMALL.iter().chain(data) {
            context.stop.check().map_err(Error::at("measuring mounts"))?;
            let each = match DATA.contains(&operation) {
                true => (args.data / processes).max(MIB),
                false => (args.files / processes).max(1),
            };
            if let Some(what) = operation.forget().filter(|_| results.dropped_caches) {
                forget(what).map_err(Error::at(DROP_CACHES))?;
            }
            let started_ns = context.clock.now_ns();
            self.carry_out(operation, each)?;
            let seconds = (context.clock.now_ns() - started_ns).max(1) as f64 / 1e9;
            let done = match operation {
                Operation::ReadRandom => worker::random_reads(each) * processes,
                _ => each * processes,
            };
            if operation != Operation::RemoveData {
                results.push(place, operation, processes as u32, done as f64 / seconds);
            }
        }
        Ok(())
    }

    /// Has every process do it, and waits for all.
    fn carry_out(&mut self, operation: Operation, count: u64) -> Result<(), Error> {
        for worker in &mut self.workers {
            let order = writeln!(worker.orders, "{} {count}", operation.name());
            order.and_then(|()| worker.orders.flush()).map_err(Error::at("a process that works"))?;
        }
        for worker in &mut self.workers {
            let mut answer = String::new();
            worker.answers.read_line(&mut answer).map_err(Error::at("a process that works"))?;
            if answer.trim_end() != "done" {
                let reason = answer.trim_end().strip_prefix("failed ").unwrap_or("it ended");
                return Err(Error::Failed(format!("{}: {reason}", operation.name())));
            }
        }
        Ok(())
    }
}
