//! P5: the processors of client and servers in P4 (figures 10 and 11 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::reading::{self, LOCAL, series_of};
use super::{About, Experiment, Lab, Measured, figure, psplits, shown};
use crate::Error;
use crate::psplit::Run;
use vazao_sampler::ProcessRecord;

/// Processor use while reading, by process.
pub(super) struct P5;

impl Experiment for P5 {
    fn about(&self) -> About {
        About {
            id: "P5",
            title: "Processor use of client and servers while reading",
            source: "PVFS2 against Ext3, figures 10 and 11",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let reading = reading::measure(lab)?;
        let client = ("client", "Client, caches dropped", "% of a core");
        let servers = ("servers", "Each data server on average, caches dropped", "% of a core");
        let figures = vec![
            psplits::over_threads(client, &reading.threads, &reading.cold.runs, series_of, client_percent),
            psplits::over_threads(servers, &reading.threads, &reading.cold.runs, series_of, server_percent),
        ];
        Ok(Measured { figures, ..reading::measured(reading, lab) })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let best = |key: &str, series: &str| figure(figures, key)?.find(series)?.best();
        let client = ["1 server", "8 servers"].map(|series| best("client", series));
        let servers = ["1 server", "8 servers"].map(|series| best("servers", series));
        let rises = client[0].zip(client[1]).map(|(one, eight)| eight > one);
        let falls = servers[0].zip(servers[1]).map(|(one, eight)| eight < one);
        let text = |values: [Option<f64>; 2]| {
            format!("1 and 8 servers: {} % of a core", values.map(shown).join(", "))
        };
        vec![
            Finding::new(
                "The client's use rises with the servers: it becomes the limit",
                rises,
                text(client),
            ),
            Finding::new("Each server's use falls as there are more of them", falls, text(servers)),
        ]
    }
}

fn percent(process: &ProcessRecord, run: &Run) -> f64 {
    process.cpu_s() / run.record.seconds.max(1e-9) * 100.0
}

fn client_percent(run: &Run) -> Option<f64> {
    run.record.processes.first().map(|client| percent(client, run))
}

/// The average of the servers that hold data of the file; those that hold none are idle.
fn server_percent(run: &Run) -> Option<f64> {
    if reading::series_of(run).as_deref() == Some(LOCAL) {
        return None;
    }
    let servers = reading::servers_of(run)? as f64;
    let data = run.record.processes.iter().filter(|process| process.name.starts_with("data"));
    Some(data.map(|process| percent(process, run)).sum::<f64>() / servers)
}
