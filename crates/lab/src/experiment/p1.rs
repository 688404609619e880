//! P1: what each disk and each link gives by itself: the ceilings of P7 and P8 (figures 4 and 5 of the PVFS2 study).

use super::outcome::{Figure, Finding, Form};
use super::psplits::{self, Call};
use super::reading::{self, DISK_BYTES_PER_S, network_mb_per_s};
use super::testbed::Testbed;
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::hosts::Host;
use crate::report::size::{MB, MIB, format_size};
use std::time::Duration;
use vazao_sampler::Recorder;

/// Disks and links one by one.
pub(super) struct P1;

const DISK: &str = "disk, reading";
const TO_CLIENT: &str = "network, server to client";
const FROM_CLIENT: &str = "network, client to server";

impl Experiment for P1 {
    fn about(&self) -> About {
        About {
            id: "P1",
            title: "The ceilings: each server's disk, the network both ways, processor use meanwhile",
            source: "PVFS2 against Ext3, figures 4 and 5",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let total_bytes = lab.bytes(32 * MIB, 256 * MIB);
        let bed = Testbed::new(lab, &reading::plan(total_bytes))?;
        let places: Vec<String> = bed.server_disks().iter().map(|path| path.display().to_string()).collect();
        let names: Vec<String> = (1..=places.len()).map(|number| format!("data{number}")).collect();
        let title = "What each server's disk and link give by themselves";
        let mut rates = Figure::new("rates", title, ("server", names.clone()), "MB/s", Form::Bars);
        let title = "Processor use of the whole machine during the network's measurement";
        let mut cpu = Figure::new("cpu", title, ("server", names), "% of a core", Form::Bars);
        let call = Call {
            mode: "read",
            places: &places,
            threads: &[1],
            block_bytes: &[MIB],
            total_bytes: &[total_bytes],
            drop_caches: true,
            sync: false,
        };
        for run in &call.run(lab, &bed, 0)?.runs {
            if let Some(at) = places.iter().position(|place| *place == run.place) {
                rates.series_mut(DISK).record(at, psplits::rate(run));
            }
        }
        let recorder = Recorder::new(lab.clock.clone(), Vec::new());
        for _ in 0..lab.repetitions() {
            for (at, server) in bed.servers().iter().enumerate() {
                let client = &bed.clients()[0];
                for (name, from, to) in [(TO_CLIENT, server, client), (FROM_CLIENT, client, server)] {
                    let (rate, record) = recorder.during(|| stream(lab, from, to));
                    rates.series_mut(name).record(at, rate?);
                    cpu.series_mut(name).record(at, record.machine_busy_s / record.seconds.max(1e-9) * 100.0);
                }
            }
        }
        Ok(Measured {
            scale: format!("{} from each disk, {} repetitions", format_size(total_bytes), lab.repetitions()),
            setup: reading::setup(),
            figures: vec![rates, cpu],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let share = |series: &str, ceiling: f64| {
            let series = figure(figures, "rates")?.find(series)?;
            let medians =
                series.points.iter().filter_map(|point| point.summary()).map(|s| s.median / ceiling);
            medians.min_by(f64::total_cmp).map(|share| share * 100.0)
        };
        let disk = share(DISK, DISK_BYTES_PER_S as f64 / MB);
        let (down, up) = (share(TO_CLIENT, network_mb_per_s()), share(FROM_CLIENT, network_mb_per_s()));
        let near = |share: f64| share >= 95.0;
        vec![
            Finding::new(
                "Each disk gives its rate",
                disk.map(near),
                format!("the slowest: {} % of the rate that was set", shown(disk)),
            ),
            Finding::new(
                "The client receives at the network's rate and sends not faster",
                down.zip(up).map(|(down, up)| near(down) && up <= down * 1.05),
                format!(
                    "slowest of all: receiving {} %, sending {} % of the payload a link carries",
                    shown(down),
                    shown(up)
                ),
            ),
        ]
    }
}

/// Megabytes a second of one plain TCP stream.
fn stream(lab: &Lab, from: &Host, to: &Host) -> Result<f64, Error> {
    let measured = Duration::from_millis(lab.scaled(500, 3000));
    let bits_per_s = from.measured_tcp_rate_to(to, Duration::from_millis(300), measured)?;
    Ok(bits_per_s / 8.0 / MB)
}
