//! Memory that clients of this machine have lent: what they write is copied from there.
//!
//! It is copied before it is looked at, so that checksums are compared with the bytes that are written, whatever the
//! lender does meanwhile (docs/decisions/lent-memory.md).

use parking_lot::RwLock;
use rustix::io::{Errno, pread};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::limits::ATTACHMENT_BYTES_MAX;
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// What is lent at present, by the numbers that requests call it.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    memories: RwLock<HashMap<u64, Arc<OwnedFd>>>,
}

impl Lent {
    pub(crate) fn borrow(&self, number: u64, memory: OwnedFd) {
        let mut memories = self.memories.write();
        memories.insert(number, Arc::new(memory));
    }

    pub(crate) fn give_back(&self, number: u64) {
        self.memories.write().remove(&number);
    }

    /// Copies bytes to the beginning of `buffer`, which is made longer where it is too short; returns them. Errors:
    /// they are not to be had, or too many. Sent along with a repetition they can be taken, which is what the code
    /// asks for.
    pub(crate) fn fetch<'b>(
        &self,
        bytes: &proto::LentBytes,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], Fault> {
        let length = bytes.length as usize;
        if length > ATTACHMENT_BYTES_MAX {
            return Err(Fault::new(Code::BadRequest, format!("a write of {length} bytes")));
        }
        let gone = |what: String| {
            Fault::new(Code::Disconnected, format!("lent memory {:016x}: {what}", bytes.memory))
        };
        let memories = self.memories.read();
        let memory = memories.get(&bytes.memory).map(Arc::clone);
        drop(memories);
        let memory = memory.ok_or_else(|| gone("not lent to this server".to_owned()))?;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let buffer = buffer.get_mut(..length).unwrap_or_default();
        let mut filled = 0;
        while filled < length {
            match pread(&*memory, &mut buffer[filled..], bytes.offset.saturating_add(filled as u64)) {
                Ok(0) => return Err(gone("it ends before the bytes do".to_owned())),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(gone(errno.to_string())),
            }
        }
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_wire::local::LentMemory;

    fn fetch(lent: &Lent, memory: u64, offset: u64, length: u32) -> Result<Vec<u8>, Code> {
        let bytes = proto::LentBytes { memory, offset, length };
        lent.fetch(&bytes, &mut vec![1; 3]).map(<[u8]>::to_vec).map_err(|fault| fault.code)
    }

    #[test]
    fn bytes_are_fetched_until_the_memory_is_given_back_and_never_beyond_its_end() {
        let memory = LentMemory::new(8192).expect("a descriptor");
        let mut buffer = memory.take(8192).expect("is empty");
        buffer[4090..4096].copy_from_slice(b"lender");
        let lent = Lent::default();
        lent.borrow(7, memory.descriptor().try_clone_to_owned().expect("a descriptor"));
        assert_eq!(fetch(&lent, 7, 4090, 6), Ok(b"lender".to_vec()));
        assert_eq!(fetch(&lent, 7, 8190, 6), Err(Code::Disconnected));
        assert_eq!(fetch(&lent, 7, u64::MAX - 2, 6), Err(Code::Disconnected));
        assert_eq!(fetch(&lent, 7, 0, u32::MAX), Err(Code::BadRequest));
        assert_eq!(fetch(&lent, 8, 0, 1), Err(Code::Disconnected));
        lent.give_back(7);
        assert_eq!(fetch(&lent, 7, 4090, 6), Err(Code::Disconnected));
    }

    #[test]
    fn a_descriptor_of_something_else_is_a_fault_and_no_more() {
        let lent = Lent::default();
        let directory = std::fs::File::open("/").expect("is there");
        lent.borrow(1, directory.into());
        assert_eq!(fetch(&lent, 1, 0, 10), Err(Code::Disconnected));
    }
}
