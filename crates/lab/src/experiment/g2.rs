//! G2 and G3: socket buffers of 4 KiB to 2 MiB, near and far (figures 4.2 and 4.4 of GridFS).

use super::copies::{Load, MACHINES, RATE, Route, Sweep};
use super::outcome::{Figure, Finding};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;

/// Buffers on a near network.
pub(super) struct G2;
/// Buffers on a far one.
pub(super) struct G3;

const SMALL: &str = "blocking:buffer=4KiB";
const DEFAULT: &str = "blocking";

impl Experiment for G2 {
    fn about(&self) -> About {
        About {
            id: "G2",
            title: "Socket buffers of a thread a copy, near network, by load",
            source: "GridFS, figure 4.2",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        sweep(lab, Route::Near).measure(lab, "", "Near network")
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let loss = small_buffer_share(figures, 0);
        let under_load = figure(figures, RATE).and_then(|rate| small_buffer_share(figures, rate.x.len() - 1));
        vec![
            Finding::new(
                "A small buffer hurts a single copy clearly",
                loss.map(|share| share < 90.0),
                format!("1×1: {} % of the system's own buffer", shown(loss)),
            ),
            Finding::new(
                "No effect once the disk is the limit",
                under_load.map(|share| share >= 90.0),
                format!("largest load: {} %", shown(under_load)),
            ),
        ]
    }
}

impl Experiment for G3 {
    fn about(&self) -> About {
        About {
            id: "G3",
            title: "Socket buffers of a thread a copy over a long-delay link, by load",
            source: "GridFS, figure 4.4",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        sweep(lab, Route::Far).measure(lab, "", "Round trip of 50 ms")
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let share = small_buffer_share(figures, 0);
        let rate = figure(figures, RATE).and_then(|rate| rate.median(SMALL, 0));
        // The kernel doubles what is asked for, half of it for its own book-keeping.
        let expected = 4.0 * 1024.0 / 0.050 / 1e6;
        let near = rate.map(|rate| rate > expected / 3.0 && rate < expected * 3.0);
        vec![
            Finding::new(
                "A small buffer hurts much more than near",
                share.map(|share| share < 50.0),
                format!("1×1: {} % of the system's own buffer", shown(share)),
            ),
            Finding::new(
                "The rate is about buffer / round trip while the buffer is the limit",
                near,
                format!("4 KiB / 50 ms = {} MB/s; measured {}", shown(Some(expected)), shown(rate)),
            ),
        ]
    }
}

fn sweep(lab: &Lab, route: Route) -> Sweep {
    let methods = [SMALL, "blocking:buffer=128KiB", "blocking:buffer=2MiB", DEFAULT];
    let loads = lab.scaled(
        vec![Load::new(1, 1), Load::new(MACHINES, 4)],
        vec![
            Load::new(1, 1),
            Load::new(1, 8),
            Load::new(3, 8),
            Load::new(MACHINES, 1),
            Load::new(MACHINES, 8),
        ],
    );
    // 4 KiB each 50 ms is what the slowest may take: 80 KB/s a copy.
    let total_bytes =
        if route == Route::Far { lab.bytes(2 * MIB, 32 * MIB) } else { lab.bytes(48 * MIB, 1024 * MIB) };
    Sweep { methods: methods.map(str::to_owned).to_vec(), loads, route, slow_disks: true, total_bytes }
}

fn small_buffer_share(figures: &[Figure], at: usize) -> Option<f64> {
    let rate = figure(figures, RATE)?;
    Some(rate.median(SMALL, at)? / rate.median(DEFAULT, at)? * 100.0)
}
