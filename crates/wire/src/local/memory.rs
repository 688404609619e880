//! Shared memory for local writes: a client writes into it, and data servers of its machine copy from it instead of a
//! socket.
//!
//! Only the lender maps it, and only the lender can write to it: a server has a descriptor from which it copies with
//! ordinary reads. So the lender cannot crash a server by a race (writing on, truncating the file, dying): at worst
//! the server gets bytes that do not match their checksums.
//!
//! The one module of this crate with unsafe code: the standard library cannot map a file into memory.

#![allow(unsafe_code, reason = "the standard library cannot map a file into memory")]

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// Buffers begin and end on such boundaries, so that no two share a page.
const UNIT_BYTES: usize = 4096;

/// A range of memory with a descriptor, of which [`LentMemory::take`] gives out parts.
#[derive(Debug)]
pub struct LentMemory {
    file: OwnedFd,
    start: NonNull<c_void>,
    length: usize,
    /// Free ranges in order, no two of which touch.
    free: Mutex<Vec<Range<usize>>>,
}

// SAFETY: the mapping belongs to the process and not to a thread. It is reached only through buffers, each of which
// has a range of its own.
unsafe impl Send for LentMemory {}
// SAFETY: as above; what threads share besides is behind a mutex.
unsafe impl Sync for LentMemory {}

impl LentMemory {
    /// New memory of `length` bytes, none of which is used before it is written to. Errors: the kernel's.
    pub fn new(length: usize) -> io::Result<Arc<LentMemory>> {
        let length = length.next_multiple_of(UNIT_BYTES).max(UNIT_BYTES);
        let file = memfd_create("vazao-lent", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, length as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, &file, 0) }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        let memory =
            LentMemory { file, start, length, free: Mutex::new(std::iter::once(0..length).collect()) };
        // The seals keep every process from truncating the file under the mapping, and borrowers from writing to it
        // or mapping it writable.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&memory.file, seals)?;
        Ok(Arc::new(memory))
    }

    /// The descriptor to lend.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A buffer of `length` bytes with unspecified contents that begins on a page; `None` when there is no such range
    /// left.
    pub fn take(self: &Arc<LentMemory>, length: usize) -> Option<LentBuffer> {
        let taken = length.checked_next_multiple_of(UNIT_BYTES)?.max(UNIT_BYTES);
        let mut free = self.free.lock();
        let index = free.iter().position(|range| range.len() >= taken)?;
        let range = free.get_mut(index)?;
        let start = range.start;
        range.start += taken;
        if range.start == range.end {
            free.remove(index);
        }
        drop(free);
        Some(LentBuffer { memory: Arc::clone(self), taken: start..start + taken, length })
    }

    /// Where `bytes` lie in it, when they do.
    pub fn place_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.start.as_ptr() as usize)?;
        (offset.checked_add(bytes.len())? <= self.length).then_some(offset as u64)
    }

    fn give_back(&self, range: Range<usize>) {
        let mut free = self.free.lock();
        let index = free.partition_point(|other| other.start < range.start);
        free.insert(index, range);
        for index in [index, index.saturating_sub(1)] {
            if let (Some(before), Some(after)) = (free.get(index), free.get(index + 1))
                && before.end == after.start
            {
                let joined = before.start..after.end;
                free.splice(index..index + 2, [joined]);
            }
        }
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and no buffer is left: each keeps the memory alive.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}

/// A part of lent memory, for its owner alone until it is dropped.
#[derive(Debug)]
pub struct LentBuffer {
    memory: Arc<LentMemory>,
    taken: Range<usize>,
    length: usize,
}

impl Deref for LentBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the mapping, which lives as long as `memory`; it is given out once, and no
        // other process can write to it.
        unsafe {
            let start = self.memory.start.cast::<u8>().add(self.taken.start);
            std::slice::from_raw_parts(start.as_ptr(), self.length)
        }
    }
}

impl DerefMut for LentBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone. That another process reads at the same time is the kernel's
        // business, which copies for it.
        unsafe {
            let start = self.memory.start.cast::<u8>().add(self.taken.start);
            std::slice::from_raw_parts_mut(start.as_ptr(), self.length)
        }
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        self.memory.give_back(self.taken.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_a_buffer_is_read_by_its_descriptor_at_its_place() {
        let memory = LentMemory::new(64 * 1024).expect("a descriptor");
        let first = memory.take(5000).expect("is empty");
        let mut second = memory.take(5000).expect("half full at most");
        second.copy_from_slice(&[7; 5000]);
        let place = memory.place_of(&second[10..20]).expect("lies within");
        let mut read = [0; 10];
        rustix::io::pread(memory.descriptor(), &mut read, place).expect("readable");
        assert_eq!((read, place), ([7; 10], 8192 + 10));
        assert_eq!(memory.place_of(&[1, 2, 3]), None);
        assert_eq!(first.len(), 5000);
    }

    #[test]
    fn what_is_given_back_in_any_order_is_one_range_again() {
        let memory = LentMemory::new(16 * UNIT_BYTES).expect("a descriptor");
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut buffers: Vec<_> = (0..4).map(|_| memory.take(4 * UNIT_BYTES)).collect();
            assert!(memory.take(1).is_none(), "all of it is given out");
            order.into_iter().for_each(|index: usize| buffers[index] = None);
            let free = memory.free.lock();
            assert_eq!(free.as_slice(), std::slice::from_ref(&(0..16 * UNIT_BYTES)));
        }
    }

    #[test]
    fn nobody_can_write_to_it_by_its_descriptor_or_cut_it() {
        let memory = LentMemory::new(UNIT_BYTES).expect("a descriptor");
        assert!(rustix::io::pwrite(memory.descriptor(), &[1], 0).is_err());
        assert!(ftruncate(memory.descriptor(), 0).is_err());
    }
}
