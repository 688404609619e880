//! What a removal says of the inode that loses a name: whether this client has it open.
//!
//! The metadata service believes that, and ends an inode that is open nowhere. Race: an open of it may be under way,
//! whose answer comes after this was said. Its descriptor would lead to nothing. So no handle of the inode begins until
//! the removal is over, and then only with an answer that was asked for afterwards.
//!
//! Of a name that leads elsewhere than is known here, because another client has just changed it, nothing is said.

use crate::Client;
use crate::Result;
use crate::core::Core;
use std::sync::Arc;
use vazao_model::{Attributes, Code, InodeId};

/// What a removal says; it is in force until this is dropped.
pub(crate) struct Statement {
    /// The inode that the name leads to if this client has it open; 0 otherwise.
    pub(crate) held_inode: u64,
    removal: Option<Removal>,
}

struct Removal {
    core: Arc<Core>,
    inode: InodeId,
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.core.registry.end_removal(self.inode);
    }
}

impl Statement {
    /// What a removal of `name` is to say.
    pub(crate) fn about(client: &Client, parent: InodeId, name: &[u8]) -> Result<Statement> {
        match client.cached(parent, name) {
            Some((known, _)) => Statement::of(&client.core, known),
            None if needs_no_lookup(&client.core) => Ok(Statement::new(0)),
            None => Statement::of(&client.core, client.lookup(parent, name)),
        }
    }

    /// [`Statement::about`] without asking; `None` where that cannot be said.
    pub(crate) fn cached(client: &Client, parent: InodeId, name: &[u8]) -> Option<Statement> {
        match client.cached(parent, name) {
            Some((known, _)) => Statement::of(&client.core, known).ok(),
            None => needs_no_lookup(&client.core).then(|| Statement::new(0)),
        }
    }

    fn of(core: &Arc<Core>, known: Result<Attributes>) -> Result<Statement> {
        let inode = match known {
            Ok(found) => found.inode,
            // The operation itself will say so, in the right words.
            Err(error) if matches!(error.code, Code::NotFound | Code::NotDirectory | Code::Invalid) => {
                return Ok(Statement::new(0));
            }
            Err(error) => return Err(error),
        };
        if core.registry.begin_removal(inode) {
            return Ok(Statement::new(inode.0));
        }
        Ok(Statement { held_inode: 0, removal: Some(Removal { core: Arc::clone(core), inode }) })
    }

    fn new(held_inode: u64) -> Statement {
        Statement { held_inode, removal: None }
    }

    /// `inode` has lost its last name.
    pub(crate) fn ended(self, core: &Core, inode: InodeId) {
        core.registry.mark_unlinked(inode);
        let said = self.removal.as_ref().is_some_and(|removal| removal.inode == inode);
        // An open that was asked for before this shows an inode that is no more.
        if said && core.opens.is_any_underway() {
            core.registry.keep_ended(inode, core.count_answer());
        }
    }
}

/// A client that remembers nothing has nothing else to do, as a rule, while it removes. One that does may open what it
/// removes at the same time, and mostly knows the name anyhow.
fn needs_no_lookup(core: &Core) -> bool {
    // In this order: what an open under way has become is found in the registry.
    !core.cache.caches() && !core.opens.is_any_underway() && core.registry.is_empty()
}
