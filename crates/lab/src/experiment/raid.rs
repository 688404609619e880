//! R2 and R3: one server with 1, 2 and 3 disks, striped over by the server itself: sequential reading and writing
//! against the size of blocks, with the processors (figures 2 and 3 of the gigabit study).

use super::outcome::{Figure, Finding, Form};
use super::psplits::{self, Call};
use super::testbed::{DiskPlan, Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::psplit::Results;
use crate::report::size::{MB, MIB, format_size};

/// Sequential reading from the disks of one server.
pub(super) struct R2;
/// Sequential writing to them.
pub(super) struct R3;

/// Three of them stay below a gigabit, as three of the paper's disks did.
const DISK_BYTES_PER_S: u64 = 35_000_000;
const DISKS: [usize; 3] = [1, 2, 3];
/// The payload of a gigabit, MB/s.
const GIGABIT_MB_PER_S: f64 = 119.0;

impl Experiment for R2 {
    fn about(&self) -> About {
        About {
            id: "R2",
            title: "Sequential read from 1, 2 and 3 striped disks of one server against the block",
            source: "Gigabit networks and RAID 0, figure 2",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        measure(lab, "read")
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let mut findings = sums(figures);
        let at = |at| figure(figures, "rate").and_then(|rate| rate.median("3 disks", at));
        let blocks = figure(figures, "rate").map_or(1, |rate| rate.x.len());
        let (small, large) = (at(0), at(blocks - 1));
        findings.push(Finding::new(
            "The full rate needs large blocks",
            small.zip(large).map(|(small, large)| small < large * 0.9),
            format!(
                "3 disks: smallest block {} MB/s, largest {}; where both are alike, read-ahead over all disks made large requests of small ones",
                shown(small),
                shown(large)
            ),
        ));
        findings
    }
}

impl Experiment for R3 {
    fn about(&self) -> About {
        About {
            id: "R3",
            title: "Sequential write to 1, 2 and 3 striped disks of one server against the block",
            source: "Gigabit networks and RAID 0, figure 3",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        measure(lab, "generate")
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        sums(figures)
    }
}

fn measure(lab: &Lab, mode: &str) -> Result<Measured, Error> {
    let blocks: Vec<u64> =
        lab.scaled(vec![4 << 10, 64 << 10, MIB], (0..=10).map(|shift| 1024 << shift).collect());
    let total_bytes = lab.bytes(96 * MIB, 1024 * MIB);
    let (is_read, verb) = (mode == "read", if mode == "read" { "Read" } else { "Write, synced" });
    let x: Vec<String> = blocks.iter().map(|&bytes| format_size(bytes)).collect();
    let title = format!("{verb}, {} in all, 1 thread", format_size(total_bytes));
    let mut rate = Figure::new("rate", &title, ("block", x.clone()), "MB/s", Form::Lines);
    let title = format!("{verb}: processor use of client and servers together");
    let mut cpu = Figure::new("cpu", &title, ("block", x), "% of a core", Form::Lines);
    for disks in DISKS {
        let disk = DiskPlan { size_bytes: total_bytes * 3 + 256 * MIB, bytes_per_second: DISK_BYTES_PER_S };
        let plan = Plan {
            data_servers: 1,
            disks_per_server: disks,
            clients: 1,
            disk: Some(disk),
            ..Plan::default()
        };
        let bed = Testbed::new(lab, &plan)?;
        let call = Call {
            mode,
            places: &["vz:/".to_owned()],
            threads: &[1],
            block_bytes: &blocks,
            total_bytes: &[total_bytes],
            drop_caches: is_read,
            sync: !is_read,
        };
        record(&mut rate, &mut cpu, disks, &blocks, &call.run(lab, &bed, 0)?);
    }
    Ok(Measured {
        scale: format!("{} a run, {} repetitions", format_size(total_bytes), lab.repetitions()),
        setup: vec![format!(
            "One data server with 1, 2 and 3 targets, each on a disk of {} MB/s of its own; the network is not limited.",
            DISK_BYTES_PER_S / 1_000_000
        )],
        figures: vec![rate, cpu],
        gaps: vec!["the kernel's own striping beside it".to_owned()],
    })
}

fn record(rate: &mut Figure, cpu: &mut Figure, disks: usize, blocks: &[u64], results: &Results) {
    let name = series(disks);
    for run in &results.runs {
        let Some(at) = blocks.iter().position(|&bytes| bytes == run.block_bytes) else { continue };
        let cpu_s: f64 = run.record.processes.iter().map(|process| process.cpu_s()).sum();
        rate.series_mut(&name).record(at, psplits::rate(run));
        rate.series_mut(&name).limited_by(at, &run.verdict.text);
        cpu.series_mut(&name).record(at, cpu_s / run.seconds.max(1e-9) * 100.0);
    }
}

fn series(disks: usize) -> String {
    format!("{disks} disk{}", if disks == 1 { "" } else { "s" })
}

/// What holds for reading and writing: disks add up, and three of the paper's do not fill a gigabit.
fn sums(figures: &[Figure]) -> Vec<Finding> {
    let best = DISKS.map(|disks| figure(figures, "rate")?.find(&series(disks))?.best());
    let share = |index: usize| {
        best[index].map(|rate| rate / (DISKS[index] as f64 * DISK_BYTES_PER_S as f64 / MB) * 100.0)
    };
    let shares = [share(0), share(1), share(2)];
    let lowest = shares.into_iter().collect::<Option<Vec<f64>>>();
    let lowest = lowest.and_then(|shares| shares.into_iter().min_by(f64::total_cmp));
    vec![
        Finding::new(
            "The rate is that of the disks together, at least 95% of it",
            lowest.map(|lowest| lowest >= 95.0),
            format!("1, 2, 3 disks: {} % of their sum", shares.map(shown).join(", ")),
        ),
        Finding::new(
            "Three disks do not reach a gigabit",
            best[2].map(|rate| rate < GIGABIT_MB_PER_S),
            format!(
                "3 disks: {} MB/s of {GIGABIT_MB_PER_S}; disks of this rate were chosen for it",
                shown(best[2])
            ),
        ),
    ]
}
