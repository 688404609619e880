//! psplit, after the tool of "Sistemas de Arquivos Paralelos: Reduzindo o gargalo no acesso ao disco" (Goldman and
//! Carvalho), section 5.1: many threads split one large file into equal parts, or only read it, or write random data
//! into as many files as threads; the time runs from the opening of the files to the last byte.
//!
//! Places given together are measured in turns (A B A B …), so that whatever else the machine does strikes all of
//! them alike. Bytes are checked, outside the time measured unless asked otherwise.

mod results;
#[cfg(test)]
mod tests;
pub(crate) mod work;

pub use results::{FORMAT, Results, Run};

use crate::place::{self, OpenFile, Place};
use crate::report::size::{MIB, format_size, parse_size};
use crate::{Context, Error, content, machine::Machine, report};
use serde::{Deserialize, Serialize};
use std::fs;
use vazao_client::Client;
use vazao_sampler::{Recorder, Watched, servers};
use work::{Cell, Source};

/// What psplit does with the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Read one large file and write its parts into one file a thread
    Split,
    /// Read one large file, each thread its part
    Read,
    /// Write random data into one file a thread
    Generate,
}

/// When the bytes are compared with what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// In a pass of its own that is not timed
    After,
    /// While reading, within the time measured
    During,
    /// Not at all
    Off,
}

const EXAMPLES: &str = "Examples:
  vazao lab psplit read vz:/ /tmp --threads 1,2,4,8 --block 64K --total 1G
  vazao lab psplit generate vz:/bench /mnt/vazao --threads 8 --repeat 5 --json runs.json
  vazao lab psplit split /data --total 256M --drop-caches --csv -

Each PLACE gets a working directory psplit-… that is removed at the end, also after Ctrl-C or SIGTERM.
Time is counted from the opening of the files to the close of the last one, when all bytes are handed over;
with --sync, when they are on stable storage. Sizes are powers of two (64K = 65536 bytes).";

/// `vazao lab psplit`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to do
    #[arg(value_enum)]
    pub mode: Mode,
    /// Directories to compare: vz:/path through the library, or a local directory or mount
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// Threads, one or a list
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// Bytes of one call, one or a list
    #[arg(long, value_delimiter = ',', default_value = "64K", value_parser = parse_block)]
    pub block: Vec<u64>,
    /// Bytes in all, one or a list
    #[arg(long, value_delimiter = ',', default_value = "1G", value_parser = parse_size)]
    pub total: Vec<u64>,
    /// Repetitions of each measurement
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Drop the page cache of this machine before each run (needs root)
    #[arg(long)]
    pub drop_caches: bool,
    /// Make what is written survive power loss, within the time measured
    #[arg(long)]
    pub sync: bool,
    /// When to compare bytes with what was written
    #[arg(long, value_enum, default_value = "after")]
    pub verify: Verify,
    /// Seed of the random data
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Record the CPU of this process too; servers of this machine and user are found without it
    #[arg(long, value_name = "NAME=PID", value_parser = parse_watched)]
    pub watch: Vec<Watched>,
    /// Write every run with its samples to a file, or - for the output instead of the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
    /// Write one line a run to a file, or - for the output instead of the tables
    #[arg(long, value_name = "FILE")]
    pub csv: Option<String>,
}

/// Blocks are kept in memory, one a thread: a bound that 1,024 threads survive on any machine is not needed,
/// one that a mistyped unit cannot pass is.
const BLOCK_BYTES_MAX: u64 = 256 * MIB;

fn parse_block(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes > BLOCK_BYTES_MAX {
        return Err(format!("'{text}' is over the largest block, {}", format_size(BLOCK_BYTES_MAX)));
    }
    Ok(bytes)
}

fn parse_watched(text: &str) -> Result<Watched, String> {
    let parts = text.split_once('=').and_then(|(name, pid)| Some((name, pid.parse().ok()?)));
    let (name, pid) = parts.ok_or_else(|| format!("'{text}': write NAME=PID, such as data1=4711"))?;
    Ok(Watched { name: name.to_owned(), pid: Some(pid) })
}

/// Runs psplit and prints or writes its results. Errors: a place that cannot be used, a failed call, wrong bytes.
pub fn run(args: Args, context: &mut Context<'_>) -> Result<(), Error> {
    let results = measure(&args, context)?;
    let to_output = |target: &Option<String>| target.as_deref() == Some("-");
    if let Some(target) = &args.json {
        report::deliver(target, &report::to_json(&results)?, context)?;
    }
    if let Some(target) = &args.csv {
        report::deliver(target, &results.csv(), context)?;
    }
    if !to_output(&args.json) && !to_output(&args.csv) {
        report::print(&results.report(false), context)?;
    }
    match results.runs.iter().find_map(|run| run.errors.first().map(|error| (run, error))) {
        Some((run, error)) => {
            Err(Error::Failed(format!("{}: repetition {}: {error}", run.place, run.repetition)))
        }
        None => Ok(()),
    }
}

/// Runs psplit and returns what it measured; calls that failed are within the runs.
pub fn measure(args: &Args, context: &Context<'_>) -> Result<Results, Error> {
    check(args)?;
    let directory = format!("psplit-{}-{:x}", std::process::id(), context.clock.now_ns());
    let places = place::open_all(&args.places, &directory, context)?;
    let measured = measure_in(args, &places, context);
    let results = measured.map_err(|error| place::abandon(&places, error))?;
    let closed = place::close_all(&places);
    closed.map_or(Ok(()), Err)?;
    // All places of the volume share one session.
    let client = places.iter().find_map(|place| place.client()).cloned();
    let ended = client.map_or(Ok(()), Client::close);
    ended.map(|()| results).map_err(|error| Error::Failed(error.about("closing the session").to_string()))
}

