//! Walks down a deep path, as the kernel makes them when it believes nothing of it any more.

use super::super::LEASE;
use super::super::tests::World;
use super::Walks;
use crate::filesystem::FileSystem;
use crate::filesystem::arguments::{Caller, Place};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_client::{Asked, Changes, Result};
use vazao_model::{Attributes, Code, InodeId};
use vazao_testing::waiting::wait_until;
use vazao_wire::Method;
use vazao_wire::inline::Fate;

const DEPTH: usize = 600;

/// How often a request for one directory may be repeated on a machine that stalls in between.
const SLACK: usize = 40;

/// A world with a path of so many directories, all called `d`, and what counts the looks at it.
fn deep() -> (World, Arc<AtomicUsize>) {
    let world = World::new();
    std::fs::create_dir_all(world.path(DEPTH)).expect("made");
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let count = move |_: &_, method| {
        counted.fetch_add(usize::from(method == Method::AreaStat), Ordering::Relaxed);
        Fate::Deliver
    };
    world.transport.set_fates(Some(Box::new(count)));
    (world, looks)
}

impl World {
    fn path(&self, depth: usize) -> std::path::PathBuf {
        self.directory.path().join("d/".repeat(depth))
    }

    fn step(&self, directory: InodeId) -> Result<Attributes> {
        let place = Place { directory, name: b"d" };
        self.areas.cached(place).map_or_else(|| self.areas.lookup(place), |(known, _)| known)
    }

    /// What the directories of the path are, from the top.
    fn walk(&self, depth: usize) -> Result<Vec<Attributes>> {
        let mut found: Vec<Attributes> = Vec::new();
        for _ in 0..depth {
            let directory = found.last().map_or(self.data, |above| above.inode);
            found.push(self.step(directory)?);
        }
        Ok(found)
    }
}

/// `cp -r` of a tree two thousand deep did not come to its end: each of its calls looked at all directories of a path
/// again, which took longer than what was seen was believed.
#[test]
fn a_deep_path_is_looked_at_again_with_few_requests() {
    let (world, looks) = deep();
    let first = world.walk(DEPTH).expect("is there");
    assert!(looks.swap(0, Ordering::Relaxed) >= DEPTH);
    let again = world.walk(DEPTH).expect("is there");
    let numbers = |found: &[Attributes]| found.iter().map(|one| one.inode).collect::<Vec<_>>();
    assert_eq!(numbers(&again), numbers(&first));
    assert!(looks.load(Ordering::Relaxed) <= SLACK, "{} requests", looks.load(Ordering::Relaxed));
    // All that the kernel was shown is counted, so that nothing stays when it has forgotten it.
    let counts = numbers(&first).into_iter().map(|inode| (inode, 2));
    let before = world.areas.table.lock().len();
    world.areas.forget(&mut { counts });
    assert_eq!(before - world.areas.table.lock().len(), DEPTH);
}

#[test]
fn what_was_asked_for_ahead_is_believed_no_longer_than_from_its_request() {
    let (world, _) = deep();
    let first = world.walk(3).expect("is there");
    world.step(world.data).expect("asked for with those below");
    let place = Place { directory: first[0].inode, name: b"d" };
    if let Some((_, asked)) = world.areas.cached(place) {
        let asked = asked.expect("it may be believed");
        assert!(world.areas.entry_lease(asked, place) < LEASE);
    }
    // Long ago, once this process is older than a lease.
    wait_until("the first moment is long ago", || world.areas.entry_lease(Asked::default(), place).is_zero());
}

#[test]
fn what_this_mount_has_changed_is_seen_at_once() {
    let (world, _) = deep();
    let found = world.walk(DEPTH).expect("is there");
    world.walk(DEPTH).expect("and remembered");
    let above = found[DEPTH - 2].inode;
    world.areas.remove_directory(Place { directory: above, name: b"d" }).expect("is empty");
    assert_eq!(world.walk(DEPTH).expect_err("is gone").code, Code::NotFound);
    let caller = Caller { uid: 0, gid: 0, thread: 0 };
    let changes = Changes { mode: Some(0o700), ..Changes::default() };
    world.areas.set_attributes(found[9].inode, &changes, caller, false).expect("changed");
    assert_eq!(world.walk(10).expect("is there")[9].mode & 0o777, 0o700);
}

#[test]
fn a_path_that_others_have_cut_ends_where_they_have() {
    let (world, _) = deep();
    world.walk(DEPTH).expect("is there");
    std::fs::rename(world.path(100), world.directory.path().join("away")).expect("moved");
    let found = world.walk(99).expect("is there");
    assert_eq!(world.step(found[98].inode).expect_err("was moved").code, Code::NotFound);
    std::fs::write(world.path(99).join("d"), b"a file").expect("written");
    let directory = found[98].inode;
    let file = world.areas.lookup(Place { directory, name: b"d" }).expect("is there");
    assert_eq!(file.kind, vazao_model::FileKind::File);
}

/// A change that ends while a request is under way may have come after it.
#[test]
fn what_was_asked_before_a_change_had_ended_is_not_kept() {
    let walks = Walks::default();
    let one = || [(InodeId(7), Attributes::default())].into_iter();
    walks.keep(walks.changes(), one(), Asked::default());
    assert!(walks.get(InodeId(7)).is_some());
    let (changing, before) = (walks.changing(), walks.changes());
    drop(changing);
    assert!(walks.is_empty());
    walks.keep(before, one(), Asked::default());
    assert!(walks.is_empty());
}
