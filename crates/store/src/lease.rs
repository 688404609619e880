//! What this server's processes know of placement groups with several members: a [`MemberState`] for each, by which it
//! is known whether a member may serve. A group of one member has none: nothing is agreed on in it.
//!
//! - A target's process has the number that the metadata service gave it with leave to serve. With another number it
//!   is another process, which knows nothing of what the one before it granted.
//! - Records are asked for when the metadata service tells of another membership than the one they are of: rarely, and
//!   in the thread of the heartbeat. What is older than what is known changes nothing.
//!
//! It sends nothing to other members.

use crate::latest::Latest;
use crate::options::Defect;
use crate::peers::QUESTIONS_MAX;
use crate::service::DataService;
use crate::targets::Target;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vazao_meter::Clock;
use vazao_model::cluster::lease::Moment;
use vazao_model::cluster::membership::{Member, Membership, Standing};
use vazao_model::cluster::serving::{FormerPrimary, HadAll, MemberState};
use vazao_model::{Code, GroupId, NodeId, TargetId, TargetState};
use vazao_wire::messages::members::{group_members, membership};
use vazao_wire::op::GetGroups;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call};

/// Pages of records that are asked for one after the other: more groups than a cluster has.
const PAGES_MAX: usize = 1024;

/// For so long a disk may answer nothing until other members go on without its target.
const OUT_NS: u64 = 3_000_000_000;

/// Which membership something was told of: the metadata service's process, and its epoch there.
type Told = (u64, u64);

/// What one member of this server is to its group at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberView {
    /// The target of this server.
    pub target: TargetId,
    /// Its process.
    pub process: u64,
    /// The group.
    pub group: GroupId,
    /// The latest record that it knows.
    pub record: Membership,
    /// The members that count: those that are current by it, and one that it holds for promoted.
    pub counting: Vec<TargetId>,
    /// It may answer reads.
    pub may_serve: bool,
    /// It may acknowledge changes.
    pub may_acknowledge: bool,
}

/// What a member knows of its group when it is about to do something.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) epoch: u64,
    pub(crate) losses: u64,
    /// Its process is the one in the record, and it is current or lags.
    pub(crate) is_member: bool,
    /// And the first that is.
    pub(crate) is_primary: bool,
    pub(crate) primary: Option<TargetId>,
    /// The others that count.
    pub(crate) others: Vec<TargetId>,
    /// Those that lag and do not count yet, with their processes.
    pub(crate) lagging: Vec<(TargetId, u64)>,
    pub(crate) may_serve: bool,
    pub(crate) may_acknowledge: bool,
}

/// One target of this server.
#[derive(Default)]
struct Own {
    process: u64,
    /// The membership that its records are of, when they are known.
    known: Option<Told>,
}

/// What is to be asked of another member that counts.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) group: GroupId,
    pub(crate) epoch: u64,
    /// The member that asks.
    pub(crate) target: TargetId,
    pub(crate) process: u64,
    /// It is current in this epoch, and its process is the one in the record.
    pub(crate) is_current: bool,
    /// It holds a lease of the one that is asked.
    pub(crate) is_held: bool,
    /// The member that is asked, and its server.
    pub(crate) of: TargetId,
    pub(crate) node: NodeId,
    pub(crate) address: String,
}

impl Question {
    /// A report of the one that asks, without what it says.
    pub(crate) fn report(&self) -> proto::MemberReport {
        let (group, target) = (self.group.0, self.target.0);
        proto::MemberReport { group, epoch: self.epoch, target, process: self.process, ..Default::default() }
    }
}

impl From<&Question> for proto::MemberQuestion {
    fn from(question: &Question) -> proto::MemberQuestion {
        let Question { group, epoch, target, process, of, .. } = question;
        proto::MemberQuestion { group: group.0, epoch: *epoch, target: target.0, process: *process, of: of.0 }
    }
}

#[derive(Default)]
pub(crate) struct Held {
    own: BTreeMap<TargetId, Own>,
    states: BTreeMap<(TargetId, GroupId), MemberState>,
    /// Where the servers of other members are.
    servers: BTreeMap<TargetId, (NodeId, String)>,
}

/// A member that has caught up, in an epoch.
struct CaughtUp {
    target: TargetId,
    process: u64,
    epoch: u64,
}

