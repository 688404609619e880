//! Changes of members against a model that knows nothing of lists: which targets have all that was acknowledged.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn target() -> impl Strategy<Value = TargetId> {
    (1u32..6).prop_map(TargetId)
}

fn change() -> impl Strategy<Value = Change> {
    let run = 0u64..5;
    prop_oneof![
        proptest::collection::vec(target(), 1..3).prop_map(Change::PutOut),
        (target(), run.clone()).prop_map(|(target, run)| Change::Started { target, run }),
        (target(), run.clone(), any::<bool>()).prop_map(|(target, run, kept_power)| Change::Leads {
            target,
            run,
            kept_power
        }),
        (target(), run.clone(), target(), run.clone(), proptest::option::of(target())).prop_map(
            |(target, run, primary, primary_run, instead_of)| Change::Promote {
                target,
                run,
                by: (primary, primary_run),
                instead_of
            }
        ),
        (target(), run).prop_map(|(target, run)| Change::Add { target, run }),
        target().prop_map(Change::Retire),
        target().prop_map(Change::Remove),
        target().prop_map(Change::Lost),
    ]
}

fn current(of: &Membership) -> BTreeSet<TargetId> {
    of.current().map(|member| member.target).collect()
}

/// Promotions that chance would hardly hit upon: of the first that lags, by the primary.
fn likely(of: &Membership, change: Change) -> Change {
    let lagging = of.members.iter().find(|member| matches!(member.standing, Standing::Lagging { .. }));
    match (change, lagging, of.primary()) {
        (Change::Promote { run: 0..=2, instead_of, .. }, Some(member), Some(primary)) => Change::Promote {
            target: member.target,
            run: member.run,
            by: (primary.target, primary.run),
            instead_of,
        },
        (change, ..) => change,
    }
}

proptest! {
    #[test]
    fn what_was_acknowledged_is_never_only_with_members_that_went(
        copies in 1usize..=COPIES_MAX,
        changes in proptest::collection::vec((change(), prop_oneof![9 => Just(0u64), 1 => 1u64..3]), 1..60),
    ) {
        let first: Vec<(TargetId, u64)> = (1..=copies as u32).map(|id| (TargetId(id), 0)).collect();
        let mut now = Membership::new(&first).expect("legal");
        // The model: all that was acknowledged is with each of these, as each epoch's writes go to all of its members.
        let mut complete = current(&now);
        // And these had all of it once; the others have nothing.
        let mut filled = complete.clone();
        for (change, late) in changes {
            let change = likely(&now, change);
            let decided_in = now.epoch.saturating_sub(late);
            let next = now.changed(decided_in, change.clone());
            let Ok(next) = next else { continue };
            prop_assert_eq!((decided_in, next.epoch), (now.epoch, now.epoch + 1), "no change comes late");
            prop_assert!(next.is_whole(), "{:?} made {:?}", change, next);
            let may_join = match &change {
                Change::Promote { target, by, .. } => {
                    let primary = now.primary().expect("whole");
                    prop_assert_eq!((primary.target, primary.run), *by);
                    prop_assert_eq!(next.members.last().map(|member| member.target), Some(*target));
                    Some(*target)
                }
                _ => None,
            };
            complete.extend(may_join);
            filled.extend(may_join);
            match &change {
                Change::Add { target, .. } => drop(filled.remove(target)),
                Change::Lost(target) => {
                    filled.remove(target);
                    complete.remove(target);
                    if complete.is_empty() {
                        complete.clone_from(&filled);
                    }
                }
                _ => {}
            }
            prop_assert!(current(&next).is_subset(&complete), "{:?} after {:?}", next, now);
            complete = current(&next);
            let lost_power = matches!(change, Change::Leads { kept_power: false, .. });
            let lost_last = matches!(change, Change::Lost(target) if current(&now) == BTreeSet::from([target]));
            prop_assert_eq!(next.losses, now.losses + u64::from(lost_power || lost_last));
            prop_assert_eq!(next.why.as_ref(), Some(&change));
            for member in &next.members {
                let earlier = now.member(member.target);
                prop_assert!(earlier.is_none_or(|earlier| earlier.run <= member.run), "runs grow");
            }
            now = next;
        }
    }
}

fn group(targets: &[u32]) -> Membership {
    let members: Vec<(TargetId, u64)> = targets.iter().map(|id| (TargetId(*id), 1)).collect();
    Membership::new(&members).expect("legal")
}

#[test]
fn groups_of_no_or_too_many_members_or_one_twice_are_not_made() {
    for members in [&[][..], &[(1, 1), (2, 1), (3, 1), (4, 1)], &[(1, 1), (1, 2)]] {
        let members: Vec<(TargetId, u64)> = members.iter().map(|(id, run)| (TargetId(*id), *run)).collect();
        assert_eq!(Membership::new(&members), None);
    }
}

