//! One round of a fault that clients live through: a load in two mounts, the fault, and what is there afterwards.

use crate::check::look::{Seen, look};
use crate::check::names::Blow;
use crate::check::sharing::check_shared;
use crate::check::{Case, Checked, check, check_file};
use crate::clock::{now_ns, sleep_ms, wait_until};
use crate::daemons::Daemons;
use crate::failure::{Failure, Outcome};
use crate::load::journal::Journal;
use crate::load::process::{Start, Writer};
use crate::load::sharing::Done;
use crate::load::sharing::process::{Report, Sharer};
use crate::load::writer::Way;
use rand::RngExt;
use rand::rngs::StdRng;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A mount that could not be told of changes believes what it knows for 30 s (docs/semantics.md, "Consistency", 4); the
/// rest is for a busy machine.
const CONVERGED_MS_MAX: u64 = 40_000;

/// Error numbers that a fault may give (docs/semantics.md, "Errors and deadlines", 3): EIO, ECOMM, ETIMEDOUT,
/// EHOSTUNREACH, ESTALE.
const SANE: [i32; 5] = [5, 70, 110, 113, 116];

/// Runs these rounds until one has a finding or is broken off; then logs are copied to `logs`. The last line says how
/// many passed and failed; `drawn` are the options with which they are drawn again.
pub(crate) fn run_rounds(
    numbers: Range<u64>,
    drawn: &str,
    logs: Option<&Path>,
    mut daemons: Daemons,
    mut round: impl FnMut(u64, &mut Daemons) -> Outcome,
) -> Outcome<ExitCode> {
    let mut passed = 0;
    for number in numbers {
        if let Err(what) = round(number, &mut daemons) {
            println!("FAILED in round {number}, {drawn}: {what}");
            println!("{}", daemons.last_words());
            if let Some(logs) = logs {
                daemons.save_logs(logs)?;
            }
            println!("{passed} passed, 1 failed");
            return Ok(ExitCode::FAILURE);
        }
        passed += 1;
    }
    daemons.stop()?;
    println!("{passed} passed, 0 failed");
    Ok(if passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a fault may do to calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Calls may fail; else each is answered, however late.
    pub(crate) may_fail: bool,
    /// No call takes longer.
    pub(crate) call_ms_max: u64,
    /// A client may have been away for so long that another one has got its locks.
    pub(crate) may_lose_locks: bool,
}

/// What a round was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// What must not be, for people.
    pub(crate) findings: Vec<String>,
    /// Calls that were made, and those that failed.
    pub(crate) calls: u64,
    pub(crate) failed: usize,
    /// The slowest call.
    pub(crate) slowest_ns: u64,
    pub(crate) slowest: String,
    /// Records appended, values counted and files written that had to be there.
    pub(crate) records: usize,
    pub(crate) values: usize,
    pub(crate) files: usize,
    /// When both mounts showed the same, after the end of the load.
    pub(crate) converged_ms: u64,
}

/// Findings of a round that are told.
const FINDINGS_MAX: usize = 20;

impl Verdict {
    /// Errors: there are findings.
    pub(crate) fn check(&self) -> Outcome {
        let (count, told) = (self.findings.len(), &self.findings[..self.findings.len().min(FINDINGS_MAX)]);
        match count {
            0 => Ok(()),
            _ => Err(Failure::new(format!("{count} findings:\n  {}", told.join("\n  ")))),
        }
    }
}

/// A load that runs.
#[derive(Debug)]
pub(crate) struct Trial {
    mountpoints: Vec<PathBuf>,
    name: String,
    writers: Vec<Writer>,
    sharing: Sharer,
}

