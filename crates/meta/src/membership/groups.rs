//! Changes of placement groups: this service decides who belongs to one.
//!
//! - What is changed is changed by the model's rule (`placement::Groups`), written in the same transaction as a new
//!   epoch of the membership, and told when it is durable.
//! - A target has one process at a time, which has a number ([`super::incarnations`]). A new one is entered into the
//!   groups of its target when it has leave to serve, and the former one is taken out of their epochs.

use crate::membership::cluster::{Cluster, Held};
use crate::membership::joining::Now;
use crate::membership::reports::{Report, Said, Waiting};
use crate::placement::{Candidate, Spread, led_wanted};
use crate::service::MetaService;
use crate::service::backpressure::unless_behind;
use crate::service::fault::Outcome;
use prost::Message;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vazao_model::cluster::accusations;
use vazao_model::cluster::membership::{COPIES_MAX, Change, Member, Membership, Refused, Standing};
use vazao_model::{Code, GroupId, NodeId, TargetId, limits};
use vazao_wire::messages::members;
use vazao_wire::service::Fault;
use vazao_wire::{Method, proto};

/// A server that lives has reported within this time: it does so every [`limits::HEARTBEAT_MS`].
const REPORTED_NS: u64 = 5 * limits::HEARTBEAT_MS as u64 / 2 * 1_000_000;

/// For so long a member that lost its power waits for one that kept its own, before it goes on alone.
const LEAD_NS: u64 = 30_000_000_000;

/// Groups that one transaction makes: each is a record.
const MADE_AT_ONCE: usize = 256;

/// Whether the process of a member is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Left,
    /// Its server may report yet.
    Unknown,
    Gone,
}

/// What became of reports.
#[derive(Default)]
struct Decided {
    /// Groups that have changed.
    changed: Vec<GroupId>,
    /// Of each report.
    outcomes: Vec<proto::MemberOutcome>,
}

impl Cluster {
    /// Enters new processes of a node's targets into the groups of these, of which the former ones are taken out. Of a
    /// target alone nothing is noted. `all`: the cluster of which this is an excerpt with the node. Returns the groups
    /// that have changed.
    ///
    /// A current member is taken out only where another one is left. Where none is, its group keeps the former process
    /// until this one leads.
    pub(crate) fn enter_processes(&mut self, all: &Cluster, targets: &[u32], now: Now) -> Vec<GroupId> {
        let mut changes = Vec::new();
        for target in targets.iter().copied().map(TargetId) {
            let Some(held) = self.targets.get(&target) else { continue };
            let (run, since_ns) = (held.record.process, held.leave_ns);
            let is_news = |membership: &Membership| {
                let Some(member) = membership.member(target).filter(|member| member.run < run) else {
                    return false;
                };
                let mut others = membership.current().filter(|other| other.target != target);
                member.standing != Standing::Current
                    || others.any(|other| self.is_left(all, other, since_ns, now))
            };
            let news = self.groups.shared_by(target).filter(|(_, membership)| is_news(membership));
            changes.extend(news.map(|(id, now)| (id, now.epoch, Change::Started { target, run })));
        }
        let mut entered = Vec::new();
        for (id, epoch, change) in changes {
            match Arc::make_mut(&mut self.groups).change(id, epoch, change, now.wall_seconds) {
                Some(Ok(())) => entered.push(id),
                // Another target of the node has changed it: the next report enters this one.
                Some(Err(refused)) => tracing::debug!(%id, %refused, "a new process was not entered"),
                None => {}
            }
        }
        entered
    }

    fn is_left(&self, all: &Cluster, member: &Member, since_ns: u64, now: Now) -> bool {
        self.presence(all, member, since_ns, now) == Presence::Left
    }

    /// Whether the process of a member is left. It surely is only when its server has reported since `since_ns`, when
    /// the process of another one began: one that reported before may have lost its power together with that one.
    fn presence(&self, all: &Cluster, member: &Member, since_ns: u64, now: Now) -> Presence {
        let of_excerpt = self.targets.get(&member.target);
        let held = of_excerpt.or_else(|| all.targets.get(&member.target));
        let Some(held) = held.filter(|held| held.record.process == member.run) else { return Presence::Gone };
        let node = NodeId(held.record.node);
        let heard = self.nodes.get(&node).or_else(|| all.nodes.get(&node)).map(|node| node.heard_ns);
        let has_reported = held.is_reported && heard.is_some_and(|heard_ns| heard_ns > since_ns);
        let serves = held.shown.state.is_readable() && all.is_up(node, now.ns);
        match () {
            () if has_reported && serves => Presence::Left,
            () if !has_reported && now.ns.saturating_sub(since_ns) < REPORTED_NS => Presence::Unknown,
            () => Presence::Gone,
        }
    }

