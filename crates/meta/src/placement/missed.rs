//! What new files were to have and have not, zones and copies: counted, and logged once in a while.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use vazao_meter::Counter;
use vazao_model::InodeId;

/// A zone is logged at most this often: each of many files would say the same.
const LOGGED_EVERY_NS: u64 = 60_000_000_000;

/// Clients may claim any zone: of more than this the log says nothing.
const ZONES_MAX: usize = 256;

/// What was missed so far.
#[derive(Debug, Default)]
pub(crate) struct MissedZones {
    /// Files that lie elsewhere.
    pub(crate) files: Counter,
    logged_ns: Mutex<BTreeMap<String, u64>>,
}

impl MissedZones {
    /// Notes that a file was to lie in `zone` and does not.
    pub(crate) fn note(&self, zone: &str, inode: InodeId, now_ns: u64) {
        self.files.add(1);
        if self.is_to_be_logged(zone, now_ns) {
            tracing::warn!(zone, %inode, "no target of the zone has room: new files placed there lie in other zones");
        }
    }

    fn is_to_be_logged(&self, zone: &str, now_ns: u64) -> bool {
        let mut logged_ns = self.logged_ns.lock();
        let is_recent = |at_ns: &u64| now_ns.saturating_sub(*at_ns) < LOGGED_EVERY_NS;
        if logged_ns.get(zone).is_some_and(is_recent) {
            return false;
        }
        if logged_ns.len() >= ZONES_MAX {
            logged_ns.retain(|_, at_ns| is_recent(at_ns));
        }
        if logged_ns.len() >= ZONES_MAX {
            return false;
        }
        logged_ns.insert(zone.to_owned(), now_ns);
        true
    }
}

/// Files that were laid out with fewer copies than they were to have.
#[derive(Debug, Default)]
pub(crate) struct ShortOfCopies {
    pub(crate) files: Counter,
    logged_ns: Mutex<Option<u64>>,
}

impl ShortOfCopies {
    /// Notes that a file has `copies` and was to have `wanted`.
    pub(crate) fn note(&self, inode: InodeId, (copies, wanted): (usize, usize), now_ns: u64) {
        self.files.add(1);
        let mut logged_ns = self.logged_ns.lock();
        if logged_ns.is_none_or(|at_ns| now_ns.saturating_sub(at_ns) >= LOGGED_EVERY_NS) {
            *logged_ns = Some(now_ns);
            tracing::warn!(copies, wanted, %inode, "too few targets serve: new files have fewer copies than asked for");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_logged_once_a_minute_and_many_claimed_ones_not_for_ever() {
        let missed = MissedZones::default();
        assert!(missed.is_to_be_logged("rio", 1) && !missed.is_to_be_logged("rio", 2));
        assert!(missed.is_to_be_logged("bra", 2) && missed.is_to_be_logged("rio", 1 + LOGGED_EVERY_NS));
        let claimed = (0..10_000).filter(|n| missed.is_to_be_logged(&format!("z{n}"), 3 + LOGGED_EVERY_NS));
        assert!(claimed.count() <= ZONES_MAX);
    }
}