/// Members whose silence the metadata service is told of just now, each with the one that says so. Nothing is granted
/// to them until that is decided, or has taken too long: the group would have to wait for the end of the grant.
#[derive(Default)]
struct Accused {
    members: BTreeSet<(TargetId, GroupId, TargetId)>,
    until_ns: u64,
}

/// A member that has carried nothing out that it was sent.
#[derive(Default)]
struct Failing {
    since_ns: u64,
    last_ns: u64,
    /// The epoch in which it is accused; 0: in none. In another one that says nothing: who said so may lead no more,
    /// and would never take it back.
    epoch: u64,
}

/// How long an accusation is waited for: it is gathered for a tenth of a second, and written to a disk.
const DECIDED_NS: u64 = 500_000_000;

/// A member that failed so long before, and not since, has not failed all the time.
const FAILED_NS: u64 = 20_000_000_000;

/// The states of all groups with several members.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<Held>,
    pub(crate) latest: Arc<Latest>,
    /// Members that do not carry out what they are sent, each with the one that says so.
    failing: Mutex<BTreeMap<(TargetId, GroupId, TargetId), Failing>>,
    /// Members whose disks could not be used, each with the one that was told so.
    out: Mutex<BTreeSet<(TargetId, GroupId, TargetId)>>,
    /// Taken after `held`.
    accused: Mutex<Accused>,
    /// Members that have caught up, by the primary. Taken after `held`.
    caught_up: Mutex<BTreeMap<(TargetId, GroupId), CaughtUp>>,
}

/// A moment on both clocks by which leases are counted.
pub(crate) fn moment(clock: &dyn Clock) -> Moment {
    Moment { steady_ns: clock.steady_ns(), wall_ns: clock.wall_ns() }
}

impl Leases {
    /// A target's process has this number; 0: none. What another process of it knew is forgotten.
    pub(crate) fn set_process(&self, target: TargetId, process: u64) {
        let mut held = self.held.lock();
        let own = held.own.entry(target).or_default();
        if own.process != process {
            *own = Own { process, known: None };
            held.states.retain(|(of, _), _| *of != target);
        }
    }

    /// Targets whose records are not of the membership `told`, with their processes.
    fn unknown(&self, told: Told) -> Vec<(TargetId, u64)> {
        let held = self.held.lock();
        let is_unknown = |own: &Own| own.process != 0 && own.known != Some(told);
        held.own.iter().filter(|(_, own)| is_unknown(own)).map(|(id, own)| (*id, own.process)).collect()
    }

    /// Keeps all records of a target's groups, as the metadata service has them in the membership `told`, or later.
    fn keep(&self, (target, process): (TargetId, u64), told: Told, records: &Records, steady_ns: u64) {
        let mut held = self.held.lock();
        let Some(own) = held.own.get_mut(&target).filter(|own| own.process == process) else { return };
        own.known = Some(told);
        let groups: BTreeSet<GroupId> = records.groups.iter().map(|(id, _)| *id).collect();
        held.states.retain(|(of, group), _| *of != target || groups.contains(group));
        for (group, record) in &records.groups {
            let key = (target, *group);
            let is_first = records.are_of_one_history && self.latest.known(key) == (0, 0);
            self.latest.hear(key, record.epoch, 0);
            // What the process before this one granted, or this one before it was a member again, is waited for.
            let new = || match is_first {
                true => MemberState::begun(target, process, steady_ns, record),
                false => MemberState::started(target, process, steady_ns),
            };
            held.states.entry(key).or_insert_with(new).learn(record);
        }
        held.servers.extend(records.servers.iter().cloned());
    }
}

impl Leases {
    /// What each member of this server asks of the others that count.
    pub(crate) fn questions(&self, now: Moment) -> Vec<Question> {
        let held = self.held.lock();
        let mut questions = Vec::new();
        for (&(target, group), state) in &held.states {
            let process = held.own.get(&target).map_or(0, |own| own.process);
            let is_current = |record: &Membership| {
                record.current().any(|member| (member.target, member.run) == (target, process))
            };
            let (epoch, is_current) = (state.epoch(), state.record().is_some_and(is_current));
            for of in state.counting().filter(|of| *of != target) {
                let Some((node, address)) = held.servers.get(&of).cloned() else { continue };
                let is_held = state.holds(of, now);
                let question =
                    Question { group, epoch, target, process, is_current, is_held, of, node, address };
                questions.push(question);
            }
        }
        questions
    }

