//! Contents: inline, striped, read ahead, cut, shared between handles.

use super::*;
use crate::{Changes, OpenMode, Seek, SetTime, SharedBytes};
use proptest::prelude::*;
use vazao_model::limits::INLINE_BYTES_MAX;
use vazao_model::{Code, Timestamp};
use vazao_wire::Method;

pub(super) const READ: OpenMode = OpenMode { read: true, write: false, truncate: false };
const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

#[test]
fn a_small_file_costs_two_requests_and_no_data_server() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let before = cluster.meta.total();
    let file = create(&client, "small");
    let inode = file.inode();
    file.write_at(b"hello", 0).unwrap();
    file.close().unwrap();
    assert_eq!(cluster.meta.total() - before, 2);
    assert_eq!(cluster.object_count(), 0);
    assert_eq!(cluster.meta.inode(inode.0).contents, b"hello");
    let again = client.open_file(inode, READ).unwrap();
    assert_eq!(read_all(&again), b"hello");
}

#[test]
fn a_file_that_outgrows_its_record_moves_to_objects_whole() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    let file = create(&client, "grows");
    let inode = file.inode();
    let bytes = pattern(1, 400_000);
    file.write_at(&bytes[..10_000], 0).unwrap();
    file.sync().unwrap();
    assert_eq!(cluster.meta.inode(inode.0).contents.len(), 10_000);
    file.write_at(&bytes[10_000..], 10_000).unwrap();
    assert_eq!(read_all(&file), bytes);
    file.close().unwrap();
    let stored = cluster.meta.inode(inode.0);
    assert!(stored.contents.is_empty());
    assert_eq!(stored.layout.unwrap().written_slots, 0b111);
    assert_eq!(stored.attributes.size, 400_000);
    // What an fsync had made durable in the record was so in the object before the record let go of it.
    assert_eq!(cluster.data[0].state.lock().sync_writes, 1);
    let other = cluster.client();
    assert_eq!(read_all(&other.open_file(inode, READ).unwrap()), bytes);
}

#[test]
fn sequential_small_writes_become_one_request_a_stripe_unit() {
    let cluster = Cluster::new(4);
    let client = cluster.client();
    let file = create(&client, "sequential");
    let bytes = pattern(2, 1 << 20);
    file.write_at(&bytes[..20_000], 0).unwrap();
    for (index, part) in bytes[20_000..].chunks(5_000).enumerate() {
        file.write_at(part, 20_000 + index as u64 * 5_000).unwrap();
    }
    file.flush().unwrap();
    assert_eq!(cluster.data_requests(Method::Write), 16);
    assert_eq!(read_all(&file), bytes);
    assert_eq!(cluster.meta.count(Method::Commit), 1);
}

#[test]
fn a_flush_without_changes_asks_nobody() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "idle");
    file.write_at(b"x", 0).unwrap();
    file.flush().unwrap();
    let before = cluster.meta.total();
    file.flush().unwrap();
    file.close().unwrap();
    assert_eq!(cluster.meta.total(), before);
}

#[test]
fn fsync_reaches_every_server_that_was_written_to_and_no_other() {
    let cluster = Cluster::new(4);
    let client = cluster.client();
    let file = create(&client, "synced");
    file.write_at(&pattern(3, 2 * UNIT as usize), 0).unwrap();
    file.sync().unwrap();
    let synced: Vec<usize> = cluster.data.iter().map(|d| d.count(Method::SyncObjects)).collect();
    assert_eq!(synced, [1, 1, 0, 0]);
    file.write_at(b"more", 3 * UNIT).unwrap();
    file.sync().unwrap();
    let synced: Vec<usize> = cluster.data.iter().map(|d| d.count(Method::SyncObjects)).collect();
    assert_eq!(synced, [1, 1, 0, 1]);
    assert_eq!(cluster.meta.state.lock().synced_commits, 2);
}

#[test]
fn holes_read_as_zeros_wherever_they_are() {
    let cluster = Cluster::new(4);
    let client = cluster.client();
    let file = create(&client, "sparse");
    file.write_at(b"end", 10 * UNIT).unwrap();
    file.flush().unwrap();
    let mut expected = vec![0; 10 * UNIT as usize];
    expected.extend_from_slice(b"end");
    assert_eq!(read_all(&file), expected);
    file.write_at(b"x", UNIT + 5).unwrap();
    expected[UNIT as usize + 5] = b'x';
    assert_eq!(read_all(&file), expected);
    file.set_length(11 * UNIT).unwrap();
    expected.resize(11 * UNIT as usize, 0);
    assert_eq!(read_all(&file), expected);
}

