//! Numbers of the FUSE protocol, as in linux/fuse.h.

/// Major version spoken.
pub(crate) const MAJOR: u32 = 7;
/// Minor version answered; structures are those of it.
pub(crate) const MINOR: u32 = 31;
/// Oldest kernel minor accepted: the first with more than 32 pages to a request (Linux 4.20).
pub(crate) const MINOR_MIN: u32 = 28;

/// Bytes in front of every request.
pub(crate) const IN_HEADER_BYTES: usize = 40;
/// Bytes in front of every answer.
pub(crate) const OUT_HEADER_BYTES: usize = 16;
/// Node number of the mount's root.
pub(crate) const ROOT_NODE: u64 = 1;

macro_rules! operations {
    ($($name:ident = $number:literal, $label:literal;)*) => {
        $(pub(crate) const $name: u32 = $number;)*

        /// The operation's name in logs.
        pub(crate) fn operation_name(number: u32) -> &'static str {
            match number { $($number => $label,)* _ => "unknown" }
        }
    };
}

operations! {
    LOOKUP = 1, "lookup";
    FORGET = 2, "forget";
    GETATTR = 3, "getattr";
    SETATTR = 4, "setattr";
    READLINK = 5, "readlink";
    SYMLINK = 6, "symlink";
    MKNOD = 8, "mknod";
    MKDIR = 9, "mkdir";
    UNLINK = 10, "unlink";
    RMDIR = 11, "rmdir";
    RENAME = 12, "rename";
    LINK = 13, "link";
    OPEN = 14, "open";
    READ = 15, "read";
    WRITE = 16, "write";
    STATFS = 17, "statfs";
    RELEASE = 18, "release";
    FSYNC = 20, "fsync";
    SETXATTR = 21, "setxattr";
    GETXATTR = 22, "getxattr";
    LISTXATTR = 23, "listxattr";
    REMOVEXATTR = 24, "removexattr";
    FLUSH = 25, "flush";
    INIT = 26, "init";
    OPENDIR = 27, "opendir";
    READDIR = 28, "readdir";
    RELEASEDIR = 29, "releasedir";
    FSYNCDIR = 30, "fsyncdir";
    GETLK = 31, "getlk";
    SETLK = 32, "setlk";
    SETLKW = 33, "setlkw";
    CREATE = 35, "create";
    INTERRUPT = 36, "interrupt";
    DESTROY = 38, "destroy";
    IOCTL = 39, "ioctl";
    BATCH_FORGET = 42, "batch_forget";
    FALLOCATE = 43, "fallocate";
    READDIRPLUS = 44, "readdirplus";
    RENAME2 = 45, "rename2";
    LSEEK = 46, "lseek";
    COPY_FILE_RANGE = 47, "copy_file_range";
    TMPFILE = 51, "tmpfile";
}

/// The kernel waits for no answer to these.
pub(crate) fn needs_no_answer(operation: u32) -> bool {
    matches!(operation, FORGET | BATCH_FORGET | INTERRUPT)
}

/// Capabilities exchanged by INIT.
pub(crate) mod capability {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    /// Inodes that the kernel has forgotten are found by their number: LOOKUP of `.` and `..`.
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    /// Writes stay in the kernel's pages for a while.
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    /// There are more than 32 capabilities.
    pub(crate) const EXTENDED: u64 = 1 << 30;
    /// Files that are open past the page cache may be mapped all the same (Linux 6.6).
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Requests come over io_uring; only where everything is ready for that.
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;

    /// What is asked of the kernel, where it offers it.
    ///
    /// Not the write-back cache: it would hide other mounts' sizes and costs small files half their speed. With
    /// `HANDLE_KILLPRIV_V2` the door clears set-id bits itself, and the kernel stops asking for `security.capability`
    /// before every single write. The umask comes with each new inode (`DONT_MASK`), because a default access control
    /// list takes its place. Not `ATOMIC_O_TRUNC`: it empties a file before the kernel has looked whether the file
    /// is a program that runs, which a truncating open for reading must not touch.
    pub(crate) const WANTED: u64 = ASYNC_READ
        | EXPORT_SUPPORT
        | BIG_WRITES
        | DONT_MASK
        | POSIX_LOCKS
        | FLOCK_LOCKS
        | AUTO_INVAL_DATA
        | DO_READDIRPLUS
        | READDIRPLUS_AUTO
        | ASYNC_DIO
        | PARALLEL_DIROPS
        | MAX_PAGES
        | CACHE_SYMLINKS
        | POSIX_ACL
        | SETXATTR_EXT
        | HANDLE_KILLPRIV_V2;

