//! Which servers keep their clients waiting: told once when it is noticed, and once when it is over, however many
//! requests and attempts wait for them.

use super::Servers;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vazao_model::limits::SLOW_MS;
use vazao_model::{Code, Role};
use vazao_wire::service::Fault;
use vazao_wire::transport::Slow;

/// A server that answers some requests and not others is logged again after this time.
const TOLD_AGAIN_NS: u64 = 60_000_000_000;

/// Servers remembered; those beyond are told of each time.
const SERVERS_MAX: usize = 4096;

const NS_A_SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Silent {
    since_ns: u64,
    /// Of all earlier times.
    before_ns: u64,
    told_ns: u64,
    is_told: bool,
    is_over: bool,
}

/// The servers, by address.
#[derive(Debug, Default)]
pub(crate) struct UnresponsiveServers {
    /// How many are silent now: looked at after every answer.
    count: AtomicUsize,
    servers: Mutex<HashMap<String, Silent>>,
}

impl UnresponsiveServers {
    /// True when this silence has not been told of.
    fn begin(&self, address: &str, since_ns: u64, now_ns: u64) -> bool {
        let mut servers = self.servers.lock();
        let known = servers.get(address).copied();
        let is_known = known.is_some_and(|silent| !silent.is_over);
        if is_known {
            return false;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let is_recent = known.is_some_and(|silent| now_ns.saturating_sub(silent.told_ns) < TOLD_AGAIN_NS);
        let told_ns = known.filter(|_| is_recent).map_or(now_ns, |silent| silent.told_ns);
        if known.is_none() && servers.len() >= SERVERS_MAX {
            servers.clear();
            self.count.store(1, Ordering::Relaxed);
        }
        let before_ns = known.map_or(0, |silent| silent.before_ns);
        let silent = Silent { since_ns, before_ns, told_ns, is_told: !is_recent, is_over: false };
        servers.insert(address.to_owned(), silent);
        !is_recent
    }

    /// The addresses that are silent now, and for how many seconds.
    pub(crate) fn lasting(&self, now_ns: u64) -> Vec<(String, u64)> {
        let servers = self.servers.lock();
        let silent = servers.iter().filter(|(_, silent)| !silent.is_over);
        let lasting = silent
            .map(|(address, silent)| (address.clone(), now_ns.saturating_sub(silent.since_ns) / NS_A_SECOND));
        lasting.collect()
    }

    /// Nanoseconds in which a server was silent, in all.
    fn total_ns(&self, address: &str, now_ns: u64) -> u64 {
        let servers = self.servers.lock();
        let of = |silent: &Silent| match silent.is_over {
            true => silent.before_ns,
            false => silent.before_ns + now_ns.saturating_sub(silent.since_ns),
        };
        servers.get(address).map_or(0, of)
    }

    /// Nanoseconds that the silence has lasted, when one that was told of ends now.
    fn end(&self, address: &str, now_ns: u64) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut servers = self.servers.lock();
        let silent = servers.get_mut(address).filter(|silent| !silent.is_over)?;
        silent.is_over = true;
        silent.before_ns += now_ns.saturating_sub(silent.since_ns);
        self.count.fetch_sub(1, Ordering::Relaxed);
        silent.is_told.then(|| now_ns.saturating_sub(silent.since_ns))
    }
}

/// True when a server has not said anything.
pub(crate) fn is_silence(fault: &Fault) -> bool {
    fault.code.is_silence()
}

impl Servers {
    /// A server as messages name it.
    pub(crate) fn server_at(&self, address: &str) -> String {
        let map = &self.routes.read().map;
        let node = map.nodes.iter().find(|node| node.address == address);
        match node {
            _ if self.context.meta.iter().any(|meta| meta == address) => {
                format!("metadata service ({address})")
            }
            Some(node) if node.roles.contains(&Role::Data) => {
                format!("data server {} ({address})", node.name)
            }
            Some(node) => format!("node {} ({address})", node.name),
            None => address.to_owned(),
        }
    }

