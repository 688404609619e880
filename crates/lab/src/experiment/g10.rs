//! G10: how many copies at once a server takes (section 4.1.5 of GridFS).

use super::copies::{COMPLETE, Load, MACHINES, MEMORY, Route, Sweep};
use super::outcome::{Figure, Finding, Form, Series};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::MIB;

/// Limits.
pub(super) struct G10;

const METHODS: [&str; 6] = ["blocking", "streams:4", "nonblocking", "rpc", "ftp", "auto"];
/// What the receiver may take, MiB.
const MEMORY_MIB_MAX: f64 = 256.0;

impl Experiment for G10 {
    fn about(&self) -> About {
        About {
            id: "G10",
            title: "How many copies at once into one server; all of them arrive",
            source: "GridFS, section 4.1.5",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let loads = lab.scaled(vec![16, 32, 128], vec![16, 32, 128, 1667]);
        let sweep = Sweep {
            methods: METHODS.map(str::to_owned).to_vec(),
            loads: loads.into_iter().map(|each| Load::new(MACHINES, each)).collect(),
            route: Route::Near,
            slow_disks: false,
            total_bytes: lab.bytes(96 * MIB, 1024 * MIB),
        };
        let mut measured = sweep.measure(lab, "", "Near network")?;
        let names = ["blocking", "streams", "rpc", "ftp"].map(str::to_owned).to_vec();
        let mut published = Figure::new(
            "published",
            "Published: copies at once before any failed",
            ("method", names),
            "copies",
            Form::Bars,
        );
        published.published.push(Series::published("GridFS, 2006", &[96.0, 96.0, 480.0, 50.0]));
        measured.figures.push(published);
        Ok(measured)
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let extreme = |key: &str, pick: fn(f64, f64) -> f64| {
            let figure = figure(figures, key)?;
            let medians = METHODS
                .iter()
                .flat_map(|method| (0..figure.x.len()).map(move |at| figure.median(method, at)));
            medians.collect::<Option<Vec<f64>>>()?.into_iter().reduce(pick)
        };
        let (least, memory) = (extreme(COMPLETE, f64::min), extreme(MEMORY, f64::max));
        vec![
            Finding::new(
                "Every method completes all copies at once, where the paper's failed from 51 to 481 on",
                least.map(|least| least >= 100.0),
                format!("fewest of any method and load: {} %", shown(least)),
            ),
            Finding::new(
                "The receiver's memory stays below 256 MiB",
                memory.map(|memory| memory < MEMORY_MIB_MAX),
                format!("most of any method and load: {} MiB", shown(memory)),
            ),
        ]
    }
}