    /// The targets that new groups of several can be made of, by their numbers.
    pub(crate) fn candidates(&self, nodes_are_hosts: bool, now_ns: u64) -> Vec<Candidate> {
        let candidate = |(&target, held): (&TargetId, &Held)| {
            let (node, run) = (NodeId(held.record.node), held.record.process);
            let server = self.nodes.get(&node).filter(|member| member.follows_groups)?;
            let serves = run > 0 && held.shown.state.is_readable() && self.is_up(node, now_ns);
            // A server that does not say which machine it is on counts as one of its own.
            let is_apart = nodes_are_hosts || server.host == 0;
            let host = if is_apart { u64::from(node.0) } else { server.host };
            serves.then_some(Candidate { target, host, run })
        };
        self.targets.iter().filter_map(candidate).collect()
    }

    /// True when some target is in fewer groups of so many copies than it is to be.
    fn lacks_groups(&self, copies: usize, candidates: &[Candidate]) -> bool {
        let wanted = self.groups_wanted();
        candidates.iter().any(|one| {
            let roles = self.groups.roles(copies, one.target);
            roles.leads < wanted || roles.follows < Spread::follows_wanted(copies, wanted)
        })
    }

    /// Groups that each target is to lead.
    fn groups_wanted(&self) -> usize {
        led_wanted(self.membership.last_target as usize)
    }

    /// An excerpt with the next groups of so many copies that are missing, [`MADE_AT_ONCE`] at most.
    fn with_next_groups(&self, copies: usize, nodes_are_hosts: bool, now_ns: u64) -> (Cluster, Vec<GroupId>) {
        let mut excerpt = self.excerpt(None, std::iter::empty());
        let candidates = self.candidates(nodes_are_hosts, now_ns);
        if !self.lacks_groups(copies, &candidates) {
            return (excerpt, Vec::new());
        }
        let wanted = self.groups_wanted();
        let mut spread = Spread::new(copies, wanted, &candidates, self.groups.of_copies(copies));
        let mut made = Vec::new();
        while made.len() < MADE_AT_ONCE
            && let Some(members) = spread.next()
        {
            let groups = Arc::make_mut(&mut excerpt.groups);
            made.extend(groups.make(&members, &mut excerpt.membership.groups));
        }
        if !made.is_empty() {
            excerpt.membership.nodes_are_hosts = nodes_are_hosts;
            excerpt.membership.epoch += 1;
        }
        (excerpt, made)
    }

    /// An excerpt with a new group of these targets. Errors: they cannot hold copies of the same objects, and why.
    fn with_group(&self, targets: &[TargetId]) -> Outcome<(Cluster, GroupId)> {
        let refuse = |text: String| Err(Fault::new(Code::Invalid, format!("a placement group: {text}")));
        if !(2..=COPIES_MAX).contains(&targets.len()) {
            return refuse(format!("{} targets; name 2 to {COPIES_MAX}", targets.len()));
        }
        let (mut members, mut machines) = (Vec::new(), Vec::new());
        for &id in targets {
            let Some(held) = self.targets.get(&id) else {
                return refuse(format!("{id} is not in this cluster; `vazao status` shows the targets"));
            };
            let node = NodeId(held.record.node);
            let server = self.nodes.get(&node).filter(|member| member.follows_groups);
            let (Some(server), 1.., true) = (server, held.record.process, held.shown.state.is_readable())
            else {
                return refuse(format!(
                    "{id} does not serve, or its server knows no such groups; start that one with this version"
                ));
            };
            let is_same =
                |(other, host): &(NodeId, u64)| *other == node || (*host != 0 && *host == server.host);
            if machines.iter().any(is_same) {
                return refuse(format!(
                    "{id} is on the machine of another one; name targets of different machines"
                ));
            }
            machines.push((node, server.host));
            members.push((id, held.record.process));
        }
        let mut excerpt = self.excerpt(None, std::iter::empty());
        let made = Arc::make_mut(&mut excerpt.groups).make(&members, &mut excerpt.membership.groups);
        excerpt.membership.epoch += 1;
        let id = made.ok_or_else(|| Fault::new(Code::Internal, "a placement group of different targets"))?;
        Ok((excerpt, id))
    }
}

