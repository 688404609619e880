//! Losses of power under the real binaries: a load, a moment at which power goes, and what is left.
//!
//! A round: a mount, writers in directories of their own, the loss; then the file systems' journals are replayed, the
//! daemons are started again, and a mount that knows nothing from before is compared with what the writers were
//! answered (docs/semantics.md, "Durability"). A loss that must not be is a finding; findings are counted, printed with
//! the round's seed, and end the run on that file system.

mod round;

use crate::cluster::Cluster;
use crate::enclosure::Enclosure;
use crate::failure::{Failure, Outcome};
use crate::volume::{FileSystem, obstacle};
use round::Rounds;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of a run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Losses of power on each file system
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// What every draw begins with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File systems [default: all that can be made here]
    #[arg(long, value_delimiter = ',')]
    on: Vec<FileSystem>,
    /// Who loses power [default: drawn for each round]
    #[arg(long)]
    only: Option<Hit>,
    /// Within how many milliseconds the unsynced changes of names may have been made, at most, that are lost
    #[arg(long, default_value_t = 10.0)]
    bound_ms: f64,
    /// Data servers
    #[arg(long, default_value_t = 2)]
    data_servers: usize,
    /// The program to test [default: the one beside this]
    #[arg(long)]
    vazao: Option<PathBuf>,
    /// Have the disks answer flushes without doing them: the run has to find what is lost then
    #[arg(long)]
    lying_disks: bool,
    /// Leave everything behind that a round with a finding has made
    #[arg(long)]
    keep: bool,
}

/// Who loses power.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Hit {
    /// All machines, those of the clients included
    All,
    /// All servers; mounts and sessions live on
    Servers,
    /// One data server
    Data,
    /// The metadata service
    Metadata,
}

/// What a run was.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
}

/// Runs it. The last line says how many rounds passed and failed.
pub fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if let Some(failure) = obstacle() {
        return Err(failure);
    }
    if let Some(code) = Enclosure::enter()? {
        return Ok(code);
    }
    let outside = tempfile::tempdir().map_err(Failure::at("a temporary directory"))?;
    let mut enclosure = Enclosure::prepare(outside.path())?;
    let mut tally = Tally::default();
    for kind in kinds(&arguments.on)? {
        match on_one(arguments, kind, &mut enclosure) {
            Ok(of_one) => {
                tally.passed += of_one.passed;
                tally.failed += of_one.failed;
            }
            Err(failure) => {
                println!("FAILED on {}: {failure}", kind.name());
                tally.failed += 1;
            }
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn kinds(wanted: &[FileSystem]) -> Outcome<Vec<FileSystem>> {
    if let Some((kind, why)) = wanted.iter().find_map(|kind| Some((kind, kind.obstacle()?))) {
        return Err(Failure::new(format!("{}: {why}", kind.name())));
    }
    if !wanted.is_empty() {
        return Ok(wanted.to_vec());
    }
    let is_here = |kind: &FileSystem| match kind.obstacle() {
        Some(why) => {
            println!("NOT TESTED on {}: {why}", kind.name());
            false
        }
        None => true,
    };
    Ok(FileSystem::ALL.into_iter().filter(is_here).collect())
}

fn on_one(arguments: &Arguments, kind: FileSystem, enclosure: &mut Enclosure) -> Outcome<Tally> {
    let vazao = crate::tool::vazao(arguments.vazao.as_deref())?;
    let scratch = tempfile::Builder::new().prefix("power-").tempdir();
    let scratch = scratch.map_err(Failure::at("a temporary directory"))?;
    let cluster = Cluster::make(&vazao, scratch.path(), kind, arguments.data_servers)?;
    let mut rounds = Rounds::new(arguments, kind, cluster, vazao, scratch.path())?;
    let mut tally = Tally::default();
    for number in 0..arguments.rounds {
        match rounds.round(number, enclosure)? {
            true => tally.passed += 1,
            false => {
                tally.failed += 1;
                break;
            }
        }
    }
    rounds.summary();
    if tally.failed > 0 && arguments.keep {
        println!("kept: {}", scratch.keep().display());
        return Ok(tally);
    }
    rounds.close()?;
    Ok(tally)
}
