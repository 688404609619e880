//! Random operations against objects that are vectors of bytes.

use super::{CHUNK, Rig, pattern};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Write { inode: u64, offset: u64, length: usize, seed: u64 },
    Read { inode: u64, offset: u64, length: u32 },
    Truncate { inode: u64, length: u64 },
    Punch { inode: u64, offset: u64, length: usize },
    Ranges { inode: u64, limit: u32 },
    Sync { inode: u64 },
    Remove { inode: u64 },
    Stat { inode: u64 },
    List { limit: u32 },
    Checkpoint,
    Kill,
    StopAndStart,
}

/// Offsets near block and chunk boundaries as often as anywhere.
fn offset() -> impl Strategy<Value = u64> {
    let end = CHUNK * 5;
    let near =
        |step: u64| (0..end / step, -3i64..4).prop_map(move |(n, d)| (n * step).saturating_add_signed(d));
    prop_oneof![0..end, near(65536), near(CHUNK), Just(0)]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..300, 0usize..70_000, Just(65536), Just(131_072), 0usize..CHUNK as usize * 2]
}

fn step() -> impl Strategy<Value = Step> {
    let inode = || 1u64..5;
    prop_oneof![
        8 => (inode(), offset(), length(), any::<u64>())
            .prop_map(|(inode, offset, length, seed)| Step::Write { inode, offset, length, seed }),
        6 => (inode(), offset(), length())
            .prop_map(|(inode, offset, length)| Step::Read { inode, offset, length: length as u32 }),
        3 => (inode(), offset()).prop_map(|(inode, length)| Step::Truncate { inode, length }),
        3 => (inode(), offset(), length())
            .prop_map(|(inode, offset, length)| Step::Punch { inode, offset, length }),
        2 => (inode(), 1u32..4).prop_map(|(inode, limit)| Step::Ranges { inode, limit }),
        1 => inode().prop_map(|inode| Step::Sync { inode }),
        1 => inode().prop_map(|inode| Step::Remove { inode }),
        1 => inode().prop_map(|inode| Step::Stat { inode }),
        1 => (1u32..4).prop_map(|limit| Step::List { limit }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Kill),
        1 => Just(Step::StopAndStart),
    ]
}

type Model = BTreeMap<u64, Vec<u8>>;

fn write(rig: &Rig, model: &mut Model, inode: u64, offset: u64, bytes: &[u8]) {
    let length = rig.write(inode, offset, bytes).expect("writes");
    let object = model.entry(inode).or_default();
    let end = offset as usize + bytes.len();
    if !bytes.is_empty() {
        object.resize(object.len().max(end), 0);
        object[offset as usize..end].copy_from_slice(bytes);
    }
    assert_eq!(length, object.len() as u64);
}

fn read(rig: &Rig, model: &Model, inode: u64, offset: u64, length: u32) {
    let read = rig.read(inode, offset, length).expect("reads");
    let object = model.get(&inode);
    assert_eq!(read.missing, object.is_none());
    let object = object.map_or(&[][..], Vec::as_slice);
    assert_eq!(read.object_length, object.len() as u64);
    let start = (offset as usize).min(object.len());
    let end = (start + length as usize).min(object.len());
    assert!(read.bytes == object[start..end], "object {inode} at {offset}+{length}");
}

/// Outside of the ranges there are only zeros, and ranges are whole pages that somebody has written to.
fn check_ranges(rig: &Rig, model: &Model, inode: u64, limit: u32) {
    let ranges = rig.ranges(inode, limit).expect("tells");
    let object = model.get(&inode).map_or(&[][..], Vec::as_slice);
    let mut position = 0;
    for range in &ranges {
        let (start, end) = (range.start as usize, range.end as usize);
        assert!(start < end && end <= object.len() && start >= position, "{ranges:?}");
        assert!(object[position..start].iter().all(|byte| *byte == 0), "data before {range:?}");
        position = end;
    }
    assert!(object[position..].iter().all(|byte| *byte == 0), "data after {ranges:?}");
}

fn apply(rig: &mut Rig, model: &mut Model, step: &Step) {
    match *step {
        Step::Write { inode, offset, length, seed } => {
            write(rig, model, inode, offset, &pattern(seed, length));
        }
        Step::Read { inode, offset, length } => read(rig, model, inode, offset, length),
        Step::Truncate { inode, length } => {
            rig.truncate(inode, length).expect("cuts");
            if let Some(object) = model.get_mut(&inode) {
                object.truncate(length as usize);
            }
        }
        Step::Punch { inode, offset, length } => {
            rig.punch(inode, offset, length as u64).expect("punches");
            if let Some(object) = model.get_mut(&inode) {
                let end = (offset as usize + length).min(object.len());
                object[(offset as usize).min(end)..end].fill(0);
            }
        }
        Step::Ranges { inode, limit } => check_ranges(rig, model, inode, limit),
        Step::Sync { inode } => rig.sync(inode).expect("syncs"),
        Step::Remove { inode } => {
            let removed = rig.remove(inode).expect("removes");
            assert_eq!(removed, u64::from(model.remove(&inode).is_some()));
        }
        Step::Stat { inode } => {
            let stat = rig.stat(inode).expect("stats");
            assert_eq!(stat.exists, model.contains_key(&inode));
            assert_eq!(stat.length, model.get(&inode).map_or(0, |o| o.len() as u64));
            assert!(stat.allocated_bytes <= stat.length.next_multiple_of(4096));
        }
        Step::List { limit } => {
            let mut inodes = rig.list(limit).expect("lists");
            inodes.sort_unstable();
            assert_eq!(inodes, model.keys().copied().collect::<Vec<_>>());
        }
        Step::Checkpoint => rig.checkpoint(),
        Step::Kill => rig.restart(),
        Step::StopAndStart => {
            rig.service.tick();
            rig.service.close();
            rig.restart();
            assert!(
                rig.service.targets[0].epochs.suspects().is_none(),
                "a clean stop leaves nothing to repair"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn objects_behave_as_vectors_of_bytes(steps in proptest::collection::vec(step(), 1..60), seed: u64) {
        let mut rig = Rig::new(seed);
        let mut model = Model::new();
        for step in &steps {
            apply(&mut rig, &mut model, step);
        }
        for inode in 1..5 {
            prop_assert!(rig.read_all(inode).expect("reads") == model.get(&inode).cloned());
        }
        // Kills and restarts tear nothing, so there was never anything to repair.
        prop_assert_eq!(rig.service.targets[0].repairs().1, 0);
    }
}

/// The last chunk of a write was that of the byte before its end: with no bytes at the beginning of a chunk it lay
/// before the first one, and the request ended in a panic.
#[test]
fn a_write_of_nothing_at_the_beginning_of_a_chunk_changes_nothing() {
    let (rig, mut model) = (Rig::new(1), Model::new());
    for (inode, offset) in [(1, CHUNK), (1, 0), (1, CHUNK), (1, 3 * CHUNK)] {
        write(&rig, &mut model, inode, offset, &[]);
    }
    write(&rig, &mut model, 1, 0, b"something");
    write(&rig, &mut model, 1, CHUNK, &[]);
    read(&rig, &model, 1, 0, 100);
}