#[test]
fn handles_of_one_inode_share_what_is_unwritten() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let writer = create(&client, "shared");
    let reader = client.open_file(writer.inode(), READ).unwrap();
    let bytes = pattern(4, 100_000);
    writer.write_at(&bytes[..50], 0).unwrap();
    assert_eq!(read_all(&reader), &bytes[..50]);
    writer.write_at(&bytes[50..], 50).unwrap();
    assert_eq!(reader.attributes().unwrap().size, 100_000);
    assert_eq!(client.attributes(writer.inode()).unwrap().size, 100_000);
    assert_eq!(client.lookup(ROOT, b"shared").unwrap().size, 100_000);
    let page = client.list(ROOT, 0, 100, true).unwrap();
    assert_eq!(page.entries[0].attributes.as_ref().unwrap().size, 100_000);
    assert_eq!(read_all(&reader), bytes);
    assert_eq!(reader.write_at(b"no", 0).unwrap_err().code, vazao_model::Code::BadHandle);
}

#[test]
fn bytes_read_ahead_before_a_write_are_not_served_after_it() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "ahead");
    let mut bytes = pattern(5, 20 * UNIT as usize);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    let reader = client.open_file(file.inode(), READ).unwrap();
    let mut part = vec![0; 4096];
    assert_eq!(reader.read_at(&mut part, 0).unwrap(), 4096);
    file.write_at(b"changed", 8192).unwrap();
    bytes[8192..8199].copy_from_slice(b"changed");
    file.flush().unwrap();
    let mut rest = vec![0; bytes.len() - 4096];
    assert_eq!(reader.read_at(&mut rest, 4096).unwrap(), rest.len());
    assert!(rest == bytes[4096..]);
}

#[test]
fn a_sequential_reader_keeps_all_servers_busy_and_asks_for_nothing_twice() {
    let cluster = Cluster::with_unit(4, 256 * KIB);
    let client = cluster.client();
    let file = create(&client, "stream");
    let bytes = pattern(6, 32 << 20);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    let reader = client.open_file(file.inode(), READ).unwrap();
    let mut part = vec![0; 1 << 20];
    for index in 0..8u64 {
        assert_eq!(reader.read_at(&mut part, index << 20).unwrap(), part.len());
        assert!(part == bytes[(index as usize) << 20..(index as usize + 1) << 20]);
    }
    let asked: Vec<usize> = cluster.data.iter().map(|d| d.count(Method::Read)).collect();
    // 8 MiB read and 2 MiB ahead, over four servers.
    assert_eq!(asked, [10, 10, 10, 10]);
    for index in 8..32u64 {
        assert_eq!(reader.read_at(&mut part, index << 20).unwrap(), part.len());
        assert!(part == bytes[(index as usize) << 20..(index as usize + 1) << 20]);
    }
    assert_eq!(cluster.data_requests(Method::Read), 128);
    assert_eq!(client.statistics().bytes_read, 32 << 20);
}

/// Sixteen readers each read ahead four MiB beyond their part of two: eight servers sent three times what the file had.
#[test]
fn many_readers_of_parts_ask_for_the_file_once() {
    let cluster = Cluster::with_unit(8, 64 * KIB);
    let client = cluster.client();
    let file = create(&client, "parts");
    let bytes = pattern(6, 32 << 20);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    let (part_bytes, block) = (2 << 20, 64 * KIB as usize);
    let readers: Vec<File> = (0..16).map(|_| client.open_file(file.inode(), READ).unwrap()).collect();
    let mut buffer = vec![0; block];
    for at in (0..part_bytes).step_by(block) {
        for (part, reader) in readers.iter().enumerate() {
            let offset = part * part_bytes + at;
            assert_eq!(reader.read_at(&mut buffer, offset as u64).unwrap(), block);
            assert!(buffer == bytes[offset..offset + block]);
        }
    }
    let asked: u64 =
        cluster.data.iter().flat_map(|d| d.state.lock().reads.clone()).map(|r| u64::from(r.1)).sum();
    assert_eq!(asked, 32 << 20);
}

#[test]
fn random_reads_ask_for_what_they_need_only() {
    let cluster = Cluster::with_unit(2, 256 * KIB);
    let client = cluster.client();
    let file = create(&client, "random");
    let bytes = pattern(7, 4 << 20);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    let mut part = vec![0; 4096];
    for offset in [3_000_000u64, 1_000_000, 2_500_000, 65_530] {
        file.read_at(&mut part, offset).unwrap();
        assert!(part == bytes[offset as usize..offset as usize + 4096]);
    }
    let asked: u32 = cluster.data.iter().flat_map(|d| d.state.lock().reads.clone()).map(|r| r.1).sum();
    assert_eq!(asked, 4 * 4096);
}

