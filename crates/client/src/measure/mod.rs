//! What this client counts, and what the servers it uses count, put together into a verdict.
//!
//! A door that moves data holds a [`Watch`] from beginning to end. It costs a request to each node at both ends, and a
//! look at this process's threads a few times a second in between.

pub mod overview;

use crate::Client;
use crate::config::own_name;
use crate::core::Core;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vazao_meter::bottleneck::{Scene, Verdict, judge};
use vazao_meter::machine::{self, DiskWatches};
use vazao_meter::measures::{Measures, Part, Work};
use vazao_meter::{Change, Clock};
use vazao_model::{ClusterMap, Node, NodeState};
use vazao_wire::messages::measures::{answer, ask, of_this_process};
use vazao_wire::op;
use vazao_wire::transport::PendingCall;

/// Nodes that are asked; a transfer waits for few of them.
const NODES_MAX: usize = 128;

/// A node that has not answered by then is judged by what its clients see of it.
const ANSWER_NS_MAX: u64 = 2_000_000_000;

const NS_A_MS: u64 = 1_000_000;

/// Threads that come and go are looked at this often.
const LOOK: Duration = Duration::from_millis(200);

/// Between two looks at whether the watch is over.
const NAP: Duration = Duration::from_millis(20);

/// Shorter watches judge nothing, so that no server is asked at their end.
const SECONDS_MIN: f64 = 0.1;

impl Core {
    /// What this client counts, without what is the same for all parts of the process.
    fn fill_measures(&self, measures: &mut Measures) {
        let now_ns = self.context.clock.now_ns();
        let routes = self.servers.routes();
        let mut peers: Vec<_> = routes
            .used_servers()
            .into_iter()
            .map(|server| server.counters.peer(server.node_name(), &server.address, now_ns))
            .collect();
        let meta = self.context.meta_address();
        let node = routes.map.nodes.iter().find(|node| node.address == meta);
        let name = node.map_or("metadata service", |node| node.name.as_str());
        // One node may have both roles.
        let metadata = self.context.counters.metadata.peer(name, meta, now_ns);
        match peers.iter_mut().find(|peer| peer.address == meta) {
            Some(both) => both.add(&metadata),
            None => peers.push(metadata),
        }
        for mut asked in self.context.counters.nodes(now_ns) {
            let node = routes.map.nodes.iter().find(|node| node.address == asked.address);
            asked.name = node.map_or_else(String::new, |node| node.name.clone());
            match peers.iter_mut().find(|peer| peer.address == asked.address) {
                Some(both) => both.add(&asked),
                None => peers.push(asked),
            }
        }
        for peer in &mut peers {
            peer.silent_ns = self.servers.silent_ns(&peer.address, now_ns);
        }
        for connected in self.context.transport.peers() {
            if let Some(peer) = peers.iter_mut().find(|peer| peer.address == connected.address) {
                (peer.local, peer.connections) = (connected.local, connected.connections);
            }
        }
        measures.links.extend(self.servers.line_links(&peers));
        measures.peers.extend(peers);
        measures.waits = self.context.counters.waits.at(now_ns);
        measures.spent_ns = self.context.counters.spent().into_iter().map(|(_, ns)| ns).collect();
        let latencies = self.context.counters.latency.buckets();
        measures.work = Work {
            operations: self.context.counters.latency.count(),
            read_bytes: self.context.counters.bytes_read.get(),
            written_bytes: self.context.counters.bytes_written.get(),
            latencies,
        };
    }
}

impl Core {
    /// Its measures under a name that tells it from the clients of other processes and hosts.
    pub(crate) fn reported(&self) -> Measures {
        let mut measures = self.measures();
        let given = &self.context.options.name;
        if !given.is_empty() {
            given.clone_into(&mut measures.name);
        } else if self.description.lock().name.is_empty() {
            measures.name = own_name();
        }
        measures
    }

    pub(crate) fn measures(&self) -> Measures {
        let described = self.description.lock().clone();
        let name = if described.name.is_empty() { "client" } else { &described.name };
        let mut measures = of_this_process(name, described.part, self.context.clock.now_ns());
        self.fill_measures(&mut measures);
        measures.zone = self.meta.zone();
        measures
    }
}

/// What all nodes said when they were asked at once.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Said {
    /// When, on the client's clock.
    pub(crate) at_ns: u64,
    /// What the nodes that answered count.
    pub(crate) nodes: Vec<Measures>,
    /// What clients and mounts have reported to them.
    pub(crate) clients: Vec<Measures>,
    /// Nodes that did not answer, and for how long the metadata service knows that already.
    pub(crate) unanswered: Vec<(String, u64)>,
}

