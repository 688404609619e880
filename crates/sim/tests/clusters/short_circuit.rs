//! Reads past the data server: the same bytes, the same errors, whatever happens to the object or to the server.

mod cluster;
mod lent;

use cluster::{Cluster, READ_WRITE, bytes_by_way, create};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use vazao_client::File;
use vazao_meter::{Clock, SystemClock};
use vazao_model::Code;

const MIB: usize = 1 << 20;
const BLOCK: usize = 64 * 1024;

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes[..]);
    bytes
}

fn read(file: &File, offset: usize, length: usize) -> vazao_client::Result<Vec<u8>> {
    let mut bytes = vec![0xEE; length];
    let count = file.read_at(&mut bytes, offset as u64)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The error, without a page of bytes when there is none.
fn failure(read: vazao_client::Result<Vec<u8>>) -> vazao_client::Error {
    read.map(|bytes| bytes.len()).expect_err("must not be read")
}

#[test]
fn a_warm_file_is_read_past_the_server_and_not_with_the_switch_off() {
    let cluster = Cluster::start(2);
    let bytes = pattern(5 * MIB + 777, 1);
    let client = cluster.client(true);
    let (inode, file) = create(&client, "file", &bytes);
    assert_eq!(read(&file, 0, 6 * MIB).expect("reads"), bytes);
    let (local, remote) = bytes_by_way(&client);
    assert_eq!((local, remote), (bytes.len() as u64, 0));
    let through = cluster.client(false);
    let file = through.open_file(inode, READ_WRITE).expect("opens");
    assert_eq!(read(&file, 0, 6 * MIB).expect("reads"), bytes);
    assert_eq!(bytes_by_way(&through).0, 0);
}

#[test]
fn a_small_file_is_left_to_the_server() {
    let cluster = Cluster::start(1);
    let client = cluster.client(true);
    let (_, file) = create(&client, "file", &pattern(BLOCK, 2));
    read(&file, 0, BLOCK).expect("reads");
    assert_eq!(bytes_by_way(&client), (0, BLOCK as u64));
}

#[test]
fn reads_and_writes_of_any_size_anywhere_agree_with_a_model() {
    let cluster = Cluster::start(3);
    let client = cluster.client(true);
    let mut model = pattern(3 * MIB, 3);
    let (_, file) = create(&client, "file", &model);
    let mut random = StdRng::seed_from_u64(4);
    for step in 0..400 {
        let length =
            if random.random_bool(0.5) { random.random_range(1..9000) } else { random.random_range(1..MIB) };
        let offset = random.random_range(0..3 * MIB + BLOCK);
        if random.random_bool(0.3) {
            let bytes = pattern(length, step);
            file.write_at(&bytes, offset as u64).expect("writes");
            model.resize(model.len().max(offset + length), 0);
            model[offset..offset + length].copy_from_slice(&bytes);
        } else {
            let end = model.len().min(offset + length);
            let expected = model.get(offset..end).unwrap_or(&[]);
            assert!(
                read(&file, offset, length).expect("reads") == expected,
                "step {step} at {offset}+{length}"
            );
        }
    }
    let mut position = 0;
    while position < model.len() {
        let end = model.len().min(position + 4000);
        assert!(read(&file, position, 4000).expect("reads") == model[position..end], "at {position}");
        position = end;
    }
    assert!(bytes_by_way(&client).0 > MIB as u64);
}

#[test]
fn blocks_that_are_overwritten_meanwhile_are_never_taken_for_damage() {
    let cluster = Cluster::start(1);
    let writer = cluster.client(true);
    let (inode, file) = create(&writer, "file", &vec![1; MIB]);
    let reader = cluster.client(true);
    let mine = reader.open_file(inode, READ_WRITE).expect("opens");
    // Before the writer is in the way. Nothing was asked of the server yet, which hid it and these bytes from the
    // statistics, and with them all others when no read ever met a write.
    assert!(read(&mine, 0, MIB).expect("reads").iter().all(|byte| *byte == 1));
    assert_eq!(bytes_by_way(&reader), (MIB as u64, 0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(5);
            for round in 0..600 {
                let value = 2 + (round % 200) as u8;
                let offset = random.random_range(0..MIB - BLOCK);
                let length = random.random_range(1..BLOCK);
                file.write_at(&vec![value; length], offset as u64).expect("writes");
                file.flush().expect("flushes");
            }
        });
        let mut random = StdRng::seed_from_u64(6);
        while !writer.is_finished() {
            let offset = random.random_range(0..MIB - BLOCK);
            let bytes = read(&mine, offset, random.random_range(1..2 * BLOCK)).expect("never damage");
            assert!(bytes.iter().all(|byte| *byte != 0 && *byte != 0xEE), "bytes that nobody wrote");
        }
    });
}

