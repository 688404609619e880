//! The published experiments, rerun: one file each, over one form of outcome, one plotter and one page.
//!
//! An experiment arranges its machines (hosts, links and disks of chosen rates), has other processes of this program
//! put load on them, records every repetition, and says of each shape that its paper shows whether this run shows it
//! too. It compares shapes, never absolute figures of other people's hardware.

pub mod chart;
pub mod outcome;
mod page;
mod run;
pub mod testbed;

mod copies;
mod g1;
mod g10;
mod g11;
mod g12;
mod g13;
mod g14;
mod g15;
mod g2;
mod g4;
mod g5;
mod g6;
mod g7;
mod g9;
mod p1;
mod p2;
mod p3;
mod p4;
mod p5;
mod p6;
mod p7;
mod p8;
mod p9;
mod psplits;
mod r1;
mod raid;
mod reading;
mod w1;
mod w2;

pub use page::report;
pub(crate) use run::clear_away;
pub use run::{Args, ListArgs, list, run};

use crate::place::Stop;
use crate::{Error, child};
use outcome::{Figure, Finding, Outcome};
use parking_lot::Mutex;
use reading::Reading;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use vazao_meter::Clock;

/// How much of an experiment is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Scale {
    /// Very few bytes, once: seconds; shows that it works, not how fast
    Tiny,
    /// Fewer bytes, places and repetitions: minutes
    Short,
    /// As published: hours
    Full,
}

/// How much less the smallest scale moves than the short one.
const TINY_DIVISOR: u64 = 16;

/// What an experiment works with.
pub struct Lab {
    /// The clock that every duration is taken from.
    pub clock: Arc<dyn Clock>,
    /// This program, to be started again as daemons and clients.
    pub program: PathBuf,
    /// Where files may be written, removed at the end.
    pub work: PathBuf,
    /// How much to do.
    pub scale: Scale,
    /// Repetitions; the scale's own number without it.
    pub repeat: Option<u32>,
    /// Seed of all random data.
    pub seed: u64,
    /// Ends a measurement early; what it has made is then removed.
    pub stop: Stop,
    // P4, P5, P7 and P8 are views of one measurement; it is made once in one call.
    reading: Mutex<Option<Reading>>,
}

impl Lab {
    /// A laboratory for what is no published experiment.
    pub fn new(clock: Arc<dyn Clock>, program: PathBuf, work: PathBuf, stop: Stop) -> Lab {
        let reading = Mutex::default();
        Lab { clock, program, work, scale: Scale::Short, repeat: None, seed: 1, stop, reading }
    }

    /// Fails after a request to stop.
    pub fn check(&self) -> Result<(), Error> {
        self.stop.check().map_err(|error| Error::Failed(error.to_string()))
    }

    /// Runs a command to its end and returns what it printed; a failure carries what it said.
    pub(crate) fn text_of(&self, command: &mut Command) -> Result<String, Error> {
        child::text(command, &self.stop)
    }

    /// Repetitions of each measurement: ten as published, three when short.
    pub fn repetitions(&self) -> u32 {
        let of_scale = match self.scale {
            Scale::Tiny => 1,
            Scale::Short => 3,
            Scale::Full => 10,
        };
        self.repeat.unwrap_or(of_scale)
    }

    /// An amount of data by the scale.
    pub fn bytes(&self, short: u64, full: u64) -> u64 {
        match self.scale {
            Scale::Tiny => short / TINY_DIVISOR,
            Scale::Short => short,
            Scale::Full => full,
        }
    }

    fn remembered(&self) -> Option<Reading> {
        self.reading.lock().clone()
    }

    fn remember(&self, reading: &Reading) {
        *self.reading.lock() = Some(reading.clone());
    }

    /// One of two values by the scale.
    pub fn scaled<T>(&self, short: T, full: T) -> T {
        if self.scale == Scale::Full { full } else { short }
    }
}

