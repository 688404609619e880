//! When a damaged checkpoint is kept as it is: a new one would lack so much that the service could not run on it.
//!
//! The service runs on what it can read, the log keeps all changes, and growth is refused as on a full disk. The old
//! file is not overwritten, so that an operator can restore the volume from it.

use super::base::View;
use super::rebuild::Built;
use super::{CHECKPOINT_FILE, Core, NO_PANIC};
use std::ops::Range;
use std::sync::Mutex;

/// Another attempt after this: the disk may give back what it did not.
const RETRY_NS: u64 = 600_000_000_000;

/// A new checkpoint lacks no more than one record of so many.
const LOST_PART_MAX: u64 = 4;

/// The last refusal to replace the checkpoint.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// When that was, and why.
    last: Mutex<Option<(u64, String)>>,
}

impl Keeping {
    /// The checkpoint was replaced.
    pub(super) fn forget(&self) {
        *self.last.lock().expect(NO_PANIC) = None;
    }

    /// Why the checkpoint is kept as it is, if it is.
    pub(super) fn why(&self) -> Option<String> {
        self.last.lock().expect(NO_PANIC).as_ref().map(|(_, why)| why.clone())
    }

    /// False while it is too early for another attempt.
    fn is_over(&self, now_ns: u64) -> bool {
        let last = self.last.lock().expect(NO_PANIC);
        last.as_ref().is_none_or(|(since_ns, _)| now_ns.saturating_sub(*since_ns) >= RETRY_NS)
    }
}

/// True when a start could read these records.
fn is_readable(view: &View, range: &Range<Vec<u8>>) -> bool {
    if range.end == [range.start.as_slice(), &[0]].concat() {
        return view.get(&range.start).is_ok();
    }
    view.read_range(Vec::new(), (&range.start, &range.end), &mut |_, _| true).is_ok()
}

impl Core {
    /// Why a new checkpoint must not take the place of the damaged one.
    pub(super) fn too_much_lost(&self, built: &Built) -> Option<String> {
        let is_lost = |range: &Range<Vec<u8>>| {
            let is_hit = built.lost.iter().any(|(start, end)| *start < range.end && range.start < *end);
            is_hit && !is_readable(&built.view, range)
        };
        if self.essential.iter().any(is_lost) {
            return Some("records that every start needs cannot be read".to_owned());
        }
        let lost = built.records_before.saturating_sub(built.records);
        let is_much = lost.saturating_mul(LOST_PART_MAX) > built.records_before;
        is_much.then(|| format!("{lost} of {} records cannot be read", built.records_before))
    }

    /// Goes on with the damaged checkpoint.
    pub(super) fn keep_old(&self, why: &str) {
        let text = format!(
            "{CHECKPOINT_FILE} is damaged and is not written anew, for {why}: copy what can still be read, put the \
             metadata directory aside and restore it from a backup"
        );
        tracing::error!("{text}");
        *self.keeping.last.lock().expect(NO_PANIC) = Some((self.clock.now_ns(), text));
        self.look_at_space();
    }

    /// False for a while after a new checkpoint was refused.
    pub(super) fn may_rebuild(&self) -> bool {
        self.keeping.is_over(self.clock.now_ns())
    }
}