    /// Answers what another member asks; `is_out`: the disk of the one that is asked cannot be used.
    fn answer(&self, question: &proto::MemberQuestion, is_out: bool, steady_ns: u64) -> proto::MemberGrant {
        let (asker, group) = (TargetId(question.target), GroupId(question.group));
        let mut held = self.held.lock();
        let Some(state) = held.states.get_mut(&(TargetId(question.of), group)) else {
            return proto::MemberGrant { out: is_out, ..Default::default() };
        };
        let accused = self.accused.lock();
        let is_accused =
            steady_ns < accused.until_ns && accused.members.contains(&(TargetId(question.of), group, asker));
        drop(accused);
        let granted = !is_accused && state.grant(asker, question.process, question.epoch, steady_ns);
        let newer = state.record().filter(|record| record.epoch > question.epoch);
        let newer = newer.map(|record| group_members(group, record));
        proto::MemberGrant { granted, newer, out: is_out }
    }

    /// Whether the group of a question is known, where the one that is asked is of this server.
    fn knows(&self, question: &proto::MemberQuestion) -> bool {
        let (of, held) = (TargetId(question.of), self.held.lock());
        !held.own.contains_key(&of) || held.states.contains_key(&(of, GroupId(question.group)))
    }

    /// Takes the answer to a question that left at `asked`.
    pub(crate) fn take(&self, question: &Question, grant: &proto::MemberGrant, asked: Moment) {
        if let Some(newer) = &grant.newer {
            self.learn(question.target, question.group, newer);
        }
        let mut held = self.held.lock();
        let is_same = held.own.get(&question.target).is_some_and(|own| own.process == question.process);
        if let Some(state) = held.states.get_mut(&(question.target, question.group))
            && grant.granted
            && is_same
        {
            state.granted(question.of, question.epoch, asked);
        }
    }

    /// What a member knows now. `None`: no record yet.
    pub(crate) fn view(&self, (target, group): (TargetId, GroupId), now: Moment) -> Option<View> {
        let held = self.held.lock();
        let state = held.states.get(&(target, group))?;
        let process = held.own.get(&target)?.process;
        let record = state.record()?;
        let is_own = |member: &Member| (member.target, member.run) == (target, process);
        let is_leaving = |member: &Member| matches!(member.standing, Standing::Leaving { .. });
        let lags = |member: &&Member| {
            matches!(member.standing, Standing::Lagging { .. })
                && !state.counting().any(|of| of == member.target)
        };
        Some(View {
            epoch: record.epoch,
            losses: record.losses,
            is_member: record.members.iter().any(|member| is_own(member) && !is_leaving(member)),
            is_primary: record.primary().is_some_and(is_own),
            primary: record.primary().map(|member| member.target),
            others: state.counting().filter(|of| *of != target).collect(),
            lagging: record.members.iter().filter(lags).map(|member| (member.target, member.run)).collect(),
            may_serve: state.may_serve(now),
            may_acknowledge: state.may_acknowledge(now),
        })
    }

    /// Whether a member of this server counts by the record.
    pub(crate) fn counts(&self, (target, group): (TargetId, GroupId)) -> bool {
        let held = self.held.lock();
        let record = held.states.get(&(target, group)).and_then(MemberState::record);
        record.is_some_and(|record| record.current().any(|member| member.target == target))
    }

    /// The member of this server in a group, current or not.
    pub(crate) fn member(&self, group: GroupId) -> Option<TargetId> {
        let held = self.held.lock();
        held.own.keys().copied().find(|target| held.states.contains_key(&(*target, group)))
    }

    /// A member begins the promotion of another one, as the primary (`now`), or holds it for current since the primary
    /// says so. False: it may not, or does not.
    pub(crate) fn promote(
        &self,
        key: (TargetId, GroupId),
        other: TargetId,
        epoch: u64,
        now: Option<Moment>,
    ) -> bool {
        let mut held = self.held.lock();
        let Some(state) = held.states.get_mut(&key) else { return false };
        match now {
            Some(now) => state.epoch() == epoch && state.begin_promotion(other, now),
            None => state.hold_promoted(other, epoch),
        }
    }

    /// Says to the metadata service from now on that a member has caught up, while this is the epoch.
    pub(crate) fn say_caught_up(&self, key: (TargetId, GroupId), target: TargetId, process: u64, epoch: u64) {
        self.forget_failing(key, target);
        self.caught_up.lock().insert(key, CaughtUp { target, process, epoch });
    }

