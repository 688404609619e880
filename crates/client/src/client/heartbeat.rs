//! The heartbeat of a client: renews its session, and answers what the metadata service wants to know.

use crate::core::Core;
use crate::file::TOLD_MAX;
use crate::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vazao_model::limits::HEARTBEAT_MS;
use vazao_model::{Code, InodeId};
use vazao_wire::{op, proto};

/// From the first report of counters to the second.
const SECOND_REPORT_MS: u32 = 500;

/// Inodes noted as on their way. With more it begins anew, so that some are let go a few renewals later.
const ASKED_MAX: usize = 65_536;

/// What renewals of the session need from one to the next.
///
/// Lock order: `asked` before the locks of the registry (`may_hold_unlinked`).
#[derive(Default)]
pub(crate) struct Heartbeat {
    answers: Mutex<Answers>,
    /// Inodes asked about that are not open here but may be on their way, and the period in which that was first.
    asked: Mutex<HashMap<u64, usize>>,
    /// Renewals carry the counters of this client.
    is_watched: AtomicBool,
    /// They have since the latest renewal. Rates are known from the second report on, which comes soon.
    is_newly_watched: AtomicBool,
}

/// Inodes that the metadata service asked about, to be answered with the next renewal.
#[derive(Default)]
struct Answers {
    held: Vec<u64>,
    not_held: Vec<u64>,
}

impl Heartbeat {
    /// How long to wait for the next one.
    fn pause(&self) -> Duration {
        let is_new = self.is_newly_watched.swap(false, Ordering::Relaxed);
        Duration::from_millis(u64::from(if is_new { SECOND_REPORT_MS } else { HEARTBEAT_MS }))
    }

    /// What has to happen every heartbeat.
    pub(crate) fn tick(&self, core: &Core) -> Result<()> {
        self.renew_session(core)?;
        core.tell_locks()
    }

    /// Renews the session and answers what the metadata service wants to know.
    fn renew_session(&self, core: &Core) -> Result<()> {
        let deadline_ns = core.context.deadline_ns();
        // A second round answers at once what the first one was asked.
        for _ in 0..2 {
            if !self.renew_once(core, deadline_ns)? {
                break;
            }
        }
        Ok(())
    }

    /// What a renewal says of the files that are open: of which round, and which ones.
    fn told_open(core: &Core) -> (u64, Vec<u64>) {
        let covers_round = core.opens.next_period();
        let open = core.registry.ids();
        if open.len() > TOLD_MAX { (0, Vec::new()) } else { (covers_round, open) }
    }