impl Trial {
    /// Starts the load below a new directory of the volume, and waits until all of it works.
    pub(crate) fn start(daemons: &Daemons, name: &str, random: &mut StdRng) -> Outcome<Trial> {
        let mountpoints = daemons.mountpoints().to_vec();
        let made = |path: PathBuf| -> Outcome<PathBuf> {
            fs::create_dir_all(&path).map_err(Failure::at(path.display()))?;
            Ok(path)
        };
        made(mountpoints[0].join(name).join("shared"))?;
        let mut writers = Vec::new();
        for (number, mountpoint) in mountpoints.iter().enumerate() {
            let directory = format!("{name}/w{number}");
            let place = made(mountpoint.join(&directory))?;
            let inode = fs::metadata(&place).map_err(Failure::at(place.display()))?.ino();
            File::open(&place).and_then(|it| it.sync_all()).map_err(Failure::at(place.display()))?;
            let start = Start {
                way: Way::Mount,
                seed: random.random(),
                syncs: [10, 50, 150][random.random_range(0..3)],
                appends: true,
                replaces: true,
                directory,
                inode,
                mountpoint,
                cluster: &daemons.client_file(),
                vazao: daemons.vazao(),
            };
            writers.push(Writer::start(&start)?);
        }
        let shared: Vec<PathBuf> = mountpoints.iter().map(|it| it.join(name).join("shared")).collect();
        let sharing = Sharer::start(&shared, random.random())?;
        wait_until("all writers write", || writers.iter().all(|writer| writer.answered() > 2))?;
        Ok(Trial { mountpoints, name: name.to_owned(), writers, sharing })
    }

    /// The directory of the round in the mount of a client.
    pub(crate) fn directory(&self, client: usize) -> PathBuf {
        self.mountpoints[client].join(&self.name)
    }

    /// Ends the load and compares.
    pub(crate) fn end(self, bound: Bound) -> Outcome<Verdict> {
        let Report { mut done, failed, slowest, count } = self.sharing.end()?;
        let journals = self.writers.into_iter().map(Writer::end).collect::<Outcome<Vec<_>>>()?;
        let ended_ns = now_ns();
        let mut verdict = Verdict::default();
        if let Some((slowest_ns, what)) = slowest {
            (verdict.slowest_ns, verdict.slowest) = (slowest_ns, what);
        }
        verdict.calls = count;
        for failed in failed {
            let took_ms = (failed.ended_ns - failed.began_ns) / 1_000_000;
            judge_failure(&failed.what, failed.errno, &failed.why, took_ms, bound, &mut verdict);
        }
        for (number, journal) in journals.iter().enumerate() {
            judge_journal(number, journal, bound, &mut verdict);
        }
        if verdict.slowest_ns > bound.call_ms_max * 1_000_000 {
            let (seconds, what) = (verdict.slowest_ns as f64 / 1e9, &verdict.slowest);
            verdict
                .findings
                .push(format!("{what} took {seconds:.1} s, {} ms are allowed", bound.call_ms_max));
        }
        judge_locks(&done, bound, &mut verdict);
        if bound.may_fail {
            // Nothing tells how a close has ended where data could not be sent.
            done.iter_mut().for_each(|done| done.written.retain(|written| written.is_synced));
        }
        verdict.records = done.iter().map(|done| done.appended.synced.len()).sum();
        verdict.values = done.iter().map(|done| done.counted.values.len()).sum();
        verdict.files = done.iter().map(|done| done.written.len()).sum();
        let roots: Vec<PathBuf> = self.mountpoints.iter().map(|it| it.join(&self.name)).collect();
        verdict.findings.extend(converge(&roots, &journals, &done));
        verdict.converged_ms = (now_ns() - ended_ns) / 1_000_000;
        Ok(verdict)
    }
}

fn judge_failure(
    what: &str,
    errno: Option<i32>,
    why: &str,
    took_ms: u64,
    bound: Bound,
    verdict: &mut Verdict,
) {
    verdict.failed += 1;
    if !bound.may_fail {
        verdict.findings.push(format!("{what} failed after {took_ms} ms: {why}"));
    } else if !errno.is_some_and(|errno| SANE.contains(&errno)) {
        verdict
            .findings
            .push(format!("{what} failed after {took_ms} ms with an error of another kind: {why}"));
    }
}

