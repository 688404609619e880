//! Received bytes of a client's connection, cut into frames. Large attachments are received straight into their buffer.

use super::buffers::SharedPool;
use crate::frame::{FrameError, HEADER_BYTES, Header};
use crate::proto;
use crate::service::Fault;
use crate::transport::Buffer;
use prost::Message;
use std::sync::Arc;
use vazao_model::Code;

/// Received at once while no frame is under way: enough for a batch of metadata answers, little to copy of an
/// attachment.
const SCRATCH_BYTES: usize = 16 * 1024;

/// A complete frame.
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) message: Vec<u8>,
    pub(super) attachment: Buffer,
}

impl Frame {
    /// What the message of an answer with [`flags::ERROR`](crate::frame::flags::ERROR) says.
    pub(super) fn failure(&self) -> Fault {
        match proto::Failure::decode(self.message.as_slice()) {
            Ok(failure) => Fault::from(failure),
            Err(_) => Fault::new(Code::BadRequest, "a failure that does not decode"),
        }
    }
}

/// A frame whose header has arrived.
struct Body {
    header: Header,
    message: Vec<u8>,
    message_filled: usize,
    attachment: Vec<u8>,
    attachment_filled: usize,
}

/// The receiving side of one connection.
pub(super) struct Inbound {
    scratch: Box<[u8]>,
    start: usize,
    end: usize,
    body: Option<Body>,
    pool: Arc<SharedPool>,
}

impl Inbound {
    pub(super) fn new(pool: Arc<SharedPool>) -> Inbound {
        Inbound { scratch: vec![0; SCRATCH_BYTES].into_boxed_slice(), start: 0, end: 0, body: None, pool }
    }

    /// A header has arrived, and not all that it announces.
    pub(super) fn is_within_frame(&self) -> bool {
        self.body.is_some()
    }

    /// Where the next received bytes belong. Call only after [`Inbound::next_frame`] has returned `None`.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if let Some(body) = &mut self.body {
            if body.message_filled < body.message.len() {
                return &mut body.message[body.message_filled..];
            }
            let length = body.header.attachment_bytes as usize;
            return &mut body.attachment[body.attachment_filled..length];
        }
        self.scratch.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        &mut self.scratch[self.end..]
    }

    /// `count` bytes have been put into [`Inbound::space`].
    pub(super) fn received(&mut self, count: usize) {
        match &mut self.body {
            Some(body) if body.message_filled < body.message.len() => body.message_filled += count,
            Some(body) => body.attachment_filled += count,
            None => self.end += count,
        }
    }

    /// The next complete frame.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.body.is_none() {
            let Some(header) = Header::peek(&self.scratch[self.start..self.end])? else { return Ok(None) };
            self.start += HEADER_BYTES;
            self.body = Some(Body {
                header,
                message: vec![0; header.message_bytes as usize],
                message_filled: 0,
                attachment: match header.attachment_bytes {
                    0 => Vec::new(),
                    length => self.pool.take(length as usize),
                },
                attachment_filled: 0,
            });
        }
        self.fill_from_scratch();
        Ok(self.take_complete())
    }

    fn fill_from_scratch(&mut self) {
        let Some(body) = &mut self.body else { return };
        let length = body.header.attachment_bytes as usize;
        let parts = [
            (&mut body.message[..], &mut body.message_filled),
            (&mut body.attachment[..length], &mut body.attachment_filled),
        ];
        for (part, filled) in parts {
            let count = (part.len() - *filled).min(self.end - self.start);
            part[*filled..*filled + count].copy_from_slice(&self.scratch[self.start..self.start + count]);
            *filled += count;
            self.start += count;
        }
    }

    fn take_complete(&mut self) -> Option<Frame> {
        let complete = self.body.as_ref().is_some_and(|body| {
            body.message_filled == body.message.len()
                && body.attachment_filled == body.header.attachment_bytes as usize
        });
        if !complete {
            return None;
        }
        let body = self.body.take()?;
        let attachment = self.pool.lend(body.attachment, body.header.attachment_bytes as usize);
        Some(Frame { header: body.header, message: body.message, attachment })
    }
}