/// Asks all nodes, and the metadata service for what clients report to it.
pub(crate) fn of_nodes(core: &Core) -> Said {
    let routes = core.servers.routes();
    // Those that are known to be silent are not waited for: each would take its whole time in every round.
    let silent = routes.map.nodes.iter().filter(|node| node.state == NodeState::Silent).take(NODES_MAX);
    let unanswered = silent.map(|node| (node.name.clone(), node.silent_ms * NS_A_MS)).collect();
    let mut said = Said { unanswered, ..Said::default() };
    for (name, asked) in present(&routes.map).map(|node| node.name.clone()).zip(ask_all(core, true)) {
        match answer(asked) {
            Ok((node, reported)) => {
                said.nodes.push(node);
                said.clients.extend(reported);
            }
            Err(_) => said.unanswered.push((name, 0)),
        }
    }
    said.at_ns = core.context.clock.now_ns();
    said
}

type Asked = PendingCall<op::Measure>;

fn present(map: &ClusterMap) -> impl Iterator<Item = &Node> {
    map.nodes.iter().filter(|node| node.state == NodeState::Up).take(NODES_MAX)
}

fn ask_all(core: &Core, with_clients: bool) -> Vec<Asked> {
    let deadline_ns = core.context.clock.now_ns() + ANSWER_NS_MAX;
    let routes = core.servers.routes();
    present(&routes.map)
        .map(|node| ask(&*core.context.transport, &node.address, with_clients, deadline_ns))
        .collect()
}

/// What a watch has seen.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    /// What limited.
    pub verdict: Verdict,
    /// What this process did.
    pub observer: Change,
    /// What the servers did.
    pub servers: Vec<Change>,
}

/// A stretch of time that will be judged.
pub struct Watch {
    clock: Arc<dyn Clock>,
    core: Option<Arc<Core>>,
    disks: Option<Arc<DiskWatches>>,
    own: Measures,
    servers: Mutex<Servers>,
    over: Arc<AtomicBool>,
    looker: Option<JoinHandle<()>>,
}

/// What the servers said at the beginning; asked for at once and received when it is wanted.
enum Servers {
    Asked(Vec<Asked>),
    Said(Vec<Measures>),
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch {
    /// Begins now. `client` is the one that moves the data, where there is one; `disks` are those of this machine that
    /// the caller reads or writes by itself.
    pub fn begin(client: Option<&Client>, disks: Option<Arc<DiskWatches>>, clock: Arc<dyn Clock>) -> Watch {
        let core = client.map(|client| Arc::clone(&client.core));
        let asked = core.as_ref().map(|core| ask_all(core, false)).unwrap_or_default();
        let over = Arc::new(AtomicBool::new(false));
        let (looking, time) = (Arc::clone(&over), Arc::clone(&clock));
        let look = move || {
            while !looking.load(Ordering::Relaxed) {
                let _ = machine::cpu();
                let until_ns = time.now_ns() + LOOK.as_nanos() as u64;
                while !looking.load(Ordering::Relaxed) && time.now_ns() < until_ns {
                    time.sleep(NAP);
                }
            }
        };
        // Without the thread the verdict knows less of threads that ended meanwhile, and nothing else.
        let looker = std::thread::Builder::new().name("watch".to_owned()).spawn(look).ok();
        let servers = Mutex::new(Servers::Asked(asked));
        let mut watch = Watch { clock, core, disks, own: Measures::default(), servers, over, looker };
        watch.own = watch.measures();
        watch
    }

    fn measures(&self) -> Measures {
        let mut measures = match &self.core {
            Some(core) => core.measures(),
            None => of_this_process("client", Part::Client, self.clock.now_ns()),
        };
        measures.disks.extend(self.disks.iter().flat_map(|disks| disks.measures()));
        measures
    }

    /// Judges the time since the beginning. The watch goes on.
    pub fn seen(&self) -> Seen {
        self.seen_beside(&[])
    }

    /// The same where other processes of ours run, too: what they use of a machine is no other program's.
    pub fn seen_beside(&self, beside: &[Change]) -> Seen {
        let judged = |observer, servers| judged(observer, servers, beside);
        let observer = self.measures().since(&self.own);
        let Some(core) = &self.core else { return judged(observer, Vec::new()) };
        let mut servers = self.servers.lock();
        if let Servers::Asked(asked) = &mut *servers {
            let asked = std::mem::take(asked);
            let said = asked.into_iter().filter_map(|asked| answer(asked).ok()).map(|(node, _)| node);
            *servers = Servers::Said(said.collect());
        }
        if observer.seconds < SECONDS_MIN {
            return judged(observer, Vec::new());
        }
        let Servers::Said(before) = &*servers else { return judged(observer, Vec::new()) };
        let after = ask_all(core, false).into_iter().filter_map(|asked| answer(asked).ok());
        let change = |(after, _): (Measures, Vec<Measures>)| {
            before.iter().find(|before| before.name == after.name).map(|before| after.since(before))
        };
        let changes = after.filter_map(change).collect();
        judged(observer, changes)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(looker) = self.looker.take() {
            // Its panic, if it had one, has been reported by itself.
            let _ = looker.join();
        }
    }
}

fn judged(observer: Change, servers: Vec<Change>, beside: &[Change]) -> Seen {
    let verdict = judge(Scene { observer: &observer, servers: &servers, beside });
    Seen { verdict, observer, servers }
}
