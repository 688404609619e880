//! The disk against a reference that remembers, for each sector, every version it may have after a loss.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECTORS: u64 = 40;
const LENGTH: u64 = SECTORS * SECTOR_BYTES;

type Sector = Vec<u8>;

/// Each sector's versions since the last flush, oldest first; the last one is what a read shows.
struct Reference {
    sectors: Vec<Vec<Sector>>,
}

impl Reference {
    fn new() -> Reference {
        Reference { sectors: vec![vec![vec![0; SECTOR_BYTES as usize]]; SECTORS as usize] }
    }

    fn change(&mut self, range: Range<u64>, byte: impl Fn(u64) -> u8) {
        for (number, versions) in self.sectors.iter_mut().enumerate() {
            let base = number as u64 * SECTOR_BYTES;
            let touched = range.start.max(base)..range.end.min(base + SECTOR_BYTES);
            if touched.is_empty() {
                continue;
            }
            let mut sector = versions.last().expect("there is always one").clone();
            touched.for_each(|at| sector[(at - base) as usize] = byte(at));
            versions.push(sector);
        }
    }

    fn flush(&mut self) {
        for versions in &mut self.sectors {
            versions.drain(..versions.len() - 1);
        }
    }

    fn shows(&self, disk: &VolatileDisk) -> bool {
        contents(disk).iter().zip(&self.sectors).all(|(found, versions)| Some(found) == versions.last())
    }

    fn allows(&self, disk: &VolatileDisk) -> bool {
        contents(disk).iter().zip(&self.sectors).all(|(found, versions)| versions.contains(found))
    }

    /// After a loss what is there is durable.
    fn adopt(&mut self, disk: &VolatileDisk) {
        self.sectors = contents(disk).into_iter().map(|sector| vec![sector]).collect();
    }
}

