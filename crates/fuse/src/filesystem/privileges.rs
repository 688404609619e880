//! Privileges that lie with files: which attributes carry them, and what a change of the contents leaves of them.

use super::arguments::Caller;
use std::fs;
use vazao_model::{Attributes, FileKind};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// Both.
pub(crate) const SET_ID: u32 = SET_USER_ID | SET_GROUP_ID;
const GROUP_EXECUTE: u32 = 0o010;

/// Bit of the capability to keep set-id bits (`CAP_FSETID`, capabilities(7)).
const KEEP_SET_ID: u64 = 1 << 4;

/// Capabilities of a program (capabilities(7)).
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
pub(crate) const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
pub(crate) const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// True for what has bits that writing or a change of owner may have to clear.
pub(crate) fn has_set_id(attributes: &Attributes) -> bool {
    attributes.kind != FileKind::Directory && attributes.mode & SET_ID != 0
}

/// The mode that a caller's writing or change of owner leaves, when it is another one: without set-user-id, and without
/// set-group-id. The latter stays without group execution, for who is in the group or may keep the bits (chown(2),
/// write(2); since Linux 6.2 the kernel does so everywhere).
pub(crate) fn mode_without_set_id(attributes: &Attributes, caller: Caller) -> Option<u32> {
    if !has_set_id(attributes) {
        return None;
    }
    let keeps_group = attributes.mode & SET_GROUP_ID != 0
        && attributes.mode & GROUP_EXECUTE == 0
        && (is_in_group(caller, attributes.gid) || keeps_set_id(caller));
    let mode = attributes.mode & !(if keeps_group { SET_USER_ID } else { SET_ID });
    (mode != attributes.mode).then_some(mode)
}

/// True for a caller who may change contents without that set-id bits are cleared. The kernel says so of writes and
/// truncations, and not of the other changes of contents.
pub(crate) fn keeps_set_id(caller: Caller) -> bool {
    match status(caller) {
        Some(status) => has_capability(&status, KEEP_SET_ID),
        None => caller.uid == 0,
    }
}

fn is_in_group(caller: Caller, group: u32) -> bool {
    caller.gid == group || status(caller).is_some_and(|status| lists_group(&status, group))
}

/// What `/proc` says of the caller (proc_pid_status(5)); `None` for one that cannot be seen from here.
fn status(caller: Caller) -> Option<String> {
    let thread = Some(caller.thread).filter(|&thread| thread != 0)?;
    fs::read_to_string(format!("/proc/{thread}/status")).ok()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

fn has_capability(status: &str, bit: u64) -> bool {
    u64::from_str_radix(field(status, "CapEff:"), 16).is_ok_and(|capabilities| capabilities & bit != 0)
}

fn lists_group(status: &str, group: u32) -> bool {
    field(status, "Groups:").split_whitespace().any(|listed| listed.parse() == Ok(group))
}

/// True for what the kernel asks for on its own account: at the first write to a file, and when it checks permissions.
pub(crate) fn is_asked_by_kernel(name: &[u8]) -> bool {
    [CAPABILITY, ACCESS_LIST, DEFAULT_LIST].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_cleared_as_chown_and_write_demand() {
        let (member, other) = (Caller { uid: 7, gid: 8, thread: 0 }, Caller { uid: 7, gid: 9, thread: 0 });
        for (kind, before, of_member, of_other) in [
            (FileKind::File, 0o4755, Some(0o755), Some(0o755)),
            (FileKind::File, 0o6755, Some(0o755), Some(0o755)),
            (FileKind::File, 0o2755, Some(0o755), Some(0o755)),
            (FileKind::File, 0o2644, None, Some(0o644)),
            (FileKind::File, 0o6644, Some(0o2644), Some(0o644)),
            (FileKind::File, 0o1755, None, None),
            (FileKind::Directory, 0o6755, None, None),
        ] {
            let attributes = Attributes { kind, mode: before, gid: 8, ..Attributes::default() };
            let left = [member, other].map(|caller| mode_without_set_id(&attributes, caller));
            assert_eq!(left, [of_member, of_other], "{kind:?} {before:o}");
        }
    }

    #[test]
    fn who_may_keep_set_id_bits_and_is_in_a_group_is_read_from_proc() {
        let status = "Name:\tx\nGroups:\t4 24 1000 \nCapPrm:\t0000000000000010\nCapEff:\t0000000000000030\n";
        assert!(has_capability(status, KEEP_SET_ID) && !has_capability(status, 1) && !has_capability("", 1));
        assert!(lists_group(status, 24) && !lists_group(status, 2) && !lists_group("Groups:\t\n", 0));
        let unseen = |uid| Caller { uid, gid: 9, thread: 0 };
        assert!(keeps_set_id(unseen(0)) && !keeps_set_id(unseen(1)));
    }
}
