//! Which directories of a target are there, and which would survive power loss: what has been made or synced once is
//! not made or synced again.

use super::{Bucket, FAN_OUT};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use vazao_model::GroupId;

/// What is known of a directory.
const UNKNOWN: u8 = 0;
const THERE: u8 = 1;
const DURABLE: u8 = 2;

/// One directory with its leaf directories.
struct Upper {
    state: AtomicU8,
    leaves: [AtomicU8; FAN_OUT as usize],
}

impl Default for Upper {
    fn default() -> Upper {
        Upper { state: AtomicU8::new(UNKNOWN), leaves: std::array::from_fn(|_| AtomicU8::new(UNKNOWN)) }
    }
}

/// The directories beneath `objects` and `groups`.
#[derive(Default)]
pub(crate) struct Directories {
    /// By placement group and number.
    uppers: RwLock<HashMap<(GroupId, u16), Arc<Upper>>>,
    /// `groups` itself; `objects` is durable from the formatting on.
    groups: AtomicU8,
}

impl Directories {
    /// The directory above `bucket`.
    fn upper(&self, bucket: Bucket) -> Arc<Upper> {
        let key = (bucket.group, bucket.leaf / FAN_OUT);
        if let Some(upper) = self.uppers.read().get(&key) {
            return Arc::clone(upper);
        }
        Arc::clone(self.uppers.write().entry(key).or_default())
    }

    /// Has `make` create the leaf directory with those above it, unless it is known to be there.
    pub(crate) fn make<E>(&self, bucket: Bucket, make: impl FnOnce(&str) -> Result<(), E>) -> Result<(), E> {
        let upper = self.upper(bucket);
        let leaf = &upper.leaves[usize::from(bucket.leaf % FAN_OUT)];
        if leaf.load(Ordering::Acquire) == UNKNOWN {
            make(&bucket.path())?;
            // Another thread may have come further meanwhile.
            for state in [&upper.state, leaf] {
                let _ = state.compare_exchange(UNKNOWN, THERE, Ordering::AcqRel, Ordering::Acquire);
            }
        }
        Ok(())
    }

    /// Has `sync` make the names in a leaf directory durable, and those of the directories above it that are not yet.
    pub(crate) fn sync<E>(&self, bucket: Bucket, sync: impl Fn(&str) -> Result<(), E>) -> Result<(), E> {
        let upper = self.upper(bucket);
        let leaf = &upper.leaves[usize::from(bucket.leaf % FAN_OUT)];
        sync(&bucket.path())?;
        if leaf.load(Ordering::Acquire) == DURABLE {
            return Ok(());
        }
        sync(&bucket.upper())?;
        if upper.state.load(Ordering::Acquire) != DURABLE {
            sync(bucket.root())?;
            if !bucket.is_own() && self.groups.load(Ordering::Acquire) != DURABLE {
                sync("")?;
                self.groups.store(DURABLE, Ordering::Release);
            }
            upper.state.store(DURABLE, Ordering::Release);
        }
        leaf.store(DURABLE, Ordering::Release);
        Ok(())
    }
}
