//! fio in place of our own load, at one place of C1 and C2: the same mounts, sizes and calls, by both clients at once.
//!
//! A rate that both loads get is that of the file system, not of the program that measures it. fio counts from the open
//! to the end of the fsync of a write, and leaves out the close: so ours is taken without its close here.

use super::installed::require;
use super::samples::{Bench, Operation, own, series_name};
use super::system::{Mounted, System};
use super::worker::{Extent, Order, Taken};
use super::workers::together;
use super::{CLIENTS, RECORD_BYTES};
use crate::experiment::outcome::{Figure, Finding, Form};
use crate::experiment::{Lab, figure, shown};
use crate::hosts::Host;
use crate::report::size::{MB, format_size};
use crate::{Error, child, content};
use serde::Deserialize;
use std::path::Path;
use std::process::Stdio;

const FIO: &str = "fio";
const PROGRAMS: [(&str, &str); 1] = [(FIO, "fio")];
/// Keys of the figures.
const RATES: &str = "fio";
const RATIOS: &str = "fio-ratio";
const OPERATIONS: [Operation; 2] = [Operation::Write, Operation::Read];
/// How far fio's rate may be off ours.
const TOLERANCE: f64 = 0.1;

/// Which of the two.
#[derive(Clone, Copy)]
enum Load {
    Own,
    Fio,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Load::Own => "own load",
            Load::Fio => FIO,
        }
    }
}

/// What one load got of one operation, on both clients at once.
struct Got {
    /// MB/s of each client.
    rates: Vec<f64>,
    limit: Option<String>,
}

/// The comparison, repetition by repetition.
pub(super) struct CrossCheck {
    bytes: u64,
    rates: Figure,
    ratios: Figure,
    /// Why nothing more is measured.
    missing: Option<String>,
}

impl CrossCheck {
    /// With files of this size.
    pub(super) fn new(bytes: u64) -> CrossCheck {
        let places = || OPERATIONS.map(|operation| operation.name().to_owned()).to_vec();
        let (size, record) = (format_size(bytes), format_size(RECORD_BYTES));
        let title = format!("fio and our own load: files of {size}, calls of {record}, without close");
        let rates = Figure::new(RATES, &title, ("operation", places()), "MB/s", Form::Bars);
        let title = format!("fio against our own load: files of {size}, calls of {record}");
        let ratios = Figure::new(RATIOS, &title, ("operation", places()), "fio's rate / ours", Form::Bars);
        let missing = require(&PROGRAMS).err().map(|error| format!("our own load against fio: {error}"));
        CrossCheck { bytes, rates, ratios, missing }
    }

    /// Both loads once on each client, one directly after the other, so that the machine is the same for both; each is
    /// the first one in turn. A failure of fio ends the comparison, not the experiment.
    pub(super) fn measure(
        &mut self,
        bench: &mut Bench<'_>,
        system: &dyn System,
        repetition: u32,
    ) -> Result<(), Error> {
        if self.missing.is_some() {
            return Ok(());
        }
        let (own, fio) = if repetition.is_multiple_of(2) {
            let own = self.go_through(bench, system, Load::Own, repetition)?;
            (own, self.go_through(bench, system, Load::Fio, repetition)?)
        } else {
            let fio = self.go_through(bench, system, Load::Fio, repetition)?;
            (self.go_through(bench, system, Load::Own, repetition)?, fio)
        };
        for (at, (own, fio)) in own.into_iter().zip(fio).enumerate() {
            self.record(at, &own, &fio);
        }
        Ok(())
    }

    /// A file of each client written, mounts made anew, the file read: what was got for each of [`OPERATIONS`]. Nothing
    /// where fio has failed.
    fn go_through(
        &mut self,
        bench: &mut Bench<'_>,
        system: &dyn System,
        load: Load,
        repetition: u32,
    ) -> Result<Vec<Got>, Error> {
        let mounted = Mounted::new(system, CLIENTS)?;
        let name = format!("{}-{repetition}", load.name().replace(' ', "-"));
        let extent = |client: usize| Extent {
            path: own(system, client).join(&name),
            bytes: self.bytes,
            record_bytes: RECORD_BYTES,
            stream: content::stream(bench.lab.seed, &[self.bytes, u64::from(repetition), client as u64]),
        };
        let files: Vec<Extent> = (0..CLIENTS).map(extent).collect();
        let mut got = Vec::new();
        for operation in OPERATIONS {
            if operation == Operation::Read {
                mounted.again()?;
            }
            got.push(match load {
                Load::Own => own_load(bench, &files, operation)?,
                // Its start and end are no part of what it counts, so that nothing is known of the limit.
                Load::Fio => match on_all_clients(bench, &files, operation) {
                    Ok(rates) => Got { rates, limit: None },
                    Err(error) => {
                        bench.lab.check()?;
                        self.missing = Some(format!("our own load against fio, from then on: {error}"));
                        return Ok(Vec::new());
                    }
                },
            });
        }
        let orders: Vec<Order> = files.into_iter().map(|file| Order::Remove(file.path)).collect();
        together(&mut bench.workers, &orders).map(|_| got)
    }