fn contents(disk: &VolatileDisk) -> Vec<Sector> {
    let mut bytes = vec![0xEE; LENGTH as usize];
    disk.read(&mut bytes, 0);
    bytes.chunks(SECTOR_BYTES as usize).map(<[u8]>::to_vec).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Write { offset: u64, length: u64, value: u8 },
    Zero { offset: u64, length: u64 },
    Flush,
    Loss { seed: u64, dropped: u32, torn: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sectors = || (0..SECTORS, 1..12u64).prop_map(|(first, count)| (first, count.min(SECTORS - first)));
    let odds = prop_oneof![Just((1000, 0)), Just((0, 1000)), Just((0, 0)), (0..500u32, 0..500u32)];
    let step = prop_oneof![
        6 => (sectors(), 1..=255u8).prop_map(|((first, count), value)| Step::Write {
            offset: first * SECTOR_BYTES,
            length: count * SECTOR_BYTES,
            value
        }),
        // Not at sector boundaries.
        1 => (0..LENGTH - 1000, 1..1000u64, 1..=255u8)
            .prop_map(|(offset, length, value)| Step::Write { offset, length, value }),
        1 => sectors().prop_map(|(first, count)| Step::Zero {
            offset: first * SECTOR_BYTES,
            length: count * SECTOR_BYTES
        }),
        2 => Just(Step::Flush),
        1 => (any::<u64>(), odds).prop_map(|(seed, (dropped, torn))| Step::Loss { seed, dropped, torn }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Differs from byte to byte and from write to write, so that a mixture of two is neither.
fn byte(at: u64, value: u8) -> u8 {
    (at / 7) as u8 ^ value | 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_disk_shows_what_was_written_and_after_a_loss_of_each_sector_one_of_its_versions(steps in steps()) {
        let mut disk = VolatileDisk::new(LENGTH, SECTOR_BYTES);
        let mut reference = Reference::new();
        for step in steps {
            match step {
                Step::Write { offset, length, value } => {
                    let bytes: Vec<u8> = (offset..offset + length).map(|at| byte(at, value)).collect();
                    disk.write(&bytes, offset);
                    reference.change(offset..offset + length, |at| byte(at, value));
                }
                Step::Zero { offset, length } => {
                    disk.zero(offset..offset + length);
                    reference.change(offset..offset + length, |_| 0);
                }
                Step::Flush => {
                    disk.flush();
                    reference.flush();
                }
                Step::Loss { seed, dropped, torn } => {
                    disk.lose_power(seed, Odds { dropped, torn });
                    prop_assert!(reference.shows(&disk), "a machine that is dead saw it happen");
                    // What comes too late is never seen.
                    disk.write(&[0xDD; 2048], 1024);
                    disk.flush();
                    disk.gain_power();
                    prop_assert!(reference.allows(&disk), "a sector is none of its versions");
                    reference.adopt(&disk);
                }
            }
            prop_assert!(reference.shows(&disk));
        }
    }
}

fn written() -> VolatileDisk {
    let mut disk = VolatileDisk::new(LENGTH, SECTOR_BYTES);
    disk.write(&[1; 8192], 0);
    disk.flush();
    disk.write(&[2; 4096], 0);
    disk.write(&[3; 4096], 4096);
    disk
}

/// A disk that loses nothing would pass every test that is run on it.
#[test]
fn what_was_not_flushed_is_lost_and_what_was_flushed_is_not() {
    let mut disk = written();
    let losses = disk.lose_power(1, Odds::ALL_LOST);
    disk.gain_power();
    assert_eq!(losses, Losses { dropped: 2, torn: 0, kept: 0 });
    assert!(contents(&disk)[..16].iter().flatten().all(|&byte| byte == 1));
    let mut disk = written();
    disk.flush();
    assert_eq!(disk.lose_power(1, Odds::ALL_LOST), Losses::default());
    disk.gain_power();
    assert!(contents(&disk)[8..16].iter().flatten().all(|&byte| byte == 3));
}

#[test]
fn every_combination_of_old_and_new_sectors_of_a_block_comes_up_under_some_seed() {
    let mut seen = BTreeSet::new();
    for seed in 0..20_000 {
        let mut disk = written();
        disk.lose_power(seed, Odds { dropped: 200, torn: 600 });
        disk.gain_power();
        let old_or_new: Vec<bool> = contents(&disk)[..8].iter().map(|sector| sector[0] == 2).collect();
        seen.insert(old_or_new);
    }
    assert_eq!(seen.len(), 256);
}

/// The newer of two writes may be on the disk without the older one, and the older without the newer.
#[test]
fn writes_survive_in_any_order() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let mut disk = written();
        disk.lose_power(seed, Odds { dropped: 500, torn: 0 });
        disk.gain_power();
        let contents = contents(&disk);
        seen.insert((contents[0][0], contents[8][0]));
    }
    assert_eq!(seen, BTreeSet::from([(1, 1), (1, 3), (2, 1), (2, 3)]));
}

#[test]
fn a_lying_disk_loses_what_it_said_was_durable() {
    let mut disk = written();
    disk.set_lying(true);
    disk.flush();
    assert_eq!(disk.lose_power(1, Odds::ALL_LOST).dropped, 2);
}

#[test]
fn a_full_cache_gives_its_oldest_writes_to_the_medium_and_keeps_the_others() {
    let piece = vec![5; 1 << 20];
    let count = CACHE_BYTES_MAX / piece.len() as u64 + 1;
    let mut disk = VolatileDisk::new(count * piece.len() as u64, SECTOR_BYTES);
    (0..count).for_each(|number| disk.write(&piece, number * piece.len() as u64));
    assert!(disk.cached_bytes <= CACHE_BYTES_MAX);
    disk.lose_power(1, Odds::ALL_LOST);
    disk.gain_power();
    let at = |megabyte: u64| {
        let mut byte = [0];
        disk.read(&mut byte, megabyte << 20);
        byte[0]
    };
    assert_eq!((at(0), at(count - 1)), (5, 0));
}

#[test]
fn a_seed_loses_the_same_twice() {
    let lost = |seed| {
        let mut disk = written();
        disk.lose_power(seed, Odds { dropped: 300, torn: 400 });
        disk.gain_power();
        contents(&disk)
    };
    assert_eq!(lost(7), lost(7));
    assert!((0..20).any(|seed| lost(seed) != lost(7)));
}
