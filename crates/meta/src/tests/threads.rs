//! Many clients at once, each in a thread of its own.

use super::harness::{TOP, World, options};
use crate::{Background, MetaOptions};
use std::sync::Arc;
use vazao_disk::MemoryDisk;
use vazao_model::{Code, FileKind};

const CLIENTS: usize = 4;
const EACH: usize = 150;

fn worlds(overlay_bytes_max: usize) -> Vec<World> {
    let embedded = MetaOptions { background: Background::Threads, overlay_bytes_max, ..options("embedded") };
    vec![World::new(), World::on(Arc::new(MemoryDisk::new(1)), embedded)]
}

#[test]
fn creates_in_one_directory_do_not_conflict() {
    for world in worlds(1 << 20) {
        let d = world.directory(TOP, "d");
        let before = world.service.metrics().conflicts.get();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let world = world.another_client();
                scope.spawn(move || {
                    (0..EACH).for_each(|n| {
                        world.file(d, &format!("{client} {n}"));
                    });
                });
            }
        });
        assert_eq!(world.names(d).len(), CLIENTS * EACH);
        // Opening a session conflicts with opening another one; creates do not with anything.
        assert_eq!(world.service.metrics().conflicts.get(), before);
        world.assert_consistent();
        world.service.close().unwrap();
    }
}

#[test]
fn a_name_that_many_want_goes_to_one_of_them() {
    for world in worlds(2000) {
        let winners: usize = std::thread::scope(|scope| {
            let one = |world: World| {
                move || (0..EACH).filter(|n| world.make(TOP, &format!("{n}"), FileKind::File).is_ok()).count()
            };
            let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one(world.another_client()))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(winners, EACH);
        assert_eq!(world.names(TOP).len(), EACH);
        world.assert_consistent();
    }
}

#[test]
fn renames_that_would_close_a_ring_do_not_both_happen() {
    for world in worlds(2000) {
        for round in 0..40 {
            let (a, b) = (format!("a{round}"), format!("b{round}"));
            let (ia, ib) = (world.directory(TOP, &a), world.directory(TOP, &b));
            let (one, two) = (world.another_client(), world.another_client());
            let outcomes: Vec<Result<_, Code>> = std::thread::scope(|scope| {
                let first = scope.spawn(|| one.rename((TOP, &a), (ib, "x"), 0).map(|_| ()));
                let second = scope.spawn(|| two.rename((TOP, &b), (ia, "x"), 0).map(|_| ()));
                vec![first.join().unwrap(), second.join().unwrap()]
            });
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
        }
        world.assert_consistent();
    }
}