#[test]
fn a_file_cut_to_nothing_starts_a_new_life() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "cut");
    file.write_at(&pattern(8, 300_000), 0).unwrap();
    file.flush().unwrap();
    let first = client.layout(file.inode()).unwrap().unwrap();
    file.write_at(&pattern(9, 300_000), 0).unwrap();
    file.set_length(0).unwrap();
    assert_eq!(read_all(&file), b"");
    let bytes = pattern(10, 100_000);
    file.write_at(&bytes, 0).unwrap();
    file.flush().unwrap();
    assert_eq!(read_all(&file), bytes);
    assert!(client.layout(file.inode()).unwrap().unwrap().generation > first.generation);
}

#[test]
fn what_was_cut_off_is_zeros_when_the_file_grows_again() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    for (length, cut) in [(10_000u64, 100u64), (500_000, 70_001), (500_000, 3 * UNIT)] {
        let file = create(&client, &format!("{length}-{cut}"));
        let mut bytes = pattern(length, length as usize);
        file.write_at(&bytes, 0).unwrap();
        file.set_length(cut).unwrap();
        file.set_length(length).unwrap();
        bytes[cut as usize..].fill(0);
        assert!(read_all(&file) == bytes, "{length} cut at {cut}");
        file.close().unwrap();
    }
}

#[test]
fn a_zeroed_range_reads_as_zeros_its_tail_goes_away_and_holes_stay_holes() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    for length in [9_000, 500_000] {
        let file = create(&client, &format!("zeroed{length}"));
        let mut bytes = pattern(11, length);
        file.write_at(&bytes, 0).unwrap();
        let (start, end, tail) = (length / 9, length / 2, length * 3 / 4);
        file.zero(start as u64..end as u64).unwrap();
        bytes[start..end].fill(0);
        assert_eq!(read_all(&file), bytes, "{length}");
        file.zero(tail as u64..u64::MAX).unwrap();
        bytes[tail..].fill(0);
        assert_eq!(read_all(&file), bytes, "{length}");
        let writes = cluster.data_requests(Method::Write);
        file.zero(start as u64..end as u64).unwrap();
        file.sync().unwrap();
        assert_eq!(cluster.data_requests(Method::Write), writes, "zeros were written over zeros");
        let inode = file.inode();
        file.close().unwrap();
        assert_eq!(read_all(&cluster.client().open_file(inode, READ).unwrap()), bytes, "{length}");
    }
    let cuts = cluster.data_requests(Method::TruncateObject);
    assert!(cuts > 0, "the tail of the striped file was not given back");
}

#[test]
fn an_open_and_a_look_while_a_report_is_under_way_do_not_bring_back_what_was_before() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    for length in [6_000, 300_000] {
        let file = create(&client, &format!("reported{length}"));
        let inode = file.inode();
        let old = pattern(21, length / 2);
        file.write_at(&old, 0).unwrap();
        file.flush().unwrap();
        let bytes = pattern(22, length);
        file.write_at(&bytes, 0).unwrap();
        let (second, seen) = (client.clone(), std::sync::mpsc::channel());
        let look = Box::new(move || {
            let size = second.attributes(inode).unwrap().size;
            let opened = second.open_file(inode, READ).unwrap();
            seen.0.send((size, opened.known_attributes().size, opened)).unwrap();
        });
        *cluster.meta.before.lock() = Some((Method::Commit, look));
        file.flush().unwrap();
        let (looked_up, shown, opened) = seen.1.recv().unwrap();
        assert_eq!((looked_up, shown), (length as u64, length as u64));
        assert_eq!(read_all(&opened), bytes, "{length}");
        assert_eq!(read_all(&file), bytes, "{length}");
    }
}

#[test]
fn an_open_that_was_answered_before_another_handles_close_is_asked_again() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let file = create(&client, "closed");
    let inode = file.inode();
    file.write_at(b"before", 0).unwrap();
    file.flush().unwrap();
    let overtaken = client.look(inode).unwrap();
    file.write_at(b"after!", 0).unwrap();
    file.close().unwrap();
    assert!(File::open(&client.core, overtaken, READ).is_none());
    assert_eq!(read_all(&client.open_file(inode, READ).unwrap()), b"after!");
}