    /// Whether that is said already.
    pub(crate) fn is_said(&self, key: (TargetId, GroupId)) -> bool {
        self.caught_up.lock().contains_key(&key)
    }

    /// Reports of members that have caught up; of another epoch than is known now there is nothing to report.
    pub(crate) fn caught_up(&self) -> Vec<(TargetId, GroupId, proto::MemberReport)> {
        let held = self.held.lock();
        let mut caught_up = self.caught_up.lock();
        caught_up.retain(|key, it| held.states.get(key).is_some_and(|state| state.epoch() == it.epoch));
        let report = |(&(target, group), it): (&(TargetId, GroupId), &CaughtUp)| {
            let promote =
                proto::MemberPromotion { target: it.target.0, process: it.process, ..Default::default() };
            let report = proto::MemberReport {
                group: group.0,
                epoch: it.epoch,
                target: target.0,
                process: held.own.get(&target).map_or(0, |own| own.process),
                promote: Some(promote),
                ..Default::default()
            };
            (target, group, report)
        };
        caught_up.iter().map(report).collect()
    }

    /// The record that a member knows.
    pub(crate) fn record(&self, key: (TargetId, GroupId)) -> Option<Membership> {
        self.held.lock().states.get(&key)?.record().cloned()
    }

    /// The primary before the one here, in this epoch ([`MemberState::former_primary`]).
    pub(crate) fn former_primary(&self, key: (TargetId, GroupId), epoch: u64) -> Option<FormerPrimary> {
        let held = self.held.lock();
        held.states.get(&key).filter(|state| state.epoch() == epoch)?.former_primary()
    }

    /// Whether this process leads a group since it has started in the place of another one, alone.
    pub(crate) fn has_gone_on(&self, key: (TargetId, GroupId)) -> bool {
        self.held.lock().states.get(&key).is_some_and(MemberState::has_gone_on)
    }

    /// Of a member that lags: whether it had everything when this process began to lead ([`MemberState::had_all`]).
    pub(crate) fn had_all(&self, key: (TargetId, GroupId), target: TargetId) -> Option<HadAll> {
        self.held.lock().states.get(&key)?.had_all(target)
    }

    /// The first epoch without a member that lags.
    pub(crate) fn lags_since(&self, key: (TargetId, GroupId), target: TargetId) -> Option<u64> {
        let held = self.held.lock();
        match held.states.get(&key)?.record()?.member(target)?.standing {
            Standing::Lagging { since } => Some(since),
            _ => None,
        }
    }

    /// The metadata service is about to be told that these are silent, or it has decided and there are none.
    pub(crate) fn set_accused(&self, members: BTreeSet<(TargetId, GroupId, TargetId)>, steady_ns: u64) {
        *self.accused.lock() = Accused { members, until_ns: steady_ns.saturating_add(DECIDED_NS) };
    }

    /// The disk of another member could not be used.
    pub(crate) fn note_out(&self, (target, group): (TargetId, GroupId), other: TargetId) {
        self.out.lock().insert((target, group, other));
    }

    /// It has everything, and counts from now on; or it was out and is not any more, in the same process.
    pub(crate) fn forget_out(&self, (target, group): (TargetId, GroupId), other: TargetId) {
        self.out.lock().remove(&(target, group, other));
    }

    /// Whether that was so since the member last had everything. True: it may have lost what it has answered.
    pub(crate) fn was_out(&self, (target, group): (TargetId, GroupId), other: TargetId) -> bool {
        self.out.lock().contains(&(target, group, other))
    }

    /// A target's present process, once all of the target's groups have it in their records.
    fn entered(&self, target: TargetId) -> Option<u64> {
        let held = self.held.lock();
        let own = held.own.get(&target).filter(|own| own.process != 0 && own.known.is_some())?;
        let is_in = |state: &MemberState| {
            let member = state.record().and_then(|record| record.member(target));
            member.is_some_and(|member| member.run == own.process)
        };
        let mut of_target = held.states.iter().filter(|((of, _), _)| *of == target);
        of_target.all(|(_, state)| is_in(state)).then_some(own.process)
    }

