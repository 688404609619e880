//! What watchers receive, without sockets: answers are kept where the test can see them.

use super::*;
use vazao_wire::service::Answer;

const NOW_NS: u64 = 1_000_000_000;
const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);

struct World {
    invalidations: InvalidationHub,
    names: NameHash,
}

impl World {
    fn new() -> World {
        World {
            invalidations: InvalidationHub::default(),
            names: NameHash::new(&[7; 16], 62).expect("a key"),
        }
    }

    /// What is there for `session`, at once.
    fn fetch(&self, session: SessionId, received: u64) -> proto::WatchChangesResponse {
        let request = proto::WatchChangesRequest { session: session.0, received, wait_ms: 0 };
        let answer = self.invalidations.watch(session, &request, 1, NOW_NS, || panic!("must not wait"));
        answer.expect("known").expect("answered at once")
    }

    /// A session that has just forgotten everything: its seat, and the number it has received.
    fn join(&self, session: SessionId) -> (Asker, u64) {
        let first = self.fetch(session, 0);
        assert!(first.forget && first.changes.is_empty(), "{first:?}");
        assert!(!self.fetch(session, first.last).forget);
        (Asker { session: Some(session), seat: first.seat }, first.last)
    }

    fn publish(&self, asker: Asker, changes: &[Changed]) {
        self.invalidations.publish(asker, &self.names, changes.to_vec());
    }
}

fn entry(name: &str) -> Changed {
    Changed::Entry(InodeId(5), name.into())
}

#[test]
fn a_change_is_told_to_who_was_shown_it_and_not_to_who_made_it() {
    let world = World::new();
    let ((a, a_at), (b, b_at)) = (world.join(A), world.join(B));
    for asker in [a, b] {
        world.invalidations.note_inode(asker, InodeId(9));
        world.invalidations.note_entry(asker, &world.names, InodeId(5), b"x");
    }
    let changes = [Changed::Attributes(InodeId(9)), entry("x"), entry("y"), Changed::Contents(InodeId(9))];
    world.publish(a, &changes);
    assert!(world.fetch(A, a_at).changes.is_empty());
    let told = world.fetch(B, b_at);
    let expected = [
        proto::Change { inode: 9, name: Vec::new(), contents: true, ..Default::default() },
        proto::Change { inode: 5, name: b"x".to_vec(), contents: false, ..Default::default() },
    ];
    assert_eq!(told.changes, expected);
    assert_eq!(told.last, b_at + 2);
    let nobody = Asker::default();
    world.publish(nobody, &[Changed::Attributes(InodeId(9))]);
    assert_eq!(world.fetch(A, a_at).changes.len(), 1, "a change by a session without a seat");
}

#[test]
fn changes_are_told_again_until_they_were_received() {
    let world = World::new();
    let (b, at) = world.join(B);
    world.invalidations.note_entry(b, &world.names, InodeId(5), b"x");
    world.invalidations.note_entry(b, &world.names, InodeId(5), b"y");
    world.publish(Asker::default(), &[entry("x")]);
    assert_eq!(world.fetch(B, at).changes.len(), 1);
    world.publish(Asker::default(), &[entry("y")]);
    let again = world.fetch(B, at);
    assert_eq!(again.changes.len(), 2, "the first answer may have been lost");
    assert!(world.fetch(B, again.last).changes.is_empty());
    let later = world.fetch(B, again.last + 1);
    assert!(later.forget, "a number that was never given out");
}

#[test]
fn the_same_change_waits_once_but_is_told_again_after_it_was_sent() {
    let world = World::new();
    let (b, at) = world.join(B);
    world.invalidations.note_inode(b, InodeId(5));
    (0..100).for_each(|_| world.publish(Asker::default(), &[Changed::Attributes(InodeId(5))]));
    assert_eq!(world.fetch(B, at).changes.len(), 1);
    world.publish(Asker::default(), &[Changed::Attributes(InodeId(5))]);
    assert_eq!(
        world.fetch(B, at).changes.len(),
        2,
        "the first may have been worked in before this one happened"
    );
}

