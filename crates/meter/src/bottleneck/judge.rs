//! The rules: candidates of all parts, their weights, and the choice among them.

use super::own::{busiest_thread, candidate, disk, machine, percent, quota, wanted};
use super::path::{Path, known};
use super::verdict::{Direction, Kind, Resource, Verdict};
use crate::measures::{Change, Part, Peer};

/// A candidate that scores less is not named.
pub const CONCLUSIVE: f64 = 0.5;

/// A server is examined when the observer was blocked on it for at least this share of the time for the server it
/// waited for most.
const WAITED_ALIKE: f64 = 0.5;

/// An observer that was blocked for less than this share of the time was not held up by its servers.
const HELD_UP: f64 = 0.3;

/// Below this, counters in steps of 10 ms decide instead of what happened.
const SECONDS_MIN: f64 = 0.1;

/// What is judged: one observer, and those it asks as far as they have said anything.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The client, mount, copying or serving process whose limit is wanted.
    pub observer: &'a Change,
    /// What the servers did meanwhile; found by the names in the observer's peers.
    pub servers: &'a [Change],
    /// Other processes of ours, as far as they have said anything: what they use of a machine is no other program's.
    pub beside: &'a [Change],
}

/// A resource that may be the limit.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Candidate {
    pub(super) resource: Resource,
    pub(super) kind: Kind,
    pub(super) direction: Option<Direction>,
    pub(super) place: String,
    pub(super) share: Option<f64>,
    pub(super) by_others: bool,
    pub(super) score: f64,
    pub(super) text: String,
}

impl Candidate {
    pub(super) fn of_kind(self, kind: Kind) -> Candidate {
        Candidate { kind, ..self }
    }

    pub(super) fn going(self, direction: Direction) -> Candidate {
        Candidate { direction: Some(direction), ..self }
    }

    fn weighted(mut self, weight: f64) -> Candidate {
        self.score *= weight;
        self
    }
}

/// Names what limited the observer. A pure function: the same changes give the same verdict.
pub fn judge(scene: Scene<'_>) -> Verdict {
    let observer = scene.observer;
    if observer.seconds < SECONDS_MIN {
        let text = format!("unknown: {:.0} ms are too short to tell", observer.seconds * 1e3);
        return Verdict { text, ..Verdict::default() };
    }
    if is_idle(observer) {
        let text = "nothing was asked for".to_owned();
        return Verdict {
            resource: Resource::Idle,
            place: observer.of.name.clone(),
            text,
            ..Verdict::default()
        };
    }
    let mut candidates = own_candidates(observer);
    // Handing a request over to a socket that takes nothing is waiting as well.
    let credit_ns = observer.of.peers.iter().map(|peer| peer.credit.busy_ns).max().unwrap_or(0);
    let waited = observer.share(observer.of.waits.busy_ns.saturating_add(credit_ns)).min(1.0);
    let asked = asked(&scene, (waited / HELD_UP).min(1.0));
    candidates.extend(asked_candidates(&scene, &asked));
    candidates.extend(observer.of.peers.iter().filter_map(|peer| no_answer(observer, peer)));
    candidates.extend(machine_candidates(&scene, &asked));
    choose(observer, candidates, waited)
}

/// An idle process still answers session renewals and requests for counters: up to this rate and share of time.
const HOUSEKEEPING_PER_SECOND: f64 = 5.0;
const HOUSEKEEPING_SHARE: f64 = 0.02;

fn is_idle(change: &Change) -> bool {
    let work = &change.of.work;
    if change.of.peers.iter().any(is_unanswered) {
        return false;
    }
    let asked: u64 = change.of.peers.iter().map(|peer| peer.in_flight.events).sum();
    let disks: u64 = change.of.disks.iter().map(|disk| disk.waits.busy_ns).sum();
    let waited = change.share(disks.saturating_add(change.of.waits.busy_ns));
    work.read_bytes + work.written_bytes == 0
        && work.operations.max(asked) as f64 <= HOUSEKEEPING_PER_SECOND * change.seconds
        && waited < HOUSEKEEPING_SHARE
        && wanted(change) < 0.05
}

fn own_candidates(change: &Change) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = quota(change).into_iter().chain(busiest_thread(change)).collect();
    found.extend(change.of.disks.iter().filter_map(|d| disk(change, d)));
    if change.of.part == Part::Server {
        // What a server sends and receives is for others; it is its limit when the link is full.
        let links = known(change, Direction::OutOf).into_iter().chain(known(change, Direction::Into));
        found.extend(links.filter(|link| link.score >= 0.85));
    }
    found
}

/// One of those the observer asks, and how much it was held up there: 0 to 1.
struct Asked<'a> {
    peer: &'a Peer,
    server: Option<&'a Change>,
    weight: f64,
}

fn asked<'a>(scene: &Scene<'a>, held_up: f64) -> Vec<Asked<'a>> {
    let observer = scene.observer;
    let stood_still = |peer: &Peer| observer.share(peer.waits.total_ns.saturating_add(peer.credit.total_ns));
    let most = observer.of.peers.iter().map(stood_still).fold(0.0, f64::max);
    let peers = observer.of.peers.iter().filter(|peer| !peer.name.is_empty());
    let each = |peer: &'a Peer| {
        let alike = if most > 0.0 { (stood_still(peer) / most / WAITED_ALIKE).min(1.0) } else { 0.0 };
        let server = scene.servers.iter().find(|server| server.of.name == peer.name);
        Asked { peer, server, weight: alike * held_up }
    };
    peers.map(each).collect()
}

