//! Changes that were sent again: an earlier form that arrives later is refused, or it would undo newer ones.
//!
//! A sender gives each change a number, and each repetition a higher attempt. Of a first attempt nothing is
//! remembered, unless its sender gave the change up. A repetition is remembered for longer than an earlier form can be
//! on its way: in the socket of a server that was stopped, in the queue of a disk that hung, in a network that held it.
//! A restart forgets all of them, and takes sockets and queues along. The object's lock orders the look at the table
//! with the change itself.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use vazao_model::{Code, GroupId, ObjectId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// How long a repetition is remembered after it was carried out. TCP gives a segment up that is not
/// acknowledged within 2 to 15 minutes.
const KEPT_NS: u64 = 15 * 60 * 1_000_000_000;

/// The attempt that is remembered of a change that was given up: no other is later.
const GIVEN_UP: u32 = u32::MAX;

/// Repetitions that are remembered, 8 MiB of them: 1,000 clients with 128 changes under way each. Beyond, further ones
/// are refused until the oldest may be forgotten, because one that is not remembered could be undone.
const KEPT_MAX: usize = 128 * 1024;

/// Which change a request is, and which attempt at it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Attempt {
    /// The sender's number for the change; 0: it has none.
    change: u64,
    /// Rises with each repetition, from 0.
    number: u32,
}

/// What the primary of a placement group says with a change that it passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    pub(crate) group: GroupId,
    /// The epoch by which it is the primary.
    pub(crate) epoch: u64,
    /// Raised when it has given up anything that may still be on its way.
    pub(crate) stream: u64,
}

/// What the sender of a change asks for beside it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// `NotFound` instead of a new object.
    pub(crate) must_exist: bool,
    pub(crate) attempt: Attempt,
    pub(crate) passed: Option<Passed>,
}

impl Terms {
    /// Those of a request that changes the object at `address`.
    pub(crate) fn of(address: Option<&proto::ObjectAddress>, must_exist: bool) -> Terms {
        let Some(address) = address else { return Terms { must_exist, ..Terms::default() } };
        let attempt = Attempt { change: address.change, number: address.attempt };
        let group = GroupId(address.group);
        let passed =
            |forward: &proto::Forward| Passed { group, epoch: forward.epoch, stream: forward.stream };
        Terms { must_exist, attempt, passed: address.forward.as_ref().map(passed) }
    }
}

#[derive(Default, Debug)]
struct Table {
    /// The latest attempt of each change that was repeated.
    latest: HashMap<u64, u32>,
    /// The same changes in the order in which they came, with the time.
    order: VecDeque<(u64, u64)>,
}

/// The repeated changes of one target.
#[derive(Default, Debug)]
pub(crate) struct Attempts {
    table: Mutex<Table>,
    /// Their number, so that a target without any takes no lock.
    count: AtomicUsize,
}

impl Attempts {
    /// Takes note that a change is about to be carried out. The caller holds its object's lock. Refuses an attempt that
    /// a later one has come before, and a repetition that cannot be remembered.
    pub(crate) fn admit(&self, id: ObjectId, attempt: Attempt, now_ns: u64) -> Result<(), Fault> {
        let Attempt { change, number } = attempt;
        if change == 0 || (number == 0 && self.count.load(Ordering::Acquire) == 0) {
            return Ok(());
        }
        let mut table = self.table.lock();
        table.forget(now_ns);
        let admitted = table.admit(id, attempt, now_ns);
        self.count.store(table.order.len(), Ordering::Release);
        admitted
    }

    /// Refuses the changes of an object that their sender has given up, from now on. One that is being carried out has
    /// the object's lock, and so comes before whatever its sender sends next.
    pub(crate) fn give_up(&self, id: ObjectId, changes: &[u64], now_ns: u64) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut table = self.table.lock();
        table.forget(now_ns);
        let given_up = changes.iter().try_for_each(|&change| {
            // Once: it is named with each change of the object for a while.
            match table.latest.get(&change) {
                Some(&GIVEN_UP) => Ok(()),
                _ => table.admit(id, Attempt { change, number: GIVEN_UP }, now_ns),
            }
        });
        self.count.store(table.order.len(), Ordering::Release);
        given_up
    }
}

