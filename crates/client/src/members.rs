//! What an operator decides about members of the cluster.

use crate::{Client, Result};
use vazao_model::TargetId;
use vazao_wire::{op, proto};

impl Client {
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

    fn accept_old(&self, request: proto::AcceptOldRequest) -> Result<String> {
        Ok(self.core.ask::<op::AcceptOld>(&request)?.note)
    }
}
