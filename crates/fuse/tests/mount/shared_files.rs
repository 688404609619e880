//! Several mounts that write one file at the same time: docs/semantics.md, "Consistency".

use crate::cluster::{Cluster, Mounted, with_cluster};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

fn open(m: &Mounted, flags: i32) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).custom_flags(flags).open(m.path("shared")).expect("opened")
}

/// Bytes of which no two neighbours are alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8 + 1).collect()
}

fn read_everywhere(mounts: &[&Mounted], wanted: &[u8], what: &str) {
    for (reader, m) in mounts.iter().enumerate() {
        let seen = fs::read(m.path("shared")).expect("readable");
        let wrong = seen.iter().zip(wanted).position(|(a, b)| a != b);
        assert_eq!(
            (seen.len(), wrong),
            (wanted.len(), None),
            "{what}, mount {reader}: length, first wrong byte"
        );
    }
}

/// Each of two mounts writes one half of a new file, in this way.
fn both_halves_are_there(
    cluster: &Cluster,
    half: usize,
    what: &str,
    write: impl Fn(&File, &[u8], u64),
    flags: i32,
) {
    let (a, b) = (cluster.mount(), cluster.mount());
    let (first, second) = (open(&a, flags), open(&b, flags));
    let bytes = pattern(2 * half);
    write(&first, &bytes[..half], 0);
    write(&second, &bytes[half..], half as u64);
    drop((first, second));
    read_everywhere(&[&a, &b], &bytes, what);
    fs::remove_file(a.path("shared")).expect("removed");
    a.unmount();
    b.unmount();
}

fn write_synced(file: &File, bytes: &[u8], offset: u64) {
    file.write_all_at(bytes, offset).expect("written");
    file.sync_all().expect("synced");
}

/// Two mounts wrote different parts of a new file of up to 16 KiB, and fsync returned 0 in both: what the first had
/// written was zeros. Beyond 16 KiB it was the mount that moved the contents to objects last whose view of them stayed.
#[test]
fn halves_that_two_mounts_write_and_sync_are_both_there() {
    with_cluster(|cluster| {
        for half in [100, 4_000, 8_192, 10_000, 16_384, 30_000, 1_000_000] {
            both_halves_are_there(cluster, half, &format!("halves of {half}, fsync"), write_synced, 0);
        }
    });
}

#[test]
fn halves_that_two_mounts_write_with_synchronous_or_direct_writes_are_both_there() {
    with_cluster(|cluster| {
        let plain = |file: &File, bytes: &[u8], offset| file.write_all_at(bytes, offset).expect("written");
        let (sync, direct) =
            (rustix::fs::OFlags::SYNC.bits() as i32, rustix::fs::OFlags::DIRECT.bits() as i32);
        both_halves_are_there(cluster, 4_096, "O_SYNC", plain, sync);
        both_halves_are_there(cluster, 4_096, "O_DIRECT", plain, direct);
        both_halves_are_there(cluster, 12_288, "O_SYNC, outgrown", plain, sync);
        both_halves_are_there(cluster, 12_288, "O_DIRECT, outgrown", plain, direct);
    });
}

#[test]
fn halves_that_two_mounts_write_under_a_lock_are_both_there() {
    with_cluster(|cluster| {
        let locked = |file: &File, bytes: &[u8], offset| {
            flock(file, FlockOperation::LockExclusive).expect("locked");
            file.write_all_at(bytes, offset).expect("written");
            flock(file, FlockOperation::Unlock).expect("unlocked");
        };
        for half in [4_000, 12_000] {
            both_halves_are_there(cluster, half, &format!("halves of {half}, flock"), locked, 0);
        }
    });
}

/// Regression: one mount fsynced 2,000 bytes, the other wrote 38,000 behind them and closed. The 38,000 were lost, or
/// the close of the first failed with ESTALE.
#[test]
fn a_file_that_grows_in_two_mounts_keeps_what_both_have_written() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        let bytes = pattern(40_000);
        let (first, second) = (open(&a, 0), open(&b, 0));
        write_synced(&first, &bytes[..1_000], 0);
        first.write_all_at(&bytes[1_000..2_000], 1_000).expect("written");
        second.write_all_at(&bytes[2_000..], 2_000).expect("written");
        second.sync_all().expect("synced");
        first.sync_all().expect("the file was never removed");
        drop((first, second));
        read_everywhere(&[&a, &b], &bytes, "grown in both");
        a.unmount();
        b.unmount();
    });
}

/// A sparse file of 1 MiB lost its first page when another mount had written it before the file outgrew its record.
#[test]
fn a_sparse_file_keeps_its_first_page() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        let (first, second) = (open(&a, 0), open(&b, 0));
        first.set_len(1 << 20).expect("extended");
        let mut bytes = vec![0; 1 << 20];
        for page in 0..256usize {
            let file = if page % 2 == 0 { &first } else { &second };
            let at = page * 4_096;
            bytes[at..at + 4_096].fill(page as u8 | 1);
            file.write_all_at(&bytes[at..at + 4_096], at as u64).expect("written");
        }
        second.sync_all().expect("synced");
        first.sync_all().expect("synced");
        drop((first, second));
        read_everywhere(&[&a, &b], &bytes, "sparse");
        a.unmount();
        b.unmount();
    });
}

/// Records of 1,000 bytes that four writers on two mounts put at places of their own, with and without fsync: lost in
/// each of 24 rounds.
#[test]
fn records_of_four_writers_on_two_mounts_are_all_there() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        for round in 0..6usize {
            let records = [8, 16, 40, 100, 12, 300][round];
            let bytes = pattern(records * 1_000);
            std::thread::scope(|scope| {
                for who in 0..4usize {
                    let (m, bytes) = (if who % 2 == 0 { &a } else { &b }, &bytes);
                    scope.spawn(move || write_records(&m.path("shared"), bytes, who, round));
                }
            });
            read_everywhere(&[&a, &b], &bytes, &format!("round {round}"));
            fs::remove_file(a.path("shared")).expect("removed");
        }
        a.unmount();
        b.unmount();
    });
}

fn write_records(path: &Path, bytes: &[u8], who: usize, round: usize) {
    let mut options = File::options();
    options.read(true).write(true).create(true);
    let mut file = options.open(path).expect("opened");
    for (number, record) in bytes.chunks(1_000).enumerate().filter(|(number, _)| number % 4 == who) {
        if (number / 4 + round).is_multiple_of(3) {
            file = options.open(path).expect("opened");
        }
        file.write_all_at(record, number as u64 * 1_000).expect("written");
        if (number / 4 + round).is_multiple_of(2) {
            file.sync_all().expect("synced");
        }
    }
    file.sync_all().expect("synced");
}
