//! The device: requests are received from it, answers and notifications sent to it.

use super::abi;
use super::reply::{self, Reply};
use crate::kernel_cache::notifier::Notifier;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// The kernel refuses to fill a smaller buffer (FUSE_MIN_READ_BUFFER).
pub(super) const REQUEST_BYTES_MIN: usize = 8192;

/// Why a mount's threads stopped, when it was not an unmount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum DeviceError {
    /// Reading or writing the device failed.
    #[error("/dev/fuse: {0}")]
    Device(Errno),
    /// The first request was not the one that opens the conversation.
    #[error("the kernel did not begin with INIT")]
    NoInit,
    /// The kernel speaks a version this door does not.
    #[error("the kernel speaks FUSE {0}.{1}, {major}.{minor} or a later {major}.x is needed (Linux 4.20 or later)",
            major = abi::MAJOR, minor = abi::MINOR_MIN)]
    Version(u32, u32),
}

/// An open FUSE device.
#[derive(Debug)]
pub(crate) struct Device {
    descriptor: OwnedFd,
}

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Device {
        Device { descriptor }
    }

    /// The open file itself.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// The next request; `None` once the file system is unmounted.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        loop {
            match rustix::io::read(&self.descriptor, &mut *buffer) {
                Ok(length) => return Ok(Some(length)),
                // NOENT: the request was taken back before it could be read.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
                // NODEV: unmounted. CONNABORTED: unmounted by force.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(DeviceError::Device(error)),
            }
        }
    }

    /// False when the answer has not reached the kernel.
    pub(super) fn send(&self, answer: &[u8]) -> bool {
        let sent = rustix::io::write(&self.descriptor, answer);
        match sent {
            // NOENT: the caller no longer waits for the request. NODEV: unmounted meanwhile.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => {}
            Err(error) => tracing::error!("the kernel refused an answer of {} bytes: {error}", answer.len()),
        }
        sent.is_ok()
    }
}

impl Device {
    /// Answers a request with `EINTR` while another thread is at work on it: that one's answer comes too late then.
    pub(crate) fn answer_interrupted(&self, unique: u64) {
        self.send(&reply::header(-Errno::INTR.raw_os_error(), unique, 0));
    }

    /// Sends what was not asked for; false when the kernel does not know the inode or the name.
    fn notify(&self, message: &mut Reply) -> bool {
        let sent = rustix::io::write(&self.descriptor, message.finish());
        if let Err(error) = &sent {
            tracing::trace!("a notification: {error}");
        }
        sent != Err(Errno::NOENT)
    }

    fn invalidate_inode(&self, node: u64, offset: i64) -> bool {
        let mut message = Reply::with_capacity(24);
        message.start_notification(abi::NOTIFY_INVALIDATE_INODE);
        message.put_u64(node);
        message.put_u64(offset as u64);
        // Up to the end.
        message.put_u64(0);
        self.notify(&mut message)
    }
}

impl Notifier for Arc<Device> {
    fn invalidate_attributes(&self, node: u64) -> bool {
        // A negative offset leaves cached pages alone: the kernel drops them itself when it sees another time.
        self.invalidate_inode(node, -1)
    }

    fn invalidate_contents(&self, node: u64) -> bool {
        self.invalidate_inode(node, 0)
    }

    fn invalidate_pages_from(&self, node: u64, offset: u64) {
        self.invalidate_inode(node, i64::try_from(offset).unwrap_or(i64::MAX));
    }

    fn invalidate_entry(&self, parent: u64, name: &[u8]) {
        let mut message = Reply::with_capacity(16 + name.len() + 1);
        message.start_notification(abi::NOTIFY_INVALIDATE_ENTRY);
        message.put_u64(parent);
        message.put_u32(name.len() as u32);
        message.put_u32(0);
        message.put(name);
        message.put(&[0]);
        self.notify(&mut message);
    }

    fn invalidate_entries(&self) {
        let mut message = Reply::with_capacity(0);
        message.start_notification(abi::NOTIFY_NEW_EPOCH);
        self.notify(&mut message);
    }
}

/// Bytes of the longest data a request or its answer can have.
pub(crate) fn payload_bytes(request_bytes_max: u32) -> usize {
    (request_bytes_max as usize).next_multiple_of(rustix::param::page_size()).max(REQUEST_BYTES_MIN)
}
