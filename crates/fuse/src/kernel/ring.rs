//! One place in a queue of FUSE over io_uring: a ring with a single command in it, and the memory the kernel fills.
//!
//! The crate's only module with `unsafe`: system calls that take addresses cannot do without. It has two invariants.
//! Memory belongs either to the kernel, and is then inaccessible in here, or to the caller, to whom [`Ring::wait`]
//! hands it together with a request. Memory that the kernel may still write to is never freed. Threads, and the meaning
//! of requests, belong to `uring` and `request`.
//!
//! The layouts are those of linux/io_uring.h and linux/fuse.h (FUSE 7.42, Linux 6.14).

#![allow(
    unsafe_code,
    reason = "io_uring shares memory with the kernel, and rustix passes its calls on as they are"
)]

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp, IoringSetupFlags,
    io_uring_enter, io_uring_params, io_uring_setup,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Adds the place to its queue (FUSE_IO_URING_CMD_REGISTER).
const COMMAND_REGISTER: u32 = 1;
/// Answers a request and waits for the next (FUSE_IO_URING_CMD_COMMIT_AND_FETCH).
const COMMAND_COMMIT_AND_FETCH: u32 = 2;

/// Bytes of the header, and of the fields of an operation, at most.
pub(crate) const PART_BYTES: usize = 128;

/// `fuse_uring_req_header`: a request without its payload, in place of which the answer goes back.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Headers {
    /// `fuse_in_header`, then `fuse_out_header`.
    pub(crate) in_out: [u8; PART_BYTES],
    /// The operation's own fields.
    pub(crate) operation: [u8; PART_BYTES],
    flags: u64,
    /// What the answer is recognised by.
    pub(crate) commit_id: u64,
    /// Length of names and data, and of the answer's body.
    pub(crate) payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// The memory a request comes in and its answer goes out by.
pub(crate) struct Exchange {
    pub(crate) headers: Box<Headers>,
    /// Names and data of a request and the body of its answer are `memory[payload_start..]`.
    pub(crate) memory: Vec<u8>,
    pub(crate) payload_start: usize,
}

impl Exchange {
    /// Memory for payloads that begin at `payload_start`.
    pub(crate) fn new(memory: Vec<u8>, payload_start: usize) -> Exchange {
        let empty = [0; PART_BYTES];
        let headers = Headers {
            in_out: empty,
            operation: empty,
            flags: 0,
            commit_id: 0,
            payload_bytes: 0,
            padding: 0,
            reserved: 0,
        };
        Exchange { headers: Box::new(headers), memory, payload_start }
    }

    /// Where the kernel will look for it.
    fn place(&self) -> Option<[Span; 2]> {
        let headers = Span { start: &raw const *self.headers as u64, length: size_of::<Headers>() as u64 };
        let payload = self.memory.get(self.payload_start..)?;
        Some([headers, Span { start: payload.as_ptr() as u64, length: payload.len() as u64 }])
    }
}

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span {
    start: u64,
    length: u64,
}

/// `struct io_uring_sqe` of 128 bytes, as commands of drivers use it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Submission {
    operation: u8,
    flags: u8,
    priority: u16,
    descriptor: i32,
    command: u32,
    padding: u32,
    address: u64,
    length: u32,
    command_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    unused: u32,
    /// `fuse_uring_cmd_req` from here.
    fuse_flags: u64,
    commit_id: u64,
    queue: u16,
    rest: [u8; 62],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Headers>() == 320 && std::mem::offset_of!(Headers, commit_id) == 264);
const _: () = assert!(size_of::<Submission>() == 128 && std::mem::offset_of!(Submission, fuse_flags) == 48);
const _: () = assert!(size_of::<Completion>() == 16);

/// Memory shared with the kernel.
struct Mapping {
    start: *mut c_void,
    length: usize,
}

