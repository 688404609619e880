//! G1: what the link and the disk carry by themselves, near and far (table 4.4 of GridFS).

use super::outcome::{Figure, Finding, Form, Series};
use super::testbed::{DiskPlan, Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::hosts::BitsPerSecond;
use crate::report::size::MIB;
use serde_json::Value;
use std::time::Duration;

/// The link probe.
pub(super) struct G1;

/// As the paper's near network carried, and its disk read.
const LINK: BitsPerSecond = BitsPerSecond(631_000_000);
const DISK_BYTES_PER_S: u64 = 277_000_000 / 8;
/// One way; the paper's two sites were as far apart as a city's ends.
const FAR_DELAY: Duration = Duration::from_millis(5);

const STREAMS: [&str; 2] = ["1", "4"];
const MEMORY: &str = "memory to memory";
const DISK: &str = "disk to memory";
const ROUTES: [&str; 2] = ["near", "far"];

impl Experiment for G1 {
    fn about(&self) -> About {
        About {
            id: "G1",
            title: "What link and disk carry by themselves: memory to memory and disk to memory, near and far",
            source: "GridFS, table 4.4",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let x: Vec<String> = ROUTES.iter().map(|route| (*route).to_owned()).collect();
        let axis = ("route", x);
        let title = "Rate from one node to another, without a copy";
        let mut rate = Figure::new("rate", title, axis.clone(), "Mb/s", Form::Bars);
        rate.published.push(Series::published(MEMORY, &[631.0, 623.0]));
        rate.published.push(Series::published(DISK, &[277.0, 301.0]));
        let mut trip = Figure::new("round-trip", "Round trip", axis, "ms", Form::Bars);
        let mut gaps = Vec::new();
        for (at, delay) in [None, Some(FAR_DELAY)].into_iter().enumerate() {
            let bed = Testbed::new(lab, &plan(delay))?;
            for _ in 0..lab.repetitions() {
                for streams in STREAMS {
                    match measure(lab, &bed, streams) {
                        Ok(lines) => record(&mut rate, &mut trip, at, streams, &lines),
                        Err(error) => gaps.push(format!("{} by {streams}: {error}", ROUTES[at])),
                    }
                }
            }
        }
        let setup = vec![format!(
            "Two nodes on hosts of their own, links of {} Mb/s, disks of {} MB/s (bounded loop devices); \
             far: a round trip of {} ms.",
            LINK.0 / 1_000_000,
            DISK_BYTES_PER_S / 1_000_000,
            FAR_DELAY.as_millis() * 2
        )];
        let scale = format!("`vazao probe` by 1 and 4 streams, {} repetitions", lab.repetitions());
        Ok(Measured { scale, setup, figures: vec![rate, trip], gaps })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let median =
            |course: &str, streams: &str, at| figure(figures, "rate")?.median(&series(course, streams), at);
        let pairs = [0, 1].map(|at| median(MEMORY, "4", at).zip(median(DISK, "4", at)));
        let is_disk = |pair: Option<(f64, f64)>| pair.map(|(memory, disk)| disk < memory * 0.8);
        let nominal = LINK.0 as f64 / 1e6;
        let near = median(MEMORY, "4", 0);
        let tell = |at: usize| {
            let (memory, disk) = pairs[at].unzip();
            format!("{}: {} Mb/s from memory, {} from disk", ROUTES[at], shown(memory), shown(disk))
        };
        vec![
            Finding::new("Near, disk and not network is the limit", is_disk(pairs[0]), tell(0)),
            Finding::new("Far, disk and not network is the limit", is_disk(pairs[1]), tell(1)),
            Finding::new(
                "From memory the link is full",
                near.map(|near| near > nominal * 0.85 && near < nominal * 1.05),
                format!("{} of {nominal} Mb/s, whose headers are not counted", shown(near)),
            ),
        ]
    }
}

fn series(course: &str, streams: &str) -> String {
    let plural = if streams == "1" { "stream" } else { "streams" };
    format!("{course}, {streams} {plural}")
}

fn plan(delay: Option<Duration>) -> Plan {
    Plan {
        data_servers: 2,
        clients: 1,
        disk: Some(DiskPlan { size_bytes: 768 * MIB, bytes_per_second: DISK_BYTES_PER_S }),
        link: Some(LINK),
        server_delay: delay,
        areas: true,
        ..Plan::default()
    }
}

fn measure(lab: &Lab, bed: &Testbed<'_>, streams: &str) -> Result<Vec<Value>, Error> {
    let seconds = lab.scaled("1", "4");
    // 4 s of the disk; a part of it by scale.
    let bytes = lab.bytes(32 * MIB, 128 * MIB).to_string();
    let mut disk = bed.vazao(0)?;
    disk.args(["probe", "data1:/disk", "data2:/disk", "--json", "--streams", streams, "--seconds", seconds]);
    let printed = lab.text_of(disk.args(["--bytes", &bytes]))?;
    let lines = printed.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
    lines.map_err(|error| Error::Failed(format!("vazao probe printed what is no JSON: {error}")))
}

fn record(rate: &mut Figure, trip: &mut Figure, at: usize, streams: &str, lines: &[Value]) {
    for line in lines {
        let (Some(course), Some(bytes)) = (line["course"].as_str(), line["bytes_per_second"].as_f64()) else {
            continue;
        };
        if course == MEMORY || course == DISK {
            rate.series_mut(&series(course, streams)).record(at, bytes * 8.0 / 1e6);
        }
        if let Some(milliseconds) = line["round_trip_ms"].as_f64().filter(|_| course == MEMORY) {
            trip.series_mut("shortest").record(at, milliseconds);
        }
    }
}
