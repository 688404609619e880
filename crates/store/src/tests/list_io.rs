//! Many ranges in one request: what they bring, and which lists are refused.

use super::{CHUNK, Rig, address, pattern};
use vazao_model::Code;
use vazao_model::checksum::{first_mismatch, piece_checksums, piece_count};
use vazao_model::limits::LIST_RANGES_MAX;
use vazao_wire::op;
use vazao_wire::proto::{self, ByteRange};
use vazao_wire::service::Fault;

fn range(offset: u64, length: u32) -> ByteRange {
    ByteRange { offset, length }
}

fn read(rig: &Rig, ranges: &[ByteRange]) -> Result<Vec<Vec<u8>>, Fault> {
    let request = proto::ReadListRequest { object: Some(address(1)), ranges: ranges.to_vec() };
    let (answer, attachment) = rig.ask::<op::ReadList>(&request, &[])?;
    let (mut bytes, mut checksums) = (&attachment[..], &answer.checksums[..]);
    let mut parts = Vec::new();
    for (range, length) in ranges.iter().zip(&answer.lengths) {
        let (now, later) = bytes.split_at(*length as usize);
        let (sums_now, sums_later) = checksums.split_at(piece_count(range.offset, now.len()));
        assert_eq!(first_mismatch(range.offset, now, sums_now), None, "{range:?}");
        (bytes, checksums) = (later, sums_later);
        parts.push(now.to_vec());
    }
    assert!(bytes.is_empty() && checksums.is_empty());
    Ok(parts)
}

fn write(rig: &Rig, ranges: &[ByteRange], checksums: Vec<u32>, bytes: &[u8]) -> Result<u64, Fault> {
    let request = proto::WriteListRequest {
        object: Some(address(1)),
        ranges: ranges.to_vec(),
        checksums,
        must_exist: false,
    };
    rig.ask::<op::WriteList>(&request, bytes).map(|(answer, _)| answer.object_length)
}

fn checksums(ranges: &[ByteRange], bytes: &[u8]) -> Vec<u32> {
    let mut rest = bytes;
    let mut sums = Vec::new();
    for range in ranges {
        let (now, later) = rest.split_at(range.length as usize);
        sums.extend(piece_checksums(range.offset, now));
        rest = later;
    }
    sums
}

#[test]
fn ranges_anywhere_are_written_and_read_in_one_request_each_the_later_of_two_counts() {
    let rig = Rig::new(1);
    let mut model = pattern(1, CHUNK as usize + 50_000);
    rig.write(1, 0, &model).expect("writes");
    let ranges = [range(5, 10), range(CHUNK - 100, 300), range(70_000, 1), range(7, 4)];
    let bytes = pattern(2, 315);
    let length = write(&rig, &ranges, checksums(&ranges, &bytes), &bytes).expect("writes");
    assert_eq!(length, model.len() as u64);
    let mut rest = &bytes[..];
    for range in &ranges {
        let (now, later) = rest.split_at(range.length as usize);
        model[range.offset as usize..][..now.len()].copy_from_slice(now);
        rest = later;
    }
    let asked = [range(0, 100), range(CHUNK - 200, 400), range(69_999, 3), range(CHUNK + 49_990, 100)];
    let read = read(&rig, &asked).expect("reads");
    for (range, part) in asked.iter().zip(read) {
        let start = range.offset as usize;
        assert!(part == model[start..(start + range.length as usize).min(model.len())], "{range:?}");
    }
}

#[test]
fn a_list_of_an_object_that_is_not_there_says_so() {
    let rig = Rig::new(1);
    let request = proto::ReadListRequest { object: Some(address(9)), ranges: vec![range(0, 10)] };
    let (answer, attachment) = rig.ask::<op::ReadList>(&request, &[]).expect("answers");
    assert!(answer.missing && answer.lengths == [0] && attachment.is_empty());
}

#[test]
fn lists_that_make_no_sense_are_refused_and_change_nothing() {
    let rig = Rig::new(1);
    rig.write(1, 0, &[7; 1000]).expect("writes");
    let bytes = [1; 20];
    let ranges = [range(0, 10), range(50, 10)];
    let good = checksums(&ranges, &bytes);
    let cases: [(Vec<ByteRange>, Vec<u32>, &[u8]); 5] = [
        (vec![], vec![], &[]),
        (vec![range(0, 0); LIST_RANGES_MAX + 1], vec![], &[]),
        (ranges.to_vec(), good.clone(), &bytes[..19]),
        (ranges.to_vec(), good[..1].to_vec(), &bytes),
        (vec![range(0, u32::MAX); 3], vec![], &[]),
    ];
    for (ranges, checksums, bytes) in cases {
        assert_eq!(write(&rig, &ranges, checksums, bytes).expect_err("refused").code, Code::BadRequest);
    }
    let beyond = [range(u64::MAX - 3, 10)];
    assert_eq!(write(&rig, &beyond, vec![0], &bytes[..10]).expect_err("refused").code, Code::TooLarge);
    let damaged = write(&rig, &ranges, vec![good[0], good[1] ^ 1], &bytes).expect_err("refused");
    assert_eq!(damaged.code, Code::Disconnected);
    assert!(read(&rig, &[range(0, 1000)]).expect("reads")[0] == [7; 1000]);
}
