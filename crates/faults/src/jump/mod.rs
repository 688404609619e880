//! Wall clocks that jump under the real binaries: of one daemon or one mount, by minutes to decades, forward and back.
//!
//! A round: a load in two mounts ([`crate::load`]), one or two jumps of one clock, and what is there afterwards. Clocks
//! stay where they jumped to, so that those of several processes differ. The machine's own clock is never set.

mod times;
mod wall;

use crate::clock::sleep_ms;
use crate::daemons::{Daemons, Shape, names};
use crate::enclosure::Enclosure;
use crate::failure::{Failure, Outcome};
use crate::trial::{Bound, Trial, Verdict, remove, run_rounds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;
use std::process::ExitCode;
use times::Offsets;
use wall::WallClocks;

/// Mounts.
const CLIENTS: usize = 2;

/// No call takes longer: nothing but a busy machine delays one.
const CALL_MS_MAX: u64 = 25_000;

/// What a session, a lease or a lock says that has expired, and what a thread says that has panicked.
const BAD_WORDS: [&str; 4] = ["had expired", "a lock is lost", "that did not come back are free", "panicked"];

/// The unit of a jump, in seconds, and how many of them at most.
const UNITS: [(i64, i64); 4] = [(60, 59), (3_600, 23), (86_400, 300), (31_556_952, 60)];

/// Arguments of a run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vazao-faults clock --rounds 20 --seed 7\n  vazao-faults clock --rounds 3 --only meta1 --logs /tmp/logs\n\nThe seed draws whose clock jumps, by how much, and the load. Needs root and the package faketime; the machine's own\nclock is left alone."
)]
pub struct Arguments {
    /// Jumps
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// What every draw begins with
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Whose clock jumps: meta1, data1, …, client0 or client1 [default: drawn for each round]
    #[arg(long)]
    only: Option<String>,
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

/// The rounds.
struct Rounds<'a> {
    arguments: &'a Arguments,
    names: Vec<String>,
    clocks: WallClocks,
    offsets: Offsets,
}

/// Runs it. The last line says how many rounds passed and failed.
pub fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("only root makes a place from which no process gets out: run this as root"));
    }
    if let Some(code) = Enclosure::enter()? {
        return Ok(code);
    }
    let scratch = Enclosure::own_run()?;
    let vazao = crate::tool::vazao(arguments.vazao.as_deref())?;
    let names = names(arguments.data_servers, CLIENTS);
    if let Some(name) = arguments.only.as_ref().filter(|name| !names.contains(name)) {
        return Err(Failure::new(format!("--only {name}: there are {}", names.join(", "))));
    }
    let clocks = WallClocks::new(scratch.join("clocks"), names.len())?;
    check_clocks(&clocks)?;
    let surroundings = Box::new(clocks.clone());
    let shape = Shape { data_servers: arguments.data_servers, clients: CLIENTS, copies: 1 };
    let daemons = Daemons::start(&vazao, &scratch, surroundings, shape)?;
    let offsets = Offsets { now: vec![0; names.len()], ..Offsets::default() };
    let mut rounds = Rounds { arguments, names, clocks, offsets };
    let drawn = format!("--seed {}", arguments.seed);
    run_rounds(0..arguments.rounds, &drawn, arguments.logs.as_deref(), daemons, |number, daemons| {
        rounds.round(number, daemons)
    })
}

/// A library that changes nothing would let every round pass.
fn check_clocks(clocks: &WallClocks) -> Outcome {
    const OFFSET_S: i64 = -1_000_000;
    clocks.set(0, OFFSET_S)?;
    let (shown_s, right_s) = (clocks.shown_s(0)?, wall::machine_s());
    clocks.set(0, 0)?;
    match (shown_s - right_s - OFFSET_S).abs() < 60 {
        true => Ok(()),
        false => Err(Failure::new(format!("libfaketime shows {shown_s} s where it is {right_s} s"))),
    }
}

