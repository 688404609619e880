//! Each process ends at every step of its start, and no call fails for what would have passed by itself.

use crate::seeds::wanted;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vazao_sim::{Defect, Starts};

/// Seeds of one run of this test.
const SEEDS: std::ops::Range<u64> = 0..2;

/// A disk that was mounted after its server had started could neither be read nor written; callers that met a server
/// before it had been told of its groups all asked for the map; jobs and conversions ended for good.
#[test]
fn no_call_fails_before_its_deadline_while_any_process_starts_again_at_any_step_of_its_start() {
    wanted(SEEDS).for_each(Starts::run);
}

/// Whether a story finds a defect that was put in on purpose; with what it says.
fn finds(defect: Defect) -> String {
    let mut story = Starts::new(1, Some(defect));
    let told = catch_unwind(AssertUnwindSafe(|| story.tell()));
    // What is left would only fail again while it is torn down.
    std::mem::forget(story);
    let panic = told.expect_err("no story found it");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_server_that_takes_a_missing_disk_for_all_that_will_ever_be_is_found() {
    let said = finds(Defect::ForgottenGroups);
    assert!(said.contains("target is not here"), "{said}");
}

#[test]
fn a_client_that_takes_a_server_that_starts_as_final_is_found() {
    let said = finds(Defect::FinalAnswers);
    assert!(said.contains("for what passes by itself") && said.contains("not supported"), "{said}");
}
