//! What an experiment works with: clock, program, room for files, how much to do, and when to stop.

use super::reading_kept::Reading;
use crate::place::Stop;
use crate::{Error, child};
use parking_lot::Mutex;
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
    /// Whether other file systems are measured beside ours, where an experiment knows some.
    pub peers: bool,
    /// Writers, and as many readers, of a measurement over time; the scale's own number without it.
    pub workers: Option<usize>,
    /// Ends a measurement early; what it has made is then removed.
    pub stop: Stop,
    // P4, P5, P7 and P8 are views of one measurement; it is made once in one call.
    reading: Mutex<Option<Reading>>,
}

impl Lab {
    /// A laboratory for what is no published experiment.
    pub fn new(clock: Arc<dyn Clock>, program: PathBuf, work: PathBuf, stop: Stop) -> Lab {
        let reading = Mutex::default();
        Lab {
            clock,
            program,
            work,
            scale: Scale::Short,
            repeat: None,
            seed: 1,
            peers: false,
            workers: None,
            stop,
            reading,
        }
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

    pub(super) fn remembered(&self) -> Option<Reading> {
        self.reading.lock().clone()
    }

    pub(super) fn remember(&self, reading: &Reading) {
        *self.reading.lock() = Some(reading.clone());
    }

    /// One of two values by the scale.
    pub fn scaled<T>(&self, short: T, full: T) -> T {
        if self.scale == Scale::Full { full } else { short }
    }
}
