//! Partitions of the network under the real binaries: daemons and mounts on hosts of their own, and links that are cut
//! between them under load.
//!
//! A round: a load in two mounts ([`crate::load`]), a cut of some way between two hosts or of all ways of one, which is
//! healed after a while, and what is there afterwards. Most cuts are shorter than any deadline: then each call is
//! answered, late at most. Every eighth is near a deadline, every twentieth beyond the leases.

mod cuts;
mod network;

use crate::clock::sleep_ms;
use crate::daemons::{Daemons, META, PORT, Shape, Surroundings, names};
use crate::enclosure::Enclosure;
use crate::failure::{Failure, Outcome};
use crate::trial::{Bound, Trial, Verdict, remove, run_rounds};
use cuts::{Kind, Length, draw_cut};
use network::{Cut, HostId, Network};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use vazao_model::limits::{DEADLINE_MS_DEFAULT, SESSION_LEASE_MS};

/// Mounts, each on a host of its own.
const CLIENTS: usize = 2;

/// A cut that lasts as long, with the way back from it, is beyond a deadline.
const NEAR_DEADLINE_MS: u64 = DEADLINE_MS_DEFAULT as u64 - 8_000;

/// A cut that lasts as long may cost a session its lease: what was under way when it began counts as silence, too.
const NEAR_LEASE_MS: u64 = SESSION_LEASE_MS as u64 - 12_000;

/// What a busy machine and new connections may add to the time of a call.
const LATE_MS: u64 = 25_000;

/// A call is one request or a few: after so long it has failed.
const CALL_MS_MAX: u64 = 2 * DEADLINE_MS_DEFAULT as u64;

/// Arguments of a run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vazao-faults partition --rounds 20 --seed 7\n  vazao-faults partition --rounds 3 --only client-data --length beyond --logs /tmp/logs\n\nThe seed draws what is cut, for how long, and the load. Needs root and iproute2; makes network namespaces that end\nwith it, however it ends."
)]
pub struct Arguments {
    /// Cuts
    #[arg(long, default_value_t = 4)]
    rounds: u64,
    /// What every draw begins with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first round, for one that is to be seen again without those before it
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// What is cut [default: drawn for each round]
    #[arg(long)]
    only: Option<Kind>,
    /// How long a cut is [default: short, every eighth near a deadline, every twentieth beyond the leases]
    #[arg(long)]
    length: Option<Length>,
    /// For how many milliseconds links are cut, instead of that
    #[arg(long, conflicts_with = "length")]
    cut_ms: Option<u64>,
    /// Data servers
    #[arg(long, default_value_t = 2)]
    data_servers: usize,
    /// The program to test [default: the one beside this]
    #[arg(long)]
    vazao: Option<PathBuf>,
    /// Where the logs are copied to after a finding
    #[arg(long)]
    logs: Option<PathBuf>,
}

/// Hosts as the processes' surroundings: each has one of its own.
struct OnHosts(Arc<Network>);

impl Surroundings for OnHosts {
    fn command(&self, process: usize, program: &Path) -> Command {
        self.0.command(HostId(process), program)
    }

    fn address(&self, process: usize) -> Option<String> {
        Some(self.0.address(HostId(process)))
    }
}

/// Runs it. The last line says how many rounds passed and failed.
pub fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("only root makes network namespaces: run this as root"));
    }
    if !crate::tool::is_there("ip") {
        return Err(Failure::new("the program `ip` is missing: install the package iproute2"));
    }
    if let Some(code) = Enclosure::enter()? {
        return Ok(code);
    }
    let scratch = Enclosure::own_run()?;
    let vazao = crate::tool::vazao(arguments.vazao.as_deref())?;
    let names = names(arguments.data_servers, CLIENTS);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let network = Arc::new(Network::make(&names)?);
    let hosts = Box::new(OnHosts(Arc::clone(&network)));
    let shape = Shape { data_servers: arguments.data_servers, clients: CLIENTS, copies: 1 };
    let daemons = Daemons::start(&vazao, &scratch, hosts, shape)?;
    network.check(HostId(names.len() - 1), HostId(META), PORT)?;
    let (numbers, drawn) =
        (arguments.first..arguments.first + arguments.rounds, format!("--seed {}", arguments.seed));
    run_rounds(numbers, &drawn, arguments.logs.as_deref(), daemons, |number, daemons| {
        round(arguments, number, &network, daemons)
    })
}

/// One round. An error is a finding, or why it was broken off.
fn round(arguments: &Arguments, number: u64, network: &Network, daemons: &mut Daemons) -> Outcome {
    let mut random = StdRng::seed_from_u64(arguments.seed.wrapping_mul(1_000_003).wrapping_add(number));
    let (cut, cut_ms) = draw_cut(arguments, number, &mut random);
    let text = format!("{} for {cut_ms} ms", network.describe(&cut));
    let about = |failure: Failure| Failure::new(format!("cut {text}: {failure}"));
    let trial = Trial::start(daemons, &format!("r{number}"), &mut random).map_err(about)?;
    let directories = [trial.directory(0), trial.directory(1)];
    sleep_ms(random.random_range(0..400));
    part(network, &cut, cut_ms)?;
    // Some of the load comes after it.
    sleep_ms(500);
    let mut verdict = trial.end(bound(cut_ms)).map_err(about)?;
    verdict.findings.extend(daemons.ended());
    println!("{}", line(number, &text, &verdict));
    verdict.check().map_err(about)?;
    remove(&directories[random.random_range(0..directories.len())]).map_err(about)
}

fn part(network: &Network, cut: &Cut, cut_ms: u64) -> Outcome {
    network.cut(cut)?;
    sleep_ms(cut_ms);
    network.heal(cut)
}

fn bound(cut_ms: u64) -> Bound {
    Bound {
        may_fail: cut_ms >= NEAR_DEADLINE_MS,
        call_ms_max: cut_ms.min(CALL_MS_MAX) + LATE_MS,
        may_lose_locks: cut_ms >= NEAR_LEASE_MS,
    }
}

fn line(number: u64, cut: &str, verdict: &Verdict) -> String {
    let Verdict { calls, failed, records, values, files, converged_ms, slowest, .. } = verdict;
    let seconds = verdict.slowest_ns as f64 / 1e9;
    format!(
        "{number}: {cut}: {calls} calls, {failed} failed, the slowest {seconds:.1} s ({slowest}); {records} records, \
         {values} values under the lock and {files} files are there; alike in both mounts after {converged_ms} ms"
    )
}