fn check(args: &Args) -> Result<(), Error> {
    let (Some(&threads), Some(&total)) = (args.threads.iter().max(), args.total.iter().min()) else {
        return Err(Error::Usage("--threads and --total need at least one value".to_owned()));
    };
    if total < u64::from(threads) {
        let text = format!("--total {total}: {threads} threads need at least one byte each");
        return Err(Error::Usage(text));
    }
    if args.drop_caches {
        fs::OpenOptions::new().write(true).open(DROP_CACHES).map_err(|error| {
            Error::Failed(format!(
                "--drop-caches: {DROP_CACHES}: {error}; run as root, or leave the option out"
            ))
        })?;
    }
    Ok(())
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Page cache, directory entries and inodes; what is dirty must be written out first, for it cannot be dropped.
pub(crate) fn drop_caches() -> Result<(), Error> {
    rustix::fs::sync();
    fs::write(DROP_CACHES, "3\n").map_err(Error::at(DROP_CACHES))
}

fn measure_in(args: &Args, places: &[Box<dyn Place>], context: &Context<'_>) -> Result<Results, Error> {
    let mut found = servers_of(places);
    found.unwatched.retain(|name| args.watch.iter().all(|watched| watched.name != *name));
    found.watched.extend(args.watch.iter().cloned());
    let recorder = Recorder::new(context.clock.clone(), found.watched);
    let mut results = Results::new(args, Machine::here(), found.unwatched, context.clock.wall_ns());
    for &total_bytes in &args.total {
        let source = Source { name: "source", stream: content::stream(args.seed, &[total_bytes]) };
        let prepared = prepare(args, places, source, total_bytes);
        let measured = prepared.and_then(|()| {
            for &threads in &args.threads {
                for &block_bytes in &args.block {
                    let cell =
                        Cell { mode: args.mode, threads, block_bytes, total_bytes, source, options: args };
                    measure_cell(&cell, places, &recorder, context, &mut results)?;
                }
            }
            Ok(())
        });
        if args.mode != Mode::Generate {
            // A source that was never made cannot be removed: only the measurement's own failure matters then.
            let removed = places.iter().try_for_each(|p| p.remove(source.name).map_err(Error::at(p.name())));
            measured.and(removed)?;
        } else {
            measured?;
        }
    }
    Ok(results)
}

fn servers_of(places: &[Box<dyn Place>]) -> servers::Servers {
    let client = places.iter().find_map(|place| place.client());
    client.map(|client| servers::find(&client.map())).unwrap_or_default()
}

/// Writes the file that is read, untimed.
fn prepare(
    args: &Args,
    places: &[Box<dyn Place>],
    source: Source<'_>,
    total_bytes: u64,
) -> Result<(), Error> {
    if args.mode == Mode::Generate {
        return Ok(());
    }
    for place in places {
        let file = place.create(source.name).map_err(Error::at(place.name()))?;
        write_stream(file, source.stream, total_bytes).map_err(Error::at(place.name()))?;
    }
    Ok(())
}

fn write_stream(file: Box<dyn OpenFile>, stream: u64, total_bytes: u64) -> std::io::Result<()> {
    let mut generator = content::Generator::new(stream, MIB as usize);
    let mut offset = 0;
    while offset < total_bytes {
        let length = (total_bytes - offset).min(MIB);
        file.write_at(generator.window(offset, length as usize), offset)?;
        offset += length;
    }
    file.close()
}

/// All repetitions of one combination, the places in turns.
fn measure_cell(
    cell: &Cell<'_>,
    places: &[Box<dyn Place>],
    recorder: &Recorder,
    context: &Context<'_>,
    results: &mut Results,
) -> Result<(), Error> {
    if cell.mode == Mode::Read && cell.options.verify == Verify::After {
        for place in places {
            cell.verify_reading(place.as_ref(), &*context.clock, recorder)
                .map_err(Error::at(place.name()))?;
        }
    }
    for repetition in 1..=cell.options.repeat {
        for place in places {
            place.settle().map_err(Error::at(place.name()))?;
            if cell.options.drop_caches {
                drop_caches()?;
            }
            let mut run = measure_once(cell, place.as_ref(), repetition, recorder, context);
            if run.errors.is_empty() && cell.options.verify != Verify::Off {
                run.errors
                    .extend(cell.verify_outputs(place.as_ref(), repetition).err().map(|e| e.to_string()));
            }
            let failed = !run.errors.is_empty();
            cell.remove_outputs(place.as_ref(), failed).map_err(Error::at(place.name()))?;
            context.stop.check().map_err(Error::at(place.name()))?;
            tracing::info!(place = place.name(), repetition, seconds = run.seconds, "measured");
            results.runs.push(run);
        }
    }
    Ok(())
}

fn measure_once(
    cell: &Cell<'_>,
    place: &dyn Place,
    repetition: u32,
    recorder: &Recorder,
    context: &Context<'_>,
) -> Run {
    let (timed, record) = cell.run(place, repetition, &*context.clock, recorder);
    Run {
        place: place.name().to_owned(),
        mode: cell.mode,
        threads: cell.threads,
        block_bytes: cell.block_bytes,
        total_bytes: cell.total_bytes,
        repetition,
        seconds: timed.seconds,
        bytes: timed.done,
        errors: timed.errors,
        verdict: record.verdict.clone(),
        record,
    }
}
