//! New files, written and closed, half of them synced before; and looks at those of the other mount.

use super::Thread;
use crate::clock::sleep_ms;
use crate::load::bytes::bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;

/// Files of one thread in one run.
const FILES_MAX: u64 = 120;

/// A file that was written and closed without an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    /// In the directory that is shared.
    pub(crate) name: String,
    pub(crate) length: u64,
    pub(crate) stamp: u64,
    pub(crate) is_synced: bool,
}

/// Writes files until the end.
pub(super) fn write(thread: &Thread, seed: u64) -> Vec<Written> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut written = Vec::new();
    for stamp in 1..=FILES_MAX {
        if thread.has_ended() {
            break;
        }
        let length = match random.random_range(0..3) {
            0 => random.random_range(1..8_000),
            1 => random.random_range(1..70_000),
            _ => random.random_range(1..600_000),
        };
        let (name, is_synced) = (format!("{}{stamp}", thread.client), random.random_bool(0.5));
        let work = || {
            let mut file = File::create_new(thread.at(&name))?;
            file.write_all(&bytes(stamp, 0, length))?;
            if is_synced { file.sync_all() } else { Ok(()) }
        };
        if thread.call("creating, writing and closing of a file", work).is_ok() {
            written.push(Written { name, length, stamp, is_synced });
        }
        sleep_ms(15);
    }
    written
}

/// Looks at the names and attributes until the end.
pub(super) fn look(thread: &Thread) {
    while !thread.has_ended() {
        let list = || fs::read_dir(thread.at(""))?.collect::<std::io::Result<Vec<_>>>();
        let entries = thread.call("listing", list).unwrap_or_default();
        for entry in entries.iter().rev().take(8) {
            // Nothing is removed here: each name that is listed leads to a file.
            let _ = thread.call("stat of a listed name", || fs::symlink_metadata(entry.path()));
        }
        sleep_ms(25);
    }
}
