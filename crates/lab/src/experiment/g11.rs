//! G11: the server's memory against the number of references given out (figure 4.11 of GridFS).

use super::outcome::{Figure, Finding, Form};
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;
use std::hint::black_box;
use vazao_client::area::AreaClient;
use vazao_sampler::Recorder;

/// Memory for references.
pub(super) struct G11;

/// Of the references given out, so many are used: each costs a round trip.
const USED_MAX: u64 = 20_000;
const FILES: u64 = 100;
const SERIES: &str = "data server";

impl Experiment for G11 {
    fn about(&self) -> About {
        About {
            id: "G11",
            title: "Memory of the server against references given out",
            source: "GridFS, figure 4.11",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let counts: Vec<u64> = (2..=lab.scaled(6, 7)).map(|exponent| 10u64.pow(exponent)).collect();
        let bed = Testbed::new(lab, &Plan { data_servers: 1, clients: 1, areas: true, ..Plan::default() })?;
        let x = counts.iter().map(u64::to_string).collect();
        let title = "Resident memory of the server after so many references";
        let mut memory = Figure::new("memory", title, ("references", x), "MiB", Form::Lines);
        let recorder = Recorder::new(lab.clock.clone(), bed.watched());
        bed.with_client(0, |client| {
            let area = client.area("data1", "disk");
            for number in 0..FILES {
                area.make_directory(format!("d{number}").as_bytes(), 0o755)?;
            }
            // What the first requests take from the allocator is not what references take.
            give_out(&area, USED_MAX)?;
            for _ in 0..lab.repetitions() {
                for (at, &count) in counts.iter().enumerate() {
                    let (given, record) = recorder.during(|| give_out(&area, count));
                    given?;
                    let server = record.processes.iter().find(|process| process.name == "data1");
                    let bytes = server.map_or(0, |server| server.resident_bytes);
                    memory.series_mut(SERIES).record(at, bytes as f64 / MIB as f64);
                }
            }
            Ok(())
        })?;
        Ok(Measured {
            scale: format!(
                "100 to {} references, {} repetitions",
                counts[counts.len() - 1],
                lab.repetitions()
            ),
            setup: vec![format!(
                "References to {FILES} places of one area are made and written as text; up to {USED_MAX} of each number are used by a stat."
            )],
            figures: vec![memory],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let medians = figure(figures, "memory").and_then(|memory| {
            let series = memory.find(SERIES)?;
            (0..memory.x.len()).map(|at| series.median(at)).collect::<Option<Vec<f64>>>()
        });
        let ends = medians.and_then(|medians| {
            Some((
                medians.iter().copied().min_by(f64::total_cmp)?,
                medians.iter().copied().max_by(f64::total_cmp)?,
            ))
        });
        let flat = ends.map(|(least, most)| most <= least * 1.05);
        let text = format!("{} to {} MiB", shown(ends.map(|e| e.0)), shown(ends.map(|e| e.1)));
        vec![Finding::new("Flat, within 5%", flat, text)]
    }
}

/// Makes references, and uses some of them.
fn give_out(area: &AreaClient, count: u64) -> vazao_client::Result<()> {
    let use_every = count.div_ceil(USED_MAX);
    for number in 0..count {
        let reference = area.reference(format!("d{}", number % FILES).as_bytes());
        black_box(reference.to_bytes());
        if number % use_every == 0 {
            area.stat(&reference.path, true)?;
        }
    }
    Ok(())
}
