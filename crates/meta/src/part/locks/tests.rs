//! The table of locks by itself: queues, circles, sessions that end, restarts.

use super::*;

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const C: SessionId = SessionId(3);

fn place(inode: u64) -> Place {
    Place { inode: InodeId(inode), kind: LockKind::Range }
}

fn wish(session: SessionId, inode: u64, mode: Option<LockMode>, waiter: u64) -> Wish {
    let owner = Owner { session, number: 7 };
    Wish { place: place(inode), owner, range: LockRange::WHOLE, mode, process: 42, waiter }
}

fn exclusive(session: SessionId, inode: u64, waiter: u64) -> Wish {
    wish(session, inode, Some(LockMode::Exclusive), waiter)
}

fn shared(session: SessionId, inode: u64, waiter: u64) -> Wish {
    wish(session, inode, Some(LockMode::Shared), waiter)
}

fn free(session: SessionId, inode: u64) -> Wish {
    wish(session, inode, None, 0)
}

fn verdict(locks: &Locks, wish: Wish) -> Verdict {
    let (verdict, grants) = locks.set(wish, 0);
    assert!(grants.is_empty(), "{grants:?}");
    verdict
}

fn grant(session: SessionId, inode: u64, waiter: u64) -> Grant {
    Grant { session, inode: InodeId(inode), waiter }
}

#[test]
fn waiters_get_the_lock_in_the_order_in_which_they_came() {
    let locks = Locks::default();
    assert_eq!(verdict(&locks, exclusive(A, 1, 0)), Verdict::Granted);
    assert_eq!(verdict(&locks, exclusive(B, 1, 0)), Verdict::Taken);
    assert_eq!(verdict(&locks, exclusive(B, 1, 1)), Verdict::Waits);
    assert_eq!(verdict(&locks, exclusive(C, 1, 1)), Verdict::Waits);
    assert_eq!(verdict(&locks, exclusive(B, 1, 1)), Verdict::Waits, "asking again keeps the place");
    assert_eq!(locks.count(), 3);
    assert_eq!(locks.set(free(A, 1), 0), (Verdict::Granted, vec![grant(B, 1, 1)]));
    assert_eq!(verdict(&locks, exclusive(B, 1, 1)), Verdict::Granted, "asking again confirms it");
    assert_eq!(locks.set(free(B, 1), 0).1, [grant(C, 1, 1)]);
    assert_eq!(verdict(&locks, free(C, 1)), Verdict::Granted);
    assert_eq!(locks.count(), 0);
}

#[test]
fn several_that_only_read_get_it_together_and_a_lock_made_weaker_lets_them_in() {
    let locks = Locks::default();
    assert_eq!(verdict(&locks, exclusive(A, 1, 0)), Verdict::Granted);
    assert_eq!(verdict(&locks, shared(B, 1, 5)), Verdict::Waits);
    assert_eq!(verdict(&locks, shared(C, 1, 6)), Verdict::Waits);
    assert_eq!(locks.set(shared(A, 1, 0), 0).1, [grant(B, 1, 5), grant(C, 1, 6)]);
}

#[test]
fn a_waiter_that_gives_up_is_not_granted_anything() {
    let locks = Locks::default();
    assert_eq!(verdict(&locks, exclusive(A, 1, 0)), Verdict::Granted);
    assert_eq!(verdict(&locks, exclusive(B, 1, 1)), Verdict::Waits);
    assert!(locks.cancel(place(1), B, 1));
    assert!(!locks.cancel(place(1), B, 1));
    assert_eq!(verdict(&locks, free(A, 1)), Verdict::Granted);
}