    /// Members that are current by the record, but of which another process has started since, this one: reports
    /// without what they say.
    pub(crate) fn started_anew(&self) -> Vec<(TargetId, GroupId, proto::MemberReport)> {
        let held = self.held.lock();
        let report = |(&(target, group), state): (&(TargetId, GroupId), &MemberState)| {
            let process = held.own.get(&target).map_or(0, |own| own.process);
            let record = state.record()?;
            let is_other = |member: &Member| member.target == target && member.run < process;
            record.current().any(is_other).then(|| {
                let (epoch, target, group) = (record.epoch, target.0, group.0);
                proto::MemberReport { group, epoch, target, process, ..Default::default() }
            })
        };
        let all = held.states.iter().filter_map(|it| Some((it.0.0, it.0.1, report(it)?)));
        all.collect()
    }

    /// The members of this server, each in its group, and whether it is the primary there.
    pub(crate) fn members(&self) -> Vec<((TargetId, GroupId), bool)> {
        let held = self.held.lock();
        let member = |(&key, state): (&(TargetId, GroupId), &MemberState)| {
            let process = held.own.get(&key.0).map_or(0, |own| own.process);
            let primary = state.record().and_then(Membership::primary);
            (key, primary.is_some_and(|first| (first.target, first.run) == (key.0, process)))
        };
        held.states.iter().map(member).collect()
    }

    /// Where another member's server is.
    pub(crate) fn address(&self, target: TargetId) -> Option<String> {
        self.held.lock().servers.get(&target).map(|(_, address)| address.clone())
    }

    /// Another member has not carried out what it was sent. Returns for how long it has carried nothing out: since a
    /// first failure like this.
    pub(crate) fn failed_for(
        &self,
        (target, group): (TargetId, GroupId),
        other: TargetId,
        now_ns: u64,
    ) -> u64 {
        let mut failing = self.failing.lock();
        let failing = failing.entry((target, group, other)).or_default();
        if failing.since_ns == 0 || now_ns.saturating_sub(failing.last_ns) > FAILED_NS {
            failing.since_ns = now_ns;
        }
        failing.last_ns = now_ns;
        now_ns.saturating_sub(failing.since_ns)
    }

    /// It is accused, in this epoch.
    pub(crate) fn note_failing(&self, (target, group): (TargetId, GroupId), other: TargetId, epoch: u64) {
        let mut failing = self.failing.lock();
        let failing = failing.entry((target, group, other)).or_default();
        failing.epoch = epoch.max(failing.epoch);
    }

    /// It carries out what it is sent.
    pub(crate) fn forget_failing(&self, (target, group): (TargetId, GroupId), other: TargetId) {
        self.failing.lock().remove(&(target, group, other));
    }

    /// Whether the member that is asked fails, in the epoch of the question.
    pub(crate) fn is_failing(&self, question: &Question) -> bool {
        let Question { target, group, of, epoch, .. } = question;
        self.failing.lock().get(&(*target, *group, *of)).is_some_and(|failing| failing.epoch == *epoch)
    }

    /// A member hears of a record; of one that cannot be understood it hears from the metadata service again.
    pub(crate) fn learn(&self, target: TargetId, group: GroupId, message: &proto::GroupMembers) {
        match membership(message) {
            Ok((id, record)) if id == group => {
                let mut held = self.held.lock();
                if let Some(state) = held.states.get_mut(&(target, group)) {
                    // First: nothing of an earlier epoch is carried out any more once this one is acted upon.
                    self.latest.hear((target, group), record.epoch, 0);
                    state.learn(&record);
                }
            }
            Ok((id, _)) => tracing::debug!(%id, %group, "a record of another placement group"),
            Err(fault) => tracing::debug!(%fault, "a record that another member knows"),
        }
    }
}

/// Records of groups that have several members, and where the servers of these are.
#[derive(Default)]
struct Records {
    groups: Vec<(GroupId, Membership)>,
    servers: Vec<(TargetId, (NodeId, String))>,
    /// No operator has had the metadata go on from an older copy, as far as this server was told: no number of a group
    /// was given to two of them.
    are_of_one_history: bool,
}

impl Records {
    /// Errors: a record that is damaged, or that a newer program made.
    fn take(&mut self, page: proto::GetGroupsResponse) -> Result<(), Fault> {
        for message in &page.groups {
            let (id, record) = membership(message)?;
            if record.members.len() > 1 {
                self.groups.push((id, record));
            }
        }
        let server = |it: proto::MemberServer| (TargetId(it.target), (NodeId(it.node), it.address));
        self.servers.extend(page.servers.into_iter().map(server));
        Ok(())
    }
}

