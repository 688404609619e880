//! Copies between this machine and the volume: which file goes where, by several threads.
//!
//! One thread walks the sources and makes the directories; the others copy files. What fails is reported and left out,
//! the rest goes on, as with cp.

mod area;
pub(crate) mod credentials;
mod ftp;
pub(crate) mod itself;
mod local;
mod meter;
mod part;
pub(crate) mod remote;
mod rules;
mod standard;
mod transfer;
mod tree;
mod volume;

pub(crate) use area::AreaTree;
pub(crate) use ftp::{FtpTimeouts, FtpTree, path_of as ftp_path};
pub(crate) use local::LocalTree;
pub(crate) use meter::{Counts, Meter};
pub(crate) use part::PartNames;
pub(crate) use rules::Rules;
pub(crate) use standard::{NAME as STANDARD, StandardTree};
pub(crate) use transfer::Transfer;
pub(crate) use tree::{Found, Tree, join};
pub(crate) use volume::{VolumeTree, umask};

use crate::failure::{Failure, Outcome, report};
use crate::parallel::THREADS;
use itself::Made;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use vazao_model::FileKind;

/// Files that wait for a thread: enough that none is idle, few enough that memory stays flat.
const WAITING_MAX: usize = 256;

/// A file, link or directory and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Its path at the source.
    pub(crate) source: Vec<u8>,
    /// What it is.
    pub(crate) found: Found,
    /// Its path at the destination.
    pub(crate) destination: Vec<u8>,
    /// Its path below what is copied.
    pub(crate) below: Vec<u8>,
}

/// Copies `items`, directories with all that is in them, and counts what failed.
pub(crate) fn run(transfer: Transfer<'_>, items: Vec<Item>) -> Outcome {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let receiver = Mutex::new(receiver);
    let directories = std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| work(transfer, &receiver));
        }
        walk(transfer, items, sender)
    });
    // From the deepest up: their times change no more, and a directory that may not be written is filled by then.
    let filled = if transfer.rules.is_dry() { &[][..] } else { &directories };
    for item in filled.iter().rev() {
        if let Err(failure) = settle(transfer, item) {
            transfer.meter.failed(|| report(&failure));
        }
    }
    if transfer.stop.is_asked() {
        Err(Failure::new("interrupted; what was copied whole stays"))
    } else {
        transfer.rules.check(transfer.meter.now_ns())
    }
}

fn work(transfer: Transfer<'_>, receiver: &Mutex<Receiver<Item>>) {
    loop {
        let next = receiver.lock().recv();
        let Ok(item) = next else { return };
        if is_over(transfer) {
            continue;
        }
        let copied = match item.found.kind {
            FileKind::Symlink => transfer.link(&item.source, &item.found, &item.destination),
            _ => transfer.file(&item.source, &item.found, &item.destination),
        };
        match copied {
            Ok(()) => {
                transfer.meter.done();
                transfer.told(&item);
            }
            Err(_) if is_over(transfer) => transfer.meter.failed(|| ()),
            Err(failure) => transfer.meter.failed(|| report(&failure)),
        }
    }
}

impl Transfer<'_> {
    /// Names a file that was copied, where that was asked for.
    fn told(&self, item: &Item) {
        if self.rules.is_verbose() {
            let (from, to) = (self.from.show(&item.source), self.to.show(&item.destination));
            self.meter.say(&format!("{from} → {to}"));
        }
    }
}

/// Nothing more is to be begun.
fn is_over(transfer: Transfer<'_>) -> bool {
    transfer.stop.is_asked() || transfer.rules.check(transfer.meter.now_ns()).is_err()
}

/// Makes directories and hands files out; returns the directories in the order they were made in.
fn walk(transfer: Transfer<'_>, items: Vec<Item>, files: SyncSender<Item>) -> Vec<Item> {
    let mut waiting: Vec<Item> = items.into_iter().rev().collect();
    let mut directories = Vec::new();
    let mut made = Made::default();
    while let Some(item) = waiting.pop() {
        if is_over(transfer) {
            break;
        }
        let stepped = match item.found.kind {
            FileKind::Directory => made.check(transfer, &item).and_then(|()| {
                directories.push(item.clone());
                enter(transfer, &item, &mut made, &mut waiting)
            }),
            FileKind::File | FileKind::Symlink if transfer.rules.is_dry() => would_copy(transfer, &item),
            FileKind::File | FileKind::Symlink => {
                transfer.meter.announce(if item.found.kind == FileKind::File { item.found.size } else { 0 });
                files.send(item).map_err(|_| Failure::new("the copying threads have ended"))
            }
            other => {
                let shown = transfer.from.show(&item.source);
                Err(Failure::new(format!("{shown}: is a {} and is not copied", crate::format::kind(other))))
            }
        };
        if let Err(failure) = stepped {
            transfer.meter.failed(|| report(&failure));
        }
    }
    directories
}

fn enter(transfer: Transfer<'_>, item: &Item, made: &mut Made, waiting: &mut Vec<Item>) -> Outcome {
    // With -p, open to others only once it is theirs.
    let mode = if transfer.preserve { 0o700 } else { item.found.mode & 0o777 | 0o700 };
    if !transfer.rules.is_dry() {
        transfer.to.make_directory(&item.destination, mode)?;
        transfer.meter.entered();
    }
    made.note(transfer, item)?;
    transfer.from.list(&item.source, &mut |names| {
        for name in names {
            let source = join(&item.source, &name);
            let destination = join(&item.destination, &name);
            let below = join(&item.below, &name);
            match transfer.from.find(&source, false) {
                Ok(Some(found)) => {
                    let is_wanted = match found.kind {
                        FileKind::Directory => transfer.rules.enters(&below),
                        _ => transfer.rules.takes(&below),
                    };
                    if is_wanted {
                        waiting.push(Item { source, found, destination, below });
                    }
                }
                // Removed since it was listed.
                Ok(None) => {}
                Err(failure) => transfer.meter.failed(|| report(&failure)),
            }
        }
        Ok(())
    })
}

/// Says that a file would be copied, where it would.
fn would_copy(transfer: Transfer<'_>, item: &Item) -> Outcome {
    let there = transfer.to.find(&item.destination, false)?;
    if there.is_some_and(|there| transfer.keeps_there(&item.found, &there)) {
        return Ok(());
    }
    transfer.meter.done();
    let (from, to) = (transfer.from.show(&item.source), transfer.to.show(&item.destination));
    transfer.rules.show(&from, &to, item.found.size)
}

/// Gives a directory what it could not have while it was being filled.
fn settle(transfer: Transfer<'_>, item: &Item) -> Outcome {
    if transfer.preserve {
        return transfer.preserve(&item.destination, &item.found);
    }
    if item.found.mode & 0o700 != 0o700 {
        return transfer.to.set_mode(&item.destination, item.found.mode & 0o777 & !umask());
    }
    Ok(())
}
