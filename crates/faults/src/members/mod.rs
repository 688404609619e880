//! Data servers that die, freeze or lose their disk under the real binaries, where files have copies.
//!
//! A round: a load in two mounts ([`crate::load`]), one server fewer than there are copies fails and comes back, and
//! what is there afterwards. No call fails, however late it is answered; then the copies are made whole again, and all
//! are equal, byte for byte.

mod faults;
mod whole;

use crate::clock::{now_ns, sleep_ms};
use crate::daemons::{Daemons, META, Shape, Surroundings};
use crate::enclosure::Enclosure;
use crate::failure::{Failure, Outcome};
use crate::tool::command;
use crate::trial::{Bound, Trial, Verdict, remove, run_rounds};
use faults::{Kind, describe, draw, strike};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use whole::{Compared, Place};

/// Mounts.
const CLIENTS: usize = 2;

/// A call takes at most so much longer than servers are away: what a busy machine, new connections and changes of
/// members may add.
const LATE_MS: u64 = 25_000;

/// What a thread says that has panicked.
const BAD_WORDS: [&str; 1] = ["panicked"];

/// Arguments of a run.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vazao-faults members --rounds 20 --seed 7\n  vazao-faults members --rounds 20 --copies 3\n  vazao-faults members --rounds 3 --only wipe --logs /tmp/logs\n\nOf two copies one server fails in each round, of three two do. The seed draws which, how, for how long, and the load.\nNeeds root and FUSE; what it makes ends with it, however it ends."
)]
pub struct Arguments {
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// What every draw begins with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first round, for one that is to be seen again without those before it
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// What happens to servers [default: each in turn, for a second server drawn]
    #[arg(long)]
    only: Option<Kind>,
    /// Copies of each file
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
    copies: u8,
    /// Data servers, more than copies
    #[arg(long, default_value_t = 4)]
    data_servers: usize,
    /// Change a byte of one copy before copies are compared: the run has to find it
    #[arg(long)]
    spoil: bool,
    /// The program to test [default: the one beside this]
    #[arg(long)]
    vazao: Option<PathBuf>,
    /// Where the logs are copied to after a finding
    #[arg(long)]
    logs: Option<PathBuf>,
}

/// All processes on this host, as they are.
struct OnThisHost;

impl Surroundings for OnThisHost {
    fn command(&self, _process: usize, program: &Path) -> Command {
        command(program)
    }

    fn address(&self, _process: usize) -> Option<String> {
        None
    }
}

/// Runs it. The last line says how many rounds passed and failed.
pub fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("only root makes a place from which no process gets out: run this as root"));
    }
    if arguments.data_servers <= usize::from(arguments.copies) {
        let (servers, copies) = (arguments.data_servers, arguments.copies);
        return Err(Failure::new(format!(
            "--data-servers {servers}: {copies} copies need more than {copies}"
        )));
    }
    if let Some(code) = Enclosure::enter()? {
        return Ok(code);
    }
    let scratch = Enclosure::own_run()?;
    let vazao = crate::tool::vazao(arguments.vazao.as_deref())?;
    let copies = usize::from(arguments.copies);
    let shape = Shape { data_servers: arguments.data_servers, clients: CLIENTS, copies };
    let daemons = Daemons::start(&vazao, &scratch, Box::new(OnThisHost), shape)?;
    let numbers = arguments.first..arguments.first + arguments.rounds;
    let drawn = format!("--seed {} --copies {copies}", arguments.seed);
    run_rounds(numbers, &drawn, arguments.logs.as_deref(), daemons, |number, daemons| {
        round(arguments, number, daemons)
    })
}

/// One round. An error is a finding, or why it was broken off.
fn round(arguments: &Arguments, number: u64, daemons: &mut Daemons) -> Outcome {
    let mut random = StdRng::seed_from_u64(arguments.seed.wrapping_mul(1_000_003).wrapping_add(number));
    let faults = draw(arguments, number, &mut random);
    let text = describe(&faults, daemons);
    let about = |failure: Failure| Failure::new(format!("{text}: {failure}"));
    let trial = Trial::start(daemons, &format!("r{number}"), &mut random).map_err(about)?;
    let directories = [trial.directory(0), trial.directory(1)];
    sleep_ms(random.random_range(0..400));
    let began_ns = now_ns();
    strike(&faults, number, daemons).map_err(about)?;
    let back_ns = now_ns();
    // Copies are made again under load, too.
    sleep_ms(random.random_range(300..3_000));
    let call_ms_max = (back_ns - began_ns) / 1_000_000 + LATE_MS;
    let bound = Bound { may_fail: false, call_ms_max, may_lose_locks: false };
    let mut verdict = trial.end(bound).map_err(about)?;
    let whole = whole::wait(daemons).map_err(about)?;
    verdict.findings.extend(whole.findings);
    let whole_ms = (whole.since_ns - back_ns) / 1_000_000;
    let compared = compare(arguments, daemons).map_err(about)?;
    verdict.findings.extend(compared.findings());
    verdict.findings.extend(daemons.ended());
    verdict.findings.extend(daemons.log_lines(&BAD_WORDS));
    println!("{}", line(number, &text, &verdict, whole_ms, &compared));
    verdict.check().map_err(about)?;
    remove(&directories[random.random_range(0..directories.len())]).map_err(about)
}

fn compare(arguments: &Arguments, daemons: &Daemons) -> Outcome<Compared> {
    if arguments.spoil {
        whole::spoil(&Place::of(daemons, daemons.name(META + 1))?.directory)?;
    }
    whole::compare(daemons)
}

fn line(number: u64, text: &str, verdict: &Verdict, whole_ms: u64, compared: &Compared) -> String {
    let Verdict { calls, failed, records, values, files, converged_ms, slowest, .. } = verdict;
    let (slowest_s, whole_s) = (verdict.slowest_ns as f64 / 1e9, whole_ms as f64 / 1e3);
    let Compared { objects, bytes, .. } = compared;
    format!(
        "{number}: {text}: {calls} calls, {failed} failed, the slowest {slowest_s:.1} s ({slowest}); {records} records, \
         {values} values under the lock and {files} files are there; alike in both mounts after {converged_ms} ms, \
         seen whole {whole_s:.1} s after servers were back; {objects} objects of {bytes} bytes in all copies compared"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run is given that asks for nothing but copies.
    pub(super) fn arguments(copies: u8) -> Arguments {
        Arguments {
            rounds: 1,
            seed: 1,
            first: 0,
            only: None,
            copies,
            data_servers: 4,
            spoil: false,
            vazao: None,
            logs: None,
        }
    }
}
