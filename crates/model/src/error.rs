//! Error codes: one list for the whole system, carried on the wire, each saying what to do about it.
//!
//! Numbers are part of the protocol and never reused. POSIX outcomes come first; the mapping to errno is here and
//! nowhere else.
//!
//! `EAGAIN` means to a program that a non-blocking call would have blocked: Python's raw `read` returns `None` for
//! it, and event loops wait for a readiness that never comes. Only a lock held by another owner maps to it. The
//! client retries every other transient failure until its deadline, and returns `ETIMEDOUT` or `EIO` afterwards.

use std::fmt;

/// What the receiver of an error should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The same request may succeed later, and repeating it is safe: wait a little and send it again.
    Retry,
    /// The receiver's knowledge (cluster map, layout, session) is old: fetch it again, then repeat.
    Refresh,
    /// Repeating cannot help: report it.
    GiveUp,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $errno:ident, $action:ident, $text:literal;)*) => {
        /// The outcome of a failed operation.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Code { $($(#[$doc])* $name = $number,)* }

        impl Code {
            /// Every code, for tests and documents.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code with this number; a number unknown here (a newer peer's) is `Internal`.
            pub fn from_number(number: u32) -> Code {
                match number { $($number => Code::$name,)* _ => Code::Internal }
            }

            /// The number on the wire.
            pub fn number(self) -> u32 { u32::from(self as u16) }

            /// The errno a mount or an `io::Error` shows for it.
            pub fn errno(self) -> i32 {
                match self { $(Code::$name => errno::$errno,)* }
            }

            /// What to do about it. Every list of codes begins here, and adds to it only with a reason beside it.
            ///
            /// The rule behind the column:
            ///
            /// - A server gives a final code only for what it knows. What it was not told yet, and what it cannot do at
            ///   this moment, is `Unavailable`, with what it waits for.
            /// - `WrongTarget` is known: the server was told of a membership, and holds none of that. An epoch counts
            ///   as told only when everything told with it was kept.
            /// - No answer is no refusal. `Timeout` ends the wait of the caller that set that deadline; a caller with
            ///   a later one tries again.
            /// - `Refresh` ends no call that has time left. Where nothing newer can be had, the old has to do.
            /// - One target that cannot be used decides nothing for the others of its server.
            /// - A final error of what was tried again says for how long.
            pub fn action(self) -> Action {
                match self { $(Code::$name => Action::$action,)* }
            }

            /// A short description for people.
            pub fn text(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

/// Linux errno values (asm-generic, the same on every architecture we build for).
mod errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EINTR: i32 = 4;
    pub(super) const EIO: i32 = 5;
    pub(super) const EBADF: i32 = 9;
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const EACCES: i32 = 13;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EEXIST: i32 = 17;
    pub(super) const EXDEV: i32 = 18;
    pub(super) const ENOTDIR: i32 = 20;
    pub(super) const EISDIR: i32 = 21;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const EFBIG: i32 = 27;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const EROFS: i32 = 30;
    pub(super) const EMLINK: i32 = 31;
    pub(super) const ERANGE: i32 = 34;
    pub(super) const EDEADLK: i32 = 35;
    pub(super) const ENAMETOOLONG: i32 = 36;
    pub(super) const ENOLCK: i32 = 37;
    pub(super) const ENOTEMPTY: i32 = 39;
    pub(super) const ELOOP: i32 = 40;
    pub(super) const ENODATA: i32 = 61;
    pub(super) const ECOMM: i32 = 70;
    pub(super) const EPROTO: i32 = 71;
    pub(super) const EUCLEAN: i32 = 117;
    pub(super) const EOPNOTSUPP: i32 = 95;
    pub(super) const ETIMEDOUT: i32 = 110;
    pub(super) const EHOSTUNREACH: i32 = 113;
    pub(super) const ESTALE: i32 = 116;
    pub(super) const ECANCELED: i32 = 125;
    pub(super) const EKEYREJECTED: i32 = 129;
}

codes! {
    /// No such file, directory, object or name.
    NotFound = 1, ENOENT, GiveUp, "no such file or directory";
    /// The name is taken.
    Exists = 2, EEXIST, GiveUp, "file exists";
    /// A component of the path is not a directory.
    NotDirectory = 3, ENOTDIR, GiveUp, "not a directory";
    /// The operation does not apply to directories.
    IsDirectory = 4, EISDIR, GiveUp, "is a directory";
    /// The directory has entries.
    NotEmpty = 5, ENOTEMPTY, GiveUp, "directory not empty";
    /// Arguments that make no sense together.
    Invalid = 6, EINVAL, GiveUp, "invalid argument";
    /// A name or path over its limit.
    NameTooLong = 7, ENAMETOOLONG, GiveUp, "name too long";
    /// Permission bits forbid it.
    AccessDenied = 8, EACCES, GiveUp, "permission denied";
    /// Only the owner or root may.
    NotPermitted = 9, EPERM, GiveUp, "operation not permitted";
    /// A target or the volume is full.
    NoSpace = 10, ENOSPC, GiveUp, "no space left on device";
    /// Beyond the largest file size.
    TooLarge = 11, EFBIG, GiveUp, "file too large";
    /// Too many hard links.
    TooManyLinks = 12, EMLINK, GiveUp, "too many links";
    /// Too many symbolic links in one path.
    Loop = 13, ELOOP, GiveUp, "too many levels of symbolic links";
    /// No such extended attribute.
    NoAttribute = 14, ENODATA, GiveUp, "no such attribute";
    /// The given buffer is too small for the value.
    Range = 15, ERANGE, GiveUp, "result does not fit";
    /// Not supported here.
    Unsupported = 16, EOPNOTSUPP, GiveUp, "operation not supported";
    /// The volume or target only reads.
    ReadOnly = 17, EROFS, GiveUp, "read-only";
    /// Source and destination lie on different file systems.
    CrossDevice = 18, EXDEV, GiveUp, "cross-device link";
    /// In use.
    InUse = 19, EBUSY, GiveUp, "resource busy";
    /// The inode behind a handle is gone.
    Stale = 20, ESTALE, GiveUp, "stale file handle";
    /// The handle is not open for this.
    BadHandle = 21, EBADF, GiveUp, "bad file handle";
    /// The caller was interrupted.
    Interrupted = 22, EINTR, GiveUp, "interrupted";
    /// A conflicting lock is held by another owner.
    Locked = 23, EAGAIN, GiveUp, "locked by another owner";
    /// Waiting for a lock would never end.
    Deadlock = 24, EDEADLK, GiveUp, "deadlock of locks";
    /// No more locks can be had.
    NoLocks = 25, ENOLCK, GiveUp, "no more locks";

    /// A disk or the system under a server failed.
    Io = 100, EIO, GiveUp, "input/output error";
    /// Stored data does not match its checksum.
    Corrupt = 101, EUCLEAN, GiveUp, "checksum mismatch";
    /// The target was marked failed after a disk error and serves nothing until it is replaced.
    TargetFailed = 102, EIO, GiveUp, "target failed";
    /// No answer before the deadline.
    Timeout = 103, ETIMEDOUT, GiveUp, "deadline passed";
    /// No connection to the peer.
    Unreachable = 104, EHOSTUNREACH, Retry, "peer unreachable";
    /// The connection broke with the request in flight.
    Disconnected = 105, ECOMM, Retry, "connection lost";
    /// The server has no room for more work now.
    Overloaded = 106, ETIMEDOUT, Retry, "server overloaded";
    /// Two transactions collided.
    Conflict = 107, ETIMEDOUT, Retry, "transaction conflict";
    /// The request carries an old membership epoch.
    WrongEpoch = 108, EHOSTUNREACH, Refresh, "membership changed";
    /// The server does not hold this target.
    WrongTarget = 109, EHOSTUNREACH, Refresh, "target is not here";
    /// The session is unknown or expired.
    SessionExpired = 110, ESTALE, Refresh, "session expired";
    /// A frame or message that does not decode or breaks a limit.
    BadRequest = 111, EPROTO, GiveUp, "malformed request";
    /// The peer does not know the cluster key.
    Unauthenticated = 112, EKEYREJECTED, GiveUp, "cluster key rejected";
    /// The peer speaks another protocol or a version we do not.
    VersionMismatch = 113, EPROTO, GiveUp, "protocol version mismatch";
    /// Cancelled by the requester.
    Cancelled = 114, ECANCELED, GiveUp, "cancelled";
    /// The server is stopping or has not finished starting.
    Unavailable = 115, ETIMEDOUT, Retry, "server not ready";
    /// The object's file gets another layout at this moment.
    Converting = 117, ETIMEDOUT, GiveUp, "the file's layout is being exchanged";
    /// A file system beneath a server has not answered anything for a while.
    Hung = 118, ETIMEDOUT, GiveUp, "its file system hangs";
    /// A defect of ours.
    Internal = 116, EIO, GiveUp, "internal error";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What an answer with a code tells of the server and of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Knowledge {
    /// The state of the file system, of a disk or of a request decided it: the same request gets the same answer.
    Decided,
    /// No answer came: the peer may be away, and what was sent may have been carried out.
    Silence,
    /// The server is there and cannot do it at this moment.
    NotYet,
    /// The one who asks knows less than the server.
    Outdated,
}

impl Code {
    /// What an answer with this code tells. Without a last arm for all others: who adds a code has to say it here.
    pub fn knowledge(self) -> Knowledge {
        use Code::*;
        match self {
            NotFound | Exists | NotDirectory | IsDirectory | NotEmpty | Invalid | NameTooLong => {
                Knowledge::Decided
            }
            AccessDenied | NotPermitted | NoSpace | TooLarge | TooManyLinks | Loop => Knowledge::Decided,
            NoAttribute | Range | Unsupported | ReadOnly | CrossDevice | InUse => Knowledge::Decided,
            Stale | BadHandle | Interrupted | Locked | Deadlock | NoLocks => Knowledge::Decided,
            Io | Corrupt | TargetFailed | BadRequest | Unauthenticated => Knowledge::Decided,
            VersionMismatch | Cancelled | Converting | Hung | Internal => Knowledge::Decided,
            Timeout | Unreachable | Disconnected => Knowledge::Silence,
            Overloaded | Conflict | Unavailable => Knowledge::NotYet,
            WrongEpoch | WrongTarget | SessionExpired => Knowledge::Outdated,
        }
    }

    /// True where no answer came: the peer may be away.
    pub fn is_silence(self) -> bool {
        self.knowledge() == Knowledge::Silence
    }
}

/// Where the remedy of a message begins, at its semicolon: "no target serves; remove files". A name with a semicolon in
/// it is no sentence: there are some words before one.
fn remedy_at(message: &str) -> Option<usize> {
    let at = message.rfind("; ")?;
    let sentence = message.get(..at)?;
    let first = sentence.find("; ").unwrap_or(at);
    (message.get(..first)?.split_whitespace().count() >= WORDS_MIN).then_some(first)
}

/// So many words are more than a place and a name.
const WORDS_MIN: usize = 4;

impl Code {
    /// What is said of `detail` with this code: the code's words stand behind what happened, not behind what to do.
    pub fn said_of(self, detail: &str) -> String {
        match remedy_at(detail) {
            _ if detail.is_empty() => self.text().to_owned(),
            Some(at) => {
                let (what, remedy) = detail.split_at(at);
                format!("{what}: {}{remedy}", self.text())
            }
            None => format!("{detail}: {}", self.text()),
        }
    }
}

/// Whether a message says what to do.
pub fn has_remedy(message: &str) -> bool {
    remedy_at(message).is_some()
}

/// A message without what it says to do.
pub fn without_remedy(message: &str) -> &str {
    message.split_at(remedy_at(message).unwrap_or(message.len())).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_wire() {
        for &code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), code);
        }
    }

    /// A read that met a data server which had just started returned `EAGAIN`: Python's raw `read` made `None` of it,
    /// and the program went on without the bytes.
    #[test]
    fn nothing_but_a_lock_of_somebody_else_is_eagain() {
        let would_block: Vec<_> = Code::ALL.iter().filter(|code| code.errno() == errno::EAGAIN).collect();
        assert_eq!(would_block, [&Code::Locked]);
    }

    /// What would have passed by itself ended calls and jobs, because a code that says so stood in no list.
    #[test]
    fn only_what_is_decided_is_final() {
        for &code in Code::ALL {
            let action = match code.knowledge() {
                Knowledge::Decided => Action::GiveUp,
                // Its receiver's own deadline has passed: who has a later one tries again.
                Knowledge::Silence if code == Code::Timeout => Action::GiveUp,
                Knowledge::Silence | Knowledge::NotYet => Action::Retry,
                Knowledge::Outdated => Action::Refresh,
            };
            assert_eq!(code.action(), action, "{code:?}");
        }
    }

    /// "…; start it again or see `vazao status`: peer unreachable" had the cause glued behind the remedy.
    #[test]
    fn a_remedy_is_the_last_word_of_a_message() {
        let said = |detail: &str| Code::Unreachable.said_of(detail);
        assert_eq!(
            said("node n1 (h:1) could not be reached for 30 s; start it again or see `vazao status`"),
            "node n1 (h:1) could not be reached for 30 s: peer unreachable; start it again or see `vazao status`"
        );
        assert_eq!(said("node n1"), "node n1: peer unreachable");
        assert_eq!(said("vz:/a; b"), "vz:/a; b: peer unreachable");
        assert_eq!(said(""), "peer unreachable");
        let two = "no target serves at present; remove files; or add one";
        assert!(has_remedy(two) && !has_remedy("vz:/a; b"));
        assert_eq!(without_remedy(two), "no target serves at present");
    }

    #[test]
    fn a_number_from_a_newer_peer_is_internal_and_final() {
        assert_eq!(Code::from_number(60_000), Code::Internal);
        assert_eq!(Code::Internal.action(), Action::GiveUp);
    }
}