impl Rounds<'_> {
    /// One round. An error is a finding, or why it was broken off.
    fn round(&mut self, number: u64, daemons: &mut Daemons) -> Outcome {
        let mut random =
            StdRng::seed_from_u64(self.arguments.seed.wrapping_mul(1_000_003).wrapping_add(number));
        let drawn = random.random_range(0..self.names.len());
        let wanted = self.arguments.only.as_ref();
        let process =
            wanted.and_then(|wanted| self.names.iter().position(|it| it == wanted)).unwrap_or(drawn);
        let jumps: Vec<i64> = (0..random.random_range(1..=2)).map(|_| draw_jump(&mut random)).collect();
        let texts: Vec<String> = jumps.iter().map(|offset_s| describe(*offset_s)).collect();
        let text = format!("the clock of {} is {}", self.names[process], texts.join(", then "));
        let about = |failure: Failure| Failure::new(format!("{text}: {failure}"));
        let mut verdict =
            self.live_through(daemons, number, (process, &jumps), &mut random).map_err(about)?;
        verdict.findings.extend(daemons.ended());
        verdict.findings.extend(daemons.log_lines(&BAD_WORDS));
        println!("{}", line(number, &text, &verdict));
        verdict.check().map_err(about)?;
        let directories = daemons.mountpoints();
        let directory = directories[random.random_range(0..directories.len())].join(format!("r{number}"));
        remove(&directory).map_err(about)
    }

    fn live_through(
        &mut self,
        daemons: &Daemons,
        number: u64,
        (process, jumps): (usize, &[i64]),
        random: &mut StdRng,
    ) -> Outcome<Verdict> {
        let trial = Trial::start(daemons, &format!("r{number}"), random)?;
        let directories: Vec<PathBuf> = (0..CLIENTS).map(|client| trial.directory(client)).collect();
        let mut findings = Vec::new();
        for (count, offset_s) in jumps.iter().enumerate() {
            sleep_ms(random.random_range(100..600));
            self.clocks.set(process, *offset_s)?;
            self.offsets.note(process, *offset_s);
            sleep_ms(random.random_range(300..2_500));
            for (client, directory) in directories.iter().enumerate() {
                let file = directory.join(format!("probe-{count}-{client}"));
                let client = self.names.len() - CLIENTS + client;
                findings.extend(times::probe(&file, client, &self.offsets)?);
            }
        }
        let bound = Bound { may_fail: false, call_ms_max: CALL_MS_MAX, may_lose_locks: false };
        let mut verdict = trial.end(bound)?;
        verdict.findings.extend(findings);
        for directory in &directories {
            verdict.findings.extend(times::check(directory, &self.offsets)?);
        }
        Ok(verdict)
    }
}

/// By how many seconds a clock will be off: right again, or wrong by minutes, hours, days or years.
fn draw_jump(random: &mut StdRng) -> i64 {
    if random.random_range(0..5) == 0 {
        return 0;
    }
    let (unit_s, most) = UNITS[random.random_range(0..UNITS.len())];
    // The least is far from what a busy machine makes of a right clock.
    let amount = random.random_range(1..=most) * unit_s + 300;
    if random.random_bool(0.5) { amount } else { -amount }
}

fn describe(offset_s: i64) -> String {
    let size = offset_s.abs();
    let words = match size {
        0 => return "right".to_owned(),
        1..7_200 => format!("{} minutes", size / 60),
        7_200..172_800 => format!("{} hours", size / 3_600),
        172_800..63_072_000 => format!("{} days", size / 86_400),
        _ => format!("{} years", size / 31_556_952),
    };
    format!("{words} {}", if offset_s > 0 { "fast" } else { "slow" })
}

fn line(number: u64, text: &str, verdict: &Verdict) -> String {
    let Verdict { calls, records, values, files, converged_ms, .. } = verdict;
    format!(
        "{number}: {text}: {calls} calls, the slowest {:.1} s; {records} records, {values} values under the lock and \
         {files} files are there; alike in both mounts after {converged_ms} ms",
        verdict.slowest_ns as f64 / 1e9
    )
}