fn asked_candidates(scene: &Scene<'_>, asked: &[Asked<'_>]) -> Vec<Candidate> {
    let path = |asked: &Asked<'_>, alike| {
        let path = Path { observer: scene.observer, peer: asked.peer, server: asked.server, alike };
        path.round_trip().into_iter().chain(path.link()).collect::<Vec<_>>()
    };
    let is_narrow = |asked: &&Asked<'_>| {
        let is_network = |c: &Candidate| c.resource == Resource::Network && c.score >= CONCLUSIVE;
        asked.weight >= CONCLUSIVE && path(asked, 1).iter().any(is_network)
    };
    let alike = asked.iter().filter(is_narrow).count();
    let mut found = Vec::new();
    for one in asked {
        let within = one.server.map(own_candidates).unwrap_or_default();
        found.extend(within.into_iter().chain(path(one, alike)).map(|c| c.weighted(one.weight)));
    }
    found
}

/// A silence lasts until the next answer, also where nothing is asked for any more: it counts while something is.
fn is_unanswered(peer: &Peer) -> bool {
    let asked = peer.in_flight;
    peer.silent_ns > 0 && (asked.events > 0 || asked.busy_ns > 0 || peer.waits.busy_ns > 0)
}

/// A server that was asked and answered nothing for a part of the time: stopped, cut off, or with a disk that hangs.
fn no_answer(observer: &Change, peer: &Peer) -> Option<Candidate> {
    let silent_ns = if is_unanswered(peer) { peer.silent_ns } else { 0 };
    let share = observer.share(silent_ns).min(1.0);
    let name = if peer.name.is_empty() { &peer.address } else { &peer.name };
    let text =
        format!("no answer of {name} for {:.0} of {:.0} s", share * observer.seconds, observer.seconds);
    (share > 0.0).then(|| candidate(Resource::NoAnswer, name, Some(share), share, text))
}

/// What is said of a server that does not answer a client that asks what it does.
pub fn not_answering(name: &str, seconds: f64) -> Verdict {
    let text = format!("no answer of {name} for {seconds:.0} s: down, cut off or stuck; see `vazao status`");
    let place = name.to_owned();
    Verdict { resource: Resource::NoAnswer, place, share: Some(1.0), score: 1.0, text, ..Verdict::default() }
}

/// The machines that the observer and those it waits for run on.
fn machine_candidates(scene: &Scene<'_>, asked: &[Asked<'_>]) -> Vec<Candidate> {
    let servers = asked.iter().filter_map(|one| Some((one.server?, one.weight)));
    let all: Vec<(&Change, f64)> = std::iter::once((scene.observer, 1.0)).chain(servers).collect();
    let mut machines: Vec<&str> = all.iter().map(|(change, _)| change.of.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    let candidate = |id: &str| {
        let here: Vec<&(&Change, f64)> = all.iter().filter(|(change, _)| change.of.machine == id).collect();
        let weight = here.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
        let changes: Vec<&Change> = here.iter().map(|(change, _)| *change).collect();
        let is_beside = |change: &&Change| {
            // A process of several nodes carries all their names.
            let is_same = |other: &&Change| change.of.name.split('+').any(|name| name == other.of.name);
            change.of.machine == id && !changes.iter().any(is_same)
        };
        let beside: Vec<&Change> = scene.beside.iter().filter(is_beside).collect();
        Some(machine(&changes, &beside)?.weighted(weight))
    };
    machines.into_iter().filter_map(candidate).collect()
}

/// What is said when nothing here was waited for.
fn of_caller(part: Part, waited: f64) -> String {
    let program = if part == Part::Server { "its clients" } else { "the program itself" };
    match percent(waited).as_str() {
        "0%" => format!("{program}: nothing here had to be waited for"),
        share => format!("{program}: here it had to be waited for only {share} of the time"),
    }
}

/// The highest score, if it is conclusive; of equals the first, so that the order of rules decides.
fn choose(observer: &Change, candidates: Vec<Candidate>, waited: f64) -> Verdict {
    let mut best: Option<Candidate> = None;
    for candidate in candidates {
        if best.as_ref().is_none_or(|best| candidate.score > best.score + 1e-9) {
            best = Some(candidate);
        }
    }
    match best {
        Some(Candidate { resource, kind, direction, place, share, by_others, score, text })
            if score >= CONCLUSIVE =>
        {
            Verdict { resource, kind, direction, place, share, by_others, score, text }
        }
        _ if waited < HELD_UP && wanted(observer) < CONCLUSIVE => {
            let place = observer.of.name.clone();
            let text = of_caller(observer.of.part, waited);
            Verdict { resource: Resource::Caller, place, score: 1.0 - waited, text, ..Verdict::default() }
        }
        nearest => {
            let near = nearest.as_ref().map_or(String::new(), |near| format!("; nearest: {}", near.text));
            let score = nearest.map_or(0.0, |near| near.score);
            let text = format!("unknown, nothing seen is at its ceiling{near}");
            Verdict { text, score, place: observer.of.name.clone(), ..Verdict::default() }
        }
    }
}
