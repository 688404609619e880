//! Whether a target's directory is still where it was opened, and its files still have names.
//!
//! A directory that is removed or replaced under a running server takes every write and every sync with success, and
//! the next start finds nothing of them.

use crate::object::Object;
use crate::object::names::{self, Part};
use crate::targets::Target;
use vazao_disk::DiskFile;
use vazao_model::{Code, GroupId};
use vazao_wire::service::Fault;

impl Target {
    /// Takes the target out of service when what it writes to is not where it will be looked for. No note of that is
    /// left in the directory: it may be the wrong one, or put back as it was.
    pub(crate) fn check_place(&self) -> Result<(), Fault> {
        self.check()?;
        let lost = match self.disk.check_place() {
            Err(error) => error.to_string(),
            // What cannot be asked of one file says nothing about the directory.
            Ok(()) if self.lock_file().is_none_or(|lock| lock.is_named().unwrap_or(true)) => return Ok(()),
            Ok(()) => "LOCK was removed or replaced while it was in use".to_owned(),
        };
        self.fail_without_note(format!("{lost}: put the directory back as it was, and start the node again"));
        self.check()
    }

    /// Fails when a chunk that was synced just now is not in its directory any more, though no request removed it. The
    /// code is the one that has a client count what it wrote as lost until it has written it again. The object counts
    /// as missing; where there is another copy of it, it is made anew from that one.
    pub(crate) fn check_named(&self, object: &Object, chunk: u64, data: &dyn DiskFile) -> Result<(), Fault> {
        if data.is_named().unwrap_or(true) {
            return Ok(());
        }
        object.set_unnamed();
        self.note_missing(object.id);
        Err(Fault::new(
            Code::Io,
            format!(
                "{self}: {} was removed or replaced beneath the server while it was in use",
                names::path(object.id, chunk, Part::Data)
            ),
        ))
    }

    /// Lets go of all files of a placement group that were seen to have no names any more.
    pub(crate) fn forget_unnamed(&self, group: GroupId) {
        for object in self.cache.unnamed(group) {
            self.lost_names.lock().insert(group);
            object.forget_unnamed(self);
        }
    }

    /// Whether there were any since the group last had everything here.
    pub(crate) fn has_lost_names(&self, group: GroupId) -> bool {
        self.lost_names.lock().contains(&group)
    }

    /// A placement group has everything here.
    pub(crate) fn has_all(&self, group: GroupId) {
        self.lost_names.lock().remove(&group);
    }
}