#[test]
fn who_would_close_a_circle_is_refused_and_flock_is_left_alone() {
    let locks = Locks::default();
    for (session, inode) in [(A, 1), (B, 2), (C, 3)] {
        assert_eq!(verdict(&locks, exclusive(session, inode, 0)), Verdict::Granted);
    }
    assert_eq!(verdict(&locks, exclusive(A, 2, 1)), Verdict::Waits);
    assert_eq!(verdict(&locks, exclusive(B, 3, 1)), Verdict::Waits);
    assert_eq!(verdict(&locks, exclusive(C, 1, 1)), Verdict::Deadlock);
    assert_eq!(locks.set(free(C, 3), 0).1, [grant(B, 3, 1)], "the others go on");
    let flock = |wish: Wish| Wish { place: Place { kind: LockKind::Flock, ..wish.place }, ..wish };
    assert_eq!(verdict(&locks, flock(exclusive(A, 8, 0))), Verdict::Granted);
    assert_eq!(verdict(&locks, flock(exclusive(B, 9, 0))), Verdict::Granted);
    assert_eq!(verdict(&locks, flock(exclusive(A, 9, 2))), Verdict::Waits);
    assert_eq!(verdict(&locks, flock(exclusive(B, 8, 2))), Verdict::Waits);
}

#[test]
fn a_session_that_ends_leaves_its_locks_and_its_places_to_others() {
    let locks = Locks::default();
    assert_eq!(verdict(&locks, exclusive(A, 1, 0)), Verdict::Granted);
    assert_eq!(verdict(&locks, exclusive(B, 1, 1)), Verdict::Waits);
    assert_eq!(verdict(&locks, exclusive(C, 1, 1)), Verdict::Waits);
    assert!(locks.end(B).is_empty());
    assert_eq!(locks.end(A), [grant(C, 1, 1)]);
    assert!(locks.end(C).is_empty());
    assert_eq!(locks.count(), 0);
}

#[test]
fn after_a_restart_nobody_gets_a_new_lock_before_all_have_taken_back_theirs() {
    let locks = Locks::default();
    locks.await_sessions(vec![(A, Marks::All), (B, Marks::All)], 0);
    assert_eq!(verdict(&locks, exclusive(C, 1, 0)), Verdict::TooEarly);
    assert_eq!(verdict(&locks, free(C, 1)), Verdict::Granted, "letting go is never too early");
    assert_eq!(locks.reclaim(A, None, &[exclusive(A, 1, 0)]), (vec![], vec![]));
    assert_eq!(verdict(&locks, exclusive(C, 1, 0)), Verdict::TooEarly);
    assert!(locks.end(B).is_empty());
    assert_eq!(verdict(&locks, exclusive(C, 1, 0)), Verdict::Taken);
    assert_eq!(verdict(&locks, exclusive(C, 2, 0)), Verdict::Granted);
}

#[test]
fn who_does_not_come_back_in_time_has_lost_what_others_have_taken() {
    let locks = Locks::default();
    locks.await_sessions(vec![(A, Marks::All)], 0);
    let lease_ns = u64::from(SESSION_LEASE_MS) * 1_000_000;
    assert_eq!(locks.set(exclusive(B, 1, 0), lease_ns - 1).0, Verdict::TooEarly);
    assert_eq!(locks.set(exclusive(B, 1, 0), lease_ns).0, Verdict::Granted);
    assert_eq!(locks.reclaim(A, None, &[exclusive(A, 2, 0), exclusive(A, 1, 0)]).0, [1]);
}

#[test]
fn what_a_session_does_not_name_it_does_not_have_any_more() {
    let locks = Locks::default();
    for inode in [1, 2] {
        assert_eq!(verdict(&locks, exclusive(A, inode, 0)), Verdict::Granted);
    }
    assert_eq!(verdict(&locks, exclusive(B, 2, 4)), Verdict::Waits);
    assert_eq!(locks.reclaim(A, None, &[exclusive(A, 1, 0)]), (vec![], vec![grant(B, 2, 4)]));
}

