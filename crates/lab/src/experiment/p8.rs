//! P8: the share of the summed rate of the disks, and of the network's (figures 14 and 15 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::psplits::rate;
use super::reading::{self, DISK_BYTES_PER_S, LOCAL, network_mb_per_s, series_of, servers_of};
use super::{About, Experiment, Lab, Measured, figure, psplits, shown};
use crate::Error;
use crate::psplit::Run;
use crate::report::size::MB;

type Share = fn(&Run) -> Option<f64>;

/// Efficiency in the use of disks and network.
pub(super) struct P8;

impl Experiment for P8 {
    fn about(&self) -> About {
        About {
            id: "P8",
            title: "Efficiency: share of the disks' summed rate and of the network's",
            source: "PVFS2 against Ext3, figures 14 and 15",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let reading = reading::measure(lab)?;
        let servers = |run: &Run| series_of(run).filter(|name| name != LOCAL);
        let shares: [(&str, &str, Share); 3] = [
            ("disks", "Share of the disks' summed rate, caches dropped", share_of_disks),
            ("network", "Share of the payload that the network carries, caches dropped", share_of_network),
            ("ceiling", "Share of the lower of both ceilings, caches dropped", share_of_ceiling),
        ];
        let figures = shares.map(|(key, title, share)| {
            let heads = (key, title, "%");
            match key {
                "disks" => {
                    psplits::over_threads(heads, &reading.threads, &reading.cold.runs, series_of, share)
                }
                _ => psplits::over_threads(heads, &reading.threads, &reading.cold.runs, servers, share),
            }
        });
        Ok(Measured { figures: figures.to_vec(), ..reading::measured(reading, lab) })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let Some(ceiling) = figure(figures, "ceiling") else { return Vec::new() };
        let network = figure(figures, "network").and_then(|network| network.find("8 servers")?.best());
        // From two threads a server on, the lower ceiling should be reached.
        let lowest = ceiling.series.iter().filter_map(|series| {
            let servers: f64 = series.name.split(' ').next()?.parse().ok()?;
            let enough = series.points.iter().filter(|point| {
                let threads = ceiling.x.get(point.at).and_then(|threads| threads.parse::<f64>().ok());
                threads.is_some_and(|threads| threads >= 2.0 * servers)
            });
            enough.filter_map(|point| point.summary()).map(|s| s.median).min_by(f64::total_cmp)
        });
        let lowest = lowest.min_by(f64::total_cmp);
        vec![
            Finding::new(
                "With enough servers the network is used to nearly 100% (published: 87% predicted)",
                network.map(|share| share >= 95.0),
                format!("8 servers: {} % of the payload it can carry", shown(network)),
            ),
            Finding::new(
                "At least 95% of the lower ceiling from two threads a server on",
                lowest.map(|share| share >= 95.0),
                format!("lowest such median: {} %", shown(lowest)),
            ),
        ]
    }
}

fn disks_mb_per_s(run: &Run) -> f64 {
    servers_of(run).unwrap_or(1) as f64 * DISK_BYTES_PER_S as f64 / MB
}

fn share_of_disks(run: &Run) -> Option<f64> {
    Some(rate(run) / disks_mb_per_s(run) * 100.0)
}

fn share_of_network(run: &Run) -> Option<f64> {
    Some(rate(run) / network_mb_per_s() * 100.0)
}

fn share_of_ceiling(run: &Run) -> Option<f64> {
    Some(rate(run) / disks_mb_per_s(run).min(network_mb_per_s()) * 100.0)
}
