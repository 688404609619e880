//! P6: writing as many files as threads (figure 12 of the PVFS2 study).

use super::outcome::{Figure, Finding};
use super::psplits::{self, Call};
use super::reading::{self, LOCAL, directories, series_of};
use super::testbed::Testbed;
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::report::size::{MIB, format_size};

/// Writing with 1 … 32 threads to 1 … 8 servers.
pub(super) struct P6;

impl Experiment for P6 {
    fn about(&self) -> About {
        About {
            id: "P6",
            title: "Writing into as many files as threads: threads against data servers",
            source: "PVFS2 against Ext3, figure 12",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let threads = lab.scaled(vec![1, 8, 32], vec![1, 2, 4, 8, 16, 32]);
        let widths = lab.scaled(vec![1, 2, 8], vec![1, 2, 3, 4, 8]);
        let total_bytes = lab.bytes(64 * MIB, 1024 * MIB);
        let bed = Testbed::new(lab, &reading::plan(total_bytes))?;
        let mut places = directories(lab, &bed, &widths)?;
        places.extend(bed.client_disks().iter().map(|path| path.display().to_string()));
        let call = Call {
            mode: "generate",
            places: &places,
            threads: &threads,
            block_bytes: &[64 << 10],
            total_bytes: &[total_bytes],
            drop_caches: false,
            sync: true,
        };
        let results = call.run(lab, &bed, 0)?;
        let title = format!(
            "Write {} in blocks of 64 KiB into as many files as threads, synced",
            format_size(total_bytes)
        );
        let figure = psplits::rates_over_threads(("write", &title), &threads, &results.runs, series_of);
        let mut setup = reading::setup();
        setup.push(
            "Files are synced within the time: what is written fits into memory here, and did not then."
                .to_owned(),
        );
        Ok(Measured {
            scale: format!("{} a run, {} repetitions", format_size(total_bytes), lab.repetitions()),
            setup,
            figures: vec![figure],
            gaps: Vec::new(),
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let best = |series: &str| figure(figures, "write")?.find(series)?.best();
        let (local, eight) = (best(LOCAL), best("8 servers"));
        let text = format!("best of local {} MB/s, of 8 servers {}", shown(local), shown(eight));
        let ahead = local.zip(eight).map(|(local, eight)| eight > local);
        vec![Finding::new("Writing is still ahead of the local file system", ahead, text)]
    }
}
