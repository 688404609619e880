//! What two mounts see of each other: docs/semantics.md, "Consistency".

use crate::cluster::{Mounted, errno, with_cluster};
use rustix::io::Errno;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

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
            // What b believes now it would believe for the length of a lease.
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

/// What a change elsewhere may take to arrive, on a machine that has other things to do. Far below the lease, so that a
/// change that was never told would not pass for a late one.
const TOLD_MS_MAX: u64 = 10_000;

pub(crate) fn soon(what: &str, mut so: impl FnMut() -> bool) {
    let clock = vazao_meter::clock::system();
    let start_ns = clock.now_ns();
    while !so() {
        assert!(clock.now_ns() - start_ns < TOLD_MS_MAX * 1_000_000, "not told: {what}");
        clock.sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn names_that_come_go_and_move_are_told_to_the_other_mount_whatever_it_believed() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        for round in 0..10 {
            assert_eq!(errno(fs::metadata(b.path("f"))), Errno::NOENT);
            fs::write(a.path("f"), b"x").expect("written");
            soon("a name that was believed to be absent", || b.path("f").exists());
            fs::rename(a.path("f"), a.path("g")).expect("renamed");
            soon("a rename", || !b.path("f").exists() && b.path("g").exists());
            fs::write(a.path("h"), b"other").expect("written");
            fs::rename(a.path("h"), a.path("g")).expect("replaced");
            soon("a replaced file", || length(&b.path("g")) == 5);
            fs::remove_file(a.path("g")).expect("removed");
            soon("a removed name", || !b.path("g").exists());
            let directory = format!("d{round}");
            fs::create_dir(a.path(&directory)).expect("made");
            soon("a directory", || b.path(&directory).is_dir());
            fs::remove_dir(a.path(&directory)).expect("removed");
            soon("a removed directory", || !b.path(&directory).exists());
        }
        a.unmount();
        b.unmount();
    });
}

#[test]
fn attributes_that_change_are_told_to_the_other_mount() {
    use std::os::unix::fs::PermissionsExt;
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        fs::create_dir(a.path("d")).expect("made");
        fs::write(a.path("d/f"), b"x").expect("written");
        for round in 1..10u32 {
            let mode = 0o600 + round;
            let before = fs::metadata(b.path("d")).expect("there").modified().expect("a time");
            fs::set_permissions(a.path("d/f"), fs::Permissions::from_mode(mode)).expect("changed");
            soon("a mode", || {
                fs::metadata(b.path("d/f")).expect("there").permissions().mode() & 0o777 == mode
            });
            fs::write(a.path("d/f"), vec![1; round as usize * 5000]).expect("written");
            soon("a length", || length(&b.path("d/f")) == u64::from(round) * 5000);
            fs::write(a.path(format!("d/{round}")), b"").expect("written");
            soon("times of a directory", || {
                fs::metadata(b.path("d")).expect("there").modified().expect("a time") != before
            });
        }
        a.unmount();
        b.unmount();
    });
}

#[test]
fn a_file_that_stays_open_shows_what_the_other_mount_writes() {
    use std::os::unix::fs::FileExt;
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        for bytes in [100usize, 3_000_000] {
            fs::write(a.path("f"), vec![0; bytes]).expect("written");
            let open = fs::File::open(b.path("f")).expect("opened");
            for round in 1..6u8 {
                let contents = vec![round; bytes];
                let file = fs::File::options().write(true).open(a.path("f")).expect("opened");
                file.write_all_at(&contents, 0).expect("written");
                drop(file);
                soon("contents", || {
                    let mut seen = vec![0; bytes];
                    open.read_exact_at(&mut seen, 0).is_ok() && seen == contents
                });
            }
        }
        a.unmount();
        b.unmount();
    });
}

#[test]
fn what_is_known_here_costs_no_request_while_nobody_changes_it() {
    with_cluster(|cluster| {
        let m = cluster.mount();
        fs::create_dir(m.path("d")).expect("made");
        fs::write(m.path("d/f"), b"x").expect("written");
        let look = || {
            assert_eq!(length(&m.path("d/f")), 1);
            assert_eq!(errno(fs::metadata(m.path("d/none"))), Errno::NOENT);
        };
        // The first request for changes may still be on its way; until it was answered nothing is believed.
        soon("the kernel remembers", || {
            look();
            let before = cluster.requests();
            look();
            cluster.requests() == before
        });
        m.unmount();
    });
}

