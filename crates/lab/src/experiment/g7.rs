//! G7 and G8: a call a block, near and far: the size of blocks and calls in flight (figures 4.6 and 4.7 of GridFS).

use super::copies::{Load, MACHINES, RATE, Route, Sweep};
use super::outcome::{Figure, Finding};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;

/// Blocks near.
pub(super) struct G7;
/// Blocks far.
pub(super) struct G8;

const SMALL: &str = "rpc:block=16KiB,window=1";
const MIDDLE: &str = "rpc:block=64KiB,window=1";
const LARGE: &str = "rpc:block=1MiB,window=1";
const WINDOW: &str = "rpc:block=64KiB,window=16";

impl Experiment for G7 {
    fn about(&self) -> About {
        About {
            id: "G7",
            title: "A call a block on a near network: block size, calls in flight, load",
            source: "GridFS, figure 4.6",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        sweep(lab, Route::Near).measure(lab, "", "Near network")
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let rates = alone(figures);
        let [small, _, large, window] = rates;
        vec![
            Finding::new(
                "Alone, bigger blocks are better",
                small.zip(large).map(|(s, l)| l > s),
                text(rates),
            ),
            Finding::new(
                "A window removes the idle time between calls: small blocks are as good as large ones",
                window.zip(large).map(|(window, large)| window >= large * 0.95),
                text(rates),
            ),
        ]
    }
}

impl Experiment for G8 {
    fn about(&self) -> About {
        About {
            id: "G8",
            title: "A call a block over a long-delay link: block size, calls in flight, load",
            source: "GridFS, figure 4.7",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        sweep(lab, Route::Far).measure(lab, "", "Round trip of 50 ms")
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let rates = alone(figures);
        let [small, middle, large, window] = rates;
        let rises = small.zip(middle).zip(large).map(|((s, m), l)| m > s * 2.0 && l > m * 2.0);
        vec![
            Finding::new("The rate grows with the block", rises, text(rates)),
            Finding::new(
                "A window reaches with small blocks what large ones reach",
                window.zip(large).map(|(window, large)| window >= large * 0.8),
                text(rates),
            ),
        ]
    }
}

fn sweep(lab: &Lab, route: Route) -> Sweep {
    let methods = match lab.scale {
        super::Scale::Full => ["4", "16", "32", "64", "256"]
            .iter()
            .map(|kib| format!("rpc:block={kib}KiB,window=1"))
            .chain([LARGE, WINDOW].map(str::to_owned))
            .collect(),
        _ => [SMALL, MIDDLE, LARGE, WINDOW].map(str::to_owned).to_vec(),
    };
    let loads = lab.scaled(
        vec![Load::new(1, 1), Load::new(MACHINES, 4)],
        vec![Load::new(1, 1), Load::new(1, 8), Load::new(MACHINES, 1), Load::new(MACHINES, 8)],
    );
    let total_bytes =
        if route == Route::Far { lab.bytes(4 * MIB, 64 * MIB) } else { lab.bytes(48 * MIB, 1024 * MIB) };
    Sweep { methods, loads, route, slow_disks: true, total_bytes }
}

fn alone(figures: &[Figure]) -> [Option<f64>; 4] {
    let rate = figure(figures, RATE);
    [SMALL, MIDDLE, LARGE, WINDOW].map(|method| rate.and_then(|rate| rate.median(method, 0)))
}

fn text(rates: [Option<f64>; 4]) -> String {
    format!("1×1: 16 KiB, 64 KiB, 1 MiB, 64 KiB with 16 in flight: {} MB/s", rates.map(shown).join(", "))
}
