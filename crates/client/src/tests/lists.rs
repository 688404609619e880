//! Many ranges at once, against the same calls one by one.

use super::*;
use crate::Strided;
use proptest::prelude::*;
use vazao_model::Code;
use vazao_wire::Method;

const UNIT: usize = 256 * 1024;

/// A striped file of some units with a pattern in it.
fn striped(cluster: &Cluster, client: &Client) -> (File, Vec<u8>) {
    let file = create(client, "file");
    let bytes = pattern(1, 5 * UNIT + 1234);
    file.write_at(&bytes, 0).expect("writes");
    file.flush().expect("flushes");
    assert!(cluster.object_count() > 1);
    (file, bytes)
}

fn read_list(file: &File, ranges: &[(u64, usize)]) -> crate::Result<Vec<Vec<u8>>> {
    let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|(_, length)| vec![0xEE; *length]).collect();
    let mut parts: Vec<(u64, &mut [u8])> =
        ranges.iter().zip(&mut buffers).map(|((offset, _), buffer)| (*offset, &mut buffer[..])).collect();
    let lengths = file.read_list(&mut parts)?;
    buffers.iter_mut().zip(lengths).for_each(|(buffer, length)| buffer.truncate(length));
    Ok(buffers)
}

#[test]
fn small_ranges_all_over_a_file_take_one_request_for_each_server() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    let (file, bytes) = striped(&cluster, &client);
    let ranges: Vec<(u64, usize)> = (0..60).map(|n| (n * 21_000, 100)).collect();
    let read = read_list(&file, &ranges).expect("reads");
    for ((offset, length), read) in ranges.iter().zip(read) {
        assert!(read == bytes[*offset as usize..*offset as usize + length]);
    }
    let objects = cluster.object_count();
    assert_eq!((cluster.data_requests(Method::ReadList), cluster.data_requests(Method::Read)), (objects, 0));
    let parts: Vec<(u64, &[u8])> = ranges.iter().map(|(offset, _)| (*offset, &b"news"[..])).collect();
    let before = cluster.data_requests(Method::Write);
    file.write_list(&parts).expect("writes");
    assert_eq!(cluster.data_requests(Method::WriteList), objects);
    assert_eq!(cluster.data_requests(Method::Write), before);
    assert!(read_list(&file, &ranges).expect("reads").iter().all(|read| read.starts_with(b"news")));
}

#[test]
fn a_strided_read_and_write_are_the_ranges_one_by_one_and_zeros_stand_beyond_the_end() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    let (file, mut bytes) = striped(&cluster, &client);
    let ranges = Strided { offset: 17, length: 1000, stride: 70_000, count: 20 };
    let column = pattern(2, ranges.bytes());
    let end = file.known_attributes().size as usize;
    let within = Strided { count: (end - 17) / 70_000, ..ranges };
    file.write_strided(within, &column[..within.bytes()]).expect("writes");
    for (n, part) in column[..within.bytes()].chunks(1000).enumerate() {
        bytes[17 + n * 70_000..][..1000].copy_from_slice(part);
    }
    let mut read = vec![0xEE; ranges.bytes()];
    let count = file.read_strided(ranges, &mut read).expect("reads");
    let mut expected = Vec::new();
    for n in 0..ranges.count {
        let mut part: Vec<u8> = bytes.iter().skip(17 + n * 70_000).take(1000).copied().collect();
        part.resize(1000, 0);
        expected.extend(part);
    }
    assert!(read == expected && (within.bytes()..=ranges.bytes()).contains(&count));
    let wrong = file.read_strided(ranges, &mut read[1..]).expect_err("another length");
    assert_eq!(wrong.code, Code::Invalid);
    let far = Strided { offset: u64::MAX - 5, length: 10, stride: 10, count: 1 };
    assert_eq!(file.read_strided(far, &mut [0; 10]).expect_err("beyond").code, Code::TooLarge);
}

#[test]
fn a_list_of_an_inline_file_and_one_that_is_too_long_for_company_work_as_well() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    let small = create(&client, "small");
    small.write_list(&[(0, b"abc"), (100, b"def")]).expect("writes");
    assert_eq!(read_list(&small, &[(1, 2), (99, 3), (103, 5)]).expect("reads"), [&b"bc"[..], b"\0de", b""]);
    let (file, bytes) = striped(&cluster, &client);
    let read = read_list(&file, &[(5, 2 * UNIT), (7, 10)]).expect("reads");
    assert!(read[0] == bytes[5..5 + 2 * UNIT] && read[1] == bytes[7..17]);
}

#[test]
fn bytes_hit_on_their_way_are_read_again_and_a_server_that_refuses_is_an_error() {
    let cluster = Cluster::new(3);
    let client = cluster.client();
    let (file, bytes) = striped(&cluster, &client);
    cluster.data.iter().for_each(|data| data.state.lock().flips = 1);
    let read = read_list(&file, &[(3, 50), (300_003, 50)]).expect("reads");
    assert!(read[0] == bytes[3..53] && read[1] == bytes[300_003..300_053]);
    cluster.data.iter().for_each(|data| data.fail_next(Method::ReadList, Code::Io, 1));
    assert_eq!(read_list(&file, &[(3, 50), (300_003, 50)]).expect_err("fails").code, Code::Io);
    cluster.data.iter().for_each(|data| data.fail_next(Method::WriteList, Code::NoSpace, 1));
    assert_eq!(file.write_list(&[(3, b"x"), (900, b"y")]).expect_err("fails").code, Code::NoSpace);
    assert_eq!(file.flush().expect_err("still lost").code, Code::NoSpace);
    file.write_list(&[(3, b"x"), (900, b"y")]).expect("written again");
    file.flush().expect("nothing is lost any more");
}

/// Reads or writes ranges, and compares with a vector.
pub(super) fn check_list(
    file: &File,
    model: &mut Vec<u8>,
    is_write: bool,
    ranges: &[(u64, usize)],
    seed: u64,
) {
    if is_write {
        let contents: Vec<Vec<u8>> = ranges.iter().map(|(at, length)| pattern(*at + seed, *length)).collect();
        let parts: Vec<(u64, &[u8])> =
            ranges.iter().zip(&contents).map(|((at, _), bytes)| (*at, &bytes[..])).collect();
        file.write_list(&parts).expect("writes");
        for (at, bytes) in parts {
            let end = at as usize + bytes.len();
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(bytes);
        }
    } else {
        for ((at, length), read) in ranges.iter().zip(read_list(file, ranges).expect("reads")) {
            let start = (*at as usize).min(model.len());
            assert!(read == model[start..(start + length).min(model.len())]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn lists_agree_with_a_vector(
        steps in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec((0u64..1_500_000, 1usize..5_000), 1..40)), 1..8,
        ),
    ) {
        let cluster = Cluster::new(3);
        let client = cluster.client();
        let (file, mut model) = striped(&cluster, &client);
        for (step, (is_write, ranges)) in steps.into_iter().enumerate() {
            check_list(&file, &mut model, is_write, &ranges, step as u64);
        }
    }
}
