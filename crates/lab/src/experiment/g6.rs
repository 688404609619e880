//! G6: one event loop against a thread a copy (section 4.1.2 of GridFS).

use super::copies::{COMPLETE, CPU, Load, MACHINES, RATE, Route, Sweep, THREADS};
use super::outcome::{Figure, Finding};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;

/// Non-blocking against blocking.
pub(super) struct G6;

const BLOCKING: &str = "blocking";
const NONBLOCKING: &str = "nonblocking";

impl Experiment for G6 {
    fn about(&self) -> About {
        About {
            id: "G6",
            title: "One event loop for all copies against a thread for each",
            source: "GridFS, section 4.1.2",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let most = lab.scaled(
            vec![Load::new(1, 1), Load::new(MACHINES, 16)],
            vec![Load::new(1, 1), Load::new(MACHINES, 8), Load::new(MACHINES, 32), Load::new(MACHINES, 128)],
        );
        let sweep = Sweep {
            methods: vec![BLOCKING.to_owned(), NONBLOCKING.to_owned()],
            loads: most,
            route: Route::Near,
            slow_disks: true,
            total_bytes: lab.bytes(96 * MIB, 1024 * MIB),
        };
        sweep.measure(lab, "", "Near network")
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let last = |key: &str, method: &str| {
            let figure = figure(figures, key)?;
            figure.median(method, figure.x.len().checked_sub(1)?)
        };
        let pair = |key: &str| (last(key, BLOCKING), last(key, NONBLOCKING));
        let text = |(blocking, other): (Option<f64>, Option<f64>), unit: &str| {
            format!("largest load: blocking {} {unit}, nonblocking {} {unit}", shown(blocking), shown(other))
        };
        let holds = |(a, b): (Option<f64>, Option<f64>), test: fn(f64, f64) -> bool| {
            a.zip(b).map(|(a, b)| test(a, b))
        };
        let (rate, threads, cpu, whole) = (pair(RATE), pair(THREADS), pair(CPU), pair(COMPLETE));
        vec![
            Finding::new(
                "Equal rate, within 5%",
                holds(rate, |a, b| (b / a - 1.0).abs() <= 0.05),
                text(rate, "MB/s"),
            ),
            Finding::new("Fewer threads", holds(threads, |a, b| b < a), text(threads, "threads")),
            Finding::new(
                "No more processor time",
                holds(cpu, |a, b| b <= a * 1.05),
                text(cpu, "% of a core"),
            ),
            Finding::new(
                "Everything arrives",
                holds(whole, |a, b| a >= 100.0 && b >= 100.0),
                text(whole, "%"),
            ),
        ]
    }
}