#[test]
fn after_the_metadata_service_was_away_nothing_from_before_is_believed() {
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        fs::write(a.path("f"), b"x").expect("written");
        for round in 2..5usize {
            assert!(length(&b.path("f")) > 0 && !b.path(format!("new{round}")).exists());
            cluster.stop_server(0);
            cluster.start_server(0);
            fs::write(a.path("f"), vec![1; round]).expect("written");
            fs::write(a.path(format!("new{round}")), b"x").expect("written");
            soon("a length", || length(&b.path("f")) == round as u64);
            soon("a name", || b.path(format!("new{round}")).exists());
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

/// Regression: a mount that has made a directory caches all its names. It got no invalidation when another mount made a
/// name that it had looked up in vain, and did not see the name for half a minute.
#[test]
fn a_name_that_was_looked_for_in_a_directory_of_ones_own_is_seen_when_another_makes_it() {
    with_cluster(|cluster| {
        let (first, second) = (cluster.mount(), cluster.mount());
        fs::create_dir(first.path("d")).expect("created");
        assert!(fs::metadata(first.path("d/f")).is_err());
        assert!(fs::metadata(second.path("d/f")).is_err());
        fs::write(second.path("d/f"), b"here").expect("written");
        let clock = vazao_meter::clock::system();
        let deadline_ns = clock.now_ns() + 5_000_000_000;
        while fs::metadata(first.path("d/f")).is_err() {
            assert!(clock.now_ns() < deadline_ns, "the other mount's file is not seen");
            clock.sleep(std::time::Duration::from_millis(2));
        }
        first.unmount();
        second.unmount();
    });
}

/// After a rename the kernel believes the new name for as long as the old one, but the metadata service was not told
/// that the mount knows it: what another mount did to that name was seen half a minute late.
#[test]
fn a_name_that_came_by_rename_is_known_to_be_gone_when_another_mount_removes_it() {
    with_cluster(|cluster| {
        let (first, second) = (cluster.mount(), cluster.mount());
        fs::write(first.path("old"), b"x").expect("written");
        assert!(fs::metadata(first.path("old")).is_ok());
        fs::rename(first.path("old"), first.path("new")).expect("renamed");
        fs::remove_file(second.path("new")).expect("removed");
        let clock = vazao_meter::clock::system();
        let deadline_ns = clock.now_ns() + 5_000_000_000;
        while fs::metadata(first.path("new")).is_ok() {
            assert!(clock.now_ns() < deadline_ns, "the name that was removed is still seen");
            clock.sleep(std::time::Duration::from_millis(2));
        }
        first.unmount();
        second.unmount();
    });
}

/// Race: a kernel moves what it believes a name to lead to. A file that another mount had put there an instant before
/// got the new name on the servers, while the renaming mount showed the old file there for up to 30 seconds.
#[test]
fn renames_that_cross_those_of_another_mount_leave_the_same_names_in_both() {
    const ROUNDS: usize = 300;
    const TIMEOUT_NS: u64 = 3_000_000_000;
    with_cluster(|cluster| {
        let (a, b) = (cluster.mount(), cluster.mount());
        let clock = vazao_meter::clock::system();
        for round in 0..ROUNDS {
            let path = |m: &Mounted, name: &str| m.path(format!("{name}-{round}"));
            fs::write(path(&a, "from"), b"one").expect("written");
            fs::write(path(&a, "other"), b"two").expect("written");
            let inode = |m: &Mounted, name: &str| fs::symlink_metadata(path(m, name)).ok().map(|it| it.ino());
            let names = |m: &Mounted| ["from", "to", "other"].map(|name| inode(m, name));
            assert_eq!(names(&a), names(&b), "round {round}, before");
            let start = Barrier::new(2);
            let rename = |m: &Mounted, from: &str, to: &str| {
                start.wait();
                fs::rename(path(m, from), path(m, to)).expect("both are there, whoever comes first");
            };
            std::thread::scope(|scope| {
                scope.spawn(|| rename(&a, "from", "to"));
                rename(&b, "other", "from");
            });
            let deadline_ns = clock.now_ns() + TIMEOUT_NS;
            while names(&a) != names(&b) {
                assert!(clock.now_ns() < deadline_ns, "round {round}: {:?} {:?}", names(&a), names(&b));
                clock.sleep(Duration::from_millis(1));
            }
            let contents = |m: &Mounted| fs::read(path(m, "to")).expect("readable");
            assert_eq!(contents(&a), contents(&b), "round {round}");
        }
        a.unmount();
        b.unmount();
    });
}
