//! An empty directory takes the place of a lost target: its groups go on without what lay there, and make its copies
//! again.
//!
//! - In each group of several members the target lags from this moment on, with nothing, in the same transaction that
//!   takes the new directory in. So it leads nothing and counts nowhere before a current member has filled it,
//!   whichever of them is there when it starts: the last ones are waited for.
//! - A group of which it is the only current member goes on with an older copy, if the operator says so.
//! - Objects of one copy are gone. They are missing on the new directory, which is how their readers fail.
//! - The lost directory is no copy of this target any more, however new it is.

use crate::membership::cluster::{Cluster, TEXT_BYTES_MAX};
use crate::membership::joining::{Now, UUID_BYTES};
use crate::service::fault::Outcome;
use std::sync::Arc;
use vazao_model::cluster::membership::Change;
use vazao_model::{Code, GroupId, NodeId, TargetId, TargetState};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// What a replacement changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replaced {
    /// Groups with new records.
    pub(crate) groups: Vec<GroupId>,
    /// Of these: go on with an older copy.
    pub(crate) older: usize,
    /// It was done before.
    pub(crate) is_done: bool,
}

impl Cluster {
    /// An excerpt in which a target is empty and has another directory. Errors: it is not lost, not this node's, or has
    /// the only good copy of something that is not to be lost.
    pub(crate) fn replaced(
        &self,
        request: &proto::ReplaceTargetRequest,
        now: Now,
    ) -> Outcome<(Cluster, Replaced)> {
        let id = TargetId(request.target);
        let mut excerpt = self.excerpt(None, std::iter::once(id));
        if self.is_replaced_by(id, &request.uuid) {
            return Ok((excerpt, Replaced { is_done: true, ..Replaced::default() }));
        }
        self.check_replaceable(id, request, now)?;
        let mut replaced = Replaced::default();
        let mut without = 0;
        let shared: Vec<(GroupId, u64, bool)> = self
            .groups
            .shared_by(id)
            .map(|(group, membership)| {
                let is_last = membership.current().all(|member| member.target == id);
                (group, membership.epoch, is_last)
            })
            .collect();
        for (group, epoch, is_last) in shared {
            let groups = Arc::make_mut(&mut excerpt.groups);
            match groups.change(group, epoch, Change::Lost(id), now.wall_seconds) {
                Some(Ok(())) => replaced.groups.push(group),
                Some(Err(_)) => without += 1,
                None => {}
            }
            replaced.older += usize::from(is_last);
        }
        check_last_copies(id, replaced.older, without, request.lose_last_copies)?;
        if let Some(held) = excerpt.targets.get_mut(&id) {
            let trouble = format!(
                "{}, an empty directory, takes its place; its node has not reported that one yet",
                request.directory
            );
            let record = &mut held.record;
            record.former = std::mem::replace(&mut record.uuid, request.uuid.clone());
            record.directory.clone_from(&request.directory);
            (record.state, record.trouble) = (TargetState::Missing as u32, trouble.clone());
            record.seen_seconds = now.wall_seconds;
            // No process has leave any more; the next one is of the new directory, which knows no incarnation yet.
            (record.run, record.accepted_from) = (0, Some(0));
            (held.shown.state, held.shown.trouble) = (TargetState::Missing, trouble);
            held.shown.directory.clone_from(&request.directory);
        }
        excerpt.membership.epoch += 1;
        Ok((excerpt, replaced))
    }

    /// True when the directory with this number has taken the target's place already.
    fn is_replaced_by(&self, id: TargetId, uuid: &[u8]) -> bool {
        let held = self.targets.get(&id);
        held.is_some_and(|held| !held.record.former.is_empty() && held.record.uuid == uuid)
    }

    fn check_replaceable(
        &self,
        id: TargetId,
        request: &proto::ReplaceTargetRequest,
        now: Now,
    ) -> Outcome<()> {
        let refuse = |code, text: String| Err(Fault::new(code, format!("target {id}: {text}")));
        if request.uuid.len() != UUID_BYTES || request.directory.len() > TEXT_BYTES_MAX {
            return refuse(
                Code::BadRequest,
                "a directory without a number, or with too long a path".to_owned(),
            );
        }
        let Some(held) = self.targets.get(&id) else {
            return refuse(
                Code::NotFound,
                "not in this cluster; `vazao status` shows the targets".to_owned(),
            );
        };
        let node = NodeId(held.record.node);
        if node.0 != request.node {
            let name = self.nodes.get(&node).map_or_else(|| node.to_string(), |it| it.record.name.clone());
            return refuse(
                Code::Invalid,
                format!("is of node {name}; give the command there, or with that node's configuration"),
            );
        }
        if held.shown.state.is_readable() && self.is_up(node, now.ns) {
            return refuse(
                Code::Invalid,
                "serves, so it is not lost; to replace its disk, stop its node, take the disk out and start the node \
                 again with --without-missing"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Refuses to give up the last copies: `older` groups had no other good one, and `without` of these have none at all.
fn check_last_copies(id: TargetId, older: usize, without: usize, lose_last_copies: bool) -> Outcome<()> {
    let refuse = |text: String| Err(Fault::new(Code::NotPermitted, format!("target {id}: {text}")));
    let groups = |count: usize| {
        let noun = if count == 1 { "placement group" } else { "placement groups" };
        format!("{count} {noun}")
    };
    if without > 0 {
        return refuse(format!(
            "the only copy of {} is on it, as the other targets are empty themselves; put its disk back \
             until these have caught up; if that cannot be, `vazao target add DIR` takes the new disk in, and `vazao target \
             files {id} --lost` lists what is lost",
            groups(without)
        ));
    }
    if older > 0 && !lose_last_copies {
        return refuse(format!(
            "it has the only good copy of {}; put its disk back until others have caught up, or give \
             --yes-lose-last-copies, which goes on with older copies: they lack what was written since they left",
            groups(older)
        ));
    }
    Ok(())
}
