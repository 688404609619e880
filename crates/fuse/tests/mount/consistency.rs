//! What two mounts see of each other: docs/semantics.md, "Consistency".

use crate::cluster::{errno, with_cluster};
use rustix::io::Errno;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

fn length(path: &Path) -> u64 {
    fs::metadata(path).expect("there").len()
}

#[test]
fn an_open_after_a_close_elsewhere_sees_all_of_it_whatever_was_known_before() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        for (round, bytes) in [10usize, 5000, 100, 300_000, 2_000_000, 50].into_iter().enumerate() {
            let contents = vec![round as u8 + 1; bytes];
            fs::write(a.path("f"), &contents).expect("written");
            // What b believes now it would believe for a second.
            assert_eq!(fs::read(b.path("f")).expect("readable"), contents, "round {round}");
            length(&b.path("f"));
            let mut file = fs::File::options().append(true).open(a.path("f")).expect("opened");
            file.write_all(b"more").expect("appended");
            drop(file);
            let seen = fs::read(b.path("f")).expect("readable");
            assert_eq!((seen.len(), &seen[bytes..]), (bytes + 4, &b"more"[..]), "round {round}");
        }
        a.unmount();
        b.unmount();
    });
}

#[test]
fn contents_of_the_same_length_are_not_taken_from_the_cache_of_before() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        for round in 0..20u8 {
            let contents = vec![round; 100_000];
            fs::write(a.path("f"), &contents).expect("written");
            assert!(fs::read(b.path("f")).expect("readable") == contents, "round {round}");
        }
        a.unmount();
        b.unmount();
    });
}

#[test]
fn an_fsync_is_enough_without_a_close() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        let mut file = fs::File::create(a.path("f")).expect("created");
        for round in 1..5usize {
            file.write_all(&vec![round as u8; 100_000]).expect("written");
            file.sync_all().expect("synced");
            let mut seen = Vec::new();
            fs::File::open(b.path("f")).expect("opened").read_to_end(&mut seen).expect("readable");
            assert_eq!(seen.len(), round * 100_000);
            assert!(seen[(round - 1) * 100_000..].iter().all(|&byte| byte == round as u8));
        }
        drop(file);
        a.unmount();
        b.unmount();
    });
}

#[test]
fn a_new_name_is_seen_at_once_and_a_removed_one_is_gone_within_the_timeout() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        assert_eq!(errno(fs::metadata(b.path("f"))), Errno::NOENT);
        fs::write(a.path("f"), b"x").expect("written");
        assert_eq!(length(&b.path("f")), 1, "absence is not remembered");
        fs::remove_file(a.path("f")).expect("removed");
        let clock = vazao_meter::clock::system();
        let start_ns = clock.now_ns();
        while fs::metadata(b.path("f")).is_ok() {
            assert!(clock.now_ns() - start_ns < 5_000_000_000, "the name lives on far beyond its second");
            clock.sleep(std::time::Duration::from_millis(20));
        }
        a.unmount();
        b.unmount();
    });
}

#[test]
fn of_several_mounts_that_create_one_name_exclusively_one_succeeds() {
    with_cluster(|cluster| {
        let mounts = [cluster.mount(), cluster.mount(), cluster.mount()];
        for round in 0..10 {
            let name = format!("lock{round}");
            let created: Vec<bool> = std::thread::scope(|scope| {
                let threads: Vec<_> = mounts
                    .iter()
                    .map(|m| {
                        let path = m.path(&name);
                        scope.spawn(move || fs::File::create_new(path).is_ok())
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            assert_eq!(created.iter().filter(|&&done| done).count(), 1, "round {round}");
        }
        mounts.into_iter().for_each(|m| m.unmount());
    });
}

#[test]
fn a_file_removed_by_another_mount_stays_readable_where_it_is_open() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        fs::write(a.path("f"), vec![5; 300_000]).expect("written");
        let mut file = fs::File::open(b.path("f")).expect("opened");
        fs::remove_file(a.path("f")).expect("removed");
        // Longer than a heartbeat and the removal of objects take.
        vazao_meter::Clock::sleep(&*vazao_meter::clock::system(), std::time::Duration::from_secs(3));
        let mut contents = Vec::new();
        file.read_to_end(&mut contents).expect("still readable");
        assert!(contents.len() == 300_000 && contents.iter().all(|&b| b == 5));
        drop(file);
        a.unmount();
        b.unmount();
    });
}