    fn record(&mut self, at: usize, own: &Got, fio: &Got) {
        for (load, got) in [(Load::Fio, fio), (Load::Own, own)] {
            for (client, &rate) in got.rates.iter().enumerate() {
                let series = self.rates.series_mut(&series_name(load.name(), client));
                series.record(at, rate);
                if let Some(limit) = &got.limit {
                    series.limited_by(at, limit);
                }
            }
        }
        for (client, (own, fio)) in own.rates.iter().zip(&fio.rates).enumerate() {
            self.ratios.series_mut(&series_name(FIO, client)).record(at, fio / own.max(1e-9));
        }
    }

    /// What was measured, and what is missing of it.
    pub(super) fn into_parts(self) -> (Vec<Figure>, Option<String>) {
        let measured = |figure: &Figure| !figure.series.is_empty();
        (vec![self.rates, self.ratios].into_iter().filter(measured).collect(), self.missing)
    }
}

/// Whether both loads get the same. `None` where fio has not run.
pub(super) fn finding(figures: &[Figure]) -> Option<Finding> {
    let ratios = figure(figures, RATIOS)?;
    let of = |at: usize| -> Vec<Option<f64>> {
        (0..CLIENTS).map(|client| ratios.median(&series_name(FIO, client), at)).collect()
    };
    let all: Option<Vec<f64>> = (0..OPERATIONS.len()).flat_map(of).collect();
    let text = |(at, operation): (usize, &Operation)| {
        let each: Vec<String> = of(at).into_iter().map(shown).collect();
        format!("{} {}", operation.name(), each.join(" and "))
    };
    let texts: Vec<String> = OPERATIONS.iter().enumerate().map(text).collect();
    Some(Finding::new(
        &format!("fio gets the rates of our own load, within {:.0}%", TOLERANCE * 100.0),
        all.map(|all| all.iter().all(|ratio| (ratio - 1.0).abs() <= TOLERANCE)),
        format!("fio's rate by ours, a client each: {}", texts.join(", ")),
    ))
}

/// Our own load on all clients at the same time, each with its file.
fn own_load(bench: &mut Bench<'_>, files: &[Extent], operation: Operation) -> Result<Got, Error> {
    let make = if operation == Operation::Write { Order::Write } else { Order::Read };
    let orders: Vec<Order> = files.iter().cloned().map(make).collect();
    let (taken, limit) = bench.timed(&orders)?;
    let rate = |(file, taken): (&Extent, Taken)| {
        file.bytes as f64 / (taken.whole_s() - taken.close_s).max(1e-9) / MB
    };
    Ok(Got { rates: files.iter().zip(taken).map(rate).collect(), limit: Some(limit) })
}

/// fio on all clients at the same time, each with its file: the MB/s of each.
fn on_all_clients(bench: &Bench<'_>, files: &[Extent], operation: Operation) -> Result<Vec<f64>, Error> {
    let (lab, hosts) = (bench.lab, bench.bed.clients());
    std::thread::scope(|scope| {
        let running: Vec<_> = hosts
            .iter()
            .zip(files)
            .map(|(host, file)| scope.spawn(move || run(lab, host, file, operation)))
            .collect();
        let panicked = |_| Error::Failed("a thread that waits for fio panicked".to_owned());
        running.into_iter().map(|thread| thread.join().map_err(panicked)?).collect()
    })
}

/// Runs fio on a host, and returns its MB/s.
fn run(lab: &Lab, host: &Host, file: &Extent, operation: Operation) -> Result<f64, Error> {
    let mut command = host.command(FIO);
    command.args(arguments(&file.path, file.bytes, operation));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("fio on {}", host.name());
    let output = child::output(command.spawn().map_err(Error::at(&what))?, &what, &lab.stop)?;
    let failed = |reason: String| Error::Failed(format!("{what}: {}: {reason}", operation.name()));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!(
            "{}: {}",
            output.status,
            said.lines().last().unwrap_or("it said nothing")
        )));
    }
    rate_in(&String::from_utf8_lossy(&output.stdout), file.bytes, operation).map_err(failed)
}

/// What our own load does, in fio's words (fio(1)).
fn arguments(path: &Path, bytes: u64, operation: Operation) -> Vec<String> {
    let mut arguments = vec![
        "--name=lab".to_owned(),
        // A process that fio forked would outlive it when it is killed.
        "--thread".to_owned(),
        "--ioengine=sync".to_owned(),
        format!("--rw={}", operation.name()),
        format!("--bs={RECORD_BYTES}"),
        format!("--size={bytes}"),
        // A colon would separate two names.
        format!("--filename={}", path.display().to_string().replace(':', "\\:")),
        // No file before the time is taken, and no advice: our own load gives none.
        "--create_on_open=1".to_owned(),
        "--fallocate=none".to_owned(),
        "--invalidate=0".to_owned(),
        "--fadvise_hint=0".to_owned(),
        "--disk_util=0".to_owned(),
        "--output-format=json".to_owned(),
    ];
    if operation == Operation::Write {
        arguments.push("--end_fsync=1".to_owned());
    }
    arguments
}

