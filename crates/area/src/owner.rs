//! Whose the new files of an area are, and whether this process may give them away.

use crate::files;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Uid, chownat, fchown};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

/// The capability to give files away, as a bit of `CapEff` in `/proc/self/status` (capabilities(7)).
const CAP_CHOWN: u64 = 1;

/// A user and a group, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

fn may_give_away() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & CAP_CHOWN != 0)
}

impl Owner {
    /// Refuses an owner whom this process cannot give files to. The error says what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let user = geteuid().as_raw();
        let is_own_group = || {
            let groups = getgroups().unwrap_or_default();
            self.gid == getegid().as_raw() || groups.iter().any(|group| group.as_raw() == self.gid)
        };
        if may_give_away() || self.uid == user && is_own_group() {
            return Ok(());
        }
        Err(format!(
            "its daemon runs as user {user} and may not give files to {}:{}; run it as that user, as root or with \
             CAP_CHOWN, or take the owner off the area",
            self.uid, self.gid
        ))
    }

    fn numbers(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }

    /// Gives it a file that this process has made and holds open.
    pub(crate) fn give_file(self, file: impl AsFd) -> Result<(), Errno> {
        let (uid, gid) = self.numbers();
        fchown(file, uid, gid)
    }

    /// Gives it a directory or link that was just made and opened by its name: only if it still is one of ours, for the
    /// name may have been taken over meanwhile.
    pub(crate) fn give_made(self, inode: &OwnedFd, kind: FileType) -> Result<(), Errno> {
        let status = files::status(inode)?;
        let is_ours = status.stx_uid == geteuid().as_raw() || status.stx_uid == self.uid;
        if FileType::from_raw_mode(u32::from(status.stx_mode)) != kind || !is_ours {
            return Err(Errno::PERM);
        }
        let (uid, gid) = self.numbers();
        chownat(inode, "", uid, gid, AtFlags::EMPTY_PATH)
    }
}
