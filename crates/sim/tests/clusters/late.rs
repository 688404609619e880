//! Requests that arrive after they were sent again, and after what is newer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use vazao_client::{File, NewInode, OpenMode};
use vazao_model::ids::ROOT;
use vazao_sim::network::Weather;
use vazao_sim::{Cluster, ClusterOptions, Defect, Profile, Story};

/// Stories in which the defect is to be found.
const SEEDS: std::ops::Range<u64> = 0..6;

const MODE: OpenMode = OpenMode { read: true, write: true, truncate: false };

fn profile(defect: Option<Defect>) -> Profile {
    let weather = Weather { late: 150, ..Weather::default() };
    let (kills, power_losses, is_full) = (0, 0, false);
    Profile { clients: 2, data_servers: 2, steps: 250, weather, kills, power_losses, is_full, defect }
}

/// A byte of a file that was written over again and again, each time whole, and is not the newest; with its place.
fn old_byte(seed: u64, defect: Option<Defect>) -> Option<(usize, u8)> {
    const LENGTH: usize = 200_000;
    let cluster = Cluster::new(ClusterOptions { seed, data_servers: 2, down_ms_max: 500 });
    defect.into_iter().for_each(|defect| cluster.plant(defect));
    let client = cluster.client(0);
    let new = NewInode { mode: 0o600, ..Default::default() };
    let inode = client.create(ROOT, b"f", &new).expect("fair weather").inode;
    let file = client.open_file(inode, MODE).expect("fair weather");
    for round in 1..=20u8 {
        cluster.set_weather(Weather { late: 300, ..Weather::default() });
        file.write_at(&[round; LENGTH], 0).expect("nothing is lost");
        file.flush().expect("nothing is lost");
    }
    cluster.heal();
    let file = cluster.client(1).open_file(inode, MODE).expect("fair weather");
    let mut found = vec![0; LENGTH];
    assert_eq!(file.read_at(&mut found, 0).expect("fair weather"), LENGTH);
    found.iter().position(|byte| *byte != 20).map(|at| (at, found[at]))
}

/// A data server was stopped for 15 s; what lay in its socket was carried out over what was written since.
#[test]
fn a_write_that_arrives_after_its_repetition_does_not_undo_a_newer_one() {
    let seeds = 0..20;
    assert_eq!(seeds.clone().find_map(|seed| old_byte(seed, None)), None);
    let found = seeds.clone().find_map(|seed| old_byte(seed, Some(Defect::UnnumberedChanges)));
    assert!(found.is_some(), "no late write among {seeds:?} undoes anything");
}

/// A change of a file.
type Change = dyn Fn(&File) -> vazao_client::Result<()>;

/// A program that was told that its write failed wrote again, and the first write was carried out after that.
#[test]
fn a_change_that_was_given_up_does_not_undo_a_newer_one() {
    const LENGTH: usize = 5_000;
    let cut = |file: &File| file.set_length(100);
    let write = |file: &File| file.write_at(&[2; LENGTH], 0).and_then(|_| file.flush());
    for change in [&write as &Change, &cut] {
        let cluster = Cluster::new(ClusterOptions { seed: 1, data_servers: 1, down_ms_max: 500 });
        let client = cluster.client(0);
        let new = NewInode { mode: 0o600, ..Default::default() };
        let inode = client.create(ROOT, b"f", &new).expect("fair weather").inode;
        let file = client.open_file(inode, MODE).expect("fair weather");
        // Too much for the inode's record.
        file.write_at(&[1; 100_000], 0).and_then(|_| file.flush()).expect("fair weather");
        cluster.set_weather(Weather { late: 1000, ..Weather::default() });
        let fault = change(&file).expect_err("nothing is carried out in time");
        assert!(fault.code.is_silence(), "{fault}");
        cluster.set_weather(Weather::default());
        file.write_at(&[3; LENGTH], 0).and_then(|_| file.flush()).expect("fair weather");
        // What is late arrives after so many others.
        for number in 0..50 {
            let other = file.write_at(&[number], 50_000).and_then(|_| file.flush());
            other.expect("fair weather");
        }
        let mut found = vec![0; LENGTH];
        let there = cluster.client(1).open_file(inode, MODE).expect("fair weather");
        assert_eq!(there.read_at(&mut found, 0).expect("fair weather"), LENGTH);
        assert!(found == [3; LENGTH], "first wrong: {:?}", found.iter().find(|byte| **byte != 3));
    }
}

/// The first of `SEEDS` whose story fails.
fn found_by(profile: Profile) -> Option<u64> {
    let is_found = |seed: &u64| {
        let mut story = Story::new(*seed, profile);
        let told = catch_unwind(AssertUnwindSafe(|| story.tell()));
        // What is left would only fail again while it is torn down.
        told.is_err().then(|| std::mem::forget(story)).is_some()
    };
    SEEDS.clone().find(is_found)
}

#[test]
fn stories_with_late_requests_find_clients_that_do_not_number_their_changes() {
    let found = found_by(profile(Some(Defect::UnnumberedChanges)));
    assert!(found.is_some(), "no story of {SEEDS:?} found it");
    SEEDS.for_each(|seed| Story::run(seed, profile(None)));
}

#[test]
fn stories_find_writes_that_are_answered_and_not_carried_out() {
    let calm = Profile { weather: Weather::default(), ..profile(Some(Defect::SwallowedWrites)) };
    assert!(found_by(calm).is_some(), "no story of {SEEDS:?} found it");
}
