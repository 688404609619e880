//! Two clients that write one file at the same time: each byte is one that somebody wrote there.

use super::{Cluster, create, pattern, read_all};
use crate::{Client, File, OpenMode};
use vazao_model::Code;
use vazao_model::ids::ROOT;
use vazao_model::limits::INLINE_BYTES_MAX;
use vazao_wire::inline::Fate;

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false };

/// One new file, open in two clients.
fn shared(cluster: &Cluster) -> (Client, Client, File, File) {
    let (one, two) = (cluster.client(), cluster.client());
    let first = create(&one, "shared");
    let second = two.open_file(first.inode(), BOTH).unwrap();
    (one, two, first, second)
}

fn contents(cluster: &Cluster) -> Vec<u8> {
    let client = cluster.client();
    let inode = client.lookup(ROOT, b"shared").unwrap().inode;
    read_all(&client.open_file(inode, BOTH).unwrap())
}

/// Two mounts wrote different parts of a new file and fsynced them: the later fsync stored the zeros that it saw where
/// the other one had written.
#[test]
fn halves_of_one_file_that_two_clients_write_are_both_there() {
    for half in [1usize, 100, 4_000, INLINE_BYTES_MAX / 2, 10_000, INLINE_BYTES_MAX, 40_000, 300_000] {
        for synced_before in [false, true] {
            let cluster = Cluster::new(2);
            let (_one, _two, first, second) = shared(&cluster);
            let bytes = pattern(half as u64, 2 * half);
            first.write_at(&bytes[..half], 0).unwrap();
            if synced_before {
                first.sync().unwrap();
            }
            second.write_at(&bytes[half..], half as u64).unwrap();
            second.sync().unwrap();
            first.sync().unwrap();
            assert!(contents(&cluster) == bytes, "halves of {half} bytes, synced before: {synced_before}");
            assert!(read_all(&first) == bytes, "the first sees both");
            first.close().unwrap();
            second.close().unwrap();
            assert!(contents(&cluster) == bytes, "halves of {half} bytes, closed");
        }
    }
}

/// One mount kept a small part unreported while another made the file outgrow its record: the close of the first ended
/// with ESTALE, for a file that nobody had removed, and what it had written was gone.
#[test]
fn what_was_written_into_a_small_file_follows_it_when_another_client_makes_it_large() {
    let cluster = Cluster::new(3);
    let (_one, _two, first, second) = shared(&cluster);
    let bytes = pattern(7, 200_000);
    first.write_at(&bytes[..2_000], 0).unwrap();
    first.sync().unwrap();
    first.write_at(&bytes[5_000..6_000], 5_000).unwrap();
    second.write_at(&bytes[2_000..5_000], 2_000).unwrap();
    second.write_at(&bytes[6_000..], 6_000).unwrap();
    second.close().unwrap();
    first.close().unwrap();
    assert!(contents(&cluster) == bytes);
}

#[test]
fn a_client_with_unreported_bytes_reads_what_another_made_of_the_file_once_it_reports() {
    let cluster = Cluster::new(2);
    let (_one, two, first, second) = shared(&cluster);
    first.write_at(b"mine", 0).unwrap();
    second.write_at(&[5; 100_000], 4).unwrap();
    second.flush().unwrap();
    let again = two.open_file(first.inode(), BOTH).unwrap();
    assert_eq!(read_all(&again).len(), 100_004);
    first.flush().unwrap();
    let mut seen = vec![0; 100_004];
    assert_eq!(first.read_at(&mut seen, 0).unwrap(), 100_004);
    assert!(&seen[..4] == b"mine" && seen[4..].iter().all(|byte| *byte == 5));
}

#[test]
fn records_of_two_clients_that_take_turns_are_all_there() {
    for record in [10usize, 1_000, 5_000] {
        let cluster = Cluster::new(2);
        let (_one, _two, first, second) = shared(&cluster);
        let bytes = pattern(record as u64, 24 * record);
        for (number, part) in bytes.chunks(record).enumerate() {
            let writer = if number % 2 == 0 { &first } else { &second };
            writer.write_at(part, (number * record) as u64).unwrap();
            if number % 3 == 0 {
                writer.sync().unwrap();
            }
        }
        first.close().unwrap();
        second.close().unwrap();
        assert!(contents(&cluster) == bytes, "records of {record} bytes");
    }
}

#[test]
fn a_file_that_two_clients_outgrow_at_once_gets_one_layout() {
    let cluster = Cluster::new(2);
    let (one, _two, first, second) = shared(&cluster);
    let bytes = pattern(3, 60_000);
    first.write_at(&bytes[..10_000], 0).unwrap();
    first.sync().unwrap();
    second.write_at(&bytes[10_000..15_000], 10_000).unwrap();
    first.write_at(&bytes[15_000..40_000], 15_000).unwrap();
    second.write_at(&bytes[40_000..], 40_000).unwrap();
    second.sync().unwrap();
    first.sync().unwrap();
    assert!(contents(&cluster) == bytes);
    let inode = one.lookup(ROOT, b"shared").unwrap().inode;
    assert!(cluster.meta.inode(inode.0).contents.is_empty());
}

/// A hole that one client makes is not filled by the copy of another.
#[test]
fn a_range_zeroed_by_one_client_stays_zero_when_another_reports() {
    let cluster = Cluster::new(1);
    let (_one, _two, first, second) = shared(&cluster);
    first.write_at(&[1; 9_000], 0).unwrap();
    first.flush().unwrap();
    let third = cluster.client();
    let third = third.open_file(first.inode(), BOTH).unwrap();
    second.zero(0..9_000).unwrap();
    second.flush().unwrap();
    third.write_at(&[3; 10], 8_000).unwrap();
    third.flush().unwrap();
    let seen = contents(&cluster);
    assert!(seen.len() == 9_000 && seen[..8_000].iter().all(|byte| *byte == 0));
    assert_eq!(&seen[8_000..8_011], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0]);
}

/// A report that failed beneath a lock was sent again when the lock was another client's already: it put the old bytes
/// over what that one had written and synced. Found by cutting a mount off for longer than its deadline.
#[test]
fn what_could_not_be_reported_under_a_lock_is_not_reported_after_it() {
    let cluster = Cluster::new(1);
    let (_one, _two, first, second) = shared(&cluster);
    first.write_at(b"11", 0).unwrap();
    first.sync().unwrap();
    first.write_at(b"12", 0).unwrap();
    cluster.transport.set_fates(Some(Box::new(|_, _| Fate::LoseRequest)));
    assert_eq!(first.flush_under_lock().map_err(|error| error.code), Err(Code::Timeout));
    cluster.transport.set_fates(None);
    // The lock is the second one's now.
    second.write_at(b"13", 0).unwrap();
    second.sync().unwrap();
    assert_eq!(first.sync(), Ok(()), "the failure was told by the call that met it");
    assert_eq!((contents(&cluster), read_all(&first)), (b"13".to_vec(), b"13".to_vec()));
    first.close().unwrap();
    assert_eq!(contents(&cluster), b"13");
}
