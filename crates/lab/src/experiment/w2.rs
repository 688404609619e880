//! W2: what of a link a copy between two nodes fills: one large file and many small ones, by `auto` and by one stream.
//!
//! Not of any paper: it holds `auto` to what docs/grid.md promises.

use super::outcome::{Figure, Finding, Form};
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::content::{self, Generator};
use crate::hosts::{BitsPerSecond, Host, TCP_PAYLOAD_SHARE};
use crate::report::size::{KIB, MIB, format_size};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Copies over links.
pub(super) struct W2;

/// A way between two nodes.
struct Way {
    name: &'static str,
    rate: BitsPerSecond,
    one_way: Option<Duration>,
    /// The largest buffer that TCP may have; the machine's own without it.
    window_bytes: Option<u64>,
    /// The file that `auto` copies is what the link carries in so many seconds: starting and ending a job takes round
    /// trips.
    seconds: u64,
    /// Percent of the link that `auto` has to fill with one file, and with small ones.
    goals: [Option<f64>; 2],
}

const FAR: Option<Duration> = Some(Duration::from_millis(50));
const WAYS: [Way; 4] = [
    Way {
        name: "100 Mb/s",
        rate: BitsPerSecond(100_000_000),
        one_way: None,
        window_bytes: None,
        seconds: 10,
        goals: [Some(95.0), Some(80.0)],
    },
    Way {
        name: "1 Gb/s",
        rate: BitsPerSecond(1_000_000_000),
        one_way: None,
        window_bytes: None,
        seconds: 10,
        goals: [Some(95.0), Some(80.0)],
    },
    Way {
        name: "200 Mb/s, 100 ms",
        rate: BitsPerSecond(200_000_000),
        one_way: FAR,
        window_bytes: None,
        seconds: 40,
        goals: [Some(90.0), None],
    },
    // As systems had them that did not tune their windows: one stream cannot fill this.
    Way {
        name: "200 Mb/s, 100 ms, windows of 512 KiB",
        rate: BitsPerSecond(200_000_000),
        one_way: FAR,
        window_bytes: Some(512 * KIB),
        seconds: 40,
        goals: [Some(90.0), None],
    },
];

const LARGE: &str = "one file, auto";
const STREAM: &str = "one file, one stream";
const SMALL: &str = "small files, auto";
const SMALL_BYTES: u64 = 16 * KIB;
const SMALL_FILES: u64 = 10_000;
/// The file of one stream, which may fill little of the link.
const STREAM_SECONDS: u64 = 10;
/// Where the sources lie in the area.
const SMALL_FROM: &str = "small";
const LARGE_FROM: &str = "large";
const STREAM_FROM: &str = "stream";

