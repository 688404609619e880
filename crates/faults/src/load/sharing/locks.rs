//! A counter in a file, counted up under an `fcntl` lock by a thread in each mount.
//!
//! What the threads share besides the file is memory of this process: it shows whether two hold the lock at once, and
//! what the last holder has written.

use super::Thread;
use crate::clock::{now_ns, sleep_ms};
use rustix::fs::{FlockOperation, fcntl_lock};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file with the counter.
pub(crate) const COUNTER: &str = "counter";

/// What the holders of the lock see of one another.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    holders: AtomicU64,
    /// The last value whose fsync was answered.
    counted: AtomicU64,
}

/// What a thread has counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// Values written and synced under the lock.
    pub(crate) values: Vec<u64>,
    /// Moments at which the lock was got while another thread had it.
    pub(crate) overlaps_ns: Vec<u64>,
    /// A value that was read under the lock, and the greater one that had been synced under it before.
    pub(crate) stale: Vec<(u64, u64)>,
}

/// Counts until the end.
pub(super) fn run(thread: &Thread, witness: &Witness) -> Counted {
    let mut counted = Counted::default();
    while !thread.has_ended() {
        let open = || {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(thread.at(COUNTER))
        };
        let Ok(file) = thread.call("open of the counter", open) else {
            sleep_ms(20);
            continue;
        };
        while !thread.has_ended() && count(thread, &file, witness, &mut counted).is_ok() {
            sleep_ms(2);
        }
        sleep_ms(20);
    }
    counted
}

fn count(thread: &Thread, file: &File, witness: &Witness, counted: &mut Counted) -> Result<()> {
    thread.call("lock", || Ok(fcntl_lock(file, FlockOperation::LockExclusive)?))?;
    if witness.holders.fetch_add(1, Ordering::SeqCst) > 0 {
        counted.overlaps_ns.push(now_ns());
    }
    let result = under_lock(thread, file, witness, counted);
    witness.holders.fetch_sub(1, Ordering::SeqCst);
    let unlocked = thread.call("unlock", || Ok(fcntl_lock(file, FlockOperation::Unlock)?));
    result.and(unlocked)
}

fn under_lock(thread: &Thread, file: &File, witness: &Witness, counted: &mut Counted) -> Result<()> {
    let before = witness.counted.load(Ordering::SeqCst);
    let mut bytes = [0; 8];
    // An empty file reads as zero.
    thread.call("read of the counter", || file.read_at(&mut bytes, 0))?;
    let value = u64::from_le_bytes(bytes);
    if value < before {
        counted.stale.push((value, before));
    }
    thread.call("write of the counter", || file.write_all_at(&(value + 1).to_le_bytes(), 0))?;
    thread.call("fsync of the counter", || file.sync_data())?;
    counted.values.push(value + 1);
    witness.counted.fetch_max(value + 1, Ordering::SeqCst);
    sleep_ms(1);
    Ok(())
}