impl Table {
    fn forget(&mut self, now_ns: u64) {
        while let Some((ns, change)) = self.order.front().copied()
            && now_ns.saturating_sub(ns) > KEPT_NS
        {
            self.order.pop_front();
            self.latest.remove(&change);
        }
    }

    fn admit(&mut self, id: ObjectId, attempt: Attempt, now_ns: u64) -> Result<(), Fault> {
        let Attempt { change, number } = attempt;
        match self.latest.get_mut(&change) {
            Some(latest) if number < *latest => {
                // Its sender waits for the answer to the later one. Should it not, it may ask again.
                let why = format!("object {id}: attempt {number} at a change came after attempt {latest}");
                return Err(Fault::new(Code::Conflict, why));
            }
            Some(latest) => *latest = number,
            None if number == 0 => {}
            None if self.order.len() >= KEPT_MAX => {
                let why = format!("object {id}: {KEPT_MAX} changes were sent again within minutes");
                return Err(Fault::new(Code::Overloaded, why));
            }
            None => {
                self.latest.insert(change, number);
                self.order.push_back((now_ns, change));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_model::InodeId;

    const OBJECT: ObjectId = ObjectId { inode: InodeId(7), generation: 3, slot: 0, group: GroupId(0) };

    fn admit(attempts: &Attempts, change: u64, number: u32, now_ns: u64) -> Result<(), Code> {
        attempts.admit(OBJECT, Attempt { change, number }, now_ns).map_err(|fault| fault.code)
    }

    #[test]
    fn an_earlier_attempt_is_refused_once_a_later_one_came_and_other_changes_are_not() {
        let attempts = Attempts::default();
        assert_eq!([admit(&attempts, 1, 0, 0), admit(&attempts, 2, 0, 0)], [Ok(()); 2]);
        assert_eq!(attempts.count.load(Ordering::Relaxed), 0, "a first attempt costs nothing");
        assert_eq!(admit(&attempts, 1, 2, 0), Ok(()));
        let late = [admit(&attempts, 1, 0, 0), admit(&attempts, 1, 1, 0)];
        assert_eq!(late, [Err(Code::Conflict); 2]);
        // The same attempt looks again where it had to wait for its disk.
        assert_eq!([admit(&attempts, 1, 2, 0), admit(&attempts, 1, 3, 0)], [Ok(()); 2]);
        assert_eq!(admit(&attempts, 1, 2, 0), Err(Code::Conflict));
        assert_eq!([admit(&attempts, 2, 0, 0), admit(&attempts, 0, 0, 0)], [Ok(()); 2]);
    }

    #[test]
    fn a_change_that_was_given_up_is_refused_whatever_its_attempt() {
        let attempts = Attempts::default();
        assert_eq!(attempts.give_up(OBJECT, &[], 0).map_err(|fault| fault.code), Ok(()));
        assert_eq!(admit(&attempts, 1, 3, 0), Ok(()));
        for now_ns in [0, 1] {
            assert_eq!(attempts.give_up(OBJECT, &[1, 2], now_ns).map_err(|fault| fault.code), Ok(()));
        }
        let late = [admit(&attempts, 1, 4, 0), admit(&attempts, 2, 0, 0), admit(&attempts, 2, 7, 0)];
        assert_eq!(late, [Err(Code::Conflict); 3]);
        assert_eq!([admit(&attempts, 3, 0, 0), admit(&attempts, 3, 1, 0)], [Ok(()); 2]);
        assert_eq!(admit(&attempts, 2, 0, KEPT_NS + 2), Ok(()));
    }

    #[test]
    fn repetitions_are_forgotten_after_a_while_and_beyond_a_number_refused() {
        let attempts = Attempts::default();
        for change in 1..=KEPT_MAX as u64 {
            assert_eq!(admit(&attempts, change, 1, 0), Ok(()));
        }
        assert_eq!(admit(&attempts, u64::MAX, 1, 0), Err(Code::Overloaded));
        assert_eq!([admit(&attempts, u64::MAX, 0, 0), admit(&attempts, 1, 2, 0)], [Ok(()); 2]);
        assert_eq!(admit(&attempts, 1, 1, KEPT_NS), Err(Code::Conflict));
        assert_eq!(admit(&attempts, u64::MAX, 0, KEPT_NS + 1), Ok(()));
        assert_eq!(attempts.count.load(Ordering::Relaxed), 0);
    }
}
