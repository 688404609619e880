//! `vazao lab run` and `vazao lab list`.

use super::definition::{About, Experiment, Measured};
use super::lab::{Lab, Scale};
use super::outcome::{FORMAT, Outcome};
use super::page;
use super::registry::{find, registry};
use crate::machine::Machine;
use crate::report::{self, Table};
use crate::{Context, Error, hosts};
use std::fs;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  vazao lab list
  vazao lab run P4                         minutes; results in ./lab-results/P4.json, plots beside, index.html
  vazao lab run P4 P9 --scale full --out /srv/results
  vazao lab run C1 C2 --peers              GlusterFS, MooseFS and CephFS in the same hosts and links
  vazao lab run P10 --workers 4            a data server is killed under 4 writers and 4 readers
  vazao lab run all --json -
  vazao lab report lab-results             the page and the plots again, without measuring

Hosts, links and disks of a chosen rate are made on this machine for it, which needs root, and removed at the end.";

/// `vazao lab run`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Experiments by their ids, or `all`
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// How much is done
    #[arg(long, value_enum, default_value = "short")]
    pub scale: Scale,
    /// Repetitions of each measurement, instead of the scale's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Where results, plots and the page go
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    pub out: PathBuf,
    /// Where hosts' files and slow disks lie meanwhile: something faster than the disks of the experiment
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub work: PathBuf,
    /// Seed of the random data
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Measure other file systems beside ours in C1 and C2: those of GlusterFS, MooseFS and CephFS whose packages are
    /// installed
    #[arg(long)]
    pub peers: bool,
    /// Writers, and as many readers, of the figure over time of P10 [default: 8; with --scale tiny 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: Option<u16>,
    /// Print the outcomes as JSON to a file, or - for the output instead of the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<String>,
}

/// `vazao lab list`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  vazao lab list --json")]
pub struct ListArgs {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Lists the experiments that can be run.
pub fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<(), Error> {
    if args.json {
        let entry = |experiment: &&dyn Experiment| {
            let About { id, title, source, needs } = experiment.about();
            serde_json::json!({"id": id, "title": title, "source": source, "needs": needs})
        };
        let all: Vec<serde_json::Value> = registry().iter().map(entry).collect();
        return report::print(&report::to_json(&all)?, context);
    }
    let mut table = Table::new(&["id", "published as", "needs", "what it asks"]);
    for experiment in registry() {
        let About { id, title, source, needs } = experiment.about();
        table.row([id, source, needs, title].map(str::to_owned).to_vec());
    }
    report::print(&table.to_text(), context)
}

/// Runs experiments one after the other. One that fails does not keep the others from running; it fails the command.
pub fn run(args: &Args, context: &mut Context<'_>) -> Result<(), Error> {
    let chosen = choose(&args.ids)?;
    clear_away();
    fs::create_dir_all(&args.out).map_err(Error::at(args.out.display()))?;
    let program = std::env::current_exe().map_err(Error::at("this program's own file"))?;
    let mut lab = Lab::new(context.clock.clone(), program, args.work.clone(), context.stop.clone());
    lab.scale = args.scale;
    lab.repeat = args.repeat;
    lab.seed = args.seed;
    lab.peers = args.peers;
    lab.workers = args.workers.map(usize::from);
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for (number, experiment) in chosen.iter().enumerate() {
        let About { id, title, .. } = experiment.about();
        report::say(&format!("{id} ({} of {}): {title}", number + 1, chosen.len()));
        match measure(*experiment, &lab) {
            Ok(outcome) => {
                keep(&outcome, &args.out)?;
                if args.json.is_none() {
                    report::print(&page::text(&outcome, false), context)?;
                }
                outcomes.push(outcome);
            }
            Err(error) => failures.push(format!("{id}: {error}")),
        }
        if lab.check().is_err() {
            break;
        }
    }
    page::write(&args.out)?;
    if let Some(target) = &args.json {
        report::deliver(target, &report::to_json(&outcomes)?, context)?;
    }
    if failures.is_empty() { Ok(()) } else { Err(Error::Failed(failures.join("\n"))) }
}

/// Removes what killed runs have left behind: hosts and disks of theirs would be there for ever.
pub(crate) fn clear_away() {
    match hosts::sweep() {
        // Without root there is nothing of the kind.
        Ok(0) | Err(hosts::Error::NotRoot { .. }) => {}
        Ok(count) => report::say(&removed(count)),
        Err(error) => report::say(&format!("what a killed run left behind stays: {error}")),
    }
}

/// `vazao lab sweep`.
pub(crate) fn sweep() -> Result<(), Error> {
    let count = hosts::sweep().map_err(|error| Error::Failed(error.to_string()))?;
    if count > 0 {
        report::say(&removed(count));
    }
    Ok(())
}

fn removed(count: usize) -> String {
    format!("removed hosts and disks that killed runs left behind ({count})")
}

fn choose(ids: &[String]) -> Result<Vec<&'static dyn Experiment>, Error> {
    if ids.iter().any(|id| id == "all") {
        return Ok(registry().to_vec());
    }
    let known = || registry().iter().map(|e| e.about().id).collect::<Vec<_>>().join(", ");
    ids.iter()
        .map(|id| {
            find(id).ok_or_else(|| {
                Error::Usage(format!("{id}: no such experiment; there are {}, or all", known()))
            })
        })
        .collect()
}

fn measure(experiment: &dyn Experiment, lab: &Lab) -> Result<Outcome, Error> {
    let (started_ns, start_ns) = (lab.clock.wall_ns(), lab.clock.now_ns());
    let About { id, title, source, .. } = experiment.about();
    let measured = experiment.measure(lab);
    // Of what was asked to end nothing is kept: the gaps would look like failures.
    lab.check()?;
    let Measured { scale, setup, figures, gaps } = measured?;
    Ok(Outcome {
        format: FORMAT.to_owned(),
        id: id.to_owned(),
        title: title.to_owned(),
        source: source.to_owned(),
        scale,
        started_ns,
        seconds: lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9,
        machine: Machine::here(),
        setup,
        findings: experiment.findings(&figures),
        figures,
        gaps,
    })
}

/// Writes an outcome and its plots.
fn keep(outcome: &Outcome, directory: &Path) -> Result<(), Error> {
    let path = directory.join(outcome.file_name());
    fs::write(&path, report::to_json(outcome)?).map_err(Error::at(path.display()))?;
    page::draw(outcome, directory)
}