impl Experiment for W2 {
    fn about(&self) -> About {
        About {
            id: "W2",
            title: "The share of a link that copies between two nodes fill",
            source: "our own; the links are those of GridFS and longer ones",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let x = WAYS.map(|way| way.name.to_owned()).to_vec();
        let title = "Share of the payload that the link carries, start and end of the job included";
        let mut share = Figure::new("share", title, ("link between the nodes", x), "%", Form::Bars);
        let small_files = lab.bytes(SMALL_FILES, SMALL_FILES);
        let mut delayed_by = String::new();
        for (at, way) in WAYS.iter().enumerate() {
            let link = Some(way.rate);
            let plan = Plan {
                data_servers: 2,
                clients: 1,
                link,
                server_delay: way.one_way,
                areas: true,
                ..Plan::default()
            };
            let bed = Testbed::new(lab, &plan)?;
            delayed_by = bed.delay_by();
            if let Some(bytes) = way.window_bytes {
                bed.servers().iter().try_for_each(|host| bound_windows(lab, host, bytes))?;
            }
            let of_seconds = |seconds: u64| lab.bytes(way.rate.0 / 8 * seconds, way.rate.0 / 8 * seconds);
            let (bytes, stream_bytes) = (of_seconds(way.seconds), of_seconds(STREAM_SECONDS));
            prepare(lab, &bed, [(LARGE_FROM, bytes), (STREAM_FROM, stream_bytes)], small_files)?;
            for repetition in 0..lab.repetitions() {
                for (series, from, method, payload) in [
                    (LARGE, LARGE_FROM, "auto", bytes),
                    (STREAM, STREAM_FROM, "blocking", stream_bytes),
                    (SMALL, SMALL_FROM, "auto", small_files * SMALL_BYTES),
                ] {
                    let seconds = copy(lab, &bed, from, method, repetition)?;
                    let carried = way.rate.0 as f64 / 8.0 * TCP_PAYLOAD_SHARE * seconds;
                    share.series_mut(series).record(at, payload as f64 / carried * 100.0);
                }
            }
        }
        Ok(Measured {
            scale: format!(
                "one file of 10 s of the near links and of 40 s of the far ones (one stream: of {STREAM_SECONDS} s; tiny: a \
                 part of that), {small_files} files of {}, {} repetitions",
                format_size(SMALL_BYTES),
                lab.repetitions()
            ),
            setup: vec![
                "Two nodes, each behind a link of the rate; the time is that of `vazao cp`, from its start to its end, \
                 with everything synced under its final name; what arrived is compared."
                    .to_owned(),
                format!("Delay by: {delayed_by}. Files come from and go to the machine's own disk."),
            ],
            figures: vec![share],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let median = |series: &str, at| figure(figures, "share")?.median(series, at);
        let goal = |(at, way): (usize, &Way)| {
            let of = |goal: Option<f64>, series: &'static str| {
                let goal = goal?;
                let share = median(series, at);
                Some(Finding::new(
                    &format!("{}: {series} fills {goal} % of the link", way.name),
                    share.map(|share| share >= goal),
                    format!("{} %; one stream with one file {} %", shown(share), shown(median(STREAM, at))),
                ))
            };
            [of(way.goals[0], LARGE), of(way.goals[1], SMALL)]
        };
        WAYS.iter().enumerate().flat_map(goal).flatten().collect()
    }
}

/// Lets TCP on a host have buffers of at most so many bytes.
fn bound_windows(lab: &Lab, host: &Host, bytes: u64) -> Result<(), Error> {
    for setting in ["tcp_rmem", "tcp_wmem"] {
        let value = format!("net.ipv4.{setting}=4096 {} {bytes}", bytes.min(128 * KIB));
        lab.text_of(host.command("sysctl").args(["-q", "-w"]).arg(value))?;
    }
    Ok(())
}

fn source<'a>(bed: &'a Testbed<'_>) -> &'a Path {
    &bed.server_disks()[1]
}

fn prepare(lab: &Lab, bed: &Testbed<'_>, large: [(&str, u64); 2], small_files: u64) -> Result<(), Error> {
    let made = |name: &str| {
        let directory = source(bed).join(name);
        fs::create_dir(&directory).map_err(Error::at(directory.display())).map(|()| directory)
    };
    for (name, bytes) in large {
        content::write_file(&made(name)?.join("file"), content::stream(lab.seed, &[bytes]), bytes)?;
    }
    let small = made(SMALL_FROM)?;
    let mut generator = Generator::new(lab.seed, MIB as usize);
    for number in 0..small_files {
        let file = small.join(number.to_string());
        let bytes = generator.window(number * SMALL_BYTES, SMALL_BYTES as usize);
        fs::write(&file, bytes).map_err(Error::at(file.display()))?;
    }
    rustix::fs::sync();
    Ok(())
}

/// One job; its seconds. What arrived is compared, and removed.
fn copy(lab: &Lab, bed: &Testbed<'_>, from: &str, method: &str, repetition: u32) -> Result<f64, Error> {
    let into = format!("{from}-{method}-{repetition}");
    let arrived = bed.server_disks()[0].join(&into);
    let mut command = bed.vazao(0)?;
    command.args(["cp", "-r", "--method", method]);
    command.args([format!("data2:/disk/{from}"), format!("data1:/disk/{into}")]);
    let start_ns = lab.clock.now_ns();
    lab.text_of(&mut command)?;
    let seconds = lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9;
    let mut compare = std::process::Command::new("diff");
    lab.text_of(compare.args(["-rq"]).args([&source(bed).join(from), &arrived]))?;
    fs::remove_dir_all(&arrived).map_err(Error::at(arrived.display()))?;
    rustix::fs::sync();
    Ok(seconds)
}