#[test]
fn who_cannot_follow_is_told_to_forget_and_misses_nothing_from_then_on() {
    let world = World::new();
    let (b, at) = world.join(B);
    let names: Vec<String> = (0..limits::WATCH_CHANGES_MAX + 100).map(|n| format!("n{n}")).collect();
    for name in &names {
        world.invalidations.note_entry(b, &world.names, InodeId(5), name.as_bytes());
        world.publish(Asker::default(), &[entry(name)]);
    }
    let cut_off = world.fetch(B, at);
    assert!(cut_off.forget);
    world.publish(Asker::default(), &[entry("n0")]);
    let mut received = cut_off.last;
    let mut seen = Vec::new();
    loop {
        let answer = world.fetch(B, received);
        assert!(!answer.forget);
        if answer.changes.is_empty() {
            break;
        }
        received = answer.last;
        seen.extend(answer.changes);
    }
    assert_eq!(seen.last().expect("told").name, b"n0");
    assert!(seen.len() <= limits::WATCH_CHANGES_MAX, "memory is bounded");
}

#[test]
fn a_waiting_session_is_answered_by_the_change_or_by_the_clock() {
    let world = World::new();
    let (b, at) = world.join(B);
    world.invalidations.note_inode(b, InodeId(9));
    let answers: Arc<Mutex<Vec<Answer>>> = Arc::default();
    let wait = || {
        let request = proto::WatchChangesRequest { session: B.0, received: at, wait_ms: 1000 };
        let answers = Arc::clone(&answers);
        let defer = move || Deferred::new(move |answer| answers.lock().push(answer));
        let now = world.invalidations.watch(B, &request, 1, NOW_NS, defer).expect("known");
        assert!(now.is_none(), "there is nothing to say");
    };
    let taken = || {
        let answer = answers.lock().pop().map(|answer| answer.expect("an answer").0);
        answer.map(|message| proto::WatchChangesResponse::decode(message.as_slice()).expect("decodes"))
    };
    wait();
    world.invalidations.tick(NOW_NS + 999_999_999, |_| true);
    assert!(taken().is_none());
    world.invalidations.tick(NOW_NS + 1_000_000_000, |_| true);
    assert!(taken().is_some_and(|answer| answer.changes.is_empty() && !answer.forget));
    wait();
    world.publish(Asker::default(), &[Changed::Contents(InodeId(9))]);
    assert!(taken().is_some_and(|answer| answer.changes.len() == 1 && answer.changes[0].contents));
}

#[test]
fn sessions_that_share_a_seat_hear_of_each_others_changes_and_leave_one_by_one() {
    let world = World::new();
    let count = u64::from(SEATS) + 1;
    let joined: Vec<_> = (1..=count).map(|number| world.join(SessionId(number))).collect();
    assert_eq!(world.invalidations.count() as u64, count);
    let ((last, _), (first, first_at)) = (joined[joined.len() - 1], joined[0]);
    assert_eq!(last.seat, first.seat, "more sessions than seats");
    world.invalidations.note_inode(first, InodeId(9));
    world.publish(last, &[Changed::Attributes(InodeId(9))]);
    let first_session = first.session.expect("known");
    assert_eq!(world.fetch(first_session, first_at).changes.len(), 1);
    world.invalidations.leave(last.session.expect("known"));
    world.publish(first, &[Changed::Attributes(InodeId(9))]);
    assert_eq!(
        world.fetch(first_session, first_at).changes.len(),
        1,
        "alone again, nobody else is to be told"
    );
    world.invalidations.tick(NOW_NS, |_| false);
    assert_eq!(world.invalidations.count(), 0);
}

#[test]
fn numbers_of_an_earlier_run_of_the_service_are_not_taken_for_those_of_this_one() {
    let world = World::new();
    let request = |received| proto::WatchChangesRequest { session: B.0, received, wait_ms: 0 };
    let fetch = |boot, received| {
        let answer =
            world.invalidations.watch(B, &request(received), boot, NOW_NS, || panic!("must not wait"));
        answer.expect("known").expect("answered")
    };
    let before = fetch(1, 0).last + 40;
    let later = World::new();
    let answer = later.invalidations.watch(B, &request(before), 2, NOW_NS, || panic!("must not wait"));
    assert!(answer.expect("known").expect("answered").forget);
}
