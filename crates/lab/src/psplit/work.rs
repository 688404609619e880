//! One run of psplit: its threads, their parts, and the check of what they read or left behind.

use super::{Args, Mode, Verify};
use crate::content::{Generator, stream};
use crate::crew::{self, Timed};
use crate::place::{OpenFile, Place, read_full};
use crate::report::size::MIB;
use std::io;
use vazao_meter::Clock;
use vazao_sampler::{Record, Recorder};

/// The file that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) stream: u64,
}

/// One combination of the options: all that is the same in its repetitions.
pub(crate) struct Cell<'a> {
    pub(crate) mode: Mode,
    pub(crate) threads: u32,
    pub(crate) block_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) source: Source<'a>,
    pub(crate) options: &'a Args,
}

/// What one thread does: `length` bytes from `offset` of the stream.
struct Part {
    file: String,
    stream: u64,
    offset: u64,
    length: u64,
}

/// Equal parts; the last takes the remainder.
pub(crate) fn lengths(total_bytes: u64, threads: u32) -> Vec<u64> {
    let each = total_bytes / u64::from(threads);
    let mut lengths = vec![each; threads as usize];
    if let Some(last) = lengths.last_mut() {
        *last += total_bytes % u64::from(threads);
    }
    lengths
}

impl Cell<'_> {
    fn parts(&self, repetition: u32) -> Vec<Part> {
        let mut start = 0;
        let part = |(index, length): (usize, u64)| {
            let begin = start;
            start += length;
            let own = [self.total_bytes, u64::from(repetition), index as u64];
            let (stream, offset) = match self.mode {
                Mode::Generate => (stream(self.options.seed, &own), 0),
                Mode::Split | Mode::Read => (self.source.stream, begin),
            };
            Part { file: format!("part-{index}"), stream, offset, length }
        };
        lengths(self.total_bytes, self.threads).into_iter().enumerate().map(part).collect()
    }

    /// One timed run.
    pub(crate) fn run(
        &self,
        place: &dyn Place,
        repetition: u32,
        clock: &dyn Clock,
        recorder: &Recorder,
    ) -> (Timed, Record) {
        self.run_checking(place, repetition, clock, recorder, self.options.verify == Verify::During)
    }

    /// Reads once as the timed runs will, comparing every byte. Warms the caches as well.
    pub(crate) fn verify_reading(
        &self,
        place: &dyn Place,
        clock: &dyn Clock,
        recorder: &Recorder,
    ) -> io::Result<()> {
        let (timed, _) = self.run_checking(place, 0, clock, recorder, true);
        timed.errors.into_iter().next().map_or(Ok(()), |error| Err(io::Error::other(error)))
    }

    fn run_checking(
        &self,
        place: &dyn Place,
        repetition: u32,
        clock: &dyn Clock,
        recorder: &Recorder,
        checked: bool,
    ) -> (Timed, Record) {
        let parts = self.parts(repetition);
        let block = self.block_bytes as usize;
        let prepare = |index: usize| {
            let needs_generator = checked || self.mode == Mode::Generate;
            // Filled with ones, so that no page fault falls into the time.
            let buffer = vec![1u8; if self.mode == Mode::Generate { 0 } else { block }];
            (buffer, needs_generator.then(|| Generator::new(parts[index].stream, block)))
        };
        let work = |index: usize, state: &mut (Vec<u8>, Option<Generator>), bytes: &mut u64| {
            let (part, (buffer, generator)) = (&parts[index], state);
            let moved = match self.mode {
                Mode::Generate => self.generate(part, place, generator, bytes),
                Mode::Read => self.read(part, place, buffer, generator, bytes),
                Mode::Split => self.split(part, place, buffer, generator, bytes),
            };
            moved.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", part.file)))
        };
        crew::run(parts.len(), clock, &recorder.of(place.client(), place.disks()), prepare, work)
    }

    fn blocks(&self, length: u64) -> impl Iterator<Item = (u64, usize)> + use<> {
        let block = self.block_bytes;
        (0..length.div_ceil(block)).map(move |n| (n * block, (length - n * block).min(block) as usize))
    }

    fn generate(
        &self,
        part: &Part,
        place: &dyn Place,
        generator: &mut Option<Generator>,
        bytes: &mut u64,
    ) -> io::Result<()> {
        let file = place.create(&part.file)?;
        let Some(generator) = generator else { return Err(io::Error::other("no generator")) };
        for (at, length) in self.blocks(part.length) {
            file.write_at(generator.window(part.offset + at, length), at)?;
            *bytes += length as u64;
        }
        self.finish_writing(file)
    }

    fn read(
        &self,
        part: &Part,
        place: &dyn Place,
        buffer: &mut [u8],
        checker: &mut Option<Generator>,
        bytes: &mut u64,
    ) -> io::Result<()> {
        let file = place.open(self.source.name)?;
        for (at, length) in self.blocks(part.length) {
            self.read_block(file.as_ref(), part.offset + at, &mut buffer[..length], checker)?;
            *bytes += length as u64;
        }
        file.close()
    }

    fn split(
        &self,
        part: &Part,
        place: &dyn Place,
        buffer: &mut [u8],
        checker: &mut Option<Generator>,
        bytes: &mut u64,
    ) -> io::Result<()> {
        let source = place.open(self.source.name)?;
        let output = place.create(&part.file)?;
        for (at, length) in self.blocks(part.length) {
            self.read_block(source.as_ref(), part.offset + at, &mut buffer[..length], checker)?;
            output.write_at(&buffer[..length], at)?;
            *bytes += length as u64;
        }
        source.close()?;
        self.finish_writing(output)
    }

    fn read_block(
        &self,
        file: &dyn OpenFile,
        offset: u64,
        buffer: &mut [u8],
        checker: &mut Option<Generator>,
    ) -> io::Result<()> {
        read_full(file, buffer, offset)?;
        match checker {
            Some(checker) => checker.check(offset, buffer).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    fn finish_writing(&self, file: Box<dyn OpenFile>) -> io::Result<()> {
        if self.options.sync {
            file.sync()?;
        }
        file.close()
    }

    /// Compares the files a run has written with what they should hold.
    pub(crate) fn verify_outputs(&self, place: &dyn Place, repetition: u32) -> io::Result<()> {
        if self.mode == Mode::Read {
            return Ok(());
        }
        let mut buffer = vec![0; MIB as usize];
        for part in self.parts(repetition) {
            let about = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", part.file));
            verify_file(place, &part, &mut buffer).map_err(about)?;
        }
        Ok(())
    }

    /// Removes the files a run has written; after a failed run some may be missing.
    pub(crate) fn remove_outputs(&self, place: &dyn Place, failed: bool) -> io::Result<()> {
        if self.mode == Mode::Read {
            return Ok(());
        }
        for part in self.parts(0) {
            match place.remove(&part.file) {
                Err(error) if !(failed && error.kind() == io::ErrorKind::NotFound) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn verify_file(place: &dyn Place, part: &Part, buffer: &mut [u8]) -> io::Result<()> {
    let file = place.open(&part.file)?;
    let mut generator = Generator::new(part.stream, buffer.len());
    let mut at = 0;
    while at < part.length {
        let length = (part.length - at).min(buffer.len() as u64) as usize;
        read_full(file.as_ref(), &mut buffer[..length], at)?;
        generator.check(part.offset + at, &buffer[..length]).map_err(io::Error::other)?;
        at += length as u64;
    }
    if file.read_at(&mut buffer[..1], part.length)? != 0 {
        return Err(io::Error::other(format!("longer than the {} bytes written", part.length)));
    }
    file.close()
}
