//! G9: all methods under all loads, near and far, and whether `auto` keeps up with the best (figures 4.8 to 4.10 of
//! GridFS).

use super::copies::{CPU, Load, MACHINES, RATE, Route, Sweep, THREADS};
use super::outcome::{Figure, Finding};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;

/// All methods.
pub(super) struct G9;

const AUTO: &str = "auto";
const METHODS: [&str; 7] =
    ["blocking", "streams:4", "nonblocking", "rpc:block=32KiB,window=1", "rpc", "ftp", AUTO];

impl Experiment for G9 {
    fn about(&self) -> About {
        About {
            id: "G9",
            title: "All methods under all loads, near and far: rate, processors, threads",
            source: "GridFS, figures 4.8 to 4.10",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let loads = lab.scaled(
            vec![Load::new(1, 1), Load::new(MACHINES, 1), Load::new(MACHINES, 8)],
            vec![
                Load::new(1, 1),
                Load::new(1, 8),
                Load::new(3, 8),
                Load::new(MACHINES, 1),
                Load::new(MACHINES, 8),
            ],
        );
        let sweep = |route, total_bytes| Sweep {
            methods: METHODS.map(str::to_owned).to_vec(),
            loads: loads.clone(),
            route,
            slow_disks: true,
            total_bytes,
        };
        let near =
            sweep(Route::Near, lab.bytes(64 * MIB, 1024 * MIB)).measure(lab, "near-", "Near network")?;
        let far =
            sweep(Route::Far, lab.bytes(32 * MIB, 512 * MIB)).measure(lab, "far-", "Round trip of 50 ms")?;
        Ok(near.and(far))
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let worst = ["near-", "far-"]
            .iter()
            .filter_map(|prefix| figure(figures, &format!("{prefix}{RATE}")))
            .flat_map(|rate| {
                (0..rate.x.len()).filter_map(|at| Some((share_of_best(rate, at)?, rate.x[at].clone())))
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let share = worst.as_ref().map(|worst| worst.0);
        let place = worst.map_or(String::new(), |worst| worst.1);
        let last = |key: &str, method: &str| {
            let figure = figure(figures, key)?;
            figure.median(method, figure.x.len().checked_sub(1)?)
        };
        let threads = [METHODS[0], METHODS[2]].map(|method| last(&format!("near-{THREADS}"), method));
        let cpu = [METHODS[0], METHODS[2]].map(|method| last(&format!("near-{CPU}"), method));
        vec![
            Finding::new(
                "auto is never worse than 95% of the best fixed method",
                share.map(|share| share >= 95.0),
                format!("worst cell: {} % of the best, at {place}", shown(share)),
            ),
            Finding::new(
                "Non-blocking has the best balance: fewer threads than a thread a copy",
                threads[0].zip(threads[1]).map(|(blocking, other)| other < blocking),
                format!(
                    "largest load, blocking and nonblocking: {} threads, {} % of a core",
                    threads.map(shown).join(" and "),
                    cpu.map(shown).join(" and ")
                ),
            ),
        ]
    }
}

fn share_of_best(rate: &Figure, at: usize) -> Option<f64> {
    let fixed = METHODS.iter().filter(|method| **method != AUTO).filter_map(|method| rate.median(method, at));
    Some(rate.median(AUTO, at)? / fixed.max_by(f64::total_cmp)? * 100.0)
}