#[test]
fn a_group_is_plain_until_a_process_is_noted_or_it_had_another_member() {
    let target = TargetId(1);
    let alone = Membership::new(&[(target, 0)]).expect("legal");
    assert!(alone.is_plain() && !group(&[1]).is_plain() && !group(&[1, 2]).is_plain());
    let two = alone.changed(1, Change::Add { target: TargetId(2), run: 1 }).expect("legal");
    let leaving = two.changed(2, Change::Retire(TargetId(2))).expect("legal");
    let back = leaving.changed(3, Change::Remove(TargetId(2))).expect("legal");
    assert!(!back.is_plain(), "others may remember its epochs");
    assert!(!Membership { epoch: 0, ..alone.clone() }.is_whole(), "the first epoch is 1");
    assert!(!Membership { losses: 1, ..alone }.is_plain());
}

#[test]
fn the_last_current_member_is_never_put_out_retired_or_taken_out_by_its_restart() {
    let two = group(&[1, 2]);
    let both = Change::PutOut(vec![TargetId(1), TargetId(2)]);
    assert_eq!(two.changed(1, both), Err(Refused::LastCurrent(TargetId(2))));
    let alone = two.changed(1, Change::PutOut(vec![TargetId(2)])).expect("legal");
    let last = TargetId(1);
    for change in [Change::PutOut(vec![last]), Change::Retire(last), Change::Started { target: last, run: 2 }]
    {
        assert_eq!(alone.changed(2, change), Err(Refused::LastCurrent(last)));
    }
    let leads = alone.changed(2, Change::Leads { target: last, run: 2, kept_power: false }).expect("legal");
    assert_eq!((leads.epoch, leads.losses, leads.primary().map(|m| m.run)), (3, 1, Some(2)));
}

#[test]
fn a_member_that_comes_back_goes_to_the_end_and_a_late_promotion_is_refused() {
    let three = group(&[1, 2, 3]);
    let without = three.changed(1, Change::PutOut(vec![TargetId(1)])).expect("legal");
    assert_eq!(without.primary().map(|member| member.target), Some(TargetId(2)));
    assert_eq!(without.member(TargetId(1)).map(|m| m.standing), Some(Standing::Lagging { since: 2 }));
    let promote = Change::Promote { target: TargetId(1), run: 1, by: (TargetId(2), 1), instead_of: None };
    let back = without.changed(2, promote.clone()).expect("legal");
    let order: Vec<u32> = back.current().map(|member| member.target.0).collect();
    assert_eq!(order, [2, 3, 1]);
    // The promotion was given up first: a record of its own.
    let given_up = without.changed(2, Change::PutOut(vec![TargetId(1)])).expect("legal");
    assert_eq!(given_up.changed(2, promote.clone()), Err(Refused::OtherEpoch(3)));
    let started = without.changed(2, Change::Started { target: TargetId(1), run: 2 }).expect("legal");
    assert_eq!(started.changed(3, promote), Err(Refused::OtherRun(TargetId(1))));
}

#[test]
fn a_member_is_replaced_in_one_change_and_removed_later() {
    let mut now = group(&[1, 2, 3]);
    now = now.changed(1, Change::Add { target: TargetId(4), run: 7 }).expect("legal");
    let promote =
        |instead_of| Change::Promote { target: TargetId(4), run: 7, by: (TargetId(1), 1), instead_of };
    assert_eq!(now.changed(2, promote(None)), Err(Refused::TooMany), "four copies");
    now = now.changed(2, promote(Some(TargetId(1)))).expect("legal");
    assert_eq!(now.primary().map(|member| member.target), Some(TargetId(2)));
    assert_eq!(now.changed(3, Change::Remove(TargetId(2))), Err(Refused::NoSuchMember(TargetId(2))));
    now = now.changed(3, Change::Remove(TargetId(1))).expect("legal");
    assert_eq!((now.members.len(), now.member(TargetId(1))), (3, None));
}

/// An empty disk in the place of a lost one counted as soon as all others had gone.
#[test]
fn a_member_that_was_lost_has_nothing_and_goes_on_alone_in_no_case() {
    let [one, two, three] = [1, 2, 3].map(TargetId);
    let lost = group(&[1, 2, 3]).changed(1, Change::Lost(one)).expect("two others have everything");
    assert_eq!(lost.member(one).map(|m| m.standing), Some(Standing::Lagging { since: 0 }));
    assert_eq!((lost.losses, current(&lost)), (0, BTreeSet::from([two, three])));
    let started = lost.changed(2, Change::Started { target: one, run: 2 }).expect("legal");
    let leads = Change::Leads { target: one, run: 3, kept_power: true };
    assert_eq!(started.changed(3, leads), Err(Refused::NoSuchMember(one)));
    // The second one lags, with what it had; then the third, the only good one, is lost, too.
    let alone = started.changed(3, Change::PutOut(vec![two])).expect("legal");
    let older = alone.changed(4, Change::Lost(three)).expect("the second one goes on");
    assert_eq!((older.losses, current(&older)), (1, BTreeSet::from([two])));
    assert_eq!(older.changed(5, Change::Lost(two)), Err(Refused::LastCurrent(two)), "both others are empty");
    let again = alone.changed(4, Change::Lost(one)).expect("it is replaced again");
    assert_eq!((again.losses, current(&again)), (0, BTreeSet::from([three])));
}
