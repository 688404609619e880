//! P3: the local file system, amount against threads (figure 7 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::p2::thread_series;
use super::psplits::{self, Call};
use super::reading;
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::{MIB, format_size};

/// Reading and writing the local file system.
pub(super) struct P3;

impl Experiment for P3 {
    fn about(&self) -> About {
        About {
            id: "P3",
            title: "The local file system: amount against threads, reading and writing",
            source: "PVFS2 against Ext3, figure 7",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let totals: Vec<u64> = (0..=lab.scaled(6, 10)).step_by(2).map(|shift| MIB << shift).collect();
        let threads = lab.scaled(vec![1, 2, 8, 32], vec![1, 2, 4, 8, 16, 32]);
        let largest = totals.last().copied().unwrap_or(MIB);
        let bed = Testbed::new(lab, &Plan { data_servers: 0, ..reading::plan(largest) })?;
        let places: Vec<String> = bed.client_disks().iter().map(|path| path.display().to_string()).collect();
        let mut figures = Vec::new();
        for (mode, title) in [("read", "Read, caches dropped"), ("generate", "Write, synced within the time")]
        {
            let call = Call {
                mode,
                places: &places,
                threads: &threads,
                block_bytes: &[64 << 10],
                total_bytes: &totals,
                drop_caches: mode == "read",
                sync: mode == "generate",
            };
            let results = call.run(lab, &bed, 0)?;
            let heads = (mode, title, "bytes in all", "MB/s");
            figures.push(psplits::over_sizes(
                heads,
                &totals,
                &results.runs,
                |run| run.total_bytes,
                |run| Some(thread_series(run.threads)),
            ));
        }
        Ok(Measured {
            scale: format!("up to {} in all, {} repetitions", format_size(largest), lab.repetitions()),
            setup: reading::setup(),
            figures,
            gaps: vec!["seeks of a rotating disk: the stand-in has none".to_owned()],
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let last = |threads: &str| {
            let figure = figure(figures, "read")?;
            figure.median(threads, figure.x.len().checked_sub(1)?)
        };
        let (one, many) = (last("1 thread"), last("32 threads"));
        let falls = one.zip(many).map(|(one, many)| many < one * 0.8);
        let text = format!(
            "1 thread {} MB/s, 32 threads {}; threads cost a disk without seeks nothing, which is why the fall is not \
             to be expected here",
            shown(one),
            shown(many)
        );
        vec![Finding::new("The rate falls as threads grow", falls, text)]
    }
}
