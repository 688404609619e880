//! What a metadata service does from time to time, without being asked.

use super::MetaService;
use super::backpressure::unless_behind;
use super::fault::Outcome;
use crate::objects::{orphan_objects, reclaim};
use crate::ops;
use crate::part::conversions;
use crate::schema::keys;
use crate::schema::records::NumberRecord;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vazao_wire::service::Fault;
use vazao_wire::transport::Transport;

impl MetaService {
    /// Settles claims to identities, which nodes that have just started wait for. Blocks up to `timeout` for a
    /// claim, and probes through `transport` whether the holders are gone. To be called in a loop; false: again soon.
    pub fn settle_claims(&self, transport: &dyn Transport, timeout: Duration) -> bool {
        self.claims.wait(timeout);
        self.claims.settle(transport)
    }

    /// Logs which nodes have fallen silent or report again, and which targets stop or begin to serve. To be called
    /// every second or so, not by the thread that calls [`MetaService::tick`]: that one waits for data servers.
    pub fn watch_members(&self) {
        let now = self.now();
        // A log that is slow to be written must not hold up the cluster's lock.
        let map = self.cluster().map(now);
        self.member_watch.look(&map, now.ns);
    }

    /// What has to be done from time to time, every second or so: sessions that ran out, objects of deleted files
    /// (through `transport`), and without background threads the engine's own work. Waits for data servers; failures
    /// are logged and tried again by the next tick.
    pub fn tick(&self, transport: &dyn Transport) {
        let now_ns = self.clock.now_ns();
        self.logged("maintenance", self.engine.maintain().map_err(Fault::from));
        // Event loops must not wait for its lock: where the engine is behind, the next tick notes them.
        let noted = unless_behind(|| ops::cluster::note_silent(self));
        self.logged("note of silent nodes", noted.unwrap_or(Ok(())));
        if self.history.is_behind() {
            // Nothing of an older copy may reach the data servers.
            return self.logged("log", self.engine.flush().map_err(Fault::from));
        }
        for session in self.sessions.expired(now_ns) {
            tracing::info!(%session, "session expired");
            self.logged("end of a session", ops::session::end(self, session));
        }
        let extended = unless_behind(|| self.extend_groups());
        self.logged("placement groups for new targets", extended.unwrap_or(Ok(())));
        self.part.invalidations.tick(now_ns, |session| self.sessions.is_known(session));
        self.logged("count of inodes", self.write_inodes_in_use());
        self.logged("clean-up of conversions", conversions::run(self, transport));
        self.logged("removal of objects", reclaim::run(self, transport));
        self.logged("search for objects without a file", orphan_objects::run(self, transport));
        self.logged("log", self.engine.flush().map_err(Fault::from));
    }

    /// Logs a failure once, until it is another one or over.
    fn logged(&self, what: &'static str, outcome: Outcome<()>) {
        let mut failures = self.tick_failures.lock();
        match outcome {
            Ok(()) => {
                if failures.remove(what).is_some() {
                    tracing::info!("{what} succeeded again");
                }
            }
            Err(fault) => {
                let text = fault.to_string();
                if failures.get(what) != Some(&text) {
                    tracing::warn!(error = text, "{what} failed, to be tried again");
                    failures.insert(what, text);
                }
            }
        }
    }

    pub(super) fn write_inodes_in_use(&self) -> Outcome<()> {
        let value = self.inodes_in_use();
        let written = i64::try_from(value).unwrap_or(i64::MAX);
        if self.inodes_written.swap(written, Ordering::Relaxed) == written {
            return Ok(());
        }
        let key = keys::INODES_IN_USE.to_vec();
        let (done, _) = self.transact(None, |context| {
            context.write(key.clone(), &NumberRecord { value });
            Ok(())
        })?;
        done
    }
}