fn judge_journal(number: usize, journal: &Journal, bound: Bound, verdict: &mut Verdict) {
    for entry in &journal.entries {
        let took_ns = entry.ended_ns.map_or(0, |ended_ns| ended_ns - entry.began_ns);
        verdict.calls += 1;
        let what = || format!("writer {number}: {:?}", entry.op);
        if took_ns > verdict.slowest_ns {
            (verdict.slowest_ns, verdict.slowest) = (took_ns, what());
        }
        match (&entry.failed, entry.ended_ns) {
            (Some(why), _) => {
                judge_failure(&what(), errno_of(why), why, took_ns / 1_000_000, bound, verdict);
            }
            (None, None) => verdict.findings.push(format!("{} was never answered", what())),
            (None, Some(_)) => {}
        }
    }
}

/// The number in the text of an error of the system.
fn errno_of(text: &str) -> Option<i32> {
    text.rsplit_once("(os error ")?.1.trim_end_matches(')').parse().ok()
}

fn judge_locks(done: &[Done], bound: Bound, verdict: &mut Verdict) {
    for Done { client, counted, .. } in done {
        let overlaps = counted.overlaps_ns.len();
        if overlaps > 0 && !bound.may_lose_locks {
            verdict
                .findings
                .push(format!("client {client} got the lock {overlaps} times while the other had it"));
        }
        for (value, before) in &counted.stale {
            verdict.findings.push(format!(
                "client {client} read {value} under the lock, and {before} had been synced under it"
            ));
        }
    }
}

/// Compares until both mounts show what must be there; what they still do not show after the time for it.
fn converge(roots: &[PathBuf], journals: &[Journal], done: &[Done]) -> Vec<String> {
    let deadline_ns = now_ns() + CONVERGED_MS_MAX * 1_000_000;
    loop {
        let findings = compare(roots, journals, done);
        if findings.is_empty() || now_ns() > deadline_ns {
            return findings;
        }
        sleep_ms(500);
    }
}

fn compare(roots: &[PathBuf], journals: &[Journal], done: &[Done]) -> Vec<String> {
    let mut findings: Vec<String> =
        roots.iter().flat_map(|root| check_shared(&root.join("shared"), done)).collect();
    for (number, journal) in journals.iter().enumerate() {
        // The other mount first: it has nothing in memory of what the writer did.
        let places: Vec<PathBuf> = (1..=roots.len())
            .map(|step| roots[(number + step) % roots.len()].join(format!("w{number}")))
            .collect();
        match check_writer(&places, journal) {
            Ok(of_writer) => findings.extend(of_writer),
            Err(failure) => findings.push(failure.to_string()),
        }
    }
    findings
}

/// A writer's directory, as the other mounts and, last, its own show it.
fn check_writer(places: &[PathBuf], journal: &Journal) -> Outcome<Vec<String>> {
    let first_failure = journal.entries.iter().find(|entry| entry.failed.is_some());
    // An operation that has failed is open: the state with it and the one without it fit.
    let at_ns = first_failure.map_or(u64::MAX >> 1, |entry| entry.began_ns + 1);
    let blow = Blow { at_ns, is_survived: true, forgets_metadata: false };
    let seen: Vec<Seen> = places.iter().map(|place| look(place)).collect::<Outcome<_>>()?;
    let is_alike = seen.windows(2).all(|two| two[0].found.tree == two[1].found.tree);
    let mut findings = Vec::new();
    if !is_alike {
        findings.push(format!("{}: the mounts show different names", places[0].display()));
    }
    let own = places.last().cloned().unwrap_or_default();
    for (place, seen) in places.iter().zip(seen) {
        let case = Case { directory: place.display().to_string(), journal: journal.clone(), seen };
        let checked = check(&[case], blow, false);
        if *place != own || first_failure.is_none() {
            findings.extend(checked.findings);
        } else {
            // What could not be stored cannot be read in the mount that wrote it; all else can.
            findings.extend(unreadable(&checked));
        }
    }
    Ok(findings)
}

fn unreadable(checked: &Checked) -> Vec<String> {
    checked.kept.iter().filter_map(|(path, expected)| check_file(path, expected).err()).collect()
}

/// Removes a round's directory through one of the mounts.
pub(crate) fn remove(directory: &Path) -> Outcome {
    fs::remove_dir_all(directory).map_err(Failure::at(directory.display()))
}