/// In its new session a client got back a lock that another one had had, and let go of, since the former session ended:
/// what it had written under it counted again.
#[test]
fn in_another_session_only_locks_are_taken_back_that_nobody_has_had_since() {
    let locks = Locks::default();
    for inode in 1..=6 {
        let mode = if inode == 3 { shared(A, inode, 0) } else { exclusive(A, inode, 0) };
        assert_eq!(verdict(&locks, mode), Verdict::Granted);
    }
    assert_eq!(verdict(&locks, exclusive(B, 2, 9)), Verdict::Waits);
    assert_eq!(locks.end(A), [grant(B, 2, 9)]);
    for wish in [exclusive(B, 1, 0), free(B, 1), free(B, 2), shared(B, 3, 0), free(B, 3), exclusive(B, 6, 0)]
    {
        assert_eq!(verdict(&locks, wish), Verdict::Granted);
    }
    // One that it got in the new session before it told of the others.
    assert_eq!(verdict(&locks, exclusive(C, 7, 0)), Verdict::Granted);
    let told = [1, 2, 3, 4, 6, 7, 8].map(|inode| exclusive(C, inode, 0));
    let told = told.map(|wish| if wish.place == place(3) { shared(C, 3, 0) } else { wish });
    let (lost, _) = locks.reclaim(C, Some(A), &told);
    assert_eq!(lost, [0, 1, 4, 6], "the last one it never had");
    assert_eq!(locks.reclaim(C, Some(A), &told).0, lost, "a repetition is told the same");
    assert_eq!(verdict(&locks, exclusive(B, 4, 0)), Verdict::Taken);
    assert_eq!(verdict(&locks, exclusive(B, 5, 0)), Verdict::Granted, "it was not named any more");
}

/// The record of a session goes before its locks: its client can be faster than the service.
#[test]
fn locks_of_a_former_session_are_taken_back_also_before_they_are_free() {
    let locks = Locks::default();
    for inode in [1, 2] {
        assert_eq!(verdict(&locks, exclusive(A, inode, 0)), Verdict::Granted);
    }
    assert_eq!(verdict(&locks, exclusive(B, 1, 3)), Verdict::Waits);
    assert_eq!(verdict(&locks, exclusive(B, 2, 4)), Verdict::Waits);
    assert_eq!(locks.reclaim(C, Some(A), &[exclusive(C, 1, 0)]), (vec![], vec![grant(B, 2, 4)]));
    assert!(locks.end(A).is_empty());
    assert_eq!((locks.count(), verdict(&locks, exclusive(B, 1, 3))), (3, Verdict::Waits));
}

#[test]
fn of_clients_that_end_without_a_word_a_bounded_number_of_locks_is_kept() {
    let locks = Locks::default();
    let of = |client: u64, session| exclusive(session, client * LOCKS_OF_SESSION_MAX as u64, 0);
    for client in 10..20 {
        let session = SessionId(client);
        for number in 0..LOCKS_OF_SESSION_MAX as u64 {
            let inode = of(client, session).place.inode.0 + number;
            assert_eq!(verdict(&locks, exclusive(session, inode, 0)), Verdict::Granted);
        }
        locks.end(session);
    }
    assert_eq!(locks.count(), 0);
    let reclaimed = |client| locks.reclaim(C, Some(SessionId(client)), &[of(client, C)]).0;
    assert_eq!((reclaimed(10), reclaimed(12), reclaimed(19)), (vec![0], vec![], vec![]));
}

#[test]
fn of_sessions_whose_locks_others_have_got_a_bounded_number_is_remembered() {
    let locks = Locks::default();
    for session in (100..30_000).map(SessionId) {
        assert_eq!(verdict(&locks, exclusive(session, 1, 0)), Verdict::Granted);
        locks.end(session);
    }
    assert_eq!(locks.state().ended.sessions(), 10_000);
    assert_eq!(locks.reclaim(C, Some(SessionId(29_999)), &[exclusive(C, 1, 0)]).0, [0; 0]);
}

