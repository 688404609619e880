//! A file of the disk in memory: what readers see, what would survive power loss, and what lies between the two.

use super::Shared;
use super::contents::Contents;
use super::fault::Access;
use crate::DiskFile;
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What a disk writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// A file's unsynced changes beyond this reach the disk oldest first, as a kernel's background writer would do it.
/// It bounds the memory of tests that write much and sync little.
const UNSYNCED_BYTES_MAX: usize = 16 << 20;

/// What an unsynced change costs in memory besides its bytes; counts towards the limit above.
const CHANGE_COST_BYTES: usize = 64;

const BAD_DESCRIPTOR: i32 = 9; // EBADF
const INVALID: i32 = 22; // EINVAL

#[derive(Debug)]
enum Change {
    Write { offset: u64, bytes: Box<[u8]> },
    SetLength(u64),
    Punch { offset: u64, length: u64 },
}

impl Change {
    fn cost_bytes(&self) -> usize {
        match self {
            Change::Write { bytes, .. } => bytes.len() + CHANGE_COST_BYTES,
            Change::SetLength(_) | Change::Punch { .. } => CHANGE_COST_BYTES,
        }
    }
}

/// What power loss does to the unsynced changes of one file. Pure cases are as likely as mixed ones: with a coin for
/// each of many writes, "all survived" and "none survived" would never be seen.
#[derive(Clone, Copy)]
enum Fate {
    Kept,
    Lost,
    Mixed,
}

impl Fate {
    fn draw(random: &mut StdRng) -> Fate {
        match random.random_range(0..4) {
            0 => Fate::Kept,
            1 => Fate::Lost,
            _ => Fate::Mixed,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    current: Contents,
    durable: Contents,
    unsynced: VecDeque<Change>,
    unsynced_bytes: usize,
    /// True while the tree has a name for it.
    named: bool,
    handles: usize,
    /// The handle that holds the advisory lock.
    locked_by: Option<u64>,
}

/// A file, whether it has a name or is only open.
#[derive(Debug)]
pub(super) struct Inode {
    state: Mutex<State>,
}

impl Inode {
    /// An empty file that the tree is about to name.
    pub(super) fn new() -> Inode {
        Inode { state: Mutex::new(State { named: true, ..State::default() }) }
    }

    /// Power loss; returns the bytes of storage in use after it.
    pub(super) fn crash(&self, random: &mut StdRng) -> u64 {
        let mut state = self.state.lock();
        state.lose_unsynced(random);
        state.current = state.durable.clone();
        state.named = true;
        state.close_all()
    }

    /// Process death; returns the bytes of storage in use.
    pub(super) fn close_all(&self) -> u64 {
        self.state.lock().close_all()
    }

    /// The tree dropped its name; returns the bytes of storage that became free.
    pub(super) fn lose_name(&self) -> u64 {
        let mut state = self.state.lock();
        state.named = false;
        state.free_bytes()
    }

    /// Makes its contents durable, or fails with `fault` as a disk would.
    pub(super) fn sync(&self, fault: io::Result<()>, random: &mut StdRng) -> io::Result<()> {
        let mut state = self.state.lock();
        match &fault {
            Ok(()) => state.sync(),
            // The kernel forgets that the pages were dirty: a later sync will not write them again.
            Err(_) => state.lose_unsynced(random),
        }
        fault
    }

    /// Returns the bytes of storage that this added, where there was a hole.
    pub(super) fn corrupt(&self, offset: u64, xor: u8) -> io::Result<u64> {
        let mut state = self.state.lock();
        let before = state.current.allocated_bytes();
        if offset >= state.current.length() {
            return Err(io::Error::from_raw_os_error(INVALID));
        }
        state.current.corrupt(offset, xor);
        state.durable.corrupt(offset, xor);
        Ok(state.current.allocated_bytes() - before)
    }
}

impl State {
    fn close_all(&mut self) -> u64 {
        self.handles = 0;
        self.locked_by = None;
        self.current.allocated_bytes()
    }

    /// Bytes freed now that a name or a handle went away: all of them, once neither is left.
    fn free_bytes(&self) -> u64 {
        if self.named || self.handles > 0 { 0 } else { self.current.allocated_bytes() }
    }

    fn remember(&mut self, change: Change) {
        self.unsynced_bytes += change.cost_bytes();
        self.unsynced.push_back(change);
        while self.unsynced_bytes > UNSYNCED_BYTES_MAX {
            let Some(oldest) = self.unsynced.pop_front() else { return };
            self.unsynced_bytes -= oldest.cost_bytes();
            self.make_durable(&oldest);
        }
    }

    fn make_durable(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => {
                self.durable.write(bytes, *offset);
                self.durable.share(&self.current, *offset, bytes.len());
            }
            Change::SetLength(length) => self.durable.set_length(*length),
            Change::Punch { offset, length } => self.durable.punch(*offset, *length),
        }
    }

    fn sync(&mut self) {
        let changes = std::mem::take(&mut self.unsynced);
        self.unsynced_bytes = 0;
        if changes.iter().any(|change| !matches!(change, Change::Write { .. })) {
            self.durable = self.current.clone();
            return;
        }
        for change in &changes {
            if let Change::Write { offset, bytes } = change {
                self.durable.adopt(&self.current, *offset, bytes.len());
            }
        }
    }

    /// Decides for each unsynced change whether it reached the disk.
    fn lose_unsynced(&mut self, random: &mut StdRng) {
        let fate = Fate::draw(random);
        self.unsynced_bytes = 0;
        for change in std::mem::take(&mut self.unsynced) {
            let outcome = match fate {
                Fate::Kept => 0,
                Fate::Lost => 1,
                Fate::Mixed => random.random_range(0..3),
            };
            match (outcome, change) {
                (0, change) => self.make_durable(&change),
                (2, Change::Write { offset, bytes }) => self.tear(&bytes, offset, random),
                // Extents are freed one after the other.
                (2, Change::Punch { offset, length }) => {
                    let part = random.random_range(0..=length);
                    self.durable.punch(offset, part);
                }
                _ => {}
            }
        }
    }

    /// Persists any subset of the sectors of a write. The length may grow though the bytes did not arrive.
    fn tear(&mut self, bytes: &[u8], offset: u64, random: &mut StdRng) {
        let mut position = 0;
        while position < bytes.len() {
            let at = offset + position as u64;
            let sector = (SECTOR_BYTES - at % SECTOR_BYTES).min((bytes.len() - position) as u64) as usize;
            if random.next_u32().is_multiple_of(2) {
                self.durable.write(&bytes[position..position + sector], at);
            }
            position += sector;
        }
        if random.next_u32().is_multiple_of(2) {
            self.durable.grow(offset + bytes.len() as u64);
        }
    }
}

/// An open file of a [`super::MemoryDisk`].
pub(super) struct MemoryFile {
    shared: Arc<Shared>,
    inode: Arc<Inode>,
    path: String,
    life: u64,
    number: u64,
    writable: bool,
}

impl MemoryFile {
    /// A handle with its own `number`, valid during `life`.
    pub(super) fn new(
        shared: Arc<Shared>,
        inode: Arc<Inode>,
        path: &str,
        life: u64,
        number: u64,
        writable: bool,
    ) -> MemoryFile {
        inode.state.lock().handles += 1;
        MemoryFile { shared, inode, path: path.to_string(), life, number, writable }
    }

