//! The request that waits for changes by other clients, and what they lead to here.

use crate::core::Core;
use crate::file;
use crate::meta::decode;
use crate::{Error, Result};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_model::limits::WATCH_WAIT_MS;
use vazao_model::{Code, InodeId};
use vazao_wire::operation::Operation;
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

const NS_A_MS: u64 = 1_000_000;

/// Beyond [`WATCH_WAIT_MS`] an answer may take this long.
const ANSWER_MS_MAX: u32 = 5_000;

/// While changes keep coming they are fetched this often: what they have in common is then told once.
const PACE: Duration = Duration::from_millis(1);

/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(200);

impl Core {
    /// The request that asks for changes; 0 for `wait_ms` asks for those that are there.
    fn watch_request(&self, wait_ms: u32) -> proto::WatchChangesRequest {
        let session = self.meta.session.id();
        proto::WatchChangesRequest { session, received: self.cache.stream.received_in(session), wait_ms }
    }

    fn take_changes(&self, session: u64, response: &proto::WatchChangesResponse) {
        if self.meta.session.id() != session {
            return;
        }
        let seat = self.cache.stream.take_seat(response.seat);
        // What was asked with another interest bit, or with none, causes no invalidation here.
        if response.forget || seat != response.seat {
            self.forget_all();
        }
        for change in &response.changes {
            self.take_change(change);
        }
        self.cache.stream.note_answer(session, response.last, self.context.clock.now_ns());
    }

    fn take_change(&self, change: &proto::Change) {
        let inode = InodeId(change.inode);
        if change.granted != 0 {
            return self.locks.call(change.granted);
        }
        if change.end_wanted {
            return match self.registry.find(inode) {
                Some(open) => file::begin_giving_end_back(open),
                // It was let go, or that is under way. Should the release have been lost, the service hears what is
                // held.
                None => self.locks.must_tell(),
            };
        }
        self.cache.stream.mark(inode, &change.name);
        if change.contents
            && let Some(open) = self.registry.find(inode)
        {
            open.note_changed_elsewhere();
        }
        match self.cache.stream.listener() {
            Some(listener) if change.name.is_empty() => listener.inode_changed(inode, change.contents),
            Some(listener) => listener.entry_changed(inode, &change.name),
            None => {}
        }
    }

    fn forget_all(&self) {
        self.locks.must_tell();
        self.forget_answers();
    }

    /// Nothing that the service has answered so far is believed any more.
    pub(super) fn forget_answers(&self) {
        self.cache.stream.forget();
        self.registry.all().iter().for_each(|open| open.note_changed_elsewhere());
        if let Some(listener) = self.cache.stream.listener() {
            listener.forget();
        }
    }

    /// An inode is known to have changed, though not from a change.
    pub(crate) fn tell_listener(&self, inode: InodeId) {
        self.cache.stream.mark(inode, &[]);
        if let Some(listener) = self.cache.stream.listener() {
            listener.inode_changed(inode, true);
        }
    }

    /// The session is gone, and with it the list of what it was answered.
    fn leave_seat(&self) {
        self.cache.stream.take_seat(0);
        self.forget_all();
    }

    pub(crate) fn submit_watch(&self, wait_ms: u32) -> (u64, Box<dyn vazao_wire::transport::Pending>) {
        let request = self.watch_request(wait_ms);
        let message = prost::Message::encode_to_vec(&request);
        let deadline_ns = self.context.clock.now_ns() + u64::from(wait_ms + ANSWER_MS_MAX) * NS_A_MS;
        let method = op::WatchChanges::METHOD;
        let pending = self.context.watch_transport.submit(
            self.context.meta_address(),
            method,
            &message,
            &[],
            deadline_ns,
        );
        (request.session, pending)
    }

    /// Works in what a request for changes has brought; whether there were any.
    pub(crate) fn finish_watch(
        &self,
        session: u64,
        received: std::result::Result<vazao_wire::transport::Received, Fault>,
    ) -> Result<bool> {
        match received.and_then(|received| decode::<op::WatchChanges>(&received)) {
            Ok(response) => {
                self.take_changes(session, &response);
                self.tell_locks()?;
                Ok(!response.changes.is_empty())
            }
            Err(fault) if fault.code == Code::SessionExpired => {
                self.leave_seat();
                self.meta.open_session(session, self.context.deadline_ns()).map(|()| false)
            }
            Err(fault) => Err(fault.into()),
        }
    }
}

/// Waits for changes for as long as the client lives.
pub(crate) fn spawn(core: &Arc<Core>) -> Result<()> {
    let weak = Arc::downgrade(core);
    let body = move || while watch_once(&weak) {};
    let spawned = std::thread::Builder::new().name("vazao-watch".to_owned()).spawn(body);
    let refused = |e: std::io::Error| Error::new(Code::Io, format!("starting the client's thread: {e}"));
    spawned.map(|_| ()).map_err(refused)
}

fn living(core: &Weak<Core>) -> Option<Arc<Core>> {
    core.upgrade().filter(|core| !core.context.closed.load(Ordering::Relaxed))
}

/// False when the client is gone. The client is not kept while the service has nothing to say.
fn watch_once(weak: &Weak<Core>) -> bool {
    let Some(core) = living(weak) else { return false };
    let (session, pending) = core.submit_watch(WATCH_WAIT_MS);
    let (clock, sent_ns) = (Arc::clone(&core.context.clock), core.context.clock.now_ns());
    drop(core);
    let received = pending.wait();
    let Some(core) = living(weak) else { return false };
    match core.finish_watch(session, received) {
        Ok(true) if clock.now_ns().saturating_sub(sent_ns) < PACE.as_nanos() as u64 => clock.sleep(PACE),
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(%error, "changes by others cannot be heard of at the moment");
            drop(core);
            clock.sleep(PAUSE);
        }
    }
    true
}