#[test]
fn damaged_data_and_a_damaged_sidecar_are_reported_as_by_the_server() {
    for (suffix, offset) in [("data", 3 * BLOCK as u64 + 5), ("sums", 128 + 4 * 3)] {
        let cluster = Cluster::start(1);
        let client = cluster.client(true);
        let bytes = pattern(2 * MIB, 7);
        let (inode, file) = create(&client, "file", &bytes);
        assert!(read(&file, 0, MIB).is_ok());
        cluster.flip(suffix, offset);
        let fresh = cluster.client(true);
        let same = fresh.open_file(inode, READ_WRITE).expect("opens");
        let error = failure(read(&same, 2 * BLOCK, 3 * BLOCK));
        assert_eq!(error.code, Code::Corrupt, "{suffix}: {error}");
        assert!(read(&same, 4 * BLOCK, BLOCK).expect("the rest is whole") == bytes[4 * BLOCK..5 * BLOCK]);
        // A client that has cached the sidecar's entry can still distinguish right bytes from wrong ones.
        match suffix {
            "data" => assert_eq!(failure(read(&file, 2 * BLOCK, 3 * BLOCK)).code, Code::Corrupt),
            _ => assert!(read(&file, 2 * BLOCK, 3 * BLOCK).expect("right") == bytes[2 * BLOCK..5 * BLOCK]),
        }
    }
}

#[test]
fn what_was_handed_out_is_void_with_its_server() {
    let mut cluster = Cluster::start(1);
    let client = cluster.client(true);
    let bytes = pattern(2 * MIB, 8);
    let (_, file) = create(&client, "file", &bytes);
    read(&file, 0, MIB).expect("reads");
    let (local, _) = bytes_by_way(&client);
    cluster.door.close();
    cluster.data_server.stop();
    // How late a reader may learn of it.
    SystemClock.sleep(Duration::from_millis(2));
    let error = failure(read(&file, 0, MIB));
    assert!(matches!(error.code, Code::Unreachable | Code::Timeout | Code::Disconnected), "{error}");
    assert_eq!(bytes_by_way(&client).0, local, "nothing more was read past it");
}

#[test]
fn a_removed_object_is_as_missing_as_by_the_server() {
    let cluster = Cluster::start(1);
    let client = cluster.client(true);
    let (_, file) = create(&client, "file", &pattern(2 * MIB, 9));
    read(&file, 0, MIB).expect("reads");
    for path in cluster.files("data").into_iter().chain(cluster.files("sums")) {
        std::fs::remove_file(path).expect("removed");
    }
    cluster.data.close();
    SystemClock.sleep(Duration::from_millis(2));
    let error = failure(read(&file, 0, MIB));
    assert!(matches!(error.code, Code::Unavailable | Code::Timeout | Code::Corrupt), "{error}");
}

#[test]
fn a_file_that_another_client_cuts_and_fills_again_is_read_as_it_is_now() {
    let cluster = Cluster::start(1);
    let (writer, reader) = (cluster.client(true), cluster.client(true));
    let (inode, file) = create(&writer, "file", &pattern(2 * MIB, 10));
    let mine = reader.open_file(inode, READ_WRITE).expect("opens");
    read(&mine, 0, MIB).expect("reads");
    drop(mine);
    for round in 0..3 {
        let fresh = pattern(2 * MIB, 11 + round);
        file.set_length(0).expect("cut");
        file.write_at(&fresh, 0).expect("writes");
        file.flush().expect("flushes");
        let mine = reader.open_file(inode, READ_WRITE).expect("opens");
        assert!(read(&mine, 0, 2 * MIB).expect("reads") == fresh);
        file.set_length(MIB as u64 + 3).expect("cut");
        let mine = reader.open_file(inode, READ_WRITE).expect("opens");
        assert!(read(&mine, 0, 2 * MIB).expect("reads") == fresh[..MIB + 3]);
    }
}

#[test]
fn holes_are_zeros_without_the_server_too() {
    let cluster = Cluster::start(1);
    let client = cluster.client(true);
    let (_, file) = create(&client, "file", &[7; BLOCK]);
    file.write_at(&[9; 100], 3 * MIB as u64).expect("writes");
    file.flush().expect("flushes");
    let mut expected = vec![0; 3 * MIB + 100];
    expected[..BLOCK].fill(7);
    expected[3 * MIB..].fill(9);
    assert!(read(&file, 0, 4 * MIB).expect("reads") == expected);
    assert!(bytes_by_way(&client).0 >= 3 * MIB as u64);
}
