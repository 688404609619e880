//! Changes of placement groups: this service decides who belongs to one.
//!
//! - What is changed is changed by the model's rule (`placement::Groups`), written in the same transaction as a new
//!   epoch of the membership, and told when it is durable.
//! - A target has one process at a time, which has a number ([`super::incarnations`]). A new one is entered into the
//!   groups of its target when it has leave to serve, and the former one is taken out of their epochs.

use crate::membership::cluster::Cluster;
use crate::membership::joining::Now;
use crate::service::MetaService;
use crate::service::fault::Outcome;
use std::cell::Cell;
use std::sync::Arc;
use vazao_model::cluster::membership::{COPIES_MAX, Change, Member, Membership, Standing};
use vazao_model::{Code, GroupId, NodeId, TargetId};
use vazao_wire::service::Fault;

impl Cluster {
    /// Enters new processes of a node's targets into the groups of these, of which the former ones are taken out. Of a
    /// target alone nothing is noted. `all`: the cluster of which this is an excerpt with the node. Returns the groups
    /// that have changed.
    ///
    /// A current member is taken out only where another one is left. Where none is, its group keeps the former process,
    /// until one that is left says so or this one leads.
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
            match Arc::make_mut(&mut self.groups).change(id, epoch, change) {
                Some(Ok(())) => entered.push(id),
                // Another target of the node has changed it: the next report enters this one.
                Some(Err(refused)) => tracing::debug!(%id, %refused, "a new process was not entered"),
                None => {}
            }
        }
        entered
    }

    /// True when the process of a member is surely left: its server has reported since `since_ns`, when the process of
    /// another one began. One that reported before may have lost its power together with that one.
    fn is_left(&self, all: &Cluster, member: &Member, since_ns: u64, now: Now) -> bool {
        let of_excerpt = self.targets.get(&member.target);
        let Some(held) = of_excerpt.or_else(|| all.targets.get(&member.target)) else { return false };
        let node = NodeId(held.record.node);
        let heard = self.nodes.get(&node).or_else(|| all.nodes.get(&node)).map(|node| node.heard_ns);
        held.record.process == member.run
            && held.is_reported
            && held.shown.state.is_readable()
            && heard.is_some_and(|heard_ns| heard_ns > since_ns)
            && all.is_up(node, now.ns)
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

impl MetaService {
    /// Makes a group of targets on different machines, of which the first one is the primary. For simulations: no file
    /// lies in one yet. Errors: there is no such target, or it does not serve; several are on one machine.
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
