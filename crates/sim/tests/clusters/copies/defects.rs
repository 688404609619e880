//! What is wrong on purpose in a cluster with copies: stories find each of it, and nothing where it is not
//! (docs/copies-and-servers.md has the list and its numbers).

use super::*;
use crate::seeds::wanted;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vazao_store::Defect as Inside;

/// A short story with these accidents.
const fn with(accidents: &'static [Accident]) -> Profile {
    Profile { accidents, rests: 1, ..USUAL }
}

/// The same with clients that try each change once: what they leave behind has to be evened out.
const fn impatient(accidents: &'static [Accident]) -> Profile {
    Profile { is_impatient: true, ..with(accidents) }
}

/// What the first story that fails says last, with its seed.
fn found_by(defect: Option<Defect>, profile: Profile, seeds: Range<u64>) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| {
        let mut story = Story::with(seed, 2 + seed as usize % 2, profile, defect);
        story.cluster.let_clocks_drift();
        let told = catch_unwind(AssertUnwindSafe(|| story.tell()));
        // What is left would only fail again while it is torn down.
        let panic = told.err().inspect(|_| std::mem::forget(story))?;
        let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Some((seed, said.lines().last().unwrap_or_default().to_owned()))
    })
}

/// A story of `usual` finds the defect, and the same story finds nothing without it. The first of these is the first
/// one of all that does.
#[track_caller]
fn is_found(defect: Defect, profile: Profile, usual: Range<u64>) {
    let found = found_by(Some(defect), profile, wanted(usual.clone()));
    eprintln!("{defect:?}: {found:?}");
    let (seed, said) = found.unwrap_or_else(|| panic!("no story of {usual:?} finds {defect:?}"));
    assert!(said.starts_with("seed "), "{said}");
    assert_eq!(found_by(None, profile, seed..seed + 1), None, "without the defect");
}

/// 1.
#[test]
fn a_member_that_takes_forwards_of_earlier_epochs_is_found() {
    is_found(Defect::StaleEpochs, impatient(&[Accident::Unheard]), 1..20);
}

/// 2.
#[test]
fn a_primary_that_does_not_wait_for_the_others_is_found() {
    is_found(Defect::UnawaitedForwards, with(USUAL.accidents), 0..20);
}

/// 3.
#[test]
fn a_primary_that_does_not_wait_for_its_grants_to_end_is_found() {
    is_found(Defect::UnwaitedGrants, impatient(&[Accident::Parted]), 0..20);
}

/// 4.
#[test]
fn a_member_that_counts_again_without_what_it_lacks_is_found() {
    is_found(Defect::UncomparedMember, with(USUAL.accidents), 0..20);
}

/// 4, of what it is known to have missed.
#[test]
fn a_member_that_counts_again_without_what_it_missed_is_found() {
    is_found(Defect::Inside(Inside::ForgottenMisses), with(USUAL.accidents), 0..20);
}

/// 9.
#[test]
fn a_member_that_lost_power_and_is_not_compared_is_found() {
    let profile = Profile { rests: 2, ..with(&[Accident::End, Accident::Cut, Accident::Nothing]) };
    is_found(Defect::Inside(Inside::ForgottenPower), profile, 0..40);
}

/// 5.
#[test]
fn a_new_primary_that_serves_before_it_has_evened_out_is_found() {
    is_found(Defect::UnlistedForwards, impatient(&[Accident::HalfDone]), 1..20);
}

/// 6.
#[test]
fn a_member_that_takes_what_was_given_up_is_found() {
    is_found(Defect::StaleStreams, with(&[Accident::Late]), 10..60);
}

/// 7.
#[test]
fn a_sync_that_is_answered_without_one_member_is_found() {
    let profile = Profile { rests: 2, ..with(&[Accident::Outage, Accident::Cut, Accident::Nothing]) };
    is_found(Defect::UnsyncedMember, profile, 0..20);
}

/// 8.
#[test]
fn a_record_that_is_told_before_it_is_durable_is_found() {
    let profile = Profile { rests: 2, ..with(&[Accident::Authority, Accident::Cut, Accident::OneWay]) };
    is_found(Defect::EarlyDecisions, profile, 0..20);
}

/// 10.
#[test]
fn an_older_copy_of_a_disk_that_is_taken_for_the_disk_is_found() {
    is_found(Defect::OldDisks, with(&[Accident::OldDisk, Accident::Nothing]), 1..20);
}

/// 11.
#[test]
fn a_lock_that_is_let_go_before_all_members_have_answered_is_found() {
    is_found(Defect::Inside(Inside::EarlyUnlock), impatient(&[Accident::Crossing]), 1..20);
}

/// 12.
#[test]
fn an_authority_that_puts_out_the_last_current_member_is_found() {
    is_found(Defect::LastPutOut, impatient(&[Accident::Last]), 0..20);
}

/// 15.
#[test]
fn a_process_that_does_not_wait_for_grants_of_the_one_before_is_found() {
    let profile = Profile { down_ms_max: 100, ..impatient(&[Accident::Restart]) };
    is_found(Defect::Inside(Inside::ForgottenGrants), profile, 0..20);
}

/// 16.
#[test]
fn a_promotion_that_does_not_count_once_it_was_asked_for_is_found() {
    is_found(Defect::Inside(Inside::UncountedPromotion), with(&[Accident::Promotion]), 0..20);
}
