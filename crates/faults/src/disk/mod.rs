//! A disk with a write cache that loses power: what was not flushed is dropped, kept or torn.

mod blocks;
pub mod shown;

use blocks::Blocks;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;
use std::sync::Arc;

/// A disk of which nothing is said takes sectors of this size whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// The cache of a large disk. Beyond it the oldest writes reach the medium by themselves.
const CACHE_BYTES_MAX: u64 = 256 << 20;

/// How likely each fate of a write is that was not flushed when power went, in thousandths. The rest is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Odds {
    /// Nothing of it is on the disk.
    pub dropped: u32,
    /// Some of its sectors are, others are not.
    pub torn: u32,
}

impl Odds {
    /// Everything that was not flushed is gone.
    pub const ALL_LOST: Odds = Odds { dropped: 1000, torn: 0 };
}

/// What became of the writes that were not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Writes of which nothing was left.
    pub dropped: u64,
    /// Writes of which some sectors were left.
    pub torn: u64,
    /// Writes that had reached the medium whole.
    pub kept: u64,
}

impl std::ops::AddAssign for Losses {
    fn add_assign(&mut self, other: Losses) {
        self.dropped += other.dropped;
        self.torn += other.torn;
        self.kept += other.kept;
    }
}

/// A write in the cache. It begins and ends at sector boundaries.
#[derive(Clone, Debug)]
struct Write {
    range: Range<u64>,
    /// `None`: zeros.
    bytes: Option<Arc<[u8]>>,
}

impl Write {
    fn cached_bytes(&self) -> u64 {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    fn put(&self, onto: &mut Blocks, part: Range<u64>) {
        match &self.bytes {
            Some(bytes) => {
                let (from, to) = (part.start - self.range.start, part.end - self.range.start);
                onto.write(&bytes[from as usize..to as usize], part.start);
            }
            None => onto.zero(part),
        }
    }
}

/// A disk with a volatile write cache.
///
/// States:
/// - *on*: reads show `current`; a write goes into `current` and into `cache`; a flush empties the cache onto `medium`.
/// - *lost*: power went. `survivor` is what the medium holds from then on. Processes that do not know yet go on
///   reading and writing `current`, as a machine would that is dead and does not know it; that is never seen again.
///
/// Invariants: 1. While on, `current` is `medium` with the writes of `cache` upon it in the order of their answers. 2.
/// A flush is answered when every write answered before the flush came is on `medium`. A write that is answered while
/// the flush is under way may be on either side. 3. After a loss each sector of `survivor` is as `medium` had it, or as
/// one of the writes in `cache` left it. A sector is never a mixture of two (the atomic unit of a disk,
/// `sector_bytes`); a write of several sectors may survive in any part. Which of several writes of one sector survives
/// is open: the disk destages in any order, but it never destages a write that it has replaced in its cache, so no
/// older write follows a newer one. 4. What a flush has put on `medium` is never lost.
///
/// There is no forced unit access here (FUA). The attachment of this disk must not offer it; then the kernel
/// follows each such write by a flush (Documentation/block/writeback_cache_control.rst), which makes *more* durable
/// than FUA would: writes answered before it as well. What depends on FUA alone is therefore not tested.
#[derive(Debug)]
pub struct VolatileDisk {
    length: u64,
    sector_bytes: u64,
    current: Blocks,
    medium: Blocks,
    cache: Vec<Write>,
    cached_bytes: u64,
    survivor: Option<Blocks>,
    /// Flushes are answered and do nothing.
    lies: bool,
}

impl VolatileDisk {
    /// An empty disk. `length` is a multiple of `sector_bytes`.
    pub fn new(length: u64, sector_bytes: u64) -> VolatileDisk {
        assert!(sector_bytes > 0 && length.is_multiple_of(sector_bytes), "a disk is made of whole sectors");
        VolatileDisk {
            length,
            sector_bytes,
            current: Blocks::default(),
            medium: Blocks::default(),
            cache: Vec::new(),
            cached_bytes: 0,
            survivor: None,
            lies: false,
        }
    }

    /// From here on flushes are answered without being done, as by a disk that was made for benchmarks.
    pub fn set_lying(&mut self, lies: bool) {
        self.lies = lies;
    }

