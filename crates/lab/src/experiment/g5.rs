//! G5: one file over several connections, near and far (figure 4.5 of GridFS, and what it left out).

use super::copies::{Load, RATE, Route, Sweep};
use super::outcome::{Figure, Finding};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;

/// Streams.
pub(super) struct G5;

const STREAMS: [&str; 4] = ["streams:1", "streams:2", "streams:4", "streams:8"];

impl Experiment for G5 {
    fn about(&self) -> About {
        About {
            id: "G5",
            title: "One file over 1 to 8 connections, near and over a long narrow link",
            source: "GridFS, figure 4.5 (near only)",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let sweep = |route, slow_disks| Sweep {
            methods: STREAMS.map(str::to_owned).to_vec(),
            loads: vec![Load::new(1, 1)],
            route,
            slow_disks,
            total_bytes: lab.bytes(64 * MIB, 1024 * MIB),
        };
        let near = sweep(Route::Near, true).measure(lab, "near-", "Near network")?;
        let far = sweep(Route::Far, false).measure(lab, "far-", "200 Mb/s, round trip of 50 ms")?;
        Ok(near.and(far))
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let rates = |prefix: &str| {
            let rate = figure(figures, &format!("{prefix}{RATE}"));
            STREAMS.map(|method| rate.and_then(|rate| rate.median(method, 0)))
        };
        let (near, far) = (rates("near-"), rates("far-"));
        let text =
            |rates: [Option<f64>; 4]| format!("1, 2, 4, 8 connections: {} MB/s", rates.map(shown).join(", "));
        let alike = near[0].zip(near[2]).map(|(one, four)| (four / one - 1.0).abs() < 0.1);
        let helps = far[0].zip(far[2]).map(|(one, four)| four > one * 1.1);
        vec![
            Finding::new("Near: no difference, the disk is the limit", alike, text(near)),
            Finding::new("Far: more connections help until the link is full", helps, text(far)),
        ]
    }
}
