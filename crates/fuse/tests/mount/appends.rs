//! Several mounts that append to one file: docs/semantics.md, "Consistency".

use crate::cluster::{Cluster, Mounted, with_cluster};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};

fn appender(m: &Mounted, read: bool) -> File {
    File::options().append(true).read(read).create(true).open(m.path("log")).expect("opened")
}

/// Appends numbered records through every mount at once, and looks whether each is there once and whole.
fn all_records_are_there(cluster: &Cluster, record_bytes: usize, records: usize, reopen: bool) {
    let mounts = [cluster.mount(), cluster.mount(), cluster.mount()];
    std::thread::scope(|scope| {
        for (who, m) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let mut file = appender(m, who == 0);
                for number in 0..records {
                    let mut record = format!("{who} {number} ").into_bytes();
                    record.resize(record_bytes - 1, b'x');
                    record.push(b'\n');
                    if reopen {
                        file = appender(m, who == 0);
                    }
                    file.write_all(&record).expect("appended");
                }
            });
        }
    });
    for (reader, m) in mounts.iter().enumerate() {
        let mut text = String::new();
        File::open(m.path("log")).expect("there").read_to_string(&mut text).expect("text");
        assert_eq!(text.len(), mounts.len() * records * record_bytes);
        let seen: BTreeSet<&str> = text.lines().collect();
        assert_eq!(seen.len(), mounts.len() * records, "records were lost or torn");
        let torn = seen.iter().find(|line| line.len() + 1 != record_bytes || line.contains('\0'));
        let torn = torn.map(|line| (line.len(), line.chars().take(12).collect::<String>(), text.find(*line)));
        assert_eq!(torn, None, "mount {reader} sees a torn record: its length, beginning and place");
    }
    fs::remove_file(mounts[0].path("log")).expect("removed");
    mounts.into_iter().for_each(|m| m.unmount());
}

#[test]
fn records_that_three_mounts_append_to_a_small_file_are_all_there() {
    with_cluster(|cluster| all_records_are_there(cluster, 20, 40, false));
}

#[test]
fn records_that_three_mounts_append_to_a_striped_file_are_all_there() {
    with_cluster(|cluster| all_records_are_there(cluster, 10_007, 40, false));
}

#[test]
fn records_of_programs_that_open_the_file_for_each_are_all_there() {
    with_cluster(|cluster| all_records_are_there(cluster, 50, 25, true));
}

#[test]
fn who_appends_alone_reads_what_it_has_written_and_leaves_nothing_behind() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        let mut file = appender(&a, true);
        for number in 0..100u8 {
            file.write_all(&[number; 100]).expect("appended");
            assert_eq!(fs::read(a.path("log")).expect("readable").len(), (usize::from(number) + 1) * 100);
        }
        drop(file);
        let mut file = appender(&b, false);
        file.write_all(b"more").expect("nobody has the end any more");
        drop(file);
        assert!(fs::read(a.path("log")).expect("readable").ends_with(b"cccmore"));
        a.unmount();
        b.unmount();
    });
}

/// Three writers on each of two mounts opened the file, appended some records and closed it, again and again: the
/// release of the file's end by a last close came late, named no owner, and took the end from the open that followed.
/// Some of 10,000 records were overwritten.
#[test]
fn records_of_batches_between_which_the_file_is_closed_are_all_there() {
    const BATCHES: usize = 120;
    const BATCH: usize = 5;
    with_cluster(|cluster| {
        let mounts = [cluster.mount(), cluster.mount()];
        std::thread::scope(|scope| {
            for who in 0..6usize {
                let m = &mounts[who % 2];
                scope.spawn(move || {
                    for batch in 0..BATCHES {
                        let mut file = appender(m, false);
                        for number in 0..BATCH {
                            let record = format!("{who} {batch} {number} {}\n", "x".repeat(60 + batch % 37));
                            file.write_all(record.as_bytes()).expect("appended");
                        }
                    }
                });
            }
        });
        for m in &mounts {
            let text = fs::read_to_string(m.path("log")).expect("text");
            let heads: BTreeSet<&str> =
                text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(head, _)| head).collect();
            let lost: Vec<String> = (0..6)
                .flat_map(|who| {
                    (0..BATCHES).flat_map(move |b| (0..BATCH).map(move |n| format!("{who} {b} {n}")))
                })
                .filter(|head| !heads.contains(head.as_str()))
                .collect();
            assert_eq!((lost.len(), text.lines().count()), (0, 6 * BATCHES * BATCH), "lost: {lost:?}");
        }
        mounts.into_iter().for_each(|m| m.unmount());
    });
}
