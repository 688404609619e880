//! Privileges that lie with files: which attributes carry them, and what a change of the contents leaves of them.

use vazao_model::{Attributes, FileKind};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// Both.
pub(crate) const SET_ID: u32 = SET_USER_ID | SET_GROUP_ID;
const GROUP_EXECUTE: u32 = 0o010;

/// Capabilities of a program (capabilities(7)).
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
pub(crate) const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
pub(crate) const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// The mode that writing or a change of owner leaves, when it is another one: without set-user-id, and without
/// set-group-id unless that bit without group execution means mandatory locking (chown(2), write(2)).
pub(crate) fn mode_without_set_id(attributes: &Attributes) -> Option<u32> {
    if attributes.kind == FileKind::Directory {
        return None;
    }
    let group = if attributes.mode & GROUP_EXECUTE != 0 { SET_GROUP_ID } else { 0 };
    let mode = attributes.mode & !(SET_USER_ID | group);
    (mode != attributes.mode).then_some(mode)
}

/// True for what the kernel asks for on its own account: at the first write to a file, and when it checks permissions.
pub(crate) fn is_asked_by_kernel(name: &[u8]) -> bool {
    [CAPABILITY, ACCESS_LIST, DEFAULT_LIST].contains(&name)
}
