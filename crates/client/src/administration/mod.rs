//! What an operator does with servers and their data.

mod compare;
mod metadata;
mod probe;
mod scrub;

pub use compare::{ComparedCopies, CopyDifference, CopyFault};
pub use metadata::{MetadataFinding, MetadataReport};
pub use probe::Probe;
pub use scrub::{ScrubFinding, ScrubOrder, ScrubReport, ScrubState};

use crate::Result;
use crate::core::Core;
use vazao_model::{NodeId, TargetId};
use vazao_wire::{op, proto};

/// The calls of an operator, through one client.
#[derive(Clone, Copy)]
pub struct Administration<'a> {
    core: &'a Core,
}

impl std::fmt::Debug for Administration<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Administration")
    }
}

impl<'a> Administration<'a> {
    pub(crate) fn new(core: &'a Core) -> Administration<'a> {
        Administration { core }
    }

    /// Goes on with an older copy of a target, which was found with `incarnation` (`Target::found`), and gives up
    /// what was written since. Returns what happens next, for people. Errors: it is not stale, or was found with
    /// another one by now.
    pub fn accept_old_target(&self, target: TargetId, incarnation: u64) -> Result<String> {
        self.accept_old(proto::AcceptOldRequest { target: target.0, incarnation })
    }

    /// Goes on with an older copy of the metadata, from the next start of its service on. Returns what to do next, for
    /// people. Errors: it is current, as far as known.
    pub fn accept_old_metadata(&self) -> Result<String> {
        self.accept_old(proto::AcceptOldRequest::default())
    }

    /// Has an empty directory of a node take the place of a lost target. Returns in how many placement groups of
    /// several targets it makes its copies again, and how many of these go on with an older copy. Errors: it is not
    /// lost, or is another node's; it has the only good copy of something, and that is not to be lost (`NotPermitted`).
    pub fn replace_target(
        &self,
        target: TargetId,
        node: NodeId,
        (uuid, directory): (u128, &str),
        lose_last_copies: bool,
    ) -> Result<(u32, u32)> {
        let (target, node, directory) = (target.0, node.0, directory.to_owned());
        let uuid = uuid.to_be_bytes().to_vec();
        let request = proto::ReplaceTargetRequest { target, node, uuid, directory, lose_last_copies };
        let answer = self.core.meta.ask::<op::ReplaceTarget>(&request)?;
        Ok((answer.groups, answer.older_groups))
    }

    fn accept_old(&self, request: proto::AcceptOldRequest) -> Result<String> {
        Ok(self.core.meta.ask::<op::AcceptOld>(&request)?.note)
    }
}
