//! P10: what 1, 2 and 3 copies of data cost, and what is seen of a data server that is killed and comes back (section 8
//! of the PVFS2 study names it as future work).
//!
//! [`cost`] and [`outage`] measure; [`bound`] says what links allow; [`figures`] makes figures and judges them.

mod bound;
mod cost;
mod figures;
mod outage;
mod timeline;

use super::outcome::{Figure, Finding};
use super::{About, Experiment, Lab, Measured};
use crate::Error;
use crate::report::size::format_size;

/// Data servers; a file of full width lies on all of them.
const SERVERS: usize = 4;
/// Copies that are compared.
const COPIES: [usize; 3] = [1, 2, 3];

/// The cost of copies.
pub(super) struct P10;

impl Experiment for P10 {
    fn about(&self) -> About {
        About {
            id: "P10",
            title: "What 1, 2 and 3 copies cost, and a data server that is killed",
            source: "PVFS2 against Ext3, section 8 (future work)",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let samples = cost::measure(lab)?;
        let outage = outage::measure(lab)?;
        let mut figures = figures::of_cost(&samples);
        figures.extend(figures::of_outage(&outage));
        let amount = cost::Amount::of(lab);
        let scale = format!(
            "files of {}, {} overwrites of {}, {} turns; over time {} writers and as many readers, each with a file of {}",
            format_size(amount.file_bytes),
            amount.overwrites,
            format_size(cost::SMALL_BYTES),
            lab.repetitions(),
            outage.workers,
            format_size(outage.file_bytes)
        );
        Ok(Measured { scale, setup: figures::setup(&outage), figures, gaps: figures::gaps(lab, &outage) })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        figures::findings(figures)
    }
}
