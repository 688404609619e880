//! When a server asks for its placement groups out of turn: it was asked for one that it does not know.
//!
//! - Groups are made when a directory first asks for copies, and used at once: without a question out of turn the first
//!   change would wait for the next heartbeat.
//! - The question is a heartbeat, which one thread makes: there is one at a time, for however many groups and clients.
//! - A question that does not bring the group is followed by a longer pause each time: a client that asks for one that
//!   is not here, as with an old map, costs the metadata service no more than a heartbeat in the end. While it does so,
//!   other groups wait as long.

use parking_lot::Mutex;
use vazao_model::GroupId;
use vazao_model::limits::HEARTBEAT_MS;

/// Shortest pause between two questions: what was made meanwhile comes with the next one.
const PAUSE_NS_MIN: u64 = 50_000_000;

/// Longest one.
const PAUSE_NS_MAX: u64 = HEARTBEAT_MS as u64 * 1_000_000;

#[derive(Debug)]
struct Asking {
    /// The first one that the server was asked for since the last question.
    wanted: Option<GroupId>,
    /// The last heartbeat that was for this reason; `None`: there was none yet.
    asked_ns: Option<u64>,
    pause_ns: u64,
}

/// Whether this server was asked for a group that it does not know.
#[derive(Debug)]
pub(crate) struct UnknownGroups(Mutex<Asking>);

impl Default for UnknownGroups {
    fn default() -> UnknownGroups {
        UnknownGroups(Mutex::new(Asking { wanted: None, asked_ns: None, pause_ns: PAUSE_NS_MIN }))
    }
}

impl UnknownGroups {
    /// The server was asked for one.
    pub(crate) fn note(&self, group: GroupId) {
        self.0.lock().wanted.get_or_insert(group);
    }

    /// True when it is time to ask.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        let asking = self.0.lock();
        let is_over = |asked_ns| now_ns.saturating_sub(asked_ns) >= asking.pause_ns;
        asking.wanted.is_some() && asking.asked_ns.is_none_or(is_over)
    }

    /// A heartbeat begins. What is asked for from here on may not be in its answer. The group for which it is a
    /// question, if it is one.
    pub(crate) fn begin(&self) -> Option<GroupId> {
        self.0.lock().wanted.take()
    }

    /// A question has ended; `is_known`: it brought the group.
    pub(crate) fn end(&self, is_known: bool, now_ns: u64) {
        let mut asking = self.0.lock();
        asking.asked_ns = Some(now_ns);
        asking.pause_ns = if is_known { PAUSE_NS_MIN } else { (asking.pause_ns * 2).min(PAUSE_NS_MAX) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(GroupId::FIRST);

    #[test]
    fn a_group_that_is_not_known_is_asked_for_at_once_and_ever_later_while_nothing_comes() {
        let unknown = UnknownGroups::default();
        assert!(!unknown.is_due(0) && unknown.begin().is_none(), "nothing was asked for");
        let mut now_ns = 1_000;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            unknown.note(GROUP);
            let asked_ns = now_ns;
            while !unknown.is_due(now_ns) {
                now_ns += 10_000_000;
            }
            pauses.push((now_ns - asked_ns) / 1_000_000);
            assert_eq!(unknown.begin(), Some(GROUP));
            assert!(!unknown.is_due(u64::MAX), "it is being asked for");
            unknown.end(false, now_ns);
        }
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
        unknown.note(GROUP);
        assert_eq!(unknown.begin(), Some(GROUP));
        unknown.end(true, now_ns);
        unknown.note(GROUP);
        assert!(!unknown.is_due(now_ns + PAUSE_NS_MIN - 1) && unknown.is_due(now_ns + PAUSE_NS_MIN));
    }

    #[test]
    fn what_is_asked_for_during_a_question_is_asked_for_once_more() {
        let unknown = UnknownGroups::default();
        unknown.note(GROUP);
        assert_eq!(unknown.begin(), Some(GROUP));
        unknown.note(GROUP);
        unknown.end(true, 0);
        assert!(unknown.is_due(PAUSE_NS_MIN));
    }
}
