//! Every distribution against a model that deals out blocks of 64 KiB one by one.

use super::*;
use proptest::prelude::*;

const BLOCK: u64 = 64 * 1024;

fn stripe() -> impl Strategy<Value = (Distribution, u32)> {
    (1u64..40, 1u32..64)
        .prop_map(|(blocks, width)| (Distribution::SimpleStripe { unit_bytes: blocks * BLOCK }, width))
}

/// Rounds in which every slot has at least one strip, in any order, some of them several.
fn strips() -> impl Strategy<Value = (Distribution, u32)> {
    let once = proptest::collection::vec(1u64..9, 1..12);
    let more = proptest::collection::vec((0usize..12, 1u64..9), 0..8);
    (once, more, any::<prop::sample::Index>()).prop_map(|(once, more, turn)| {
        let width = once.len();
        let mut strips: Vec<Strip> =
            (0..).zip(&once).map(|(slot, n)| Strip { slot, bytes: n * BLOCK }).collect();
        strips.extend(more.iter().map(|(slot, n)| Strip { slot: (slot % width) as u32, bytes: n * BLOCK }));
        let by = turn.index(strips.len());
        strips.rotate_left(by);
        (Distribution::VaryingStrips(Strips::new(strips).expect("valid")), width as u32)
    })
}

fn groups() -> impl Strategy<Value = (Distribution, u32)> {
    (1u64..9, 1u32..7, 1u32..7, 1u32..9).prop_map(|(blocks, groups, members, factor)| {
        (Distribution::Groups { unit_bytes: blocks * BLOCK, groups, factor }, groups * members)
    })
}

fn any_distribution() -> impl Strategy<Value = (Distribution, u32)> {
    prop_oneof![stripe(), strips(), groups(), Just((Distribution::Local { is_away: false }, 1))]
}

/// The slots in the order in which blocks are dealt out to them, for one round.
fn dealt(distribution: &Distribution, width: u32) -> Vec<u32> {
    let mut order = Vec::new();
    match distribution {
        Distribution::SimpleStripe { unit_bytes } => {
            for slot in 0..width {
                order.extend((0..unit_bytes / BLOCK).map(|_| slot));
            }
        }
        Distribution::VaryingStrips(strips) => {
            for strip in strips.as_slice() {
                order.extend((0..strip.bytes / BLOCK).map(|_| strip.slot));
            }
        }
        Distribution::Groups { unit_bytes, groups, factor } => {
            let members = width / groups;
            for group in 0..*groups {
                for _ in 0..*factor {
                    for member in 0..members {
                        order.extend((0..unit_bytes / BLOCK).map(|_| group * members + member));
                    }
                }
            }
        }
        Distribution::Local { .. } => order.push(0),
    }
    order
}