// SAFETY: a mapping belongs to the process and not to the thread that made it, and is reached only through its owner.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(descriptor: &OwnedFd, offset: u64, length: usize) -> Result<Mapping, Errno> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, descriptor, offset) }?;
        Ok(Mapping { start, length })
    }

    /// Address of a `T` at `offset`.
    fn at<T>(&self, offset: u32) -> Result<*mut T, Errno> {
        let offset = offset as usize;
        let fits = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.length);
        if !fits || !offset.is_multiple_of(align_of::<T>()) {
            return Err(Errno::INVAL);
        }
        // SAFETY: within the mapping, as just checked.
        Ok(unsafe { self.start.byte_add(offset) }.cast())
    }

    /// A counter at `offset`, which the kernel changes too.
    fn counter(&self, offset: u32) -> Result<&AtomicU32, Errno> {
        // SAFETY: aligned, within the mapping, which lives as long as `self`; all access to it is atomic.
        Ok(unsafe { AtomicU32::from_ptr(self.at(offset)?) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no address in it is in use any more. It cannot fail for such a mapping.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// A ring and its place in a queue. Must be used by the thread that made it.
pub(crate) struct Ring<D: AsFd> {
    /// The FUSE device.
    device: D,
    queue: u16,
    descriptor: OwnedFd,
    rings: Mapping,
    submissions: Mapping,
    parameters: io_uring_params,
    /// What the kernel has registered.
    place: Option<Box<[Span; 2]>>,
    /// What is with the kernel.
    lent: Option<Exchange>,
    unsubmitted: u32,
}

impl<D: AsFd> Ring<D> {
    /// A ring for a place in queue `queue` of `device`; what it needs of the system is there then.
    pub(crate) fn new(device: D, queue: u16) -> Result<Ring<D>, Errno> {
        let mut parameters = io_uring_params::default();
        // One thread asks and waits: the kernel then works for it in its waiting, and never interrupts it elsewhere.
        parameters.flags = IoringSetupFlags::SQE128
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::NO_SQARRAY;
        // SAFETY: no work queue is attached; the parameters outlive the call.
        let descriptor = unsafe { io_uring_setup(1, &mut parameters) }?;
        if !parameters.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(Errno::NOSYS);
        }
        let completions = parameters.cq_entries as usize * size_of::<Completion>();
        let rings_bytes = parameters.cq_off.cqes as usize + completions;
        let rings = Mapping::new(&descriptor, IORING_OFF_SQ_RING, rings_bytes)?;
        let submissions_bytes = parameters.sq_entries as usize * size_of::<Submission>();
        let submissions = Mapping::new(&descriptor, IORING_OFF_SQES, submissions_bytes)?;
        Ok(Ring {
            device,
            queue,
            descriptor,
            rings,
            submissions,
            parameters,
            place: None,
            lent: None,
            unsubmitted: 0,
        })
    }

    /// Takes its place in the queue; requests come into `exchange`.
    pub(crate) fn register(&mut self, exchange: Exchange) -> Result<(), Errno> {
        let place = exchange.place().ok_or(Errno::INVAL)?;
        let place = self.place.insert(Box::new(place));
        let (address, length) = (place.as_ptr() as u64, place.len() as u32);
        self.prepare(COMMAND_REGISTER, 0, address, length)?;
        self.lent = Some(exchange);
        self.enter(0)?;
        match self.completed()? {
            // The command has ended at once, so that the kernel has nothing to write to.
            Some(result) => {
                self.lent = None;
                Err(Errno::from_raw_os_error(result.saturating_neg()))
            }
            None => Ok(()),
        }
    }

    /// Gives the answer in `exchange` back; it leaves with the next [`Ring::wait`].
    pub(crate) fn commit(&mut self, exchange: Exchange) -> Result<(), Errno> {
        // The kernel goes on using the addresses it has registered.
        if self.lent.is_some() || exchange.place() != self.place.as_deref().copied() {
            return Err(Errno::INVAL);
        }
        self.prepare(COMMAND_COMMIT_AND_FETCH, exchange.headers.commit_id, 0, 0)?;
        self.lent = Some(exchange);
        Ok(())
    }

    /// Waits for a request. An error means that none will come: the connection's, mostly.
    pub(crate) fn wait(&mut self) -> Result<Exchange, Errno> {
        loop {
            if let Some(result) = self.completed()? {
                let exchange = self.lent.take().ok_or(Errno::INVAL)?;
                return match result {
                    0.. => Ok(exchange),
                    error => Err(Errno::from_raw_os_error(error.saturating_neg())),
                };
            }
            match self.enter(1) {
                Ok(()) | Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts a command into the ring.
    fn prepare(&mut self, command: u32, commit_id: u64, address: u64, length: u32) -> Result<(), Errno> {
        let submission = Submission {
            operation: IoringOp::UringCmd as u8,
            flags: 0,
            priority: 0,
            descriptor: self.device.as_fd().as_raw_fd(),
            command,
            padding: 0,
            address,
            length,
            command_flags: 0,
            user_data: 0,
            buffer: 0,
            personality: 0,
            unused: 0,
            fuse_flags: 0,
            commit_id,
            queue: self.queue,
            rest: [0; 62],
        };
        let tail = self.rings.counter(self.parameters.sq_off.tail)?;
        // The only command before this one has been taken: it was completed, or there was none.
        let index = tail.load(Ordering::Relaxed) & (self.parameters.sq_entries - 1);
        let place: *mut Submission = self.submissions.at(index * size_of::<Submission>() as u32)?;
        // SAFETY: aligned and within the mapping; the kernel reads it only after the tail has been moved.
        unsafe { place.write(submission) };
        tail.fetch_add(1, Ordering::Release);
        self.unsubmitted = 1;
        Ok(())
    }

    fn enter(&mut self, completions_min: u32) -> Result<(), Errno> {
        let flags = IoringEnterFlags::GETEVENTS;
        // SAFETY: what the command points to is in `lent` and `place`, which are kept until it has completed.
        let taken = unsafe { io_uring_enter(&self.descriptor, self.unsubmitted, completions_min, flags) }?;
        self.unsubmitted = self.unsubmitted.saturating_sub(taken);
        Ok(())
    }

    /// The result of the command, once it has completed.
    fn completed(&mut self) -> Result<Option<i32>, Errno> {
        let offsets = &self.parameters.cq_off;
        let head = self.rings.counter(offsets.head)?;
        let at = head.load(Ordering::Relaxed);
        if at == self.rings.counter(offsets.tail)?.load(Ordering::Acquire) {
            return Ok(None);
        }
        let index = at & (self.parameters.cq_entries - 1);
        let place: *mut Completion = self.rings.at(offsets.cqes + index * size_of::<Completion>() as u32)?;
        // SAFETY: aligned and within the mapping; the kernel wrote it before it moved the tail, and does not touch it
        // again before the head is moved.
        let completion = unsafe { place.read() };
        head.store(at.wrapping_add(1), Ordering::Release);
        Ok(Some(completion.result))
    }
}

impl<D: AsFd> Drop for Ring<D> {
    fn drop(&mut self) {
        // The kernel may still write to the memory of a command that has not completed: leak it rather than have it
        // reused.
        std::mem::forget(self.lent.take());
    }
}

/// A device that a ring can share with other users.
impl AsFd for super::device::Device {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.descriptor().as_fd()
    }
}

/// The ring of one thread.
pub(crate) type DeviceRing = Ring<Arc<super::device::Device>>;
