//! P2: how much a thread has to read before its start does not matter (figure 6 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::psplits::{self, Call};
use super::reading::{self, directories};
use super::testbed::Testbed;
use super::{About, Experiment, Lab, Measured, figure};
use crate::Error;
use crate::report::size::{MIB, format_size};

/// Reading little to much with few to many threads.
pub(super) struct P2;

/// What a thread had to read then before its start did not matter, MiB.
const PUBLISHED_MIB: f64 = 4.0;
/// From this share of the best rate on, the start does not matter.
const SETTLED_SHARE: f64 = 0.9;

impl Experiment for P2 {
    fn about(&self) -> About {
        About {
            id: "P2",
            title: "Reading from 1 and 2 servers: amount against threads; what starting costs",
            source: "PVFS2 against Ext3, figure 6",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let totals: Vec<u64> = (0..=lab.scaled(6, 10)).map(|shift| MIB << shift).collect();
        let threads = lab.scaled(vec![1, 8, 32], vec![1, 2, 4, 8, 16, 32]);
        let bed = Testbed::new(lab, &reading::plan(totals.last().copied().unwrap_or(MIB)))?;
        let places = directories(lab, &bed, &[1, 2])?;
        let call = Call {
            mode: "read",
            places: &places,
            threads: &threads,
            block_bytes: &[64 << 10],
            total_bytes: &totals,
            drop_caches: true,
            sync: false,
        };
        let results = call.run(lab, &bed, 0)?;
        let figures =
            [("one", "1 server", "vz:/w1"), ("two", "2 servers", "vz:/w2")].map(|(key, name, place)| {
                let title = format!("Read from {name} in blocks of 64 KiB, caches dropped");
                psplits::over_sizes(
                    (key, &title, "bytes in all", "MB/s"),
                    &totals,
                    &results.runs,
                    |run| run.total_bytes,
                    |run| (run.place == place).then(|| thread_series(run.threads)),
                )
            });
        Ok(Measured {
            scale: format!(
                "1 MiB to {} in all, {} repetitions",
                format_size(totals[totals.len() - 1]),
                lab.repetitions()
            ),
            setup: reading::setup(),
            figures: figures.to_vec(),
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let settled: Vec<(String, f64)> = ["one", "two"]
            .iter()
            .filter_map(|key| figure(figures, key))
            .flat_map(|figure| {
                figure
                    .series
                    .iter()
                    .filter_map(|series| Some((series.name.clone(), settled_mib(figure, &series.name)?)))
            })
            .collect();
        let worst = settled.iter().map(|(_, mib)| *mib).max_by(f64::total_cmp);
        let text = settled.iter().map(|(name, mib)| format!("{name} {mib} MiB"));
        vec![Finding::new(
            "Below 4 MB a thread the start cost dominates; it should be far smaller now",
            worst.map(|mib| mib < PUBLISHED_MIB),
            format!(
                "a thread reaches {:.0}% of its best rate when it reads: {}",
                SETTLED_SHARE * 100.0,
                text.collect::<Vec<_>>().join(", ")
            ),
        )]
    }
}

/// `1 thread`, `8 threads`.
pub(super) fn thread_series(threads: u32) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// The smallest amount a thread from which on the rate stays near the best, MiB.
fn settled_mib(figure: &Figure, series: &str) -> Option<f64> {
    let threads: f64 = series.split(' ').next()?.parse().ok()?;
    let series = figure.find(series)?;
    let best = series.best()?;
    let unsettled = |point: &&super::outcome::Point| {
        point.summary().is_some_and(|summary| summary.median < best * SETTLED_SHARE)
    };
    let after = series.points.iter().filter(unsettled).map(|point| point.at + 1).max().unwrap_or(0);
    // The places are 1 MiB, 2 MiB, 4 MiB …; one beyond the last was not seen to settle.
    (after < figure.x.len()).then(|| 2f64.powi(after as i32) / threads)
}
