//! Keepalives between servers whose targets share placement groups of several members: this server asks the others for
//! leases, grants theirs, and says to the metadata service which of them are silent. What is granted, and what follows
//! from it, is the model's rule (`lease.rs` holds its states).
//!
//! - It asks every [`ASK_NS`], all groups that it shares with a server in one request, and waits for no answer: what
//!   has come is taken at the next turn. A lease that it does not hold is asked for at once: programs wait for it.
//! - A server that has answered nothing for [`SILENT_NS`] is accused, and one whose disk answers nothing. Answers count
//!   alone, as they carry the leases: where the link is cut one way, both accuse.
//! - What is accused of silence is granted nothing until that is decided: it may come to itself meanwhile and ask, and
//!   the others would have to wait for the end of the grant before they go on without it.
//! - A process that was itself not scheduled for [`LATE_NS`] has heard nothing for another reason: it counts anew.

use crate::lease::{Question, moment};
use crate::service::DataService;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use vazao_model::cluster::lease::{Moment, TERM_NS};
use vazao_model::{GroupId, NodeId, TargetId};
use vazao_wire::op::{KeepAlive, ReportMembers};
use vazao_wire::proto;
use vazao_wire::transport::{PendingCall, Transport, submit};

/// How often a server is asked: three questions of four may be lost before a lease ends.
const ASK_NS: u64 = 500_000_000;

/// How often one is asked of which a lease is missing: that of a member that has just begun to count.
const MISSING_NS: u64 = 90_000_000;

/// How long a server may answer nothing: two questions may be lost.
const SILENT_NS: u64 = 1_000_000_000;

/// How late a turn may be before silence is counted anew.
const LATE_NS: u64 = 300_000_000;

/// How often a member that has started anew says that it would lead: where others are left, it is refused.
const LEAD_NS: u64 = 1_000_000_000;

/// How long the metadata service may take to decide: it gathers accusations and waits for its disk.
const REPORT_NS: u64 = 2_000_000_000;

/// Questions in one request, and reports in one.
pub(crate) const QUESTIONS_MAX: usize = 1024;

/// Questions to one server that have no answer yet; a grant that comes later than the oldest of them is over.
const ASKED_MAX: usize = (TERM_NS / ASK_NS) as usize;

/// A request for leases.
struct Asked {
    at: Moment,
    questions: Vec<Question>,
    answer: PendingCall<KeepAlive>,
}

/// Another server.
struct Peer {
    /// When its silence began, at the latest.
    heard_ns: u64,
    asked_ns: Option<u64>,
    asked: Vec<Asked>,
    /// Its targets whose disks cannot be used.
    out: BTreeSet<TargetId>,
}

/// What members say that have started anew: they go on alone where no process of another current member is left.
fn leads(data: &DataService) -> impl Iterator<Item = ((TargetId, GroupId), proto::MemberReport)> {
    data.leases.started_anew().into_iter().filter_map(|(target, group, report)| {
        let own = data.targets.iter().find(|own| own.id() == target && !own.must_not_lead())?;
        let lead = Some(proto::MemberLead { kept_power: own.kept_power() });
        Some(((target, group), proto::MemberReport { lead, ..report }))
    })
}

/// What was said to the metadata service.
struct Reported {
    at_ns: u64,
    /// Of which members of this server.
    members: Vec<(TargetId, GroupId)>,
    answer: Option<PendingCall<ReportMembers>>,
}

/// The other servers, as one process sees them. Only one thread uses it.
#[derive(Default)]
pub struct Peers {
    servers: BTreeMap<NodeId, Peer>,
    reported: Option<Reported>,
    /// When it was last said which members would lead.
    led_ns: Option<u64>,
    turn_ns: Option<u64>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

impl Peers {
    /// How often it is to have a turn.
    pub const TURN: Duration = Duration::from_millis(100);

    /// Takes the answers that have come, asks those whose time it is, and accuses those that are silent. It waits for
    /// no answer.
    pub fn turn(&mut self, data: &DataService, transport: &dyn Transport, meta_address: &str) {
        data.set_metadata(meta_address);
        let now = moment(&**data.shell.clock());
        self.take_answers(data, now.steady_ns);
        self.take_outcomes(data, now.steady_ns);
        let shared = data.leases.questions(now);
        self.meet(&shared, now.steady_ns);
        self.ask(data, transport, &shared);
        self.accuse(data, transport, meta_address, &shared, now.steady_ns);
        data.even_out_all();
        data.catch_up_all();
        data.repair_all();
        // What this turn itself took, because a server could not be reached, is no lateness.
        self.turn_ns = Some(data.shell.clock().steady_ns());
    }

    /// Begins with servers that are new, and forgets those with which nothing is shared any more.
    fn meet(&mut self, shared: &[Question], now_ns: u64) {
        let nodes: BTreeSet<NodeId> = shared.iter().map(|question| question.node).collect();
        self.servers.retain(|node, _| nodes.contains(node));
        let new = || Peer { heard_ns: now_ns, asked_ns: None, asked: Vec::new(), out: BTreeSet::new() };
        for node in nodes {
            self.servers.entry(node).or_insert_with(new);
        }
        let late_ns = Peers::TURN.as_nanos() as u64 + LATE_NS;
        if self.turn_ns.is_some_and(|turn_ns| now_ns.saturating_sub(turn_ns) >= late_ns) {
            self.servers.values_mut().for_each(|peer| peer.heard_ns = now_ns);
        }
    }

