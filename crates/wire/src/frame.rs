//! The frame header: 32 bytes, little-endian, before every message (docs/wire.md, "Frames").

use vazao_model::checksum::crc32c;
use vazao_model::limits::{ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX};

/// Length of a header.
pub const HEADER_BYTES: usize = 32;

/// First four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"VAZO";

/// The protocol spoken here.
pub const VERSION: u8 = 1;

/// Method number of the handshake's frames.
pub const METHOD_HELLO: u16 = 0;

/// What kind of frame it is.
pub mod flags {
    /// An answer; without it a request.
    pub const ANSWER: u8 = 1;
    /// The answer's message is a `Failure`.
    pub const ERROR: u8 = 2;
    /// The requester no longer wants the answer to this request id; it is still answered, so that credits are exact.
    pub const CANCEL: u8 = 4;
    /// Sent by a server on its own account; a client that does not know its method ignores it.
    pub const PUSH: u8 = 8;
    /// How many bytes a second the server is to send over this connection at most, in the place of the request id; all
    /// ones: as many as it can. Nothing else, and no answer.
    pub const PACE: u8 = 16;
}

/// A decoded header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// See [`flags`].
    pub flags: u8,
    /// Number of the operation.
    pub method: u16,
    /// Chosen by the requester; its answer carries the same.
    pub request_id: u64,
    /// Bytes of protobuf after the header.
    pub message_bytes: u32,
    /// Raw bytes after the message.
    pub attachment_bytes: u32,
    /// In a request: milliseconds the requester will wait. In an answer: microseconds the server took.
    pub time: u32,
}

/// Why a header was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Not our protocol at all.
    #[error("the peer does not speak the Vazão protocol")]
    Magic,
    /// Another version.
    #[error(
        "the peer speaks protocol version {0}, this side version {VERSION}; run the same release on both sides"
    )]
    Version(u8),
    /// Damaged in transit, or garbage after a good magic.
    #[error("frame header damaged")]
    Checksum,
    /// A message longer than the limit.
    #[error("message of {0} bytes, over the limit of {MESSAGE_BYTES_MAX}")]
    Message(u32),
    /// An attachment longer than the limit.
    #[error("attachment of {0} bytes, over the limit of {ATTACHMENT_BYTES_MAX}")]
    Attachment(u32),
}

impl Header {
    /// The bytes of this header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.flags;
        bytes[6..8].copy_from_slice(&self.method.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.message_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.attachment_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.time.to_le_bytes());
        let checksum = crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes and checks a header; lengths are within limits afterwards.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        if bytes[0..4] != MAGIC {
            return Err(FrameError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(FrameError::Version(bytes[4]));
        }
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if u32_at(28) != crc32c(&bytes[..28]) {
            return Err(FrameError::Checksum);
        }
        let header = Header {
            flags: bytes[5],
            method: u16::from_le_bytes([bytes[6], bytes[7]]),
            request_id: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            message_bytes: u32_at(16),
            attachment_bytes: u32_at(20),
            time: u32_at(24),
        };
        if header.message_bytes as usize > MESSAGE_BYTES_MAX {
            return Err(FrameError::Message(header.message_bytes));
        }
        if header.attachment_bytes as usize > ATTACHMENT_BYTES_MAX {
            return Err(FrameError::Attachment(header.attachment_bytes));
        }
        Ok(header)
    }

    /// Decodes the header at the start of `bytes`; `None` while there are fewer than 32.
    pub fn peek(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
        match bytes.first_chunk::<HEADER_BYTES>() {
            Some(head) => Header::decode(head).map(Some),
            None => Ok(None),
        }
    }

    /// True when a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Length of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.body_bytes()
    }

    /// Length of message and attachment.
    pub fn body_bytes(&self) -> usize {
        self.message_bytes as usize + self.attachment_bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn any_header()(
            flags in any::<u8>(), method in any::<u16>(), request_id in any::<u64>(),
            message_bytes in 0..=MESSAGE_BYTES_MAX as u32,
            attachment_bytes in 0..=ATTACHMENT_BYTES_MAX as u32,
            time in any::<u32>(),
        ) -> Header {
            Header { flags, method, request_id, message_bytes, attachment_bytes, time }
        }
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(header in any_header()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn a_damaged_header_is_never_believed(header in any_header(), at in 0usize..32, bit in 0u8..8) {
            let mut bytes = header.encode();
            bytes[at] ^= 1 << bit;
            prop_assert!(Header::decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_frame_that_claims_four_gigabytes_is_refused_before_anything_is_allocated() {
        let header = Header { attachment_bytes: u32::MAX, ..Header::default() };
        assert_eq!(Header::decode(&header.encode()), Err(FrameError::Attachment(u32::MAX)));
        let header = Header { message_bytes: u32::MAX, ..Header::default() };
        assert_eq!(Header::decode(&header.encode()), Err(FrameError::Message(u32::MAX)));
    }
}