#[test]
fn a_session_has_no_more_locks_than_fit_into_one_message() {
    let locks = Locks::default();
    let byte =
        |number: u64| Wish { range: LockRange { first: 2 * number, last: 2 * number }, ..exclusive(A, 1, 0) };
    for number in 0..LOCKS_OF_SESSION_MAX as u64 {
        assert_eq!(verdict(&locks, byte(number)), Verdict::Granted);
    }
    assert_eq!(verdict(&locks, byte(LOCKS_OF_SESSION_MAX as u64)), Verdict::TooMany);
    assert_eq!(verdict(&locks, exclusive(B, 2, 0)), Verdict::Granted);
    assert_eq!(verdict(&locks, free(A, 1)), Verdict::Granted);
    assert_eq!(locks.count(), 1);
}

/// One killed mount and a restart of the service stopped all appends of the volume for a minute, also to files that the
/// mount had never locked.
#[test]
fn after_a_restart_only_files_wait_that_a_silent_session_may_have_locked() {
    let locks = Locks::default();
    locks.await_sessions(vec![(A, Marks::Files([InodeId(1)].into()))], 0);
    assert_eq!(verdict(&locks, exclusive(B, 1, 0)), Verdict::TooEarly);
    assert_eq!(verdict(&locks, exclusive(B, 2, 0)), Verdict::Granted);
    locks.reclaim(A, None, &[]);
    assert_eq!(verdict(&locks, exclusive(B, 1, 0)), Verdict::Granted);
}

#[test]
fn who_stands_in_the_way_of_those_that_wait_is_known() {
    let locks = Locks::default();
    assert_eq!(verdict(&locks, exclusive(A, 1, 0)), Verdict::Granted);
    assert_eq!(locks.holder_in_the_way(place(1)), None);
    assert_eq!(verdict(&locks, exclusive(B, 1, 1)), Verdict::Waits);
    assert_eq!(verdict(&locks, exclusive(C, 1, 1)), Verdict::Waits);
    assert_eq!(locks.holder_in_the_way(place(1)), Some(A));
    assert_eq!(locks.set(free(A, 1), 0).1, [grant(B, 1, 1)]);
    assert_eq!(locks.holder_in_the_way(place(1)), Some(B));
}

/// After any unlock of a part the lock that stood in the way had no process; and of several the one was shown that was
/// set first, not the one that begins lowest.
#[test]
fn of_several_locks_in_the_way_the_lowest_is_shown_with_its_process_also_after_parts_were_let_go() {
    let locks = Locks::default();
    let on = |session, first, last, mode, process| {
        let range = LockRange { first, last };
        Wish { range, process, ..wish(session, 1, mode, 0) }
    };
    let exclusive = Some(LockMode::Exclusive);
    assert_eq!(verdict(&locks, on(A, 50, 59, exclusive, 42)), Verdict::Granted);
    assert_eq!(verdict(&locks, on(B, 30, 34, exclusive, 43)), Verdict::Granted);
    assert_eq!(verdict(&locks, on(A, 10, 19, exclusive, 42)), Verdict::Granted);
    let shown = |first| {
        let found = locks.test(&on(C, first, u64::MAX, exclusive, 44));
        found.map(|(held, process)| (held.range.first, held.range.last, process))
    };
    assert_eq!(
        [shown(0), shown(20), shown(40)],
        [Some((10, 19, 42)), Some((30, 34, 43)), Some((50, 59, 42))]
    );
    // The kernel names no process when it lets go.
    assert_eq!(verdict(&locks, on(A, 13, 14, None, 0)), Verdict::Granted);
    assert_eq!([shown(0), shown(13)], [Some((10, 12, 42)), Some((15, 19, 42))]);
    assert_eq!(verdict(&locks, on(A, 0, 59, None, 0)), Verdict::Granted);
    assert_eq!(shown(0), Some((30, 34, 43)));
}