proptest! {
    #[test]
    fn blocks_lie_where_dealing_them_out_one_by_one_puts_them((d, width) in any_distribution()) {
        prop_assert_eq!(d.check(width as usize), Ok(()));
        let order = dealt(&d, width);
        let mut lengths = vec![0u64; width as usize];
        for (block, &slot) in (0..).zip(order.iter().cycle().take(3 * order.len() + 5)) {
            let (offset, object_offset) = (block * BLOCK, lengths[slot as usize]);
            for (slot, &length) in (0..).zip(&lengths) {
                prop_assert_eq!(d.object_length(slot, offset, width), length);
            }
            prop_assert_eq!(d.locate(offset, width), (slot, object_offset));
            prop_assert_eq!(d.file_offset(slot, object_offset, width), Some(offset));
            prop_assert_eq!(d.object_length(slot, offset + 17, width), object_offset + 17);
            lengths[slot as usize] += BLOCK;
        }
    }

    #[test]
    fn every_offset_maps_to_one_place_and_back((d, width) in any_distribution(), offset in 0..u64::MAX / 2) {
        let (slot, object_offset) = d.locate(offset, width);
        prop_assert!(slot < width);
        prop_assert_eq!(d.file_offset(slot, object_offset, width), Some(offset));
    }

    #[test]
    fn every_place_maps_to_one_offset_and_back(
        (d, width) in any_distribution(), slot in 0u32..64, object_offset in 0..u64::MAX / 128,
    ) {
        let slot = slot % width;
        if let Some(offset) = d.file_offset(slot, object_offset, width) {
            prop_assert_eq!(d.locate(offset, width), (slot, object_offset));
        }
    }

    #[test]
    fn pieces_cover_the_range_without_gap_or_overlap(
        (d, width) in any_distribution(), offset in 0u64..1 << 40, length in 0u64..1 << 26,
    ) {
        let mut position = offset;
        for piece in d.pieces(offset, length, width) {
            prop_assert_eq!(piece.file_offset, position);
            prop_assert!(piece.length > 0);
            prop_assert_eq!(d.locate(position, width), (piece.slot, piece.object_offset));
            let last = piece.length - 1;
            prop_assert_eq!(d.locate(position + last, width), (piece.slot, piece.object_offset + last));
            position += piece.length;
        }
        prop_assert_eq!(position, offset + length);
    }

    #[test]
    fn object_lengths_are_where_the_last_bytes_lie((d, width) in any_distribution(), size in 0u64..1 << 28) {
        let mut ends = vec![0u64; width as usize];
        for piece in d.pieces(0, size, width) {
            ends[piece.slot as usize] = piece.object_offset + piece.length;
        }
        for slot in 0..width {
            prop_assert_eq!(d.object_length(slot, size, width), ends[slot as usize]);
        }
    }

    #[test]
    fn a_range_of_an_object_stands_for_the_pieces_of_the_file_that_lie_in_it(
        (d, width) in any_distribution(), slot in 0u32..64, start in 0u64..1 << 22, length in 0u64..1 << 22,
    ) {
        let slot = slot % width;
        let range = start..start + length;
        let found = d.file_ranges(slot, &range, width, usize::MAX).expect("no limit");
        let bytes: u64 = found.iter().map(|range| range.end - range.start).sum();
        prop_assert_eq!(bytes, length);
        let mut position = start;
        for part in found {
            for piece in d.pieces(part.start, part.end - part.start, width) {
                prop_assert_eq!((piece.slot, piece.object_offset), (slot, position));
                position += piece.length;
            }
        }
    }
}

#[test]
fn parameters_that_could_not_be_served_are_refused() {
    let strip = |slot, bytes| Strip { slot, bytes };
    assert_eq!(Strips::new(vec![]), Err(LayoutError::StripCount(0)));
    assert_eq!(Strips::new(vec![strip(1, BLOCK)]), Err(LayoutError::SlotWithoutStrip(0)));
    assert_eq!(Strips::new(vec![strip(0, 5)]), Err(LayoutError::StripeUnit(5)));
    assert_eq!(Strips::new(vec![strip(64, BLOCK)]), Err(LayoutError::Width(65)));
    let too_many = vec![strip(0, BLOCK); limits::STRIPS_MAX + 1];
    assert!(Strips::new(too_many).is_err());
    let strips = Strips::new(vec![strip(0, BLOCK), strip(1, BLOCK)]).expect("valid");
    assert_eq!(Distribution::VaryingStrips(strips).check(3), Err(LayoutError::OtherWidth(3)));
    let groups = |groups, factor| Distribution::Groups { unit_bytes: BLOCK, groups, factor };
    assert_eq!(groups(2, 1).check(4), Ok(()));
    assert!(
        groups(2, 1).check(3).is_err() && groups(0, 1).check(3).is_err() && groups(1, 0).check(1).is_err()
    );
    assert!(Distribution::Local { is_away: true }.check(2).is_err());
    assert!(Pattern::Groups { groups: 65, factor: 1 }.check().is_err());
}