impl Cluster {
    /// Decides on reports: an excerpt with what follows from them.
    fn decided(&self, reports: &[Report], now: Now) -> (Cluster, Decided) {
        let mut excerpt = self.excerpt(None, std::iter::empty());
        let mut refused: Vec<Option<String>> = reports.iter().map(|report| self.refusal(report)).collect();
        let mut changed = Vec::new();
        let mut change = |excerpt: &mut Cluster, id: GroupId, epoch: u64, change: Change| {
            match Arc::make_mut(&mut excerpt.groups).change(id, epoch, change, now.wall_seconds) {
                Some(Ok(())) => changed.push(id),
                Some(Err(refused)) => return Some(refused.to_string()),
                None => {}
            }
            None
        };
        for (id, epoch, put_out) in self.put_out(reports, &refused) {
            if let Some(why) = change(&mut excerpt, id, epoch, put_out) {
                tracing::error!(%id, why, "silent members of a placement group were not put out");
            }
        }
        for (report, refused) in reports.iter().zip(&mut refused).filter(|(_, refused)| refused.is_none()) {
            *refused = match self.change_of(report, now) {
                Ok(Some(wanted)) => change(&mut excerpt, report.group, report.epoch, wanted),
                Ok(None) => excerpt.why_not_put_out(report),
                Err(why) => Some(why),
            };
        }
        excerpt.membership.epoch += u64::from(!changed.is_empty());
        let outcome = |(report, refused): (&Report, Option<String>)| {
            let now = excerpt.groups.membership(report.group);
            let now = now.map(|now| members::group_members(report.group, now));
            proto::MemberOutcome { now, refused: refused.unwrap_or_default() }
        };
        let outcomes = reports.iter().zip(refused).map(outcome).collect();
        (excerpt, Decided { changed, outcomes })
    }

    /// Why a report counts for nothing, if so: it is not from a member of that epoch, or not from its process.
    fn refusal(&self, report: &Report) -> Option<String> {
        let Report { group, target, process, .. } = report;
        let Some(now) = self.groups.membership(*group).filter(|now| !now.is_plain()) else {
            return Some(format!(
                "{group} is no placement group of several targets; ask for those of {target}"
            ));
        };
        if report.epoch != now.epoch {
            return Some(Refused::OtherEpoch(now.epoch).to_string());
        }
        let Some(member) = now.member(*target) else {
            return Some(format!("{target} is no member of {group}; ask for its members"));
        };
        let held = self.targets.get(target).filter(|held| held.record.node == report.node.0);
        let Some(latest) = held.map(|held| held.record.process) else {
            return Some(format!("{target} is no target of {}; register it first", report.node));
        };
        if *process != latest {
            return Some(format!(
                "process {process} of {target} is none that runs: that is {latest}; register first"
            ));
        }
        let is_entered = member.run == *process;
        match report.said {
            Said::Lead { .. } => None,
            _ if !is_entered => {
                Some(format!("process {process} of {target} is in no epoch yet; ask for the members"))
            }
            Said::Silent(_) if member.standing != Standing::Current => {
                Some(format!("{target} is not current: what it says of others does not count"))
            }
            _ => None,
        }
    }

    /// Who goes of the groups in which members that count are accused; and whose promotion is given up.
    fn put_out(&self, reports: &[Report], refused: &[Option<String>]) -> Vec<(GroupId, u64, Change)> {
        let node_of = |target: &TargetId| self.targets.get(target).map(|held| NodeId(held.record.node));
        let mut accusations = BTreeSet::new();
        let mut by_group: BTreeMap<GroupId, Vec<(TargetId, &[TargetId])>> = BTreeMap::new();
        for (report, _) in reports.iter().zip(refused).filter(|(_, refused)| refused.is_none()) {
            let Said::Silent(silent) = &report.said else { continue };
            accusations.extend(silent.iter().filter_map(node_of).map(|of| (report.node, of)));
            by_group.entry(report.group).or_default().push((report.target, silent));
        }
        let of_group = |(id, said): (GroupId, Vec<(TargetId, &[TargetId])>)| {
            let now = self.groups.membership(id)?;
            let current: Vec<(TargetId, NodeId)> =
                now.current().filter_map(|member| Some((member.target, node_of(&member.target)?))).collect();
            let mut gone = accusations::resolve(&current, &accusations);
            let by_those_that_stay = said.into_iter().filter(|(by, _)| !gone.contains(by));
            let lags = |target: &&TargetId| {
                let member = now.member(**target);
                member.is_some_and(|member| matches!(member.standing, Standing::Lagging { .. }))
            };
            let given_up: BTreeSet<TargetId> =
                by_those_that_stay.flat_map(|(_, silent)| silent.iter().filter(lags)).copied().collect();
            gone.extend(given_up);
            (!gone.is_empty()).then_some((id, now.epoch, Change::PutOut(gone)))
        };
        by_group.into_iter().filter_map(of_group).collect()
    }

