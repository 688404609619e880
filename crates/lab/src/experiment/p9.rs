//! P9: the size of the blocks (section 6 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::psplits::{self, Call};
use super::reading::{self, directories, series_of};
use super::testbed::Testbed;
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::{MIB, format_size};

/// Reading in blocks of 1 KiB … 1 MiB.
pub(super) struct P9;

impl Experiment for P9 {
    fn about(&self) -> About {
        About {
            id: "P9",
            title: "Reading in blocks of 1 KiB to 1 MiB",
            source: "PVFS2 against Ext3, section 6",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let blocks: Vec<u64> = (0..6).map(|step| 1024 << (2 * step)).collect();
        let total_bytes = lab.bytes(32 * MIB, 1024 * MIB);
        let bed = Testbed::new(lab, &reading::plan(total_bytes))?;
        let mut places = directories(lab, &bed, &[1, 4])?;
        places.extend(bed.client_disks().iter().map(|path| path.display().to_string()));
        let call = Call {
            mode: "read",
            places: &places,
            threads: &[8],
            block_bytes: &blocks,
            total_bytes: &[total_bytes],
            drop_caches: true,
            sync: false,
        };
        let results = call.run(lab, &bed, 0)?;
        let title = format!("Read {} with 8 threads, caches dropped", format_size(total_bytes));
        let heads = ("block", title.as_str(), "block", "MB/s");
        let figure = psplits::over_sizes(heads, &blocks, &results.runs, |run| run.block_bytes, series_of);
        Ok(Measured {
            scale: format!("{} a run, {} repetitions", format_size(total_bytes), lab.repetitions()),
            setup: reading::setup(),
            figures: vec![figure],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let spread = |series: &str| {
            let series = figure(figures, "block")?.find(series)?;
            let medians = || series.points.iter().filter_map(|point| point.summary()).map(|s| s.median);
            Some((medians().max_by(f64::total_cmp)? / medians().min_by(f64::total_cmp)? - 1.0) * 100.0)
        };
        let (one, four) = (spread("1 server"), spread("4 servers"));
        let small = one.zip(four).map(|(one, four)| one <= 10.0 && four <= 10.0);
        let text = format!("best over worst block: 1 server +{} %, 4 servers +{} %", shown(one), shown(four));
        vec![Finding::new("64 KiB about 5% better, otherwise no effect", small, text)]
    }
}
