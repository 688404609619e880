//! P7: how much faster than the local file system, in percent (figure 13 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::psplits::rate;
use super::reading::{self, LOCAL, series_of};
use super::{About, Experiment, Lab, Measured, figure, psplits, shown};
use crate::Error;
use crate::report::statistics::Summary;

/// The gain over the local file system.
pub(super) struct P7;

impl Experiment for P7 {
    fn about(&self) -> About {
        About {
            id: "P7",
            title: "Gain over the local file system, reading",
            source: "PVFS2 against Ext3, figure 13",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let reading = reading::measure(lab)?;
        let runs = &reading.cold.runs;
        let local = |threads: u32| {
            let rates: Vec<f64> = runs
                .iter()
                .filter(|run| run.threads == threads && series_of(run).as_deref() == Some(LOCAL))
                .map(rate)
                .collect();
            Summary::of(&rates).map(|summary| summary.median)
        };
        let servers = |run: &_| series_of(run).filter(|name| name != LOCAL);
        let head = ("gain", "Gain over the local file system with as many threads, caches dropped", "%");
        let gain = psplits::over_threads(head, &reading.threads, runs, servers, |run| {
            Some((rate(run) / local(run.threads)? - 1.0) * 100.0)
        });
        Ok(Measured { figures: vec![gain], ..reading::measured(reading, lab) })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let gain = figure(figures, "gain").and_then(|gain| gain.find("8 servers")?.best());
        let text = format!("8 servers: {} %", shown(gain));
        vec![Finding::new("About 200% or more at best", gain.map(|gain| gain >= 190.0), text)]
    }
}