    /// What a report asks for by itself; `None`: it accuses. Errors: why it cannot be.
    fn change_of(&self, report: &Report, now: Now) -> Result<Option<Change>, String> {
        let (target, run) = (report.target, report.process);
        match report.said {
            Said::Silent(_) => Ok(None),
            Said::Promote { target, process, instead_of } => {
                Ok(Some(Change::Promote { target, run: process, by: (report.target, run), instead_of }))
            }
            Said::Lead { kept_power } => {
                self.may_lead(report, kept_power, now)?;
                Ok(Some(Change::Leads { target, run, kept_power }))
            }
        }
    }

    /// Refuses to have a process go on alone while another current member is left, or may be, or one may come that has
    /// more.
    fn may_lead(&self, report: &Report, kept_power: bool, now: Now) -> Result<(), String> {
        let since_ns = self.targets.get(&report.target).map_or(now.ns, |held| held.leave_ns);
        let current = self.groups.membership(report.group).into_iter().flat_map(Membership::current);
        let others: Vec<&Member> = current.filter(|member| member.target != report.target).collect();
        for other in &others {
            match self.presence(self, other, since_ns, now) {
                Presence::Left => {
                    return Err(format!("{} of the group serves; catch up from it", other.target));
                }
                Presence::Unknown => {
                    return Err(format!("{} may be left: ask again in some seconds", other.target));
                }
                Presence::Gone => {}
            }
        }
        match others.is_empty() || kept_power || now.ns.saturating_sub(since_ns) >= LEAD_NS {
            true => Ok(()),
            false => Err(format!(
                "a member that kept its power may come yet: ask again {} s after the start",
                LEAD_NS / 1_000_000_000
            )),
        }
    }

    /// Of a report that accuses, and after the decision: why those that it accuses are there, if they are.
    fn why_not_put_out(&self, report: &Report) -> Option<String> {
        let Said::Silent(silent) = &report.said else { return None };
        let current = self.groups.current(report.group).unwrap_or_default();
        let stays = silent.iter().find(|target| current.contains(target))?;
        Some(match current.contains(&report.target) {
            true => format!("{stays} stays: it is of the same server"),
            false => format!(
                "{} was taken out itself: {stays} is accused by fewer servers, or stands first",
                report.target
            ),
        })
    }
}

/// Why there can be no groups of so many copies, for people.
fn too_few_hosts(copies: usize, hosts: usize, targets: usize) -> Fault {
    let servers = match targets {
        0 => "no data server of this version serves".to_owned(),
        _ => format!("{targets} targets that serve are on {hosts} hosts"),
    };
    let text = format!(
        "{copies} copies need {copies} hosts, there are {hosts}: {servers}. Start data servers on other machines, or ask \
         for fewer copies"
    );
    Fault::new(Code::Invalid, text)
}

impl MetaService {
    /// Decides on what members have reported, and answers them. Blocks up to `timeout` for something to decide. To be
    /// called in a loop, by a thread that may wait for the disk.
    pub fn settle_reports(&self, timeout: Duration) {
        self.reports().wait(self.clock(), timeout);
        let waiting = self.reports().take(self.clock().now_ns());
        if waiting.is_empty() {
            return;
        }
        let reports: Vec<Report> = waiting.iter().flat_map(|waiting| waiting.reports.clone()).collect();
        let mut decided = self.decide(&reports).map(Vec::into_iter);
        for Waiting { reports, deferred } in waiting {
            let answer = match &mut decided {
                Ok(outcomes) => {
                    let outcomes = outcomes.by_ref().take(reports.len()).collect();
                    Ok((proto::ReportMembersResponse { outcomes }.encode_to_vec(), Vec::new()))
                }
                Err(fault) => Err(fault.clone()),
            };
            deferred.finish(answer);
        }
    }

    /// What became of each report, durable. Errors: nothing was decided, or it is not known whether it will last; the
    /// members ask again.
    fn decide(&self, reports: &[Report]) -> Outcome<Vec<proto::MemberOutcome>> {
        self.history().check(Method::ReportMembers)?;
        let outcomes = loop {
            match unless_behind(|| self.change_members(reports)) {
                Some(outcomes) => break outcomes?,
                None => self.engine().catch_up()?,
            }
        };
        // Also where nothing has changed now: what is shown may be of a moment ago.
        let unsure = |error| Fault::new(Code::Unavailable, Fault::from(error).to_string());
        self.engine().sync().map_err(unsure)?;
        Ok(outcomes)
    }

