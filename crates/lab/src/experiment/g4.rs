//! G4: four large files read at once against one after the other from one disk (listings 4.1 and 4.2 of GridFS).

use super::outcome::{Figure, Finding, Form};
use super::{About, Experiment, Lab, Measured, figure, shown};
use crate::Error;
use crate::content;
use crate::hosts::SlowDisk;
use crate::psplit::drop_caches;
use crate::report::size::{MB, MIB, format_size};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Reading files at once and in turn.
pub(super) struct G4;

const FILES: usize = 4;
/// The paper's disk, read from one place: MB/s.
const DISK_BYTES_PER_S: u64 = 28_440_000;
const AT_ONCE: usize = 0;
const IN_TURN: usize = 1;
const MEASURED: &str = "stand-in without seeks";

impl Experiment for G4 {
    fn about(&self) -> About {
        About {
            id: "G4",
            title: "Four files read at once against one after the other from one disk",
            source: "GridFS, listings 4.1 and 4.2",
            needs: "root",
        }
    }

    fn measure(&self, lab: &Lab) -> Result<Measured, Error> {
        let bytes = lab.bytes(32 * MIB, 1024 * MIB);
        let disk = SlowDisk::new(&lab.work, bytes * FILES as u64 + 128 * MIB, DISK_BYTES_PER_S)?;
        let files: Vec<PathBuf> =
            (0..FILES).map(|number| disk.path().join(format!("file{number}"))).collect();
        for (number, file) in files.iter().enumerate() {
            content::write_file(file, content::stream(lab.seed, &[number as u64]), bytes)?;
        }
        let x = vec!["at once".to_owned(), "one after the other".to_owned()];
        let title = format!("{FILES} files of {} each, read from one disk", format_size(bytes));
        let mut rates = Figure::new("rate", &title, ("order", x), "MB/s in all", Form::Bars);
        rates.published = vec![super::outcome::Series::published("rotating disk", &[7.46, 28.44])];
        for _ in 0..lab.repetitions() {
            for at in [AT_ONCE, IN_TURN] {
                drop_caches()?;
                let start_ns = lab.clock.now_ns();
                if at == AT_ONCE {
                    read_at_once(&files)?
                } else {
                    files.iter().try_for_each(read)?
                }
                let seconds = lab.clock.now_ns().saturating_sub(start_ns) as f64 / 1e9;
                rates.series_mut(MEASURED).record(at, bytes as f64 * FILES as f64 / seconds / MB);
            }
        }
        Ok(Measured {
            scale: format!("{} a file, {} repetitions", format_size(bytes), lab.repetitions()),
            setup: vec![format!(
                "A disk of {} MB/s: a loop device bounded by the block-I/O controller.",
                DISK_BYTES_PER_S as f64 / MB
            )],
            figures: vec![rates],
            gaps: vec![
                "seeks of a rotating disk, which are what the paper shows: the stand-in has none".to_owned(),
            ],
        })
    }

    fn findings(&self, figures: &[Figure]) -> Vec<Finding> {
        let rate = |at: usize| figure(figures, "rate")?.median(MEASURED, at);
        let (at_once, in_turn) = (rate(AT_ONCE), rate(IN_TURN));
        let gap = at_once.zip(in_turn).map(|(at_once, in_turn)| at_once / in_turn);
        let text = format!("at once {} MB/s, in turn {}", shown(at_once), shown(in_turn));
        vec![Finding::new("On a disk without seeks the gap closes", gap.map(|gap| gap >= 0.95), text)]
    }
}

fn read_at_once(files: &[PathBuf]) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let readers: Vec<_> = files.iter().map(|file| scope.spawn(move || read(file))).collect();
        readers.into_iter().try_for_each(|reader| {
            reader.join().unwrap_or_else(|_| Err(Error::Failed("a reading thread panicked".to_owned())))
        })
    })
}

fn read(path: &PathBuf) -> Result<(), Error> {
    let mut file = File::open(path).map_err(Error::at(path.display()))?;
    let mut buffer = vec![0; MIB as usize];
    while file.read(&mut buffer).map_err(Error::at(path.display()))? > 0 {}
    Ok(())
}
