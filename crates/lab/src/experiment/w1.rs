//! W1: one reader and one writer over links of 200 Mb/s that are longer and longer: the share of the link they fill.
//!
//! Not of any paper: it holds the library to what its windows promise (docs/decisions/request-shape.md).

use super::outcome::{Figure, Finding, Form};
use super::psplits::{Call, rate};
use super::reading::{directories, series_of};
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::hosts::{BitsPerSecond, TCP_PAYLOAD_SHARE};
use crate::report::size::{MB, MIB, format_size};
use std::time::Duration;

/// Long links.
pub(super) struct W1;

const LINK: BitsPerSecond = BitsPerSecond(200_000_000);
/// Each way, on the client's link; a round trip takes twice as long.
const ONE_WAY_MS: [u64; 3] = [0, 10, 50];
/// What one stream of calls has to fill.
const SHARE_MIN: f64 = 90.0;
const MODES: [(&str, &str); 2] = [("read", "One reader"), ("generate", "One writer")];

impl Experiment for W1 {
    fn about(&self) -> About {
        About {
            id: "W1",
            title: "One reader and one writer over long links",
            source: "our own; the link is that of the wide-area tests of GridFS",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let total_bytes = lab.bytes(256 * MIB, 1024 * MIB);
        let x = || ONE_WAY_MS.map(|one_way_ms| (2 * one_way_ms).to_string()).to_vec();
        let mut figures = MODES.map(|(mode, who)| {
            let title = format!("{who}, calls of 1 MiB, {}: share of the link", format_size(total_bytes));
            Figure::new(mode, &title, ("round trip in ms", x()), "%", Form::Lines)
        });
        let mut delayed_by = String::new();
        for (at, one_way_ms) in ONE_WAY_MS.into_iter().enumerate() {
            let delay = (one_way_ms > 0).then(|| Duration::from_millis(one_way_ms));
            let plan = Plan { data_servers: 4, clients: 1, link: Some(LINK), delay, ..Plan::default() };
            let bed = Testbed::new(lab, &plan)?;
            delayed_by = bed.delay_by();
            let places = directories(lab, &bed, &[1, 4])?;
            for ((mode, _), figure) in MODES.iter().zip(&mut figures) {
                let call = Call {
                    mode,
                    places: &places,
                    threads: &[1],
                    block_bytes: &[MIB],
                    total_bytes: &[total_bytes],
                    drop_caches: false,
                    sync: false,
                };
                for run in &call.run(lab, &bed, 0)?.runs {
                    if let Some(name) = series_of(run) {
                        figure.series_mut(&name).record(at, rate(run) / link_mb_per_s() * 100.0);
                    }
                }
            }
        }
        let rate = LINK.0 / 1_000_000;
        Ok(Measured {
            scale: format!("{} a run, {} repetitions", format_size(total_bytes), lab.repetitions()),
            setup: vec![
                format!(
                    "4 data servers, a metadata service and a client, each behind {rate} Mb/s; caches are warm."
                ),
                format!("The client's link is delayed by: {delayed_by}."),
                "Writing counts until the servers have everything; creating and closing are in the time."
                    .to_owned(),
            ],
            figures: figures.to_vec(),
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let longest = ONE_WAY_MS.len() - 1;
        let finding = |(key, who): (&str, &str)| {
            let shares = figure(figures, key).map(|figure| {
                figure.series.iter().filter_map(|series| series.median(longest)).collect::<Vec<_>>()
            });
            let lowest = shares.unwrap_or_default().into_iter().min_by(f64::total_cmp);
            Finding::new(
                &format!("{who} fills {SHARE_MIN} % of a link of 100 ms and more"),
                lowest.map(|share| share >= SHARE_MIN),
                format!("the lower of 1 and 4 servers: {} %", shown(lowest)),
            )
        };
        MODES.map(finding).to_vec()
    }
}

fn link_mb_per_s() -> f64 {
    LINK.0 as f64 / 8.0 * TCP_PAYLOAD_SHARE / MB
}
