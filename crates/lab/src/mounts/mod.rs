//! Small operations and streams through mounts: the same work on each of several directories, in turns, so that a mount
//! can be compared with the local disk and with a file system that does nothing (`vazao lab nullfs`), which is the
//! ceiling of the kernel's interface.

mod cpu;
mod results;
pub mod worker;

pub use results::{FORMAT, Results, Row};

use crate::machine::Machine;
use crate::report;
use crate::report::size::MIB;
use crate::{Context, Error};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Dropping what the kernel remembers: names and attributes, or pages too.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// No more memory than this is touched before data are written.
const TOUCHED_BYTES_MAX: u64 = 4 << 30;

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
    WriteLarge = "write-1m", "Writing a file in calls of 1 MiB, with an fsync at the end.";
    ReadLarge = "read-1m", "Reading it in calls of 1 MiB, the mount having forgotten it.";
    WriteSmallCalls = "write-64k", "Writing it in calls of 64 KiB, with an fsync at the end.";
    ReadSmallCalls = "read-64k", "Reading it in calls of 64 KiB, the mount having forgotten it.";
    ReadRandom = "random-32k", "Reading each block of 32 KiB once, here and there, the mount having forgotten them.";
    ReadRandomLarge = "random-512k", "The same with blocks of 512 KiB.";
    ForgetData = "forget-data", "Having a mount's kernel forget the data; not measured.";
    RemoveData = "remove-data", "Removing it; not measured.";
}

impl Operation {
    fn is_in_bytes(self) -> bool {
        self.call_bytes().is_some() && !self.is_random()
    }

    fn is_random(self) -> bool {
        matches!(self, Operation::ReadRandom | Operation::ReadRandomLarge)
    }

    fn writes_data(self) -> bool {
        matches!(self, Operation::WriteLarge | Operation::WriteSmallCalls)
    }

    /// Of operations on data: bytes of each call.
    fn call_bytes(self) -> Option<u64> {
        match self {
            Operation::WriteLarge | Operation::ReadLarge => Some(MIB),
            Operation::WriteSmallCalls | Operation::ReadSmallCalls => Some(MIB / 16),
            Operation::ReadRandom => Some(MIB / 32),
            Operation::ReadRandomLarge => Some(MIB / 2),
            _ => None,
        }
    }

    /// What the kernel shall forget first, in the terms of [`DROP_CACHES`]. Not before data are read: servers on the
    /// same machine would forget them too.
    fn forget(self) -> Option<&'static str> {
        match self {
            Operation::StatCold | Operation::ReadDirectory => Some("2"),
            Operation::ReadSmall => Some("3"),
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

const DATA: &[Operation] = &[
    Operation::WriteLarge,
    Operation::ReadLarge,
    Operation::WriteSmallCalls,
    Operation::ReadSmallCalls,
    Operation::ReadRandom,
    Operation::ReadRandomLarge,
    Operation::RemoveData,
];

const EXAMPLES: &str = "Examples:
  vazao lab mounts null=/mnt/null vazao=/mnt/v local=/var/tmp
  vazao lab mounts vazao=/mnt/v --files 2000 --processes 1 --data 0 --json -
  vazao lab mounts null=/mnt/null vazao=/mnt/v --files 0     # data only
  ./x bench-mount          # makes the mounts too

It works in a directory lab-mounts-… of each and removes it at the end. Ratios are to the first.
As root it drops the machine's caches before small operations that are called cold. Before data are read a FUSE file
system's pages of them are forgotten, while servers keep what was written; a local file system keeps its pages, too.
Before data are written, memory is touched: a virtual machine may have to find it first.";

/// `vazao lab mounts`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories to compare
    #[arg(value_name = "NAME=DIRECTORY", required = true)]
    pub places: Vec<String>,
    /// Files of all processes together; 0 leaves small operations away
    #[arg(long, default_value = "20000", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    pub files: u64,
    /// Data of all processes together; 0 leaves streams away
    #[arg(long, default_value = "1G", value_parser = vazao_model::size::parse_size)]
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

/// Makes memory be there that the host has taken back from this virtual machine: finding it takes longer than
/// writing it.
fn touch_memory(bytes: u64) {
    std::hint::black_box(vec![1u8; usize::try_from(bytes).unwrap_or(usize::MAX)]);
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
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
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
        // Until each process has made its directory.
        self.carry_out(Operation::Create, 0)?;
        let small = if args.files == 0 { &[] } else { SMALL };
        let data = if args.data == 0 { &[] } else { DATA };
        for &operation in small.iter().chain(data) {
            context.stop.check().map_err(Error::at("measuring mounts"))?;
            self.prepare(operation, args, results.dropped_caches)?;
            self.measure_one(operation, args, context, place, results)?;
        }
        Ok(())
    }

    /// What has to be forgotten or at hand before it is measured.
    fn prepare(&mut self, operation: Operation, args: &Args, can_drop: bool) -> Result<(), Error> {
        if let Some(what) = operation.forget().filter(|_| can_drop) {
            forget(what).map_err(Error::at(DROP_CACHES))?;
        }
        if operation.writes_data() {
            // What others have written is not to be waited for, either.
            rustix::fs::sync();
            touch_memory(args.data.saturating_mul(2).saturating_add(256 * MIB).min(TOUCHED_BYTES_MAX));
        } else if operation.call_bytes().is_some() {
            self.carry_out(Operation::ForgetData, 0)?;
        }
        Ok(())
    }

    fn measure_one(
        &mut self,
        operation: Operation,
        args: &Args,
        context: &Context<'_>,
        place: &str,
        results: &mut Results,
    ) -> Result<(), Error> {
        let processes = self.workers.len() as u64;
        let each = match operation.call_bytes() {
            Some(_) => (args.data / processes).max(MIB),
            None => (args.files / processes).max(1),
        };
        let (used, started_ns) = (cpu::Used::now(), context.clock.now_ns());
        self.carry_out(operation, each)?;
        let seconds = (context.clock.now_ns() - started_ns).max(1) as f64 / 1e9;
        let bytes = match operation.call_bytes() {
            Some(call_bytes) if operation.is_random() => worker::random_reads(each, call_bytes) * call_bytes,
            Some(_) => each,
            None => 0,
        };
        let done = match operation.call_bytes() {
            Some(call_bytes) if operation.is_random() => bytes / call_bytes,
            _ => each,
        };
        if operation != Operation::RemoveData {
            let processor = (bytes > 0).then(|| used.since().a_gibibyte(bytes * processes));
            let rate = (done * processes) as f64 / seconds;
            results.push((place, operation, processes as u32), rate, processor);
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
