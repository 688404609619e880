//! Records appended with `O_APPEND` to one file, by a thread in each mount.

use super::Thread;
use crate::clock::sleep_ms;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;

/// The file that all append to.
pub(crate) const APPENDS: &str = "appends";

/// Each record has as many bytes, its newline included.
pub(crate) const RECORD_BYTES: usize = 64;

/// Records of one thread in one run.
const RECORDS_MAX: u64 = 3_000;

/// What is known of a thread's records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Appended {
    /// Numbers of records that an fsync was answered for.
    pub(crate) synced: Vec<u64>,
    /// Numbers of all other records: their write or their fsync failed.
    pub(crate) unknown: Vec<u64>,
}

/// A record, as it stands in the file.
pub(crate) fn record(client: char, number: u64) -> Vec<u8> {
    let text = format!("{client} {number:08} ");
    let filler = "abcdefghijklmnopqrstuvwxyz0123456789.".chars().cycle().skip((number % 37) as usize);
    let mut record: Vec<u8> = text.chars().chain(filler).take(RECORD_BYTES - 1).map(|it| it as u8).collect();
    record.push(b'\n');
    record
}

/// Appends until the end.
pub(super) fn run(thread: &Thread) -> Appended {
    let mut appended = Appended::default();
    let mut number = 0;
    while !thread.has_ended() && number < RECORDS_MAX {
        let open = || OpenOptions::new().append(true).create(true).open(thread.at(APPENDS));
        match thread.call("open for appending", open) {
            Ok(file) => through(thread, file, &mut number, &mut appended),
            Err(_) => sleep_ms(20),
        }
    }
    appended
}

/// Through one descriptor, until something fails.
fn through(thread: &Thread, mut file: File, number: &mut u64, appended: &mut Appended) {
    let mut written = Vec::new();
    loop {
        let is_last = thread.has_ended() || *number >= RECORDS_MAX;
        if written.len() >= 5 || is_last {
            if thread.call("fsync of appended records", || file.sync_data()).is_err() {
                break;
            }
            appended.synced.append(&mut written);
        }
        if is_last {
            return;
        }
        *number += 1;
        written.push(*number);
        let record = record(thread.client, *number);
        if thread.call("append", || file.write_all(&record)).is_err() {
            break;
        }
        sleep_ms(2);
    }
    appended.unknown.append(&mut written);
    sleep_ms(20);
}
