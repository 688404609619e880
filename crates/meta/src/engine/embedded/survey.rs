//! A walk over all records of a checkpoint that goes on behind damage, and says which keys it could not reach.
//!
//! A view of the disk passes over damaged pages. In another one redb's iterator ends there. Where the next page begins
//! is found by asking for keys further and further away, and then by halving: a question about a key behind the damage
//! is answered.

use super::super::{EngineError, EngineResult};
use super::base::{KeyRange, View};
use super::overlay::Older;

/// Bytes of a key that are searched through: more than prefix and numbers take. What shares them is found from behind.
const SEARCHED_BYTES: usize = 24;

const POINT_BITS: usize = 8 * SEARCHED_BYTES;

/// Between a distance and twice that, 2 to the power of this many points are looked at for what was jumped over. A
/// sound page between damaged ones is found when it has at least that part of the keys.
const SAMPLES_BITS: usize = 3;

/// A key's first bytes as a number.
type Point = [u8; SEARCHED_BYTES];

fn point(key: &[u8]) -> Point {
    let mut point = [0; SEARCHED_BYTES];
    let shared = key.len().min(SEARCHED_BYTES);
    point[..shared].copy_from_slice(&key[..shared]);
    point
}

/// `point` + 2^`bit`, if there is such a point.
fn plus_bit(mut point: Point, bit: usize) -> Option<Point> {
    let mut carry = 1u16 << (bit % 8);
    for byte in point.iter_mut().rev().skip(bit / 8) {
        let sum = u16::from(*byte) + carry;
        *byte = sum as u8;
        carry = sum >> 8;
        if carry == 0 {
            return Some(point);
        }
    }
    None
}

/// The point in the middle, rounded down.
fn middle(low: &Point, high: &Point) -> Point {
    let mut sum = [0u16; SEARCHED_BYTES];
    let mut carry = 0;
    for index in (0..SEARCHED_BYTES).rev() {
        let total = u16::from(low[index]) + u16::from(high[index]) + carry;
        (sum[index], carry) = (total & 0xFF, total >> 8);
    }
    let mut half = [0; SEARCHED_BYTES];
    for index in 0..SEARCHED_BYTES {
        let total = carry << 8 | sum[index];
        (half[index], carry) = ((total >> 1) as u8, total & 1);
    }
    half
}

/// The point as far from the last one as `point` is from the first: distances from it count downwards.
fn complement(point: Point) -> Point {
    point.map(|byte| !byte)
}

/// Points after `point`, in order: so many between each two distances of which one is twice the other.
fn samples(start: Point) -> impl Iterator<Item = Point> {
    (0..POINT_BITS).flat_map(move |bit| {
        let step = bit.checked_sub(SAMPLES_BITS);
        let first = plus_bit(start, bit);
        std::iter::successors(first, move |last| plus_bit(*last, step?)).take(1 << SAMPLES_BITS)
    })
}

/// What is done with a record: its key and its value.
type Take<'a> = dyn FnMut(&[u8], &[u8]) -> EngineResult<()> + 'a;

impl View {
    /// True when the place of this key can be looked at.
    fn is_reachable(&self, key: &[u8], end: &[u8]) -> bool {
        let first = self.raw_range(key, end).map(|mut records| records.next().transpose());
        matches!(first, Ok(Ok(_)))
    }

    /// The first key of `[start, end)` from which on records can be read again, `start` being one where they cannot;
    /// `end` when there is none.
    pub(super) fn next_reachable(&self, start: &[u8], end: &[u8]) -> Vec<u8> {
        let known = self.is_reachable(start, end).then(|| self.next_known(start, end));
        known.flatten().unwrap_or_else(|| self.next_undamaged(start, end))
    }

    /// The same, losses left out of account.
    fn next_undamaged(&self, start: &[u8], end: &[u8]) -> Vec<u8> {
        let mut found = self.next_by_doubling(start, end);
        // What was jumped over may be damaged in parts only.
        while let Some((low, high)) = self.reachable_between(start, &found, end) {
            found = self.edge(low, high, end).to_vec();
        }
        self.first_before(start, &found)
    }

