//! Copies between this machine and the volume: which file goes where, by several threads.
//!
//! One thread walks the sources and makes the directories; the others copy files. What fails is reported and left out,
//! the rest goes on, as with cp.

mod area;
mod ftp;
mod local;
mod meter;
mod part;
pub(crate) mod remote;
mod transfer;
mod tree;
mod volume;

pub(crate) use area::AreaTree;
pub(crate) use ftp::{FtpTree, Patience, path_of as ftp_path};
pub(crate) use local::LocalTree;
pub(crate) use meter::{Counts, Meter};
pub(crate) use part::PartNames;
pub(crate) use transfer::Transfer;
pub(crate) use tree::{Found, Tree, join};
pub(crate) use volume::{VolumeTree, umask};

use crate::failure::{Failure, Outcome, report};
use crate::parallel::THREADS;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
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
    for item in directories.iter().rev() {
        if let Err(failure) = settle(transfer, item) {
            transfer.meter.failed(|| report(&failure));
        }
    }
    if transfer.stop.is_asked() {
        Err(Failure::new("interrupted; what was copied whole stays"))
    } else {
        Ok(())
    }
}

fn work(transfer: Transfer<'_>, receiver: &Mutex<Receiver<Item>>) {
    loop {
        let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(item) = next else { return };
        if transfer.stop.is_asked() {
            continue;
        }
        let copied = match item.found.kind {
            FileKind::Symlink => transfer.link(&item.source, &item.found, &item.destination),
            _ => transfer.file(&item.source, &item.found, &item.destination),
        };
        match copied {
            Ok(()) => transfer.meter.done(),
            Err(_) if transfer.stop.is_asked() => transfer.meter.failed(|| ()),
            Err(failure) => transfer.meter.failed(|| report(&failure)),
        }
    }
}

/// Makes directories and hands files out; returns the directories in the order they were made in.
fn walk(transfer: Transfer<'_>, items: Vec<Item>, files: SyncSender<Item>) -> Vec<Item> {
    let mut waiting: Vec<Item> = items.into_iter().rev().collect();
    let mut directories = Vec::new();
    while let Some(item) = waiting.pop() {
        if transfer.stop.is_asked() {
            break;
        }
        let stepped = match item.found.kind {
            FileKind::Directory => {
                directories.push(item.clone());
                enter(transfer, &item, &mut waiting)
            }
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

fn enter(transfer: Transfer<'_>, item: &Item, waiting: &mut Vec<Item>) -> Outcome {
    // With -p, open to others only once it is theirs.
    let mode = if transfer.preserve { 0o700 } else { item.found.mode & 0o777 | 0o700 };
    transfer.to.make_directory(&item.destination, mode)?;
    transfer.meter.done();
    transfer.from.list(&item.source, &mut |names| {
        for name in names {
            let source = join(&item.source, &name);
            let destination = join(&item.destination, &name);
            match transfer.from.find(&source, false) {
                Ok(Some(found)) => waiting.push(Item { source, found, destination }),
                // Removed since it was listed.
                Ok(None) => {}
                Err(failure) => transfer.meter.failed(|| report(&failure)),
            }
        }
        Ok(())
    })
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