/// What an experiment is called and asks.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its id in the list of experiments, such as `P4`.
    pub id: &'static str,
    /// What it asks, in one line.
    pub title: &'static str,
    /// The paper's table or figure.
    pub source: &'static str,
    /// What it takes beyond this program, in words: root, packages.
    pub needs: &'static str,
}

/// A published experiment.
pub trait Experiment: Sync {
    /// What it is.
    fn about(&self) -> About;
    /// Measures. An error ends it; what a part could not do is a gap.
    fn measure(&self, lab: &Lab) -> Result<Measured, Error>;
    /// The shapes of the paper, judged on what was measured. Never measures.
    fn findings(&self, figures: &[Figure]) -> Vec<Finding>;
}

/// What an experiment brings back; the rest of an outcome is the same for all.
#[derive(Clone, Default, Debug)]
pub struct Measured {
    /// How much was done, in words.
    pub scale: String,
    /// What was arranged.
    pub setup: Vec<String>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// What could not be done, and why.
    pub gaps: Vec<String>,
}

impl Measured {
    /// Two parts of one experiment together.
    fn and(mut self, other: Measured) -> Measured {
        self.setup.extend(other.setup);
        self.figures.extend(other.figures);
        self.gaps.extend(other.gaps);
        self.scale = format!("{}; {}", self.scale, other.scale);
        self
    }
}

/// All experiments, in the order of their ids.
pub fn registry() -> &'static [&'static dyn Experiment] {
    &[
        &g1::G1,
        &g2::G2,
        &g2::G3,
        &g4::G4,
        &g5::G5,
        &g6::G6,
        &g7::G7,
        &g7::G8,
        &g9::G9,
        &g10::G10,
        &g11::G11,
        &g12::G12,
        &g13::G13,
        &g14::G14,
        &g15::G15,
        &p1::P1,
        &p2::P2,
        &p3::P3,
        &p4::P4,
        &p5::P5,
        &p6::P6,
        &p7::P7,
        &p8::P8,
        &p9::P9,
        &r1::R1,
        &raid::R2,
        &raid::R3,
        &w1::W1,
        &w2::W2,
    ]
}

/// The experiment with this id, in any case.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    registry().iter().copied().find(|experiment| experiment.about().id.eq_ignore_ascii_case(id))
}

/// A figure by its key.
pub(crate) fn figure<'a>(figures: &'a [Figure], key: &str) -> Option<&'a Figure> {
    figures.iter().find(|figure| figure.key == key)
}

/// A figure for a text, which may lack it.
pub(crate) fn shown(value: Option<f64>) -> String {
    value.map_or("not measured".to_owned(), crate::size::significant)
}

/// Where the files of an outcome lie.
pub(crate) fn file_name(outcome: &Outcome) -> String {
    format!("{}.json", outcome.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The ids of the table in docs/lab.md, with whether each runs today.
    fn promised() -> Vec<(String, bool)> {
        let text = include_str!("../../../../docs/lab.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| ")).filter_map(|row| {
            let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
            let [ids, _, runs] = cells[..] else { return None };
            let is_row = ids.starts_with(|first: char| first.is_ascii_uppercase());
            is_row.then(|| (ids.to_owned(), runs.starts_with("yes")))
        });
        let each = |(ids, runs): (String, bool)| {
            let ids: Vec<(String, bool)> = ids.split(", ").map(|id| (id.to_owned(), runs)).collect();
            ids
        };
        rows.flat_map(each).collect()
    }

    #[test]
    fn the_document_promises_just_the_experiments_that_there_are() {
        let promised = promised();
        assert!(promised.len() > 30, "the table was not found: {promised:?}");
        let runs: BTreeSet<&str> =
            promised.iter().filter(|(_, runs)| *runs).map(|(id, _)| id.as_str()).collect();
        let there_are: BTreeSet<&str> = registry().iter().map(|experiment| experiment.about().id).collect();
        assert_eq!(runs, there_are);
    }
}