    /// A key behind the damage at `start`, though perhaps not the first one.
    fn next_by_doubling(&self, start: &[u8], end: &[u8]) -> Vec<u8> {
        let (mut low, mut high) = (point(start), None);
        for bit in 0..POINT_BITS {
            let Some(next) = plus_bit(point(start), bit).filter(|next| next.as_slice() < end) else { break };
            if self.is_reachable(&next, end) {
                high = Some(next);
                break;
            }
            low = next;
        }
        let high = match high {
            Some(high) => high,
            None if low.as_slice() < end => point(end),
            None => return end.to_vec(),
        };
        self.edge(low, high, end).as_slice().min(end).to_vec()
    }

    /// The first reachable point of those from `low`, which is not, to `high`, which is.
    fn edge(&self, mut low: Point, mut high: Point, end: &[u8]) -> Point {
        loop {
            let between = middle(&low, &high);
            if between == low || between == high {
                return high;
            }
            match between.as_slice() >= end || self.is_reachable(&between, end) {
                true => high = between,
                false => low = between,
            }
        }
    }

    /// A reachable point between `start` and `found`, and one before it that is not.
    fn reachable_between(&self, start: &[u8], found: &[u8], end: &[u8]) -> Option<(Point, Point)> {
        let mut low = point(start);
        let is_between = |at: &Point| at.as_slice() > start && at.as_slice() < found;
        for at in samples(point(start)).take_while(|at| at.as_slice() < found) {
            if is_between(&at) && self.is_reachable(&at, end) {
                return Some((low, at));
            }
            low = at;
        }
        let from_behind = samples(complement(point(found))).map(complement);
        let high = from_behind.filter(is_between).find(|at| self.is_reachable(at, end))?;
        Some((point(start), high))
    }

    /// `found`, or the first of the records right before it that can be read from behind.
    fn first_before(&self, start: &[u8], found: &[u8]) -> Vec<u8> {
        let mut first = found.to_vec();
        let Ok(mut records) = self.raw_range(start, found) else { return first };
        while let Some(Ok(record)) = records.next_back() {
            first = record.key().to_vec();
        }
        first
    }

    /// Gives all records of `[start, end)` to `take`, in key order and with a key and a value each. Returns the ranges
    /// in which there may be others that cannot be read.
    pub(super) fn survey(
        &self,
        (start, end): (&[u8], &[u8]),
        take: &mut Take<'_>,
    ) -> EngineResult<Vec<KeyRange>> {
        let (mut from, mut passed) = (start.to_vec(), self.passed_pages());
        let mut unreachable = Vec::new();
        while from.as_slice() < end {
            let mut records = self.raw_range(&from, end)?;
            loop {
                let (next, passed_before) = (records.next(), passed);
                passed = self.passed_pages();
                if passed != passed_before {
                    let behind = next.as_ref().and_then(|next| next.as_ref().ok()).map_or(end, Older::key);
                    unreachable.push((from.clone(), behind.to_vec()));
                }
                match next {
                    Some(Ok(record)) => {
                        take(record.key(), record.value())?;
                        from.clear();
                        from.extend_from_slice(record.key());
                        from.push(0);
                    }
                    Some(Err(EngineError::Corrupt(_))) => break,
                    // A failure of another kind says nothing of what is stored.
                    Some(Err(error)) => return Err(error),
                    None => return Ok(unreachable),
                }
            }
            // It must get on, whatever is wrong.
            let next = self.next_undamaged(&from, end).max([from.as_slice(), &[0]].concat());
            unreachable.push((std::mem::replace(&mut from, next.clone()), next));
            passed = self.passed_pages();
        }
        Ok(unreachable)
    }
}

/// Greater than every key: they begin with a letter.
pub(super) const AFTER_ALL: [u8; 1] = [0xFF];

#[cfg(test)]
mod tests {
    use super::super::base::Base;
    use super::*;
    use std::sync::Arc;
    use vazao_disk::{Disk, MemoryDisk, Open};