#[test]
fn a_time_set_after_writes_is_not_overtaken_by_them() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "dated");
    file.write_at(b"x", 0).unwrap();
    let long_ago = Timestamp { seconds: 1_000, nanoseconds: 5 };
    let changes = Changes { modified: Some(SetTime::At(long_ago)), ..Changes::default() };
    client.set_attributes(file.inode(), &changes).unwrap();
    let inode = file.inode();
    file.close().unwrap();
    assert_eq!(client.attributes(inode).unwrap().modified, long_ago);
}

#[test]
fn dirty_memory_is_bounded_over_all_files() {
    let cluster = Cluster::with_unit(2, 256 * KIB);
    let limit = 1 << 20;
    let client = cluster.client_with(Options { dirty_bytes_max: limit, ..Cluster::options() });
    let files: Vec<File> = (0..20).map(|i| create(&client, &format!("f{i}"))).collect();
    for round in 0..10u64 {
        for file in &files {
            file.write_at(&pattern(round, 30_000), round * 100_000).unwrap();
            let dirty = client.core.dirty_bytes.load(std::sync::atomic::Ordering::Relaxed);
            // A write that crosses a stripe unit takes two buffers.
            assert!(dirty <= limit + (512 << 10), "{dirty}");
        }
    }
    files.into_iter().for_each(|file| file.close().unwrap());
    assert_eq!(client.core.dirty_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn an_open_sees_what_another_client_has_closed() {
    let cluster = Cluster::new(2);
    let (one, two) = (cluster.client(), cluster.client());
    let file = create(&one, "passed on");
    let kept_open = two.open_file(file.inode(), READ).unwrap();
    let bytes = pattern(11, 200_000);
    file.write_at(&bytes, 0).unwrap();
    let inode = file.inode();
    file.close().unwrap();
    let opened = two.open_file(inode, READ).unwrap();
    assert_eq!(read_all(&opened), bytes);
    assert_eq!(read_all(&kept_open), bytes);
    // Cut and written again by the first: a reader of the old life finds the new one.
    let again = one.open_file(inode, OpenMode { truncate: true, ..BOTH }).unwrap();
    let newer = pattern(12, 150_000);
    again.write_at(&newer, 0).unwrap();
    again.close().unwrap();
    cluster.data.iter().for_each(|d| d.state.lock().objects.retain(|id, _| id.generation == 2));
    let mut part = vec![0; 1000];
    assert_eq!(opened.read_at(&mut part, 500).unwrap(), 1000);
    assert_eq!(part, newer[500..1500]);
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { offset: u32, length: u32, seed: u64 },
    Read { offset: u32, length: u32 },
    Zero { offset: u32, length: u32 },
    SetLength(u32),
    Flush,
    Sync,
    Reopen,
    Compare,
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![0u32..20_000, 0u32..700_000];
    let length = prop_oneof![1u32..5_000, 1u32..200_000];
    prop_oneof![
        6 => (offset.clone(), length.clone(), any::<u64>())
            .prop_map(|(offset, length, seed)| Step::Write { offset, length, seed }),
        4 => (offset.clone(), length.clone()).prop_map(|(offset, length)| Step::Read { offset, length }),
        2 => (offset.clone(), length).prop_map(|(offset, length)| Step::Zero { offset, length }),
        1 => prop_oneof![Just(0u32), 0u32..30_000, offset].prop_map(Step::SetLength),
        1 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
        1 => Just(Step::Compare),
    ]
}

pub(super) fn check_step(client: &Client, file: &mut File, model: &mut Vec<u8>, step: &Step) {
    match *step {
        Step::Write { offset, length, seed } => {
            let bytes = pattern(seed, length as usize);
            if seed % 2 == 0 {
                file.write_at(&bytes, offset.into()).unwrap();
            } else {
                // As a door does that has received them behind something else.
                let shared: SharedBytes = Arc::new([&[0xDD; 40], &bytes[..]].concat());
                file.write_shared(&shared, 40..shared.as_ref().as_ref().len(), offset.into()).unwrap();
            }
            let end = (offset + length) as usize;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&bytes);
        }
        Step::Read { offset, length } => {
            let mut bytes = vec![0xEE; length as usize];
            let read = file.read_at(&mut bytes, offset.into()).unwrap();
            let from = (offset as usize).min(model.len());
            let to = (from + length as usize).min(model.len());
            assert!(bytes[..read] == model[from..to], "{step:?}");
        }
        Step::Zero { offset, length } => {
            file.zero(offset.into()..u64::from(offset) + u64::from(length)).unwrap();
            let from = (offset as usize).min(model.len());
            let to = (from + length as usize).min(model.len());
            model[from..to].fill(0);
        }
        Step::SetLength(length) => {
            file.set_length(length.into()).unwrap();
            model.resize(length as usize, 0);
        }
        Step::Flush => file.flush().unwrap(),
        Step::Sync => file.sync().unwrap(),
        Step::Reopen => {
            let fresh = client.open_file(file.inode(), BOTH).unwrap();
            std::mem::replace(file, fresh).close().unwrap();
        }
        Step::Compare => assert!(read_all(file) == *model, "{step:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn a_file_behaves_like_a_vector(
        steps in proptest::collection::vec(any_step(), 1..60), servers in 1u32..5, per_file in 1usize..4,
    ) {
        let cluster = Cluster::new(servers);
        let dirty_bytes_per_file_max = per_file << 16;
        let client = cluster.client_with(Options { dirty_bytes_per_file_max, ..Cluster::options() });
        let mut file = create(&client, "vector");
        let mut model = Vec::new();
        for step in &steps {
            check_step(&client, &mut file, &mut model, step);
        }
        let inode = file.inode();
        file.close().unwrap();
        let other = cluster.client();
        prop_assert!(read_all(&other.open_file(inode, READ).unwrap()) == model);
        prop_assert_eq!(client.core.dirty_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

#[test]
fn shared_bytes_are_kept_until_the_servers_have_them_and_a_range_outside_is_refused() {
    let cluster = Cluster::with_unit(2, 256 * KIB);
    let client = cluster.client();
    let file = create(&client, "shared");
    let bytes: SharedBytes = Arc::new(pattern(5, 1 << 20));
    for range in [10..(1 << 20) + 1, 2 << 20..3 << 20] {
        let error = file.write_shared(&bytes, range, 0).expect_err("outside");
        assert_eq!(error.code, Code::Invalid);
    }
    assert_eq!(file.attributes().unwrap().size, 0);
    file.write_shared(&bytes, 0..1 << 20, 0).unwrap();
    file.flush().unwrap();
    assert_eq!(Arc::strong_count(&bytes), 1);
    assert!(read_all(&file) == (*bytes).as_ref());
    assert_eq!(client.core.dirty_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn the_limit_of_inline_contents_is_exact() {
    let cluster = Cluster::new(1);
    let client = cluster.client();
    let file = create(&client, "exact");
    file.write_at(&vec![1; INLINE_BYTES_MAX], 0).unwrap();
    file.flush().unwrap();
    assert_eq!(cluster.meta.count(Method::AssignLayout), 0);
    file.write_at(&[2], INLINE_BYTES_MAX as u64).unwrap();
    file.flush().unwrap();
    assert_eq!(cluster.meta.count(Method::AssignLayout), 2, "one proposes a layout, one installs it");
    assert_eq!(read_all(&file).len(), INLINE_BYTES_MAX + 1);
}

#[test]
fn data_and_holes_of_a_striped_file_are_found_byte_by_byte() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    let file = create(&client, "holes");
    // In the first unit of two slots, and in later ones.
    let runs = [10..20_000u64, 300_000..600_000, 1_900_000..2_000_001];
    for run in &runs {
        file.write_at(&vec![7; (run.end - run.start) as usize], run.start).unwrap();
    }
    file.set_length(3 << 20).unwrap();
    let mut found = Vec::new();
    let mut position = 0;
    while let Some(start) = file.seek(Seek::Data, position).unwrap() {
        position = file.seek(Seek::Hole, start).unwrap().unwrap();
        found.push(start..position);
    }
    assert_eq!(found, runs);
    assert_eq!(file.seek(Seek::Hole, 2_500_000).unwrap(), Some(2_500_000));
    assert_eq!(file.seek(Seek::Hole, 3 << 20).unwrap(), None);
    file.zero(0..1_950_000).unwrap();
    assert_eq!(file.seek(Seek::Data, 0).unwrap(), Some(1_950_000));
    assert_eq!(cluster.data.iter().map(|data| data.count(Method::PunchObject)).sum::<usize>(), 3);
    assert_eq!(cluster.data.iter().map(|data| data.count(Method::StatObject)).sum::<usize>() % 3, 0);
}

#[test]
fn only_a_file_with_holes_has_its_storage_asked_about() {
    let cluster = Cluster::new(2);
    let client = cluster.client();
    let asked = || cluster.data.iter().map(|data| data.count(Method::StatObject)).sum::<usize>();
    let dense = create(&client, "dense");
    dense.write_at(&vec![1; 1 << 20], 0).unwrap();
    dense.close().unwrap();
    assert_eq!(asked(), 0);
    let sparse = create(&client, "sparse");
    sparse.write_at(&vec![1; 100_000], 1 << 20).unwrap();
    sparse.close().unwrap();
    assert!(asked() > 0);
}
