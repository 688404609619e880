//! The numbers of changes of objects, and what was given up of them.
//!
//! A change that failed may still be on its way: in the socket of a server that was stopped, in the queue of a disk
//! that hangs. The program was told, and writes something newer. So the next changes of that object name it, and the
//! server refuses it from then on.

use parking_lot::Mutex;
use prost::Message;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vazao_wire::{Method, proto};

/// How long a change that was given up is named: TCP gives a segment up that is not acknowledged within 2 to 15
/// minutes.
const NAMED_NS: u64 = 15 * 60 * 1_000_000_000;

/// Changes that are named at most, 128 under way for each 28 s of the time; beyond, the oldest is forgotten.
const NAMED_MAX: usize = 4096;

/// What is added to an encoded change that is sent again: encoded messages one after the other are one with the fields
/// of both, also within the address of its object.
pub(super) fn attempt(method: Method, attempt: u32) -> Vec<u8> {
    let object = Some(proto::ObjectAddress { attempt, ..Default::default() });
    match method {
        Method::Write => proto::WriteRequest { object, ..Default::default() }.encode_to_vec(),
        Method::WriteList => proto::WriteListRequest { object, ..Default::default() }.encode_to_vec(),
        Method::TruncateObject => {
            proto::TruncateObjectRequest { object, ..Default::default() }.encode_to_vec()
        }
        Method::PunchObject => proto::PunchObjectRequest { object, ..Default::default() }.encode_to_vec(),
        Method::CopyObjectRange => {
            proto::CopyObjectRangeRequest { object, ..Default::default() }.encode_to_vec()
        }
        _ => Vec::new(),
    }
}

/// Whether requests by this method change an object.
pub(super) fn is_change(method: Method) -> bool {
    matches!(
        method,
        Method::Write
            | Method::WriteList
            | Method::TruncateObject
            | Method::PunchObject
            | Method::CopyObjectRange
    )
}

/// The object that an encoded request changes; `None` for one that changes nothing.
pub(super) fn changed(method: Method, message: &[u8]) -> Option<proto::ObjectAddress> {
    fn decoded<M: Message + Default>(message: &[u8]) -> Option<M> {
        M::decode(message).ok()
    }
    match method {
        Method::Write => decoded::<proto::WriteRequest>(message)?.object,
        Method::WriteList => decoded::<proto::WriteListRequest>(message)?.object,
        Method::TruncateObject => decoded::<proto::TruncateObjectRequest>(message)?.object,
        Method::PunchObject => decoded::<proto::PunchObjectRequest>(message)?.object,
        Method::CopyObjectRange => decoded::<proto::CopyObjectRangeRequest>(message)?.object,
        _ => None,
    }
}

/// Which object an address means.
type Key = (u64, u32, u32);

fn key(object: &proto::ObjectAddress) -> Key {
    (object.inode, object.generation, object.slot)
}

/// Changes that were given up.
#[derive(Default)]
struct GivenUp {
    of_objects: HashMap<Key, Vec<u64>>,
    /// All of them in the order in which they were given up, with the time.
    order: VecDeque<(u64, Key)>,
}

impl GivenUp {
    /// Forgets the oldest, which is the first of its object.
    fn forget_oldest(&mut self) {
        let Some((_, key)) = self.order.pop_front() else { return };
        if let Some(changes) = self.of_objects.get_mut(&key) {
            changes.remove(0);
            if changes.is_empty() {
                self.of_objects.remove(&key);
            }
        }
    }

    fn forget(&mut self, now_ns: u64) {
        while self.order.front().is_some_and(|(ns, _)| now_ns.saturating_sub(*ns) > NAMED_NS) {
            self.forget_oldest();
        }
    }
}

/// The changes of objects by one client.
pub(super) struct Changes {
    /// The number of the next one.
    next: AtomicU64,
    given_up: Mutex<GivenUp>,
    /// How many those are, so that a client without any takes no lock.
    count: AtomicUsize,
}

impl Changes {
    pub(super) fn new(first: u64) -> Changes {
        Changes { next: AtomicU64::new(first), given_up: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// The object of a change that is about to be sent, as the request names it.
    pub(super) fn numbered(&self, object: proto::ObjectAddress, now_ns: u64) -> proto::ObjectAddress {
        let change = self.next.fetch_add(1, Ordering::Relaxed);
        let given_up = self.given_up_of(&object, now_ns);
        proto::ObjectAddress { change, given_up, ..object }
    }

    fn given_up_of(&self, object: &proto::ObjectAddress, now_ns: u64) -> Vec<u64> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut given_up = self.given_up.lock();
        given_up.forget(now_ns);
        self.count.store(given_up.order.len(), Ordering::Release);
        given_up.of_objects.get(&key(object)).cloned().unwrap_or_default()
    }

    /// Takes note of a change that its program was told has failed. Other requests are none of its business.
    pub(super) fn give_up(&self, method: Method, message: &[u8], now_ns: u64) {
        let Some(object) = changed(method, message).filter(|object| object.change != 0) else { return };
        let mut given_up = self.given_up.lock();
        given_up.forget(now_ns);
        if given_up.order.len() >= NAMED_MAX {
            given_up.forget_oldest();
        }
        given_up.of_objects.entry(key(&object)).or_default().push(object.change);
        given_up.order.push_back((now_ns, key(&object)));
        self.count.store(given_up.order.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(slot: u32) -> proto::ObjectAddress {
        proto::ObjectAddress { inode: 7, generation: 3, slot, ..Default::default() }
    }

    fn give_up(changes: &Changes, slot: u32, now_ns: u64) -> u64 {
        let change = changes.numbered(object(100), now_ns).change;
        let object = Some(proto::ObjectAddress { change, ..object(slot) });
        let mut message = proto::TruncateObjectRequest { object, ..Default::default() }.encode_to_vec();
        message.extend(attempt(Method::TruncateObject, 3));
        changes.give_up(Method::TruncateObject, &message, now_ns);
        change
    }

    #[test]
    fn what_was_given_up_is_named_to_its_object_for_a_while() {
        let changes = Changes::new(40);
        assert_eq!(changes.numbered(object(0), 0).given_up, Vec::<u64>::new());
        let first = give_up(&changes, 0, 0);
        let second = give_up(&changes, 0, 1);
        let other = give_up(&changes, 1, 2);
        assert_eq!(changes.numbered(object(0), NAMED_NS).given_up, [first, second]);
        assert_eq!(changes.numbered(object(1), NAMED_NS).given_up, [other]);
        assert_eq!(changes.numbered(object(0), NAMED_NS + 1).given_up, [second]);
        assert_eq!(changes.numbered(object(1), NAMED_NS + 3).given_up, Vec::<u64>::new());
        assert_eq!(changes.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn requests_that_change_nothing_are_not_named_and_those_that_do_are_bounded() {
        let changes = Changes::new(1);
        let read = proto::ReadRequest { object: Some(changes.numbered(object(0), 0)), ..Default::default() };
        changes.give_up(Method::Read, &read.encode_to_vec(), 0);
        assert_eq!(changes.count.load(Ordering::Relaxed), 0);
        let numbers: Vec<u64> = (0..NAMED_MAX + 2).map(|_| give_up(&changes, 0, 0)).collect();
        assert_eq!(changes.numbered(object(0), 0).given_up, numbers[2..]);
    }
}
