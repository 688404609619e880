//! The metadata service loses power, and with it what it had answered and not made durable.

use super::{Cluster, create, pattern, read_all};
use crate::{File, OpenMode};
use vazao_model::ids::ROOT;

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// Flushes the file, and has the service forget all of that.
fn flush_in_vain(cluster: &Cluster, file: &File) {
    let before = cluster.meta.inode(file.inode().0);
    file.flush().unwrap();
    cluster.meta.state.lock().inodes.insert(file.inode().0, before);
}

fn stored(cluster: &Cluster) -> Vec<u8> {
    let client = cluster.client();
    let inode = client.lookup(ROOT, b"f").unwrap().inode;
    read_all(&client.open_file(inode, BOTH).unwrap())
}

/// A write beyond 16 KiB came next: the layout was asked for, and the answered bytes became zeros under an fsync that
/// returned 0.
#[test]
fn inline_bytes_that_a_service_forgot_follow_a_file_that_outgrows_its_record() {
    for durable in [0, 1_000] {
        let cluster = Cluster::new(2);
        let client = cluster.client();
        let file = create(&client, "f");
        let bytes = pattern(durable as u64, 60_000);
        file.write_at(&bytes[..durable], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&bytes[durable..10_000], durable as u64).unwrap();
        flush_in_vain(&cluster, &file);
        file.write_at(&bytes[10_000..], 10_000).unwrap();
        file.sync().unwrap();
        assert!(stored(&cluster) == bytes, "{durable} bytes were durable");
    }
}

#[test]
fn inline_bytes_that_a_service_forgot_follow_a_file_that_another_client_outgrew() {
    let cluster = Cluster::new(2);
    let (one, two) = (cluster.client(), cluster.client());
    let file = create(&one, "f");
    let bytes = pattern(5, 60_000);
    let before = cluster.meta.inode(file.inode().0);
    for part in 0..5 {
        file.write_at(&bytes[part * 1_000..(part + 1) * 1_000], part as u64 * 1_000).unwrap();
        file.flush().unwrap();
    }
    cluster.meta.state.lock().inodes.insert(file.inode().0, before);
    let second = two.open_file(file.inode(), BOTH).unwrap();
    second.write_at(&bytes[5_000..], 5_000).unwrap();
    file.write_at(&bytes[..1], 0).unwrap();
    file.sync().unwrap();
    second.sync().unwrap();
    assert!(stored(&cluster) == bytes);
}

/// The report after the forgotten one made the version that the forgotten one had made.
#[test]
fn one_forgotten_report_is_noticed_by_the_next() {
    for length in [2_000, 200_000] {
        let cluster = Cluster::new(2);
        let client = cluster.client();
        let file = create(&client, "f");
        let bytes = pattern(length as u64, length);
        file.write_at(&bytes[..length / 2], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&bytes[length / 2..], length as u64 / 2).unwrap();
        flush_in_vain(&cluster, &file);
        file.write_at(&bytes[..10], 0).unwrap();
        file.sync().unwrap();
        assert!(stored(&cluster) == bytes, "{length} bytes");
    }
}

/// Cuts the file, and has the service forget that.
fn cut_in_vain(cluster: &Cluster, file: &File, length: u64) {
    let before = cluster.meta.inode(file.inode().0);
    file.set_length(length).unwrap();
    cluster.meta.state.lock().inodes.insert(file.inode().0, before);
}

/// A length that was set is a change like any other: an fsync returned 0, and the file had the length of before.
#[test]
fn a_length_that_a_service_forgot_is_set_again_by_the_next_fsync() {
    for written in [0, 1_000, 10_000, 200_000] {
        for length in [0, 500, 17_353, 120_000, 300_000] {
            let cluster = Cluster::new(2);
            let client = cluster.client();
            let file = create(&client, "f");
            let mut bytes = pattern(written as u64, written);
            file.write_at(&bytes, 0).unwrap();
            file.sync().unwrap();
            cut_in_vain(&cluster, &file, length as u64);
            bytes.resize(length, 0);
            file.sync().unwrap();
            let now = stored(&cluster);
            assert!(now == bytes, "{written} bytes, then {length}: {} bytes", now.len());
        }
    }
}

/// What was cut off came back beneath what was written after it.
#[test]
fn bytes_that_were_cut_off_do_not_come_back_when_a_service_forgets_the_cut() {
    for written in [1_000, 10_000, 200_000] {
        for (length, then) in
            [(0, 300..600), (0, 300..90_000), (0, 20_000..30_000), (500, 700..800), (500, 700..40_000)]
        {
            let cluster = Cluster::new(2);
            let client = cluster.client();
            let file = create(&client, "f");
            let mut bytes = pattern(written as u64, written);
            file.write_at(&bytes, 0).unwrap();
            file.sync().unwrap();
            cut_in_vain(&cluster, &file, length as u64);
            bytes.resize(length, 0);
            bytes.resize(then.end, 0);
            let more = pattern(9, then.len());
            bytes[then.clone()].copy_from_slice(&more);
            file.write_at(&more, then.start as u64).unwrap();
            file.sync().unwrap();
            let now = stored(&cluster);
            let wrong = now.iter().zip(&bytes).position(|(now, then)| now != then);
            assert!(
                now == bytes,
                "{written} bytes, then {length}, then {then:?}: {} bytes, wrong at {wrong:?}",
                now.len()
            );
        }
    }
}