    #[test]
    fn points_are_numbers_with_the_first_byte_first() {
        let last = |n: u8| {
            let mut point = [0; SEARCHED_BYTES];
            point[SEARCHED_BYTES - 1] = n;
            point
        };
        assert_eq!(plus_bit(last(255), 0), plus_bit([0; SEARCHED_BYTES], 8));
        assert_eq!(plus_bit([255; SEARCHED_BYTES], 3), None);
        assert_eq!(middle(&last(2), &last(7)), last(4));
        assert_eq!(middle(&[255; SEARCHED_BYTES], &[255; SEARCHED_BYTES]), [255; SEARCHED_BYTES]);
        let high = plus_bit([0; SEARCHED_BYTES], 9).expect("it fits");
        assert_eq!(Some(middle(&[0; SEARCHED_BYTES], &high)), plus_bit([0; SEARCHED_BYTES], 8));
    }

    fn key(number: u64) -> Vec<u8> {
        [b"I", number.to_be_bytes().as_slice()].concat()
    }

    /// A checkpoint with records of these numbers. Those that `is_damaged` chooses are, with others of their pages.
    fn damaged(numbers: &[u64], is_damaged: impl Fn(usize) -> bool) -> Arc<Base> {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(1));
        let base = Base::open(&disk, "f", Open::CreateNew, 7, 1 << 20).unwrap();
        let value = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1).to_be_bytes().repeat(13);
        let pairs: Vec<_> = numbers.iter().map(|n| (key(*n), value(*n))).collect();
        let changes: Vec<_> = pairs.iter().map(|(k, v)| (&k[..], Some(&v[..]))).collect();
        drop(base.apply(&changes, None).unwrap());
        let file = disk.open("f", Open::Existing).unwrap();
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        for (_, (_, value)) in pairs.iter().enumerate().filter(|(index, _)| is_damaged(*index)) {
            let places = bytes.windows(value.len()).enumerate().filter(|(_, found)| found == value);
            places.for_each(|(at, _)| file.write_at(b"!", at as u64).unwrap());
        }
        // What is in memory is sound.
        base.close();
        Base::open(&disk, "f", Open::Existing, 7, 1 << 20).unwrap()
    }

    fn check_survey(base: &Base, view: &View, numbers: &[u64]) {
        let cold = base.view_of_disk().unwrap();
        let readable =
            numbers.iter().filter(|n| cold.get(&key(**n)).is_ok_and(|found| found.is_some())).count();
        let mut found = 0;
        let lost = view.survey((&[], &AFTER_ALL), &mut |_, _| {
            found += 1;
            Ok(())
        });
        assert!(readable > 50 && readable < numbers.len(), "{readable}");
        assert_eq!(found, readable, "{lost:?}");
    }

    /// A sound page between two damaged ones was lost with them when the search for its keys jumped over it.
    #[test]
    fn a_readable_page_between_damaged_ones_is_found_wherever_its_keys_lie() {
        // Few keys far apart, then many close together, and so on.
        let parts = (0..20u64).map(|part| (part << 30, if part % 2 == 0 { 24 } else { 1 }));
        let numbers: Vec<u64> = parts.flat_map(|(at, bits)| (0..60).map(move |n| at + (n << bits))).collect();
        let base = damaged(&numbers, |index| index % 120 < 60);
        check_survey(&base, &base.view_of_disk().unwrap(), &numbers);
    }

    #[test]
    fn the_search_goes_back_to_what_it_jumped_over() {
        let parts = [(0, 60, 1), (100, 60, 100), (6100, 150, 10), (7600, 60, 100), (13_600, 200, 100)];
        let numbers: Vec<u64> =
            parts.iter().flat_map(|(at, count, step)| (0..*count).map(move |n| at + n * step)).collect();
        let base = damaged(&numbers, |index| (60..120).contains(&index) || (270..330).contains(&index));
        check_survey(&base, &base.view().unwrap(), &numbers);
    }
}
