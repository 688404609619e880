//! What `stat` shows of an inode.

use crate::ids::InodeId;

/// The type of an inode, numbered as in the wire protocol and on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    #[default]
    File = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// Named pipe.
    Fifo = 4,
    /// Unix socket.
    Socket = 5,
    /// Character device.
    CharDevice = 6,
    /// Block device.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind with this number, if there is one.
    pub fn from_number(number: u32) -> Option<FileKind> {
        Some(match number {
            1 => FileKind::File,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharDevice,
            7 => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// The number on the wire and on disk.
    pub fn number(self) -> u32 {
        u32::from(self as u8)
    }

    /// The letter `ls -l` shows.
    pub fn letter(self) -> char {
        match self {
            FileKind::File => '-',
            FileKind::Directory => 'd',
            FileKind::Symlink => 'l',
            FileKind::Fifo => 'p',
            FileKind::Socket => 's',
            FileKind::CharDevice => 'c',
            FileKind::BlockDevice => 'b',
        }
    }
}

/// A point in time since the Unix epoch; may lie before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 10^9.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// A moment a number of seconds after 1970.
    pub fn from_seconds(seconds: u64) -> Timestamp {
        Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanoseconds: 0 }
    }

    /// Year, month and day in UTC, in the Gregorian calendar before and after it was invented (E. G. Richards'
    /// algorithm for the Julian day number, shifted to a year that begins in March).
    pub fn date(self) -> (i64, u32, u32) {
        let shifted = self.seconds.div_euclid(86_400) + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month, day)
    }
}

/// In UTC, to the second.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = self.date();
        let second = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// Attributes of an inode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Which inode.
    pub inode: InodeId,
    /// Its type.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits (0o7777); the type is in `kind`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes: of contents, of a link's target; 0 for the rest.
    pub size: u64,
    /// Bytes of storage in use, as far as known: at most `size` rounded up to blocks.
    pub allocated_bytes: u64,
    /// Names of this inode; for a directory 2 plus its subdirectories.
    pub links: u32,
    /// Device number of a device inode, as Linux's 32-bit encoding.
    pub device: u32,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
    /// Grows with every change of contents or layout, so that a client can tell whether its cached copy is stale.
    pub version: u64,
    /// It is known to have no extended attributes, and so no access control list and no capabilities.
    pub without_xattrs: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_in_utc() {
        assert_eq!(Timestamp::from_seconds(951_782_401).to_string(), "2000-02-29 00:00:01 UTC");
        assert_eq!(Timestamp { seconds: -1, nanoseconds: 0 }.to_string(), "1969-12-31 23:59:59 UTC");
    }
}
