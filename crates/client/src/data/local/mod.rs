//! Short circuit: objects on data servers of this machine are read from their files, without the server.
//!
//! A server hands out the descriptors of a chunk and of its sidecar ([`crate::servers`]); bytes are taken from the page
//! cache and count only when they match their checksums ([`file`]). Whatever else happens (not cached, being
//! overwritten, cut, removed, damaged, the server gone) the server is asked as if there were no short circuit, and what
//! it answers is the answer (docs/decisions/short-circuit.md).

mod entries;
mod file;
mod lent;

pub(crate) use file::LocalFile;
pub(crate) use lent::Lending;
pub use lent::SendBuffer;

use super::DataServers;
use super::addressed;
use crate::servers::ASK_NS_MAX;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vazao_model::{ObjectId, TargetId};
use vazao_wire::proto;

/// Pairs of files kept open: a process may have 1,024 descriptors unless the limit was raised.
const FILES_MAX: usize = 128;

/// A chunk that the server did not hand out is asked for again after this time: it may have been created since.
const REFUSED_NS: u64 = 1_000_000_000;

/// A chunk of an object.
type Key = (TargetId, ObjectId, u64);

/// What is known of a chunk.
enum Entry {
    Open(Arc<LocalFile>),
    /// Until when it is not asked for again.
    Refused(u64),
}

/// The chunks that are read directly.
#[derive(Default)]
pub(crate) struct LocalFiles {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// With the number of their last use.
    entries: HashMap<Key, (u64, Entry)>,
    uses: u64,
}

impl LocalFiles {
    /// The chunk, or whether it may be asked for now.
    fn find(&self, key: &Key, now_ns: u64) -> Result<Arc<LocalFile>, bool> {
        let mut state = self.state.lock();
        state.uses += 1;
        let uses = state.uses;
        let Some((last_use, entry)) = state.entries.get_mut(key) else { return Err(true) };
        *last_use = uses;
        match entry {
            Entry::Open(file) if file.is_valid(now_ns) => Ok(Arc::clone(file)),
            Entry::Open(_) => {
                state.entries.remove(key);
                Err(true)
            }
            Entry::Refused(until_ns) => Err(*until_ns <= now_ns),
        }
    }

    fn put(&self, key: Key, entry: Entry) {
        let mut state = self.state.lock();
        state.uses += 1;
        let uses = state.uses;
        state.entries.insert(key, (uses, entry));
        if state.entries.len() > FILES_MAX
            && let Some(oldest) = state.entries.iter().min_by_key(|(_, (last_use, _))| *last_use)
        {
            let oldest = *oldest.0;
            state.entries.remove(&oldest);
        }
    }
}

impl DataServers {
    /// The files of the chunk that holds byte `object_offset` of an object, and where in them that byte is. `None`:
    /// the server is to be asked.
    pub(crate) fn local_file(
        &self,
        object: &proto::ObjectAddress,
        object_offset: u64,
    ) -> Option<(Arc<LocalFile>, u64)> {
        if !self.short_circuit.load(Ordering::Relaxed) || !self.context.transport.can_visit() {
            return None;
        }
        // One of several could lag without knowing it yet: only servers know by their leases.
        let (target, server) = self.servers.only_place(addressed(object))?;
        let chunk_bytes = server.door.chunk_bytes();
        let chunk = object_offset.checked_div(chunk_bytes).unwrap_or(0);
        let now_ns = self.context.clock.now_ns();
        let key = (target, ObjectId::from(object), chunk);
        let file = match self.local.find(&key, now_ns) {
            Ok(file) => file,
            Err(false) => return None,
            Err(true) => {
                let visit = server.door.visit(&self.context, &server.address)?;
                let request = proto::OpenLocalRequest { object: Some(object.clone()), chunk };
                let handed = visit.open(&request, now_ns + ASK_NS_MAX);
                let opened = handed.ok().and_then(|handed| {
                    server.door.set_chunk_bytes(handed.response.chunk_bytes);
                    handed.files.and_then(|files| LocalFile::new(files, visit, now_ns))
                });
                let Some(file) = opened.map(Arc::new) else {
                    self.local.put(key, Entry::Refused(now_ns + REFUSED_NS));
                    return None;
                };
                self.local.put(key, Entry::Open(Arc::clone(&file)));
                file
            }
        };
        // Before the first answer the size of chunks is not known.
        let chunk_bytes = server.door.chunk_bytes();
        (chunk_bytes > 0 && object_offset / chunk_bytes == chunk).then(|| (file, object_offset % chunk_bytes))
    }
}
