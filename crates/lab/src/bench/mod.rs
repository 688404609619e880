//! The benchmark of what the file system has to reach on the machine it runs on: rates as shares of a raw loopback
//! stream measured in the same run, metadata operations a second, a listing of a very large directory, memory of the
//! servers.
//!
//! It prints goals and ratios and never fails on speed; it fails on errors and wrong bytes. What is compared is
//! measured in turns, and each figure is the median of its repetitions.

mod data;
mod metadata;
mod random;
mod results;
#[cfg(test)]
mod tests;

pub(crate) use results::Amounts;
pub use results::{FORMAT, Goal, Results, Row};

use crate::machine::Machine;
use crate::place::{self, Interruptible, Library, Place, Stop, VOLUME_PREFIX};
use crate::report::size::MIB;
use crate::{Context, Error, report};
use vazao_client::Client;
use vazao_meter::Clock;
use vazao_model::Role;
use vazao_sampler::{ProcessRecord, Recorder, servers};

/// How much is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Scale {
    /// 1 GiB, 1,000,000 files: some minutes
    Full,
    /// 8 MiB, 2,000 files: seconds; shows that it works, not how fast
    Small,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Part {
    /// Reading and writing files
    Data,
    /// Creating, looking up and removing names
    Metadata,
    /// A very large directory, and the servers' memory with it
    Listing,
}

const EXAMPLES: &str = "Examples:
  vazao lab bench --json bench.json
  vazao lab bench --only data --repeat 9
  vazao lab report --markdown bench.json

It works in a directory bench-… of the given one and removes it at the end.";

/// `vazao lab bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directory of the volume to work in
    #[arg(value_name = "vz:/PATH", default_value = "vz:/")]
    pub place: String,
    /// How much is done
    #[arg(long, value_enum, default_value = "full")]
    pub scale: Scale,
    /// Repetitions of each measurement
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Part>,
    /// Seed of the random data
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Write every value to a file, or - for the output instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

impl Scale {
    fn amounts(self) -> Amounts {
        match self {
            Scale::Full => Amounts { total_bytes: 1024 * MIB, files: 20_000, listed_files: 1_000_000 },
            Scale::Small => Amounts { total_bytes: 8 * MIB, files: 400, listed_files: 2_000 },
        }
    }
}

/// What the parts share.
pub(crate) struct Bench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) amounts: Amounts,
    pub(crate) place: &'a Library,
    /// The same place, whose calls fail after a request to stop.
    pub(crate) watched: &'a Interruptible,
    pub(crate) stop: &'a Stop,
    pub(crate) client: &'a Client,
    pub(crate) recorder: &'a Recorder,
    pub(crate) clock: &'a dyn Clock,
}

/// Runs the benchmark and prints or writes its results.
pub fn run(args: Args, context: &mut Context<'_>) -> Result<(), Error> {
    let results = measure(&args, context)?;
    if let Some(target) = &args.json {
        report::deliver(target, &report::to_json(&results)?, context)?;
    }
    if args.json.as_deref() != Some("-") {
        report::print(&results.report(false), context)?;
    }
    Ok(())
}

/// Runs the benchmark. Errors: no cluster, a failed call, wrong bytes; never slowness.
pub fn measure(args: &Args, context: &Context<'_>) -> Result<Results, Error> {
    let Some(path) = args.place.strip_prefix(VOLUME_PREFIX) else {
        let text = format!("{}: the benchmark works in the volume; give a path as vz:/path", args.place);
        return Err(Error::Usage(text));
    };
    let client = (context.connect)().map_err(Error::Failed)?;
    let directory = format!("bench-{}-{:x}", std::process::id(), context.clock.now_ns());
    let place = Library::new(client.clone(), &args.place, path, &directory)?;
    let found = servers::find(&client.map());
    let recorder = Recorder::new(context.clock.clone(), found.watched).of(Some(&client), None);
    let amounts = args.scale.amounts();
    let watched = Interruptible::new(Box::new(place.clone()), context.stop.clone());
    let bench = Bench {
        args,
        amounts,
        place: &place,
        watched: &watched,
        stop: &context.stop,
        client: &client,
        recorder: &recorder,
        clock: &*context.clock,
    };
    let mut results = Results::new(Machine::here(), amounts, args.repeat, context.clock.wall_ns());
    let measured = bench.measure_parts(&mut results);
    measured.map_err(|error| place::abandon(&[Box::new(place.clone())], error))?;
    place.finish().map_err(Error::at(&args.place))?;
    let closed = client.close().map_err(|error| Error::Failed(error.about(&args.place).to_string()));
    closed.map(|()| results)
}

impl Bench<'_> {
    fn measure_parts(&self, results: &mut Results) -> Result<(), Error> {
        let wanted = |part| self.args.only.is_empty() || self.args.only.contains(&part);
        if wanted(Part::Data) {
            data::measure(self, results)?;
        }
        if wanted(Part::Metadata) {
            metadata::measure_operations(self, results)?;
        }
        if wanted(Part::Listing) {
            metadata::measure_listing(self, results)?;
        } else {
            self.measure_memory(results);
        }
        Ok(())
    }

    /// Memory of the servers: after all that was done to them, and with the large directory there.
    pub(crate) fn measure_memory(&self, results: &mut Results) {
        let ((), record) = self.recorder.during(|| ());
        let map = self.client.map();
        let serves_metadata = |process: &ProcessRecord| {
            let mut nodes = map.nodes.iter().filter(|n| process.name.split('+').any(|name| name == n.name));
            nodes.any(|node| node.roles.contains(&Role::Meta))
        };
        let (meta, data): (Vec<_>, Vec<_>) =
            record.processes.iter().skip(1).partition(|process| serves_metadata(process));
        let largest = |of: &[&ProcessRecord], bytes: fn(&ProcessRecord) -> u64| {
            of.iter().map(|process| bytes(process)).max().map(|bytes| bytes as f64)
        };
        let data_goal = Goal::AtMost(64.0);
        results.push_memory(
            "memory.data",
            "data server, most memory ever",
            data_goal,
            largest(&data, |p| p.resident_peak_bytes),
        );
        let meta_goal = Goal::AtMost(256.0);
        results.push_memory(
            "memory.meta",
            "metadata service, memory",
            meta_goal,
            largest(&meta, |p| p.resident_bytes),
        );
        let title = "metadata service, most memory ever";
        results.push_memory("memory.meta.peak", title, Goal::None, largest(&meta, |p| p.resident_peak_bytes));
    }
}