    /// What can be left away, or asked for beside it, to see what it does.
    pub(crate) const NAMES: [(&str, u64); 8] = [
        ("async_read", ASYNC_READ),
        ("auto_inval_data", AUTO_INVAL_DATA),
        ("readdirplus", DO_READDIRPLUS),
        ("readdirplus_auto", READDIRPLUS_AUTO),
        ("async_dio", ASYNC_DIO),
        ("writeback_cache", WRITEBACK_CACHE),
        ("parallel_dirops", PARALLEL_DIROPS),
        ("handle_killpriv_v2", HANDLE_KILLPRIV_V2),
    ];

    /// What must not be asked for where the kernel shall not check permissions: with access control lists it does.
    pub(crate) const OF_PERMISSIONS: u64 = POSIX_ACL;
}

/// Which fields of SETATTR are meant.
pub(crate) mod setattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SET_ID: u32 = 1 << 11;
}

/// GETATTR carries a file handle.
pub(crate) const GETATTR_HANDLE: u32 = 1 << 0;
/// SETXATTR of an access control list takes the set-group-id bit away.
pub(crate) const SETXATTR_CLEAR_SET_GROUP: u32 = 1 << 0;

/// The lock is one of flock(2).
pub(crate) const LOCK_FLOCK: u32 = 1 << 0;
/// Types of locks, as in fcntl(2).
pub(crate) mod lock_type {
    pub(crate) const SHARED: u32 = 0;
    pub(crate) const EXCLUSIVE: u32 = 1;
    pub(crate) const NONE: u32 = 2;
    /// Offset of the last byte of any file, as the kernel has it.
    pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;
}

/// WRITE must clear set-id bits.
pub(crate) const WRITE_KILL_SET_ID: u32 = 1 << 2;

/// WRITE comes from a page that was mapped: where it goes is certain.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;

/// Reads and writes of this handle go past the kernel's pages.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// The kernel may keep the pages it has of this file.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// No FLUSH at close: the handle cannot have written anything.
pub(crate) const FOPEN_NOFLUSH: u32 = 1 << 5;

/// Unasked message: forget attributes (and pages) of an inode.
pub(crate) const NOTIFY_INVALIDATE_INODE: i32 = 2;
/// Unasked message: forget where a name leads.
pub(crate) const NOTIFY_INVALIDATE_ENTRY: i32 = 3;
/// Unasked message: forget where all names lead (Linux 6.16).
pub(crate) const NOTIFY_NEW_EPOCH: i32 = 8;

/// Flags of open(2), the same numbers on every architecture built for.
pub(crate) mod open_flag {
    pub(crate) const ACCESS_MASK: u32 = 0o3;
    pub(crate) const WRITE_ONLY: u32 = 0o1;
    pub(crate) const READ_WRITE: u32 = 0o2;
    pub(crate) const EXCLUSIVE: u32 = 0o200;
    pub(crate) const TRUNCATE: u32 = 0o1000;
    pub(crate) const APPEND: u32 = 0o2000;
}

/// Flags of fallocate(2).
pub(crate) mod allocate_flag {
    pub(crate) const KEEP_SIZE: u32 = 0x01;
    pub(crate) const PUNCH_HOLE: u32 = 0x02;
    pub(crate) const ZERO_RANGE: u32 = 0x10;
}

/// What lseek(2) looks for; the kernel asks for no other.
pub(crate) mod seek {
    pub(crate) const DATA: u32 = 3;
    pub(crate) const HOLE: u32 = 4;
}

/// Flags of renameat2(2).
pub(crate) mod rename_flag {
    pub(crate) const NO_REPLACE: u32 = 1;
    pub(crate) const EXCHANGE: u32 = 2;
}

/// Flags of setxattr(2).
pub(crate) mod xattr_flag {
    pub(crate) const CREATE: u32 = 1;
    pub(crate) const REPLACE: u32 = 2;
}

/// errno values that are the protocol's own and not an outcome of a client call.
pub(crate) mod errno {
    pub(crate) const IO: i32 = 5;
    pub(crate) const NO_SUCH_ADDRESS: i32 = 6;
    pub(crate) const INVALID: i32 = 22;
    pub(crate) const NOT_A_TERMINAL: i32 = 25;
    pub(crate) const NOT_IMPLEMENTED: i32 = 38;
}
