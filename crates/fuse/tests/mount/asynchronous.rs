//! Many creations and removals at once: most of them are begun and not waited for (`kernel/begun.rs`).

use super::cluster::with_cluster;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const THREADS: usize = 8;

#[test]
fn many_creations_and_removals_at_once_do_each_what_they_say() {
    with_cluster(|cluster| {
        let m = cluster.mount();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let m = &m;
                scope.spawn(move || {
                    for number in 0..200 {
                        let own = m.path(format!("{thread}-{number}"));
                        File::create_new(&own).expect("it is new");
                        let again = File::create_new(&own).expect_err("it is there");
                        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
                        fs::remove_file(&own).expect("it was there");
                        let gone = fs::remove_file(&own).expect_err("it is gone");
                        assert_eq!(gone.kind(), ErrorKind::NotFound);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(m.root()).expect("listed").count(), 0);
        m.unmount();
    });
}

#[test]
fn exactly_one_of_many_creators_of_a_name_makes_it() {
    with_cluster(|cluster| {
        let m = cluster.mount();
        for round in 0..50 {
            let path = m.path(format!("r{round}"));
            let created: usize = std::thread::scope(|scope| {
                let race = |_| scope.spawn(|| usize::from(File::create_new(&path).is_ok()));
                let racers: Vec<_> = (0..THREADS).map(race).collect();
                racers.into_iter().map(|racer| racer.join().expect("no panic")).sum()
            });
            assert_eq!(created, 1);
        }
        m.unmount();
    });
}

#[test]
fn creations_and_removals_under_way_are_carried_out_once_over_restarts_of_the_metadata_service() {
    with_cluster(|cluster| {
        let m = cluster.mount();
        let created = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (m, created) = (&m, &created);
                    scope.spawn(move || {
                        for number in 0..24 {
                            let own = m.path(format!("{thread}-{number}"));
                            File::create_new(&own).expect("it is new, late at worst");
                            created.fetch_add(1, Ordering::Relaxed);
                            if number % 2 == 0 {
                                fs::remove_file(&own).expect("it was there");
                            }
                        }
                    })
                })
                .collect();
            let clock = vazao_meter::clock::system();
            let is_over = || workers.iter().all(|worker| worker.is_finished());
            while !is_over() {
                clock.sleep(Duration::from_millis(100));
                cluster.stop_server(0);
                clock.sleep(Duration::from_millis(300));
                let before = created.load(Ordering::Relaxed);
                cluster.start_server(0);
                // A busy machine gets nothing done in a tenth of a second.
                while created.load(Ordering::Relaxed) == before && !is_over() {
                    clock.sleep(Duration::from_millis(5));
                }
            }
            workers.into_iter().for_each(|worker| worker.join().expect("no call failed"));
        });
        assert_eq!(fs::read_dir(m.root()).expect("listed").count(), THREADS * 12);
        m.unmount();
    });
}