    fn take_answers(&mut self, data: &DataService, now_ns: u64) {
        for peer in self.servers.values_mut() {
            let is_due = |asked: &mut Asked| {
                asked.answer.is_done() || now_ns.saturating_sub(asked.at.steady_ns) >= TERM_NS
            };
            let due: Vec<Asked> = peer.asked.extract_if(.., is_due).collect();
            for Asked { at, questions, answer } in due {
                let answered = answer.is_done().then(|| answer.wait().ok()).flatten();
                let Some((response, _)) = answered else { continue };
                peer.heard_ns = now_ns;
                for (question, grant) in questions.iter().zip(&response.grants) {
                    match grant.out {
                        true => {
                            data.leases.note_out((question.target, question.group), question.of);
                            peer.out.insert(question.of)
                        }
                        false => {
                            // Another process would not have granted anything.
                            if grant.granted {
                                data.leases.forget_out((question.target, question.group), question.of);
                            }
                            peer.out.remove(&question.of)
                        }
                    };
                    data.leases.take(question, grant, at);
                }
            }
        }
    }

    fn ask(&mut self, data: &DataService, transport: &dyn Transport, shared: &[Question]) {
        for (node, peer) in &mut self.servers {
            // Read for each: to reach the one before may have taken time.
            let at = moment(&**data.shell.clock());
            let questions: Vec<Question> = shared.iter().filter(|it| it.node == *node).cloned().collect();
            let holds_all = questions.iter().all(|question| question.is_held);
            let pause_ns = if holds_all { ASK_NS } else { MISSING_NS };
            let is_early = |asked_ns| at.steady_ns.saturating_sub(asked_ns) < pause_ns;
            let requests = questions.len().div_ceil(QUESTIONS_MAX);
            if peer.asked_ns.is_some_and(is_early) || peer.asked.len() + requests > ASKED_MAX * requests {
                continue;
            }
            // A connection that is being made must not hold up questions to others.
            if !questions.first().is_some_and(|question| transport.is_ready(&question.address)) {
                continue;
            }
            peer.asked_ns = Some(at.steady_ns);
            for questions in questions.chunks(QUESTIONS_MAX) {
                let request =
                    proto::KeepAliveRequest { questions: questions.iter().map(Into::into).collect() };
                let deadline_ns = transport.clock().now_ns() + ASK_NS;
                let answer =
                    submit::<KeepAlive>(transport, &questions[0].address, &request, &[], deadline_ns);
                peer.asked.push(Asked { at, questions: questions.to_vec(), answer });
            }
        }
    }

    /// Says which current members of its groups are silent, unless that was said just now.
    fn accuse(
        &mut self,
        data: &DataService,
        transport: &dyn Transport,
        meta_address: &str,
        shared: &[Question],
        now_ns: u64,
    ) {
        let is_early =
            |reported: &Reported| reported.answer.is_some() || now_ns.saturating_sub(reported.at_ns) < ASK_NS;
        let Some(node) = data.node().filter(|_| !self.reported.as_ref().is_some_and(is_early)) else {
            return;
        };
        let mut reports: BTreeMap<(TargetId, GroupId), proto::MemberReport> = BTreeMap::new();
        let mut accused = BTreeSet::new();
        for question in shared.iter().filter(|question| question.is_current && question.node != node) {
            let Some(peer) = self.servers.get(&question.node) else { continue };
            let is_silent = now_ns.saturating_sub(peer.heard_ns) > SILENT_NS;
            if is_silent {
                accused.insert((question.target, question.group, question.of));
            }
            if is_silent || peer.out.contains(&question.of) || data.leases.is_failing(question) {
                let report = reports.entry((question.target, question.group));
                report.or_insert_with(|| question.report()).silent.push(question.of.0);
            }
        }
        if self.led_ns.is_none_or(|led_ns| now_ns.saturating_sub(led_ns) >= LEAD_NS) {
            self.led_ns = Some(now_ns);
            reports.extend(leads(data));
        }
        for (target, group, report) in data.leases.caught_up() {
            // Who accuses a member has a newer epoch to wait for.
            reports.entry((target, group)).or_insert(report);
        }
        let reports: Vec<_> = reports.into_iter().take(QUESTIONS_MAX).collect();
        if reports.is_empty() || !transport.is_ready(meta_address) {
            return;
        }
        let (members, reports) = reports.into_iter().unzip();
        data.leases.set_accused(accused, now_ns);
        let request = proto::ReportMembersRequest { node: node.0, run: data.options.run, reports };
        let deadline_ns = transport.clock().now_ns() + REPORT_NS;
        let answer = submit::<ReportMembers>(transport, meta_address, &request, &[], deadline_ns);
        self.reported = Some(Reported { at_ns: now_ns, members, answer: Some(answer) });
    }

    /// Takes what became of the last accusations. What was not answered is said again.
    fn take_outcomes(&mut self, data: &DataService, now_ns: u64) {
        let Some(reported) = &mut self.reported else { return };
        let is_over = now_ns.saturating_sub(reported.at_ns) >= REPORT_NS;
        let is_done = reported.answer.as_ref().is_some_and(PendingCall::is_done);
        if !is_done && !is_over {
            return;
        }
        let Some(answer) = reported.answer.take().filter(|_| is_done) else { return };
        match answer.wait() {
            Ok((response, _)) => {
                for ((target, group), outcome) in reported.members.iter().zip(&response.outcomes) {
                    outcome.now.iter().for_each(|now| data.leases.learn(*target, *group, now));
                    if !outcome.refused.is_empty() {
                        tracing::debug!(%group, %target, why = outcome.refused, "silence was not acted upon");
                    }
                }
            }
            Err(fault) => tracing::debug!(%fault, "silent members of placement groups were not reported"),
        }
        // With the new records known.
        data.leases.set_accused(BTreeSet::new(), now_ns);
    }
}
