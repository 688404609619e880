//! What travels on a data connection: a greeting, then records (docs/wire.md, "Data connections of copies").

use vazao_model::Code;
use vazao_model::checksum::{crc32c, piece_count};
use vazao_wire::service::Fault;

/// Bytes of a greeting.
pub(crate) const GREETING_BYTES: usize = 64;

/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: usize = 32;

/// Data bytes of one record: what loopback and 10 Gb/s networks like best, and all that is kept of a connection.
pub(crate) const DATA_BYTES_MAX: usize = 256 * 1024;

/// Text of a fault.
const TEXT_BYTES_MAX: usize = 1024;

/// Largest socket buffer that a greeting may ask for.
const BUFFER_BYTES_MAX: u32 = 1 << 30;

const GREETING_MAGIC: u32 = u32::from_le_bytes(*b"VZCG");
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"VZCR");
const VERSION: u16 = 1;

/// Who serves a connection at the receiver, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A copy, by a thread of its own.
    Thread,
    /// A copy, by the event loop.
    Loop,
    /// A measurement: the bytes are thrown away.
    Probe,
}

/// The first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Greeting {
    pub(crate) kind: Kind,
    /// The copy.
    pub(crate) copy: [u8; 16],
    /// What its `CopyBegin` was answered with.
    pub(crate) token: [u8; 16],
    /// Receive buffer of the socket; 0: as the system likes.
    pub(crate) buffer_bytes: u32,
}

fn malformed(what: &str) -> Fault {
    Fault::new(Code::BadRequest, format!("data connection: {what}"))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Greeting {
    pub(crate) fn to_bytes(self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        let kind: u16 = match self.kind {
            Kind::Thread => 1,
            Kind::Loop => 2,
            Kind::Probe => 3,
        };
        bytes[0..4].copy_from_slice(&GREETING_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.copy);
        bytes[24..40].copy_from_slice(&self.token);
        bytes[40..44].copy_from_slice(&self.buffer_bytes.to_le_bytes());
        let sum = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Greeting, Fault> {
        if bytes.len() != GREETING_BYTES || u32_at(bytes, 0) != GREETING_MAGIC {
            return Err(malformed("does not begin with a greeting"));
        }
        if u32_at(bytes, 60) != crc32c(&bytes[..60]) {
            return Err(malformed("a damaged greeting"));
        }
        if u16_at(bytes, 4) != VERSION {
            let why = format!("data connection of version {}; this is {VERSION}", u16_at(bytes, 4));
            return Err(Fault::new(Code::VersionMismatch, why));
        }
        let kind = match u16_at(bytes, 6) {
            1 => Kind::Thread,
            2 => Kind::Loop,
            3 => Kind::Probe,
            other => return Err(malformed(&format!("kind {other}"))),
        };
        let (mut copy, mut token) = ([0; 16], [0; 16]);
        copy.copy_from_slice(&bytes[8..24]);
        token.copy_from_slice(&bytes[24..40]);
        let buffer_bytes = u32_at(bytes, 40).min(BUFFER_BYTES_MAX);
        Ok(Greeting { kind, copy, token, buffer_bytes })
    }
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// The checksums of the pieces and the bytes follow.
    Data { offset: u64, length: u32 },
    /// A range of zeros.
    Zeros { offset: u64, length: u64 },
    /// Backwards: the greeting was understood.
    Welcome,
    /// Backwards: a whole block has arrived.
    Finished {
        offset: u64,
        /// Nanoseconds since the one before that this connection's receiver waited for its disk; 0: it does not say.
        disk_ns: u64,
        /// Microseconds that it waited for bytes.
        starved_us: u32,
    },
    /// Backwards: it cannot go on; the text follows.
    Fault { code: Code, length: u32 },
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (kind, offset, length, value): (u16, u64, u64, u32) = match self {
            Header::Data { offset, length } => (1, offset, u64::from(length), 0),
            Header::Zeros { offset, length } => (2, offset, length, 0),
            Header::Welcome => (3, 0, 0, 0),
            Header::Finished { offset, disk_ns, starved_us } => (4, offset, disk_ns, starved_us),
            Header::Fault { code, length } => (5, 0, u64::from(length), code.number()),
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&length.to_le_bytes());
        bytes[24..28].copy_from_slice(&value.to_le_bytes());
        let sum = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Fault> {
        if bytes.len() != HEADER_BYTES || u32_at(bytes, 0) != RECORD_MAGIC {
            return Err(malformed("no record where one has to be"));
        }
        if u32_at(bytes, 28) != crc32c(&bytes[..28]) {
            return Err(malformed("a damaged record"));
        }
        let (offset, length) = (u64_at(bytes, 8), u64_at(bytes, 16));
        let bounded = |max: usize| match u32::try_from(length) {
            Ok(length) if length as usize <= max => Ok(length),
            _ => Err(malformed(&format!("a record of {length} bytes"))),
        };
        Ok(match u16_at(bytes, 4) {
            1 => Header::Data { offset, length: bounded(DATA_BYTES_MAX)? },
            2 => Header::Zeros { offset, length },
            3 => Header::Welcome,
            4 => Header::Finished { offset, disk_ns: length, starved_us: u32_at(bytes, 24) },
            5 => {
                Header::Fault { code: Code::from_number(u32_at(bytes, 24)), length: bounded(TEXT_BYTES_MAX)? }
            }
            other => return Err(malformed(&format!("a record of kind {other}"))),
        })
    }

    /// Bytes that follow the header.
    pub(crate) fn body_bytes(&self) -> usize {
        match self {
            Header::Data { offset, length } => 4 * piece_count(*offset, *length as usize) + *length as usize,
            Header::Fault { length, .. } => *length as usize,
            _ => 0,
        }
    }
}

/// A fault as a record.
pub(crate) fn fault_record(fault: &Fault) -> Vec<u8> {
    let mut end = fault.detail.len().min(TEXT_BYTES_MAX);
    while !fault.detail.is_char_boundary(end) {
        end -= 1;
    }
    let text = &fault.detail.as_bytes()[..end];
    [&Header::Fault { code: fault.code, length: end as u32 }.to_bytes()[..], text].concat()
}

/// The checksums in front of a data record's bytes.
pub(crate) fn checksums(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|four| u32_at(four, 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_again_and_a_changed_bit_is_noticed() {
        let headers = [
            Header::Data { offset: 5 << 40, length: DATA_BYTES_MAX as u32 },
            Header::Zeros { offset: 1, length: u64::MAX },
            Header::Welcome,
            Header::Finished { offset: 7, disk_ns: 1 << 40, starved_us: 9 },
            Header::Fault { code: Code::NoSpace, length: 3 },
        ];
        for header in headers {
            let mut bytes = header.to_bytes();
            assert_eq!(Header::parse(&bytes), Ok(header));
            bytes[9] ^= 4;
            assert!(Header::parse(&bytes).is_err());
        }
        let greeting = Greeting { kind: Kind::Loop, copy: [1; 16], token: [2; 16], buffer_bytes: 4096 };
        let mut bytes = greeting.to_bytes();
        assert_eq!(Greeting::parse(&bytes), Ok(greeting));
        bytes[30] ^= 1;
        assert!(Greeting::parse(&bytes).is_err());
        assert!(Header::parse(&Header::Data { offset: 0, length: 1 << 20 }.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(Header::parse(&bytes).is_err());
            prop_assert!(Greeting::parse(&bytes).is_err());
        }
    }
}
