//! The end of a client: how long its last calls may take, and which servers they wait for.

use crate::Client;
use crate::core::Core;
use crate::file::Unstored;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vazao_model::limits::GOODBYE_MS_MAX;
use vazao_wire::{op, proto};

/// However little time is left, a call has this much: many files are closed one after the other, and those whose
/// servers answer must be stored although others have used the time up.
const CALL_NS_MIN: u64 = 1_000_000_000;

impl Client {
    /// Calls that begin from now on are done or given up within `left`, all of them together; each has a second,
    /// however.
    pub fn end_within(&self, left: Duration) {
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let ends_by_ns = self.core.clock.now_ns().saturating_add(left_ns);
        self.core.ends_by_ns.fetch_min(ends_by_ns, Ordering::SeqCst);
    }

    /// How long one call may take.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(u64::from(self.core.options.deadline_ms))
    }

    /// What of all open files is not stored.
    pub fn unstored(&self) -> Vec<Unstored> {
        self.core.registry.all().iter().filter_map(|open| open.unstored()).collect()
    }

    /// Servers that calls of this client wait for, as messages name them, and for how many seconds.
    pub fn silent_servers(&self) -> Vec<(String, u64)> {
        self.core.silent_servers()
    }

    /// Ends the session. Nothing is lost when the metadata service does not answer: its lease ends by itself.
    pub(crate) fn leave_session(&self) {
        let core: &Core = &self.core;
        core.closed.store(true, Ordering::Relaxed);
        let request = proto::CloseSessionRequest { session: core.session.id() };
        let deadline_ns = core.deadline_ns().min(core.clock.now_ns() + u64::from(GOODBYE_MS_MAX) * 1_000_000);
        if let Err(error) = core.ask_until::<op::CloseSession>(&request, deadline_ns) {
            tracing::info!(%error, "the session was not closed, and ends with its lease");
        }
    }
}

impl Core {
    /// When a call that begins now has to be done.
    pub(crate) fn deadline_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        let usual_ns = now_ns + u64::from(self.options.deadline_ms) * 1_000_000;
        let ends_by_ns = self.ends_by_ns.load(Ordering::Relaxed);
        if usual_ns <= ends_by_ns { usual_ns } else { ends_by_ns.max(now_ns + CALL_NS_MIN).min(usual_ns) }
    }

    fn silent_servers(&self) -> Vec<(String, u64)> {
        let silent = self.unresponsive.lasting(self.clock.now_ns());
        silent.into_iter().map(|(address, seconds)| (self.server_at(&address), seconds)).collect()
    }
}
