//! Extended attributes: whose names are served, and the privileges that a change of contents takes away.

use super::{OpenFile, VolumeFilesystem};
use crate::filesystem::arguments::Caller;
use crate::filesystem::privileges::{ACCESS_LIST, CAPABILITY, DEFAULT_LIST};
use std::sync::atomic::Ordering;
use vazao_client::{Error, Result, XattrMode};
use vazao_model::{Code, InodeId, origin};

/// Of the attributes of the system only access control lists are known here; keeping others without a meaning would be
/// a lie.
fn check_name(name: &[u8]) -> Result<()> {
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    if spaces.iter().any(|space| name.starts_with(space)) || name == ACCESS_LIST || name == DEFAULT_LIST {
        return Ok(());
    }
    Err(Error::new(Code::Unsupported, String::from_utf8_lossy(name)))
}

impl VolumeFilesystem {
    pub(super) fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        if name == origin::ATTRIBUTE {
            return Ok(self.client.origin(inode));
        }
        check_name(name)?;
        self.client.get_xattr(inode, name)
    }

    /// `clear_set_group`: with an access control list the set-group-id bit goes.
    pub(super) fn set_xattr(
        &self,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        clear_set_group: bool,
    ) -> Result<()> {
        check_name(name)?;
        self.client.set_xattr_as(inode, name, value, mode, clear_set_group)?;
        if name == CAPABILITY {
            let open = self.files.all();
            let same = open.iter().filter(|open| open.file.inode() == inode);
            same.for_each(|open| open.has_xattrs.store(true, Ordering::Relaxed));
        }
        Ok(())
    }

    /// Names, each followed by a NUL; `trusted.` ones are for root's eyes (xattr(7)).
    pub(super) fn list_xattrs(&self, inode: InodeId, caller: Caller) -> Result<Vec<u8>> {
        let mut names = self.client.list_xattrs(inode)?;
        names.retain(|name| check_name(name).is_ok());
        names.retain(|name| caller.uid == 0 || !name.starts_with(b"trusted."));
        Ok(names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect())
    }

    pub(super) fn remove_xattr(&self, inode: InodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.client.remove_xattr(inode, name)
    }

    /// Removes the file's capabilities before the first write through a handle: the new contents were never granted
    /// them. Fast path: a file without extended attributes, as nearly all are, costs no call.
    pub(super) fn drop_capability(&self, open: &OpenFile) -> Result<()> {
        if !open.has_xattrs.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.client.remove_xattr(open.file.inode(), CAPABILITY) {
            Err(error) if error.code != Code::NoAttribute => {
                open.has_xattrs.store(true, Ordering::Relaxed);
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_the_system_are_refused_unless_they_have_a_meaning_here() {
        let served = ["user.comment", "trusted.x", "security.capability", "system.posix_acl_access"];
        assert!(served.iter().all(|name| check_name(name.as_bytes()).is_ok()));
        for name in ["system.nfs4_acl", "user", "other.x", ""] {
            assert_eq!(check_name(name.as_bytes()).expect_err("must be refused").code, Code::Unsupported);
        }
    }
}