/// Of what fio prints as JSON, what is used here.
#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    /// An errno.
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    /// In milliseconds.
    runtime: u64,
}

/// MB/s in fio's report of one job; an error when it has done something else than it was to do.
fn rate_in(report: &str, bytes: u64, operation: Operation) -> Result<f64, String> {
    // Notes come before it.
    let json = report.find('{').map_or("", |at| &report[at..]);
    let report: Report = serde_json::from_str(json).map_err(|error| format!("its report: {error}"))?;
    let [job] = &report.jobs[..] else {
        return Err(format!("its report has {} jobs instead of one", report.jobs.len()));
    };
    if job.error != 0 {
        return Err(std::io::Error::from_raw_os_error(job.error).to_string());
    }
    let done = if operation == Operation::Write { &job.write } else { &job.read };
    if done.io_bytes != bytes {
        return Err(format!("{} bytes instead of {bytes}", done.io_bytes));
    }
    if done.runtime == 0 {
        return Err("less than 1 ms, which fio's report does not tell apart".to_owned());
    }
    Ok(bytes as f64 / (done.runtime as f64 / 1e3) / MB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::outcome::Holds;

    const BYTES: u64 = 4 << 20;

    /// As fio 3.33 prints it, most fields left out.
    fn report(error: i32, read: (u64, u64), write: (u64, u64)) -> String {
        let direction = |(bytes, runtime): (u64, u64)| {
            format!(r#"{{"io_bytes" : {bytes}, "io_kbytes" : 0, "bw_bytes" : 1, "runtime" : {runtime}}}"#)
        };
        let (read, write) = (direction(read), direction(write));
        format!(
            r#"note: something
            {{ "fio version" : "fio-3.33", "timestamp" : 1, "jobs" : [ {{ "jobname" : "lab", "error" : {error},
            "job options" : {{ "rw" : "write" }}, "read" : {read}, "write" : {write}, "sync" : {{ "total_ios" : 0 }} }} ] }}"#
        )
    }

    #[test]
    fn the_rate_is_that_of_the_direction_that_was_asked_for() {
        let text = report(0, (BYTES, 1000), (BYTES, 500));
        let written = rate_in(&text, BYTES, Operation::Write).expect("a rate");
        assert!((written - 8.388_608).abs() < 1e-6, "{written}");
        let read = rate_in(&text, BYTES, Operation::Read).expect("a rate");
        assert!((read - 4.194_304).abs() < 1e-6, "{read}");
    }

    #[test]
    fn a_job_that_failed_did_less_or_was_too_quick_has_no_rate() {
        let rate = |text: &str| rate_in(text, BYTES, Operation::Write).expect_err("no rate");
        let reason = rate(&report(28, (0, 0), (BYTES, 500)));
        assert!(reason.contains("No space left"), "{reason}");
        let reason = rate(&report(0, (BYTES, 500), (65_536, 500)));
        assert!(reason.contains("65536 bytes instead of 4194304"), "{reason}");
        assert!(rate(&report(0, (0, 0), (BYTES, 0))).contains("1 ms"));
        assert!(rate("fio: nothing").contains("report"));
        assert!(rate(r#"{"jobs": []}"#).contains("0 jobs"));
    }

    #[test]
    fn fio_does_what_our_own_load_does() {
        let words = |operation| arguments(Path::new("/a:b/f"), BYTES, operation).join(" ");
        let written = words(Operation::Write);
        for wanted in ["--rw=write", "--bs=65536", "--size=4194304", "--filename=/a\\:b/f", "--end_fsync=1"] {
            assert!(written.contains(wanted), "{wanted}: {written}");
        }
        let read = words(Operation::Read);
        assert!(read.contains("--rw=read") && !read.contains("fsync"), "{read}");
    }

    #[test]
    fn a_ratio_is_of_one_repetition_and_one_client_that_differs_is_seen() {
        let judged = |of_second: f64| {
            let mut check = CrossCheck::new(BYTES);
            let got = |rates: [f64; CLIENTS]| Got { rates: rates.into(), limit: None };
            for at in 0..OPERATIONS.len() {
                check.record(at, &got([10.0, 10.0]), &got([10.5, of_second]));
            }
            let (figures, _) = check.into_parts();
            finding(&figures).map(|finding| (finding.holds, finding.measured))
        };
        assert_eq!(judged(9.1).map(|(holds, _)| holds), Some(Holds::Yes));
        let text = "fio's rate by ours, a client each: write 1.05 and 0.890, read 1.05 and 0.890".to_owned();
        assert_eq!(judged(8.9), Some((Holds::No, text)));
    }

    #[test]
    fn without_fio_there_is_no_figure_and_nothing_is_judged() {
        let (figures, _) = CrossCheck::new(BYTES).into_parts();
        assert!(figures.is_empty() && finding(&figures).is_none());
    }
}
