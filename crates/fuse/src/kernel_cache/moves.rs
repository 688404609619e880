//! Finds names that a race between a rename of this mount and a change by another mount left wrong in the kernel.
//!
//! The kernel applies a rename to its own cache, too, including what it believes the old name to lead to. The race:
//! another mount replaces the old name an instant before. Then the new name leads to the wrong inode in this kernel.
//! The notification of that change does not help, because it names only the old name: it arrives after the rename, or
//! before this mount has received the rename that the kernel has begun. So a notification about the old name shortly
//! before or after a rename counts for the new name as well. (The kernel drops a name only when no rename in its
//! directory is under way: a notification before the end of one is not lost.)

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::InodeId;

/// A notice comes within milliseconds; nothing is lost by waiting longer but a question about a name.
const KEPT_NS: u64 = 2_000_000_000;

/// Renames and notices that are remembered: there are fewer while one of them is on its way.
const KEPT_MAX: usize = 256;

/// A name in a directory.
pub(crate) type Name = (InodeId, Vec<u8>);

struct Move {
    number: u64,
    from: Name,
    to: Name,
    /// What the new name led to has the old one now.
    is_exchange: bool,
    /// `None` while it is under way.
    ended_ns: Option<u64>,
}

#[derive(Default)]
struct Recent {
    moves: VecDeque<Move>,
    begun: u64,
    /// Names that others have changed, and when that was heard.
    heard: VecDeque<(Name, u64)>,
}

/// The renames of one mount.
pub(crate) struct Moves {
    clock: Arc<dyn Clock>,
    recent: Mutex<Recent>,
}

/// A rename under way.
pub(crate) struct Moving(u64);

impl Recent {
    fn forget_old(&mut self, now_ns: u64) {
        let is_old = |at_ns: u64| now_ns.saturating_sub(at_ns) > KEPT_NS;
        self.moves.retain(|it| !it.ended_ns.is_some_and(is_old));
        self.heard.retain(|(_, heard_ns)| !is_old(*heard_ns));
    }
}

fn push<T>(kept: &mut VecDeque<T>, new: T) {
    if kept.len() >= KEPT_MAX {
        kept.pop_front();
    }
    kept.push_back(new);
}

impl Moves {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Moves {
        Moves { clock, recent: Mutex::default() }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock()
    }

    /// A rename begins.
    pub(crate) fn begin(&self, from: Name, to: Name, is_exchange: bool) -> Moving {
        let mut recent = self.recent();
        recent.begun += 1;
        let number = recent.begun;
        push(&mut recent.moves, Move { number, from, to, is_exchange, ended_ns: None });
        Moving(number)
    }

    /// It has ended, and the kernel is about to hear of it. The names that the kernel may have wrong then.
    pub(crate) fn end(&self, moving: Moving) -> Vec<Name> {
        let now_ns = self.clock.now_ns();
        let mut recent = self.recent();
        recent.forget_old(now_ns);
        let Recent { moves, heard, .. } = &mut *recent;
        let Some(it) = moves.iter_mut().rev().find(|it| it.number == moving.0) else { return Vec::new() };
        it.ended_ns = Some(now_ns);
        let is_heard = |of: &Name| heard.iter().any(|(name, _)| name == of);
        let mut concerned = Vec::new();
        if is_heard(&it.from) {
            concerned.push(it.to.clone());
        }
        if it.is_exchange && is_heard(&it.to) {
            concerned.push(it.from.clone());
        }
        concerned
    }

    /// Another client has changed `name`: other names that the kernel may have wrong.
    pub(crate) fn hear(&self, name: &Name) -> Vec<Name> {
        let now_ns = self.clock.now_ns();
        let mut recent = self.recent();
        recent.forget_old(now_ns);
        push(&mut recent.heard, (name.clone(), now_ns));
        let mut concerned = vec![name];
        // In their order: what was moved may have been moved on.
        for Move { from, to, is_exchange, .. } in &recent.moves {
            let (has_from, has_to) = (concerned.contains(&from), concerned.contains(&to));
            match (has_from, has_to) {
                (true, false) => concerned.push(to),
                (false, true) if *is_exchange => concerned.push(from),
                _ => {}
            }
        }
        concerned.into_iter().skip(1).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use vazao_meter::ManualClock;

    fn name(text: &str) -> Name {
        (InodeId(1), text.into())
    }

    fn rename(moves: &Moves, from: &str, to: &str) -> Vec<Name> {
        moves.end(moves.begin(name(from), name(to), false))
    }

    #[test]
    fn what_is_heard_of_one_name_concerns_those_it_was_moved_to_for_a_while() {
        let clock = Arc::new(ManualClock::default());
        let moves = Moves::new(Arc::clone(&clock) as Arc<dyn Clock>);
        assert!(rename(&moves, "a", "b").is_empty());
        let moving = moves.begin(name("b"), name("c"), false);
        assert!(moves.end(moves.begin(name("x"), name("y"), true)).is_empty());
        assert_eq!(moves.hear(&name("a")), [name("b"), name("c")]);
        assert_eq!(moves.hear(&name("y")), [name("x")], "they were exchanged");
        assert!(moves.hear(&name("c")).is_empty(), "what is there now was moved there whatever others did");
        assert!(moves.hear(&(InodeId(2), b"a".to_vec())).is_empty(), "another directory");
        clock.advance(Duration::from_nanos(KEPT_NS + 1));
        assert!(moves.hear(&name("a")).is_empty());
        assert_eq!(moves.hear(&name("b")), [name("c")], "it is still under way");
        assert_eq!(moves.end(moving), [name("c")]);
    }

    #[test]
    fn what_was_heard_of_the_old_name_just_before_a_rename_concerns_the_new_one() {
        let clock = Arc::new(ManualClock::default());
        let moves = Moves::new(Arc::clone(&clock) as Arc<dyn Clock>);
        assert!(moves.hear(&name("a")).is_empty());
        assert!(rename(&moves, "c", "d").is_empty());
        assert_eq!(rename(&moves, "a", "b"), [name("b")]);
        clock.advance(Duration::from_nanos(KEPT_NS + 1));
        assert!(rename(&moves, "a", "b").is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let moves = Moves::new(Arc::new(ManualClock::default()));
        for number in 0..3 * KEPT_MAX {
            rename(&moves, &number.to_string(), "to");
            moves.hear(&name("from"));
        }
        let recent = moves.recent();
        assert_eq!((recent.moves.len(), recent.heard.len()), (KEPT_MAX, KEPT_MAX));
    }
}
