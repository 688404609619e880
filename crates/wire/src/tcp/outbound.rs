//! Answers waiting to be sent on one connection, built in place in one buffer so that many leave in one send.

use super::buffers::{Stack, grow};
use crate::frame::{HEADER_BYTES, Header};

/// The unsent bytes of a connection.
#[derive(Default)]
pub(super) struct Outbound {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outbound {
    /// Appends a frame and returns the place of its attachment, with unspecified contents.
    pub(super) fn frame(&mut self, stack: &mut Stack, header: &Header, message: &[u8]) -> &mut [u8] {
        let length = header.frame_bytes();
        if self.buffer.is_empty() {
            self.buffer = stack.take(length);
        }
        self.make_room(length);
        let at = self.end;
        self.end += length;
        let frame = &mut self.buffer[at..at + length];
        frame[..HEADER_BYTES].copy_from_slice(&header.encode());
        let body = &mut frame[HEADER_BYTES..];
        body[..message.len()].copy_from_slice(message);
        &mut body[message.len()..]
    }

    fn make_room(&mut self, length: usize) {
        if self.start > 0 && self.end + length > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        grow(&mut self.buffer, self.end + length);
    }

    /// Takes back the frames appended since `mark`.
    pub(super) fn roll_back(&mut self, mark: usize) {
        self.end = self.start + mark;
    }

    /// Number of unsent bytes, and a mark for [`Outbound::roll_back`].
    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Memory that they take.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The unsent bytes.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// `sent` bytes have left; an empty buffer goes back to the stack.
    pub(super) fn advance(&mut self, sent: usize, stack: &mut Stack) {
        self.start += sent;
        if self.start == self.end {
            stack.put(std::mem::take(&mut self.buffer));
            self.start = 0;
            self.end = 0;
        }
    }
}