    /// Its length.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of memory it takes, roughly.
    pub fn memory_bytes(&self) -> u64 {
        self.current.bytes() + self.cached_bytes
    }

    /// Fills `buffer` with what is at `offset`, flushed or not.
    pub fn read(&self, buffer: &mut [u8], offset: u64) {
        self.current.read(buffer, offset);
    }

    /// Takes bytes into the cache.
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        self.current.write(bytes, offset);
        let range = self.whole_sectors(offset..offset + bytes.len() as u64);
        if range.is_empty() || self.survivor.is_some() {
            return;
        }
        let mut sectors = vec![0; (range.end - range.start) as usize];
        self.current.read(&mut sectors, range.start);
        self.keep(Write { range, bytes: Some(sectors.into()) });
    }

    /// Has a range read as zeros: a write like any other. Only whole sectors are zeroed at the range's ends.
    pub fn zero(&mut self, range: Range<u64>) {
        let sector = self.sector_bytes;
        let range = range.start.next_multiple_of(sector)..range.end / sector * sector;
        if range.is_empty() {
            return;
        }
        self.current.zero(range.clone());
        if self.survivor.is_none() {
            self.keep(Write { range, bytes: None });
        }
    }

    /// Makes everything durable that was written before.
    pub fn flush(&mut self) {
        if !self.lies && self.survivor.is_none() {
            self.destage(0);
        }
    }

    /// Power goes. What survives is drawn from `seed`; a disk that has lost it already loses nothing more.
    pub fn lose_power(&mut self, seed: u64, odds: Odds) -> Losses {
        let mut losses = Losses::default();
        if self.survivor.is_some() {
            return losses;
        }
        let mut random = StdRng::seed_from_u64(seed);
        let mut survivor = self.medium.clone();
        for write in std::mem::take(&mut self.cache) {
            let drawn = random.random_range(0..1000);
            if drawn < odds.dropped {
                losses.dropped += 1;
            } else if drawn < odds.dropped + odds.torn {
                losses.torn += 1;
                tear(&write, &mut survivor, self.sector_bytes, &mut random);
            } else {
                losses.kept += 1;
                write.put(&mut survivor, write.range.clone());
            }
        }
        self.cached_bytes = 0;
        self.survivor = Some(survivor);
        losses
    }

    /// Power comes back: from here on it shows what survived.
    pub fn gain_power(&mut self) {
        if let Some(survivor) = self.survivor.take() {
            self.current = survivor.clone();
            self.medium = survivor;
        }
    }

    fn whole_sectors(&self, range: Range<u64>) -> Range<u64> {
        range.start / self.sector_bytes * self.sector_bytes..range.end.next_multiple_of(self.sector_bytes)
    }

    fn keep(&mut self, write: Write) {
        self.cached_bytes += write.cached_bytes();
        self.cache.push(write);
        if self.cached_bytes > CACHE_BYTES_MAX {
            // Half of it, so that not every further write has to move the rest.
            self.destage(CACHE_BYTES_MAX / 2);
        }
    }

    /// Moves the oldest writes onto the medium until no more than this is left. In order, so that none follows a newer
    /// one.
    fn destage(&mut self, left_bytes: u64) {
        let mut count = 0;
        for write in &self.cache {
            if self.cached_bytes <= left_bytes && left_bytes > 0 {
                break;
            }
            self.cached_bytes -= write.cached_bytes();
            write.put(&mut self.medium, write.range.clone());
            count += 1;
        }
        self.cache.drain(..count);
    }
}

/// Puts some sectors of a write onto the disk: those before a place, those behind it, or each by itself.
fn tear(write: &Write, onto: &mut Blocks, sector_bytes: u64, random: &mut StdRng) {
    let count = (write.range.end - write.range.start) / sector_bytes;
    let place = |sector: u64| write.range.start + sector * sector_bytes;
    let cut = random.random_range(0..=count);
    match random.random_range(0..3) {
        0 => write.put(onto, write.range.start..place(cut)),
        1 => write.put(onto, place(cut)..write.range.end),
        _ => {
            for sector in (0..count).filter(|_| random.random_bool(0.5)) {
                write.put(onto, place(sector)..place(sector + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests;
