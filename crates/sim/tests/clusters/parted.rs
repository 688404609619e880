//! Stories in which links between any two machines are cut, machines pause and lose power, and what such stories
//! find.

use crate::seeds::wanted;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vazao_sim::parted::Tried;
use vazao_sim::{Defect, Parted};

/// Seeds of one run of this test.
const SEEDS: std::ops::Range<u64> = 0..24;

/// The same with copies, which take longer.
const COPIES_SEEDS: std::ops::Range<u64> = 2..4;

/// Seeds within which each defect is found: the first that find 6, 7 and 8 are 12, 2 and 12.
const FINDING_SEEDS: std::ops::Range<u64> = 0..30;

/// A client that had closed a file made it longer again by reading it.
#[test]
fn no_link_that_is_cut_costs_a_byte_or_a_deadline() {
    let (seeds, mut all) = (wanted(SEEDS), Tried::default());
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let tried = Parted::run(seed, 1);
        all.cuts += tried.cuts;
        all.pauses += tried.pauses;
        all.power_losses += tried.power_losses;
        all.reads += tried.reads;
        all.syncs += tried.syncs;
        all.failed += tried.failed;
    }
    let Tried { cuts, pauses, power_losses, reads, syncs, failed } = all;
    let counts = [cuts, pauses, power_losses, reads, syncs, failed];
    assert!(count < 2 || !counts.contains(&0), "something was not tried: {all:?}");
    eprintln!("{count} seeds: {all:?}");
}

/// Two copies, and three: a member that is cut off goes, catches up, and counts again.
#[test]
fn copies_stay_equal_and_nothing_is_lost_with_a_member() {
    for seed in wanted(COPIES_SEEDS) {
        for copies in [2, 3] {
            Parted::run(seed, copies);
        }
    }
}

/// The first seed whose story fails, with what it says.
fn found_by(defect: Defect) -> Option<(u64, String)> {
    FINDING_SEEDS.into_iter().find_map(|seed| {
        let mut story = Parted::new(seed, 1, Some(defect));
        let told = catch_unwind(AssertUnwindSafe(|| story.tell()));
        // What is left would only fail again while it is torn down.
        let panic = told.err().inspect(|_| std::mem::forget(story))?;
        Some((seed, panic.downcast_ref::<String>().cloned().unwrap_or_default()))
    })
}

/// Of the plan's list (docs/copies-and-servers.md), those with a place in clusters of one copy: 6, 7 and 8.
fn is_found(defect: Defect) {
    let found = found_by(defect);
    eprintln!("{defect:?}: {found:?}");
    let (_, said) = found.unwrap_or_else(|| panic!("no story of {FINDING_SEEDS:?} found {defect:?}"));
    assert!(said.contains("file "), "{said}");
}

#[test]
fn an_earlier_form_of_a_change_that_is_carried_out_late_is_found() {
    is_found(Defect::UnnumberedChanges);
}

#[test]
fn an_fsync_that_is_answered_without_one_data_server_is_found() {
    is_found(Defect::UnsyncedServer);
}

#[test]
fn a_metadata_service_that_answers_before_its_record_is_durable_is_found() {
    is_found(Defect::EarlyAnswers);
}