    /// True when the metadata service waits for an answer: it keeps asking about what is held, or wants to be told
    /// counters from now on.
    fn renew_once(&self, core: &Core, deadline_ns: u64) -> Result<bool> {
        let session = core.meta.session.id();
        let answers = std::mem::take(&mut *self.answers.lock());
        let epoch = core.servers.routes().map.epoch.0;
        let is_watched = self.is_watched.load(Ordering::Relaxed);
        let (covers_round, open) = Heartbeat::told_open(core);
        let request = proto::RenewSessionRequest {
            session,
            epoch,
            held: answers.held,
            not_held: answers.not_held,
            measures: is_watched.then(|| (&core.reported()).into()),
            covers_round: Some(covers_round),
            open,
            lines: core.servers.used_lines(),
        };
        let asked_ns = core.context.clock.steady_ns();
        let response = match core.meta.ask_until::<op::RenewSession>(&request, deadline_ns) {
            Ok(response) => response,
            Err(error) if error.code == Code::SessionExpired => {
                core.meta.open_session(session, deadline_ns)?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        core.meta.session.renewed(asked_ns);
        core.opens.arrived(response.round);
        self.is_watched.store(response.report_measures, Ordering::Relaxed);
        let is_newly_watched = response.report_measures && !is_watched;
        if is_newly_watched {
            self.is_newly_watched.store(true, Ordering::Relaxed);
        }
        if let Some(map) = response.map {
            core.servers.install_map(map)?;
        }
        core.servers.learn_line_shares(&response.lines);
        let (held, not_held): (Vec<u64>, Vec<u64>) =
            response.orphans.iter().partition(|&&inode| self.may_hold_unlinked(core, inode));
        let can_let_go = !not_held.is_empty();
        *self.answers.lock() = Answers { held, not_held };
        Ok(can_let_go || is_newly_watched)
    }

    /// The metadata service asks about an inode without a name: false when it is not open here, and no open of it can
    /// be under way that began before it asked.
    fn may_hold_unlinked(&self, core: &Core, inode: u64) -> bool {
        let mut asked = self.asked.lock();
        let period = asked.get(&inode).copied().unwrap_or_else(|| core.opens.period());
        // Before the registry: opens that have ended by now are known there.
        let is_over = core.opens.are_over(period);
        let is_open = core.registry.hold_unlinked(InodeId(inode));
        asked.remove(&inode);
        if !is_open && !is_over {
            if asked.len() >= ASKED_MAX {
                asked.clear();
            }
            asked.insert(inode, period);
        }
        is_open || !is_over
    }
}

/// Renews the session for as long as anything of the client is in use, also a file whose client is dropped.
pub(crate) fn spawn(heartbeat: &Arc<Heartbeat>, core: &Arc<Core>) -> Result<()> {
    let (weak, clock) = (Arc::downgrade(core), Arc::clone(&core.context.clock));
    let heartbeat = Arc::clone(heartbeat);
    let body = move || {
        let mut is_failing = false;
        let mut pause = Duration::from_millis(u64::from(HEARTBEAT_MS));
        loop {
            clock.sleep(pause);
            let Some(next) = heartbeat.beat(&weak, &mut is_failing) else { return };
            pause = next;
        }
    };
    let spawned = std::thread::Builder::new().name("vazao-client".to_owned()).spawn(body);
    let refused = |e: std::io::Error| Error::new(Code::Io, format!("starting the client's thread: {e}"));
    spawned.map(|_| ()).map_err(refused)
}

impl Heartbeat {
    /// How long to wait for the next one; `None` when the client is gone.
    fn beat(&self, core: &Weak<Core>, is_failing: &mut bool) -> Option<Duration> {
        let core = core.upgrade()?;
        if core.context.closed.load(Ordering::Relaxed) {
            return None;
        }
        let failure = self.tick(&core).err();
        // Once for each trouble, not with each heartbeat.
        if let Some(error) = failure.as_ref().filter(|_| !*is_failing) {
            tracing::warn!(%error, "the session could not be renewed; it is tried again");
        }
        *is_failing = failure.is_some();
        Some(self.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Cluster, create};

    /// A program may drop its client and go on with a file: its session, and with it its locks, must not end after a
    /// minute.
    #[test]
    fn the_session_is_renewed_while_a_file_is_open_whose_client_is_dropped() {
        let cluster = Cluster::new(1);
        let client = cluster.client();
        let file = create(&client, "kept");
        let (weak, heartbeat) = (Arc::downgrade(&client.core), Arc::clone(&client.heartbeat));
        drop(client);
        let mut is_failing = false;
        assert!(heartbeat.beat(&weak, &mut is_failing).is_some() && !is_failing);
        file.close().unwrap();
        drop(cluster);
        assert_eq!(heartbeat.beat(&weak, &mut is_failing), None, "nothing is left");
    }

    /// `vazao top` showed clients 6 s after they had begun: one heartbeat until a client was told, and one for each
    /// report.
    #[test]
    fn a_client_that_is_watched_from_now_on_reports_at_once_and_soon_again() {
        let cluster = Cluster::new(1);
        let client = cluster.client();
        let heartbeat = &client.heartbeat;
        let usual = Duration::from_millis(u64::from(HEARTBEAT_MS));
        client.tick().expect("renewed");
        assert!(cluster.reports().is_empty() && heartbeat.pause() == usual);
        cluster.watch();
        client.tick().expect("renewed");
        assert_eq!(cluster.reports(), ["test"]);
        assert!(heartbeat.pause() <= usual / 4);
        client.tick().expect("renewed");
        assert_eq!((cluster.reports().len(), heartbeat.pause()), (2, usual));
    }
}