    /// Has the transport tell of requests that wait long.
    pub(crate) fn watch(self: &Arc<Servers>) {
        let weak: Weak<Servers> = Arc::downgrade(self);
        self.context.transport.watch(Box::new(move |slow| {
            if let Some(servers) = weak.upgrade() {
                servers.noticed(slow);
            }
        }));
    }

    /// Servers that keep this client waiting now, with the seconds since then.
    pub(crate) fn silent(&self) -> Vec<(String, u64)> {
        let silent = self.unresponsive.lasting(self.context.clock.now_ns());
        silent.into_iter().map(|(address, seconds)| (self.server_at(&address), seconds)).collect()
    }

    /// Nanoseconds in which a server was asked and answered nothing, where that was noticed.
    pub(crate) fn silent_ns(&self, address: &str, now_ns: u64) -> u64 {
        self.unresponsive.total_ns(address, now_ns)
    }

    /// A request has waited for long and goes on waiting.
    fn noticed(&self, slow: &Slow<'_>) {
        let now_ns = self.context.clock.now_ns();
        if !self.unresponsive.begin(slow.address, now_ns.saturating_sub(slow.waited_ns), now_ns) {
            return;
        }
        let (server, seconds) = (self.server_at(slow.address), slow.waited_ns / NS_A_SECOND);
        let (request, method) = (slow.id, slow.method.name());
        tracing::warn!(%request, method, "{server} has not answered for {seconds} s; still waiting for it");
    }

    /// An attempt has failed. To refuse is an answer as well.
    pub(crate) fn attempt_failed(&self, address: &str, fault: &Fault) {
        if !is_silence(fault) {
            self.answered(address);
        }
    }

    /// After `fault` it is tried again, in a call that began at `since_ns`. (Where it is not, the caller is told.)
    pub(crate) fn trying_again(&self, address: &str, fault: &Fault, since_ns: u64) {
        if !is_silence(fault) {
            return;
        }
        let now_ns = self.context.clock.now_ns();
        let waited_ns = now_ns.saturating_sub(since_ns);
        if waited_ns < u64::from(SLOW_MS) * 1_000_000 || !self.unresponsive.begin(address, since_ns, now_ns) {
            return;
        }
        let (server, seconds) = (self.server_at(address), waited_ns / NS_A_SECOND);
        match fault.code {
            Code::Timeout => tracing::warn!("{server} has not answered for {seconds} s"),
            _ => tracing::warn!("{server} could not be reached for {seconds} s ({})", fault.detail),
        }
    }

    /// A server has answered.
    pub(crate) fn answered(&self, address: &str) {
        if let Some(lasted_ns) = self.unresponsive.end(address, self.context.clock.now_ns()) {
            tracing::info!("{} answers again after {} s", self.server_at(address), lasted_ns / NS_A_SECOND);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = NS_A_SECOND;

    #[test]
    fn a_silence_is_told_of_once_and_its_end_once() {
        let unresponsive = UnresponsiveServers::default();
        assert_eq!(unresponsive.end("a", 5 * S), None);
        assert!(unresponsive.begin("a", 0, 5 * S));
        assert!(!unresponsive.begin("a", S, 6 * S), "the same silence");
        assert!(unresponsive.begin("b", S, 6 * S), "another server");
        let mut lasting = unresponsive.lasting(9 * S);
        lasting.sort();
        assert_eq!(lasting, [("a".to_owned(), 9), ("b".to_owned(), 8)]);
        assert_eq!(unresponsive.end("a", 30 * S), Some(30 * S));
        assert_eq!(unresponsive.end("a", 31 * S), None);
        assert_eq!(unresponsive.end("b", 31 * S), Some(30 * S));
        assert_eq!(unresponsive.lasting(31 * S), []);
    }

    #[test]
    fn a_server_that_falls_silent_again_and_again_does_not_fill_the_log() {
        let unresponsive = UnresponsiveServers::default();
        assert!(unresponsive.begin("a", 0, 5 * S));
        unresponsive.end("a", 6 * S);
        assert!(!unresponsive.begin("a", 7 * S, 12 * S));
        assert_eq!(unresponsive.end("a", 13 * S), None, "its beginning was not told of");
        assert!(unresponsive.begin("a", 100 * S, 105 * S));
    }
}