impl DataService {
    /// Grants the leases that members of other servers ask for. Errors: more than fit into a request.
    pub(crate) fn keep_alive(
        &self,
        request: &proto::KeepAliveRequest,
    ) -> Result<proto::KeepAliveResponse, Fault> {
        let count = request.questions.len();
        if count > QUESTIONS_MAX {
            let text =
                format!("{count} questions of members, {QUESTIONS_MAX} are the most; send the rest apart");
            return Err(Fault::new(Code::BadRequest, text));
        }
        // After the questions came, as a grant has to be counted.
        let steady_ns = self.shell.clock().steady_ns();
        let out: BTreeSet<TargetId> =
            self.targets.iter().filter(|target| is_out(target)).map(|target| target.id()).collect();
        let answer = |question: &proto::MemberQuestion| {
            if !self.leases.knows(question) {
                self.unknown_groups.note(GroupId(question.group));
            }
            self.leases.answer(question, out.contains(&TargetId(question.of)), steady_ns)
        };
        Ok(proto::KeepAliveResponse { grants: request.questions.iter().map(answer).collect() })
    }

    /// Whether any member of it has others to agree with.
    pub fn shares_groups(&self) -> bool {
        !self.leases.held.lock().states.is_empty()
    }

    /// What its members are to their groups of several members now.
    pub fn memberships(&self) -> Vec<MemberView> {
        let now = moment(&**self.shell.clock());
        let held = self.leases.held.lock();
        let view = |(&(target, group), state): (&(TargetId, GroupId), &MemberState)| {
            Some(MemberView {
                target,
                process: held.own.get(&target)?.process,
                group,
                record: state.record()?.clone(),
                counting: state.counting().collect(),
                may_serve: state.may_serve(now),
                may_acknowledge: state.may_acknowledge(now),
            })
        };
        held.states.iter().filter_map(view).collect()
    }

    /// Asks for the records of groups, where the membership is another one than they are of. Errors: not all were told;
    /// those that are missing are asked for again after the next heartbeat.
    pub(crate) fn learn_groups(
        &self,
        transport: &dyn Transport,
        meta_address: &str,
        deadline_ns: u64,
        epoch: u64,
    ) -> Result<(), Fault> {
        let told = (self.latest_mark().run, epoch);
        for own in self.leases.unknown(told) {
            let mut records = records_of(own.0, transport, meta_address, deadline_ns)?;
            records.are_of_one_history = self.latest_mark().lineage == 0;
            let forgets = self.options.defect == Some(Defect::ForgottenGrants);
            self.leases.keep(own, told, &records, if forgets { 0 } else { self.shell.clock().steady_ns() });
        }
        // One that is not to be served is not what the records say.
        for target in self.targets.iter().filter(|target| !target.kept_power() && target.check().is_ok()) {
            if let Some(process) = self.leases.entered(target.id()) {
                let begin_anew = move |target: &Target| target.begin_anew(process);
                target.waits.in_time(target, Target::waits, begin_anew)?;
            }
        }
        Ok(())
    }
}

/// True when other members are to go on without a target: its disk failed, or has answered nothing for [`OUT_NS`].
fn is_out(target: &Target) -> bool {
    let is_gone = matches!(target.state(), TargetState::Failed | TargetState::Stale);
    is_gone || target.waits.silent_ns() >= OUT_NS
}

/// The records of all groups of a target.
fn records_of(
    target: TargetId,
    transport: &dyn Transport,
    meta_address: &str,
    deadline_ns: u64,
) -> Result<Records, Fault> {
    let mut records = Records::default();
    let mut request = proto::GetGroupsRequest { target: target.0, ..Default::default() };
    for _ in 0..PAGES_MAX {
        let page = match call::<GetGroups>(transport, meta_address, &request, deadline_ns) {
            // It knows no groups of several members.
            Err(fault) if fault.code == Code::Unsupported => return Ok(Records::default()),
            page => page?,
        };
        let last = page.groups.last().map(|group| group.group);
        let more = page.more;
        records.take(page)?;
        match last.filter(|last| more && *last > request.after) {
            Some(last) => request.after = last,
            None => return Ok(records),
        }
    }
    let text = format!("{target}: more placement groups than fit into {PAGES_MAX} answers");
    Err(Fault::new(Code::BadRequest, text))
}
