//! One end of a door connection: whole frames with descriptors, sent and received by a deadline.

use super::DESCRIPTORS;
use crate::frame::{FrameError, HEADER_BYTES, Header};
use crate::interrupt;
use crate::service::Fault;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::Code;

/// A frame without attachment, and what came along with it.
pub(super) struct Said {
    pub(super) header: Header,
    pub(super) message: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// A connection.
pub(super) struct Talk {
    stream: OwnedFd,
    peer: String,
    clock: Arc<dyn Clock>,
}

impl Talk {
    /// Over a connected stream; `peer` is what errors call the other side.
    pub(super) fn new(stream: OwnedFd, peer: String, clock: Arc<dyn Clock>) -> Talk {
        Talk { stream, peer, clock }
    }

    /// The clock that deadlines are on.
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// A fault of this connection.
    pub(super) fn fault(&self, code: Code, what: impl std::fmt::Display) -> Fault {
        Fault::new(code, format!("{}: {what}", self.peer))
    }

    /// Ends the connection for both sides, also for a thread that waits on it.
    pub(super) fn end(&self) {
        let _ = shutdown(&self.stream, Shutdown::Both);
    }

    /// False once the other side has closed it, or this one ended it.
    pub(super) fn is_open(&self) -> bool {
        let ended = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => !fds[0].revents().intersects(ended),
            Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Sends a frame; the descriptors travel with its first byte.
    pub(super) fn say(
        &self,
        header: &Header,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline_ns: u64,
    ) -> Result<(), Fault> {
        let frame = [&header.encode()[..], message].concat();
        let mut sent = 0;
        while sent < frame.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if sent == 0
                && !descriptors.is_empty()
                && !control.push(SendAncillaryMessage::ScmRights(descriptors))
            {
                return Err(self.fault(Code::Internal, "more descriptors than an answer can carry"));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.stream, &[IoSlice::new(&frame[sent..])], &mut control, flags) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, Some(deadline_ns))?,
                Err(errno) => return Err(self.fault(Code::Disconnected, errno)),
            }
        }
        Ok(())
    }

    /// Receives the next frame, whose message may be `message_bytes_max` long. Waits for its beginning until
    /// `begin_ns` (for ever when `None`), and for the rest at most `rest_ns` nanoseconds longer.
    pub(super) fn hear(
        &self,
        message_bytes_max: usize,
        begin_ns: Option<u64>,
        rest_ns: u64,
    ) -> Result<Said, Fault> {
        self.wait(PollFlags::IN, begin_ns)?;
        let deadline_ns = self.clock.now_ns().saturating_add(rest_ns).min(begin_ns.unwrap_or(u64::MAX));
        let mut descriptors = Vec::new();
        let mut head = [0; HEADER_BYTES];
        self.fill(&mut head, &mut descriptors, deadline_ns)?;
        let header = Header::decode(&head).map_err(|error| {
            let code = match error {
                FrameError::Version(_) => Code::VersionMismatch,
                _ => Code::BadRequest,
            };
            self.fault(code, error)
        })?;
        if header.message_bytes as usize > message_bytes_max || header.attachment_bytes > 0 {
            let what = format!("a message of {} bytes where none is that long", header.body_bytes());
            return Err(self.fault(Code::BadRequest, what));
        }
        let mut message = vec![0; header.message_bytes as usize];
        self.fill(&mut message, &mut descriptors, deadline_ns)?;
        Ok(Said { header, message, descriptors })
    }

    /// Receives exactly as many bytes as `place` has.
    fn fill(&self, place: &mut [u8], descriptors: &mut Vec<OwnedFd>, deadline_ns: u64) -> Result<(), Fault> {
        let mut filled = 0;
        while filled < place.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut slices = [IoSliceMut::new(&mut place[filled..])];
            match recvmsg(&self.stream, &mut slices, &mut control, flags) {
                Ok(received) if received.bytes == 0 => {
                    return Err(self.fault(Code::Disconnected, "the connection was closed"));
                }
                Ok(received) => filled += received.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, Some(deadline_ns))?,
                Err(errno) => return Err(self.fault(Code::Disconnected, errno)),
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            if descriptors.len() > DESCRIPTORS {
                return Err(self.fault(Code::BadRequest, "more descriptors than an answer carries"));
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready. Errors: it is not by the deadline, or never will be; `Interrupted`.
    fn wait(&self, flags: PollFlags, deadline_ns: Option<u64>) -> Result<(), Fault> {
        let deadline_ns = deadline_ns.unwrap_or(u64::MAX);
        loop {
            let now_ns = self.clock.now_ns();
            let until_ns = interrupt::look_by_ns(now_ns, deadline_ns);
            let left_ns = until_ns.saturating_sub(now_ns);
            let timeout = (until_ns < u64::MAX).then_some(Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as _,
            });
            let mut fds = [PollFd::new(&self.stream, flags)];
            match poll(&mut fds, timeout.as_ref()) {
                // A socket that was closed is ready: the call that follows says how it ended.
                Ok(count) if count > 0 => return Ok(()),
                Ok(_) | Err(Errno::INTR) if self.clock.now_ns() >= deadline_ns => {
                    return Err(self.fault(Code::Timeout, "no answer within the deadline"));
                }
                Ok(_) | Err(Errno::INTR) if interrupt::is_polled() => return Err(Code::Interrupted.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fault(Code::Disconnected, errno)),
            }
        }
    }
}
