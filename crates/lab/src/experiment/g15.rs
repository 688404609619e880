//! G15: listing, asking for and creating remote files by many clients at once (section 4 of GridFS).

use super::outcome::{Figure, Finding, Form};
use super::testbed::{Plan, Testbed};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use parking_lot::Mutex;
use vazao_client::Client;
use vazao_client::area::ChannelOptions;

/// Operations on names, by many clients.
pub(super) struct G15;

const LISTED_FILES: usize = 100;
const OPERATIONS: [&str; 3] = ["list 100 entries", "stat", "create"];

impl Experiment for G15 {
    fn about(&self) -> About {
        About {
            id: "G15",
            title: "Listing, asking for and creating remote files by many clients at once",
            source: "GridFS, section 4 (not tabulated there)",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let clients = lab.scaled(vec![1, 4, 16], vec![1, 2, 4, 8, 16, 32]);
        let each = lab.bytes(320, 2000) as usize;
        let bed = Testbed::new(lab, &Plan { data_servers: 1, clients: 1, areas: true, ..Plan::default() })?;
        let x: Vec<String> = clients.iter().map(usize::to_string).collect();
        let axis = || ("clients", x.clone());
        let mut rates = Figure::new(
            "rate",
            "Operations a second, all clients together",
            axis(),
            "operations/s",
            Form::Lines,
        );
        let mut delays = Figure::new("latency", "How long an operation takes", axis(), "ms", Form::Lines);
        prepare(&bed)?;
        for repetition in 0..lab.repetitions() {
            for (at, &count) in clients.iter().enumerate() {
                for operation in OPERATIONS {
                    let run = run(lab, &bed, operation, count, each, repetition)?;
                    rates.series_mut(operation).record(at, (count * each) as f64 / run.seconds);
                    for (name, share) in [("median", 0.5), ("99%", 0.99)] {
                        delays
                            .series_mut(&format!("{operation}, {name}"))
                            .record(at, run.percentile_ms(share));
                    }
                }
            }
        }
        Ok(Measured {
            scale: format!("{each} operations a client, {} repetitions", lab.repetitions()),
            setup: vec![
                "Each client is a connection of its own from one host to an area of a server on another."
                    .to_owned(),
            ],
            figures: vec![rates, delays],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let rate = |operation: &str| {
            let series = figure(figures, "rate")?.find(operation)?;
            Some((series.median(0)?, series.best()?))
        };
        OPERATIONS
            .iter()
            .map(|operation| {
                let rate = rate(operation);
                let text = format!(
                    "one client {}/s, best of all {}/s",
                    shown(rate.map(|r| r.0)),
                    shown(rate.map(|r| r.1))
                );
                let shape = format!("Many clients get more done than one: {operation}");
                Finding::new(&shape, rate.map(|(one, best)| best > one * 1.2), text)
            })
            .collect()
    }
}

struct Run {
    seconds: f64,
    delays_ns: Vec<u64>,
}

impl Run {
    fn percentile_ms(&self, share: f64) -> f64 {
        let index = (self.delays_ns.len() as f64 * share) as usize;
        let delay = self.delays_ns.get(index.min(self.delays_ns.len().saturating_sub(1)));
        delay.copied().unwrap_or(0) as f64 / 1e6
    }
}

fn prepare(bed: &Testbed<'_>) -> Result<(), Error> {
    let Some(disk) = bed.server_disks().first() else { return Ok(()) };
    let made = |path: std::path::PathBuf| std::fs::create_dir(&path).map_err(Error::at(path.display()));
    made(disk.join("listed"))?;
    made(disk.join("created"))?;
    (0..LISTED_FILES).try_for_each(|number| {
        let path = disk.join(format!("listed/file{number}"));
        std::fs::write(&path, b"x").map_err(Error::at(path.display()))
    })
}

/// All clients at once, each with its own connections.
fn run(
    lab: &Lab,
    bed: &Testbed<'_>,
    operation: &str,
    count: usize,
    each: usize,
    repetition: u32,
) -> Result<Run, Error> {
    let delays = Mutex::new(Vec::new());
    let seconds = bed.with_clients(0, count, |number, client| {
        let mut own = Vec::with_capacity(each);
        for index in 0..each {
            let start_ns = lab.clock.now_ns();
            let unique = format!("created/{repetition}-{count}-{number}-{index}");
            once(client, operation, &unique, index)?;
            own.push(lab.clock.now_ns().saturating_sub(start_ns));
        }
        delays.lock().extend(own);
        Ok(())
    })?;
    let mut delays_ns = delays.into_inner();
    delays_ns.sort_unstable();
    Ok(Run { seconds, delays_ns })
}

fn once(client: &Client, operation: &str, unique: &str, index: usize) -> vazao_client::Result<()> {
    let area = client.area("data1", "disk");
    match operation {
        "stat" => area.stat(format!("listed/file{}", index % LISTED_FILES).as_bytes(), true).map(drop),
        "create" => {
            let options =
                ChannelOptions { write: true, create: true, exclusive: true, ..ChannelOptions::default() };
            area.open(unique.as_bytes(), &options)?.close()
        }
        _ => area.list(b"listed", 0, LISTED_FILES as u32 + 2, true).map(drop),
    }
}