    fn change_members(&self, reports: &[Report]) -> Outcome<Vec<proto::MemberOutcome>> {
        let now = self.now();
        let decided = RefCell::new(Decided::default());
        self.change_cluster(
            |cluster| {
                let (excerpt, of_reports) = cluster.decided(reports, now);
                *decided.borrow_mut() = of_reports;
                Ok(excerpt)
            },
            |context, excerpt| {
                let changed = &decided.borrow().changed;
                if changed.is_empty() {
                    return Ok(());
                }
                excerpt.write_membership(context)?;
                excerpt.write_groups(context, changed)
            },
        )?;
        let Decided { changed, outcomes } = decided.into_inner();
        if !changed.is_empty() {
            let (groups, first) = (changed.len(), changed[0]);
            tracing::info!(groups, %first, "members of placement groups have changed");
        }
        Ok(outcomes)
    }

    /// Sees to it that new files can have so many copies: makes placement groups where there are none yet. Several
    /// nodes of one machine are in none, unless with `nodes_are_hosts`, which then holds for the volume. Errors: there
    /// are no such groups, and too few hosts; nothing has changed.
    pub fn provide_groups(&self, copies: usize, nodes_are_hosts: bool) -> Result<(), Fault> {
        if copies < 2 {
            return Ok(());
        }
        {
            let cluster = self.cluster();
            let nodes_are_hosts = nodes_are_hosts || cluster.membership.nodes_are_hosts;
            let candidates = cluster.candidates(nodes_are_hosts, self.clock().now_ns());
            let hosts = candidates.iter().map(|one| one.host).collect::<BTreeSet<_>>().len();
            if hosts < copies && !cluster.groups.has_of_copies(copies) {
                return Err(too_few_hosts(copies, hosts, candidates.len()));
            }
        }
        while self.make_next_groups(copies, nodes_are_hosts)? {}
        Ok(())
    }

    /// Makes some of the groups that are missing since targets have joined. To be called from time to time.
    pub(crate) fn extend_groups(&self) -> Outcome<()> {
        let lacking: Vec<usize> = {
            let cluster = self.cluster();
            let candidates = cluster.candidates(cluster.membership.nodes_are_hosts, self.clock().now_ns());
            let lacks = |copies: &usize| {
                cluster.groups.has_of_copies(*copies) && cluster.lacks_groups(*copies, &candidates)
            };
            (2..=COPIES_MAX).filter(lacks).collect()
        };
        lacking.into_iter().try_for_each(|copies| self.make_next_groups(copies, false).map(drop))
    }

    /// False: none were missing.
    fn make_next_groups(&self, copies: usize, nodes_are_hosts: bool) -> Outcome<bool> {
        let made = RefCell::new(Vec::new());
        self.change_cluster(
            |cluster| {
                let nodes_are_hosts = nodes_are_hosts || cluster.membership.nodes_are_hosts;
                let (excerpt, ids) = cluster.with_next_groups(copies, nodes_are_hosts, self.clock().now_ns());
                *made.borrow_mut() = ids;
                Ok(excerpt)
            },
            |context, excerpt| {
                let made = made.borrow();
                if made.is_empty() {
                    return Ok(());
                }
                excerpt.write_membership(context)?;
                excerpt.write_groups(context, &made)
            },
        )?;
        let count = made.into_inner().len();
        if count > 0 {
            tracing::info!(groups = count, copies, "placement groups were made");
        }
        Ok(count > 0)
    }

    /// The record of a group as it was decided last, durable or not yet. For simulations.
    pub fn record_of_group(&self, group: GroupId) -> Option<Membership> {
        self.cluster().groups.membership(group).cloned()
    }

    /// Makes a group of targets on different machines, of which the first one is the primary. For simulations. Errors:
    /// there is no such target, or it does not serve; several are on one machine.
    pub fn make_group(&self, targets: &[TargetId]) -> Result<GroupId, Fault> {
        let made = Cell::new(GroupId::default());
        self.change_cluster(
            |cluster| {
                let (excerpt, id) = cluster.with_group(targets)?;
                made.set(id);
                Ok(excerpt)
            },
            |context, excerpt| {
                excerpt.write_membership(context)?;
                excerpt.write_groups(context, &[made.get()])
            },
        )?;
        self.engine().sync()?;
        Ok(made.get())
    }
}
