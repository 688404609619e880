//! What a target knows of the latest that the primaries of its placement groups say, where each change finds it under
//! its object's lock.

use parking_lot::RwLock;
use std::collections::HashMap;
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::service::Fault;

/// The latest epoch that each member knows of its group, and in it the latest stream of the primary, where a change
/// finds both in the moment it is made.
#[derive(Default, Debug)]
pub(crate) struct Latest(RwLock<HashMap<(TargetId, GroupId), (u64, u64)>>);

impl Latest {
    /// It hears of a stream in an epoch; what is earlier changes nothing. Returns the latest.
    pub(crate) fn hear(&self, key: (TargetId, GroupId), epoch: u64, stream: u64) -> (u64, u64) {
        let mut latest = self.0.write();
        let known = latest.entry(key).or_default();
        *known = (epoch, stream).max(*known);
        *known
    }

    /// The latest that this member knows; 0: none.
    pub(crate) fn known(&self, key: (TargetId, GroupId)) -> (u64, u64) {
        self.0.read().get(&key).copied().unwrap_or_default()
    }
}

/// What is said to one who sends in another epoch, or in an earlier stream.
pub(crate) fn outdated(group: GroupId, sent: (u64, u64), known: (u64, u64)) -> Fault {
    let text = format!(
        "placement group {group} is in epoch {}, stream {}; this is of epoch {}, stream {}",
        known.0, known.1, sent.0, sent.1
    );
    Fault::new(Code::WrongEpoch, text)
}
