//! Writes to data servers of this machine: their bytes lie in memory that the servers can read, and only where they
//! lie is sent (docs/decisions/lent-memory.md).
//!
//! Nothing depends on it: what cannot be lent, or was lent in vain, is sent along as to any other server.

use crate::data::DataServers;
use crate::servers::{ASK_NS_MAX, Server};
use prost::Message;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use vazao_wire::local::{LentBuffer, LentMemory};
use vazao_wire::proto;

/// Memory to lend beyond what may be dirty: what a mount receives requests in. It takes space when it is first used.
const RECEIVE_BYTES: usize = 64 << 20;

/// A server is lent memory once it has taken this much: before, asking for its door would take as long as sending.
const LENT_AFTER_BYTES: u64 = 1 << 20;

/// Fewer bytes are sent along: taking them out of a socket costs a server as much as taking them out of lent memory.
const LENT_BYTES_MIN: usize = 16 << 10;

/// Memory for bytes that will be written, in which a data server of this machine finds them.
#[derive(Debug)]
pub struct SendBuffer(Memory);

#[derive(Debug)]
enum Memory {
    Own(Vec<u8>),
    Lent(LentBuffer),
}

impl From<Vec<u8>> for SendBuffer {
    fn from(bytes: Vec<u8>) -> SendBuffer {
        SendBuffer(Memory::Own(bytes))
    }
}

impl Deref for SendBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Own(bytes) => bytes,
            Memory::Lent(bytes) => bytes,
        }
    }
}

impl DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Own(bytes) => bytes,
            Memory::Lent(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for SendBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The memory that a client lends; none before it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    memory: OnceLock<Option<Arc<LentMemory>>>,
}

impl DataServers {
    /// A buffer of `length` bytes with unspecified contents, for what will be written.
    pub(crate) fn send_buffer(&self, length: usize) -> SendBuffer {
        if !self.context.options.short_circuit || !self.context.transport.can_visit() {
            return vec![0; length].into();
        }
        let memory = self.lending.memory.get_or_init(|| {
            let memory = LentMemory::new(self.context.options.dirty_bytes_max + RECEIVE_BYTES);
            memory.inspect_err(|error| tracing::debug!(%error, "no memory to lend to data servers")).ok()
        });
        match memory.as_ref().and_then(|memory| memory.take(length)) {
            Some(buffer) => SendBuffer(Memory::Lent(buffer)),
            None => vec![0; length].into(),
        }
    }

    /// `message`, a write request, with the place of its bytes in lent memory, so that they need not be sent. `None`
    /// where they have to be.
    pub(crate) fn lend(&self, server: &Server, message: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() < LENT_BYTES_MIN
            || server.counters.bytes_written.get() < LENT_AFTER_BYTES
            || !self.short_circuit.load(Ordering::Relaxed)
        {
            return None;
        }
        let memory = self.lending.memory.get()?.as_ref()?;
        let offset = memory.place_of(bytes)?;
        let visit = server.door.visit(&self.context, &server.address)?;
        let memory = visit.lend(memory, self.context.clock.now_ns() + ASK_NS_MAX)?;
        let lent = Some(proto::LentBytes { memory, offset, length: bytes.len() as u32 });
        server.counters.bytes_lent.add(bytes.len() as u64);
        let mut message = message.to_vec();
        // Encoded messages one after the other are one with the fields of both.
        message.extend(proto::WriteRequest { lent, ..proto::WriteRequest::default() }.encode_to_vec());
        Some(message)
    }
}