    /// Runs `act` on the file unless its disk is gone; the life cannot end meanwhile.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let _life = self.shared.alive(Some(self.life))?;
        let mut state: MutexGuard<'_, State> = self.inode.state.lock();
        act(&mut state)
    }

    /// The same for an operation that can be made to fail.
    fn attempt<T>(&self, access: Access, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.shared.faults.wait_while_hanging();
        self.attempt_at_once(access, act)
    }

    /// The same of what is in memory.
    fn attempt_at_once<T>(
        &self,
        access: Access,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.with(|state| {
            self.shared.faults.check(access, &self.path)?;
            act(state)
        })
    }

    fn check_writable(&self, errno: i32) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
    }
}

/// Refuses ranges that a signed 64-bit offset cannot address, as the kernel does.
fn check_range(offset: u64, length: usize) -> io::Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(INVALID)),
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        check_range(offset, buffer.len())?;
        self.attempt(Access::Read, |state| Ok(state.current.read(buffer, offset)))
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if !self.shared.faults.is_cached() {
            return self.with(|_| Ok(None));
        }
        check_range(offset, buffer.len())?;
        self.attempt_at_once(Access::Read, |state| Ok(state.current.read(buffer, offset))).map(Some)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable(BAD_DESCRIPTOR)?;
        check_range(offset, bytes.len())?;
        self.attempt(Access::Write, |state| {
            self.shared.reserve(state.current.missing_bytes(offset, bytes.len()))?;
            state.current.write(bytes, offset);
            state.remember(Change::Write { offset, bytes: bytes.into() });
            Ok(())
        })
    }

    fn length(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.current.length()))
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.current.allocated_bytes()))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.check_writable(INVALID)?;
        check_range(length, 0)?;
        self.attempt(Access::Write, |state| {
            let before = state.current.allocated_bytes();
            state.current.set_length(length);
            self.shared.release(before - state.current.allocated_bytes());
            state.remember(Change::SetLength(length));
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_writable(BAD_DESCRIPTOR)?;
        check_range(offset, 0)?;
        self.attempt(Access::Write, |state| {
            let before = state.current.allocated_bytes();
            state.current.punch(offset, length);
            self.shared.release(before - state.current.allocated_bytes());
            state.remember(Change::Punch { offset, length });
            Ok(())
        })
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.attempt(Access::Read, |state| Ok(state.current.next_data(offset)))
    }

    fn is_named(&self) -> io::Result<bool> {
        self.with(|state| Ok(state.named))
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.faults.wait_while_hanging();
        self.shared.faults.wait_while_held(&self.path);
        let _life = self.shared.alive(Some(self.life))?;
        let fault = self.shared.faults.check(Access::Sync, &self.path);
        self.inode.sync(fault, &mut self.shared.random.lock())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.with(|state| {
            let holder = *state.locked_by.get_or_insert(self.number);
            Ok(holder == self.number)
        })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        // In a later life the handle is not counted any more.
        let _ = self.with(|state| {
            state.handles -= 1;
            if state.locked_by == Some(self.number) {
                state.locked_by = None;
            }
            self.shared.release(state.free_bytes());
            Ok(())
        });
    }
}
