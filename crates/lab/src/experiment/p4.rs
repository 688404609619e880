//! P4: threads against servers, reading one large file (figures 8 and 9 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::reading::{self, LOCAL, series_of};
use super::{About, Experiment, Lab, Measured, figure, psplits, shown};
use crate::Error;
use crate::report::size::format_size;

/// Reading with 1 … 32 threads from 1 … 8 servers.
pub(super) struct P4;

impl Experiment for P4 {
    fn about(&self) -> About {
        About {
            id: "P4",
            title: "Reading one file: threads against data servers, beside the local file system",
            source: "PVFS2 against Ext3, figures 8 and 9",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let reading = reading::measure(lab)?;
        let figures = [("cold", "caches dropped", &reading.cold), ("warm", "caches warm", &reading.warm)];
        let figures = figures.map(|(key, title, results)| {
            let title = format!("Read {} in blocks of 64 KiB, {title}", format_size(reading.total_bytes));
            psplits::rates_over_threads((key, &title), &reading.threads, &results.runs, series_of)
        });
        Ok(Measured { figures: figures.to_vec(), ..reading::measured(reading, lab) })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let Some(cold) = figure(figures, "cold") else { return Vec::new() };
        vec![more_servers(cold), against_local(cold), one_thread(cold), caches(cold, figure(figures, "warm"))]
    }
}

fn best(figure: &Figure, series: &str) -> Option<f64> {
    figure.find(series)?.best()
}

fn more_servers(cold: &Figure) -> Finding {
    let rates = ["1 server", "2 servers", "4 servers"].map(|name| best(cold, name));
    let holds = match rates {
        [Some(one), Some(two), Some(four)] => Some(two > one * 1.5 && four > two * 1.5),
        _ => None,
    };
    let text = format!("best of 1, 2, 4 servers: {} MB/s", rates.map(shown).join(", "));
    Finding::new("The rate rises with the servers until the network is full", holds, text)
}

fn against_local(cold: &Figure) -> Finding {
    let (local, eight) = (best(cold, LOCAL), best(cold, "8 servers"));
    let gain = local.zip(eight).map(|(local, eight)| eight / local);
    let text = format!("8 servers give {} times the local disk", shown(gain));
    Finding::new("Up to about three times the local file system", gain.map(|gain| gain >= 2.8), text)
}

fn one_thread(cold: &Figure) -> Finding {
    let rates = (cold.median(LOCAL, 0), cold.median("1 server", 0));
    let text = format!("one thread: local {} MB/s, 1 server {}", shown(rates.0), shown(rates.1));
    let holds = rates.0.zip(rates.1).map(|(local, server)| local >= server * 0.95);
    Finding::new("With one thread the local file system is as good as one server", holds, text)
}

fn caches(cold: &Figure, warm: Option<&Figure>) -> Finding {
    let (cold, warm) = (best(cold, "8 servers"), warm.and_then(|warm| best(warm, "8 servers")));
    let holds = cold.zip(warm).map(|(cold, warm)| (warm / cold - 1.0).abs() < 0.1);
    let text = format!(
        "8 servers: cold {} MB/s, warm {}; with the network as the limit a cache cannot help, with the disks as the limit it does, \
         for the servers' memory holds the whole file here and did not then",
        shown(cold),
        shown(warm)
    );
    Finding::new("A warm cache changes about 1%", holds, text)
}
