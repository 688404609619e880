//! Every limit of the system, with its reason. Units come last in each name.

/// Checksums are computed for blocks of this size: small enough that a random 4 KiB read verifies cheaply, large
/// enough that checksums are 1/16384 of the data. Part of the on-disk format.
pub const BLOCK_BYTES: usize = 64 * 1024;

/// An object is kept in files of at most this size, so that no file system's limits or slow truncates matter.
pub const CHUNK_BYTES: u64 = 1 << 30;

/// Longest file name, as in every Linux file system.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest path and longest symbolic link target, as the kernel's PATH_MAX counts without its final NUL.
pub const PATH_BYTES_MAX: usize = 4095;

/// Largest file: what a signed 64-bit offset can address, as the kernel demands.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Contents up to this size stay in the inode record; larger ones go to data servers. One metadata round trip then
/// brings or stores most files of a source tree; the engine's values stay far below 100 kB.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Largest extended attribute value and the largest sum of names in one listing, as the kernel's XATTR_SIZE_MAX.
pub const XATTR_BYTES_MAX: usize = 64 * 1024;

/// Longest extended attribute name, as the kernel's XATTR_NAME_MAX.
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Hard links to one inode; ext4 has 65,000, and a limit must exist so that the count cannot overflow.
pub const LINKS_MAX: u32 = 1_000_000;

/// Symbolic links followed while one path is resolved, as the kernel's MAXSYMLINKS.
pub const SYMLINKS_FOLLOWED_MAX: usize = 40;

/// Largest protobuf message in a frame: a page of a directory listing with attributes, or 64 KiB of attribute value.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Largest attachment in a frame: the largest single read or write a client sends to one data server.
pub const ATTACHMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Requests a server accepts in flight on one connection before their answers are sent.
pub const REQUESTS_IN_FLIGHT_MAX: u32 = 256;

/// Attachment bytes a server accepts in flight on one connection.
pub const BYTES_IN_FLIGHT_MAX: u64 = 16 * 1024 * 1024;

/// Connections one daemon serves; beyond it a new one is closed with `Overloaded` instead of starving the others.
pub const CONNECTIONS_MAX: usize = 10_000;

/// Slots of a client session, which is the number of changing metadata requests it may have in flight.
pub const SESSION_SLOTS_MAX: u32 = 64;

/// A hello must be complete within this time, so that a silent peer costs no connection.
pub const HELLO_MS_MAX: u32 = 10_000;

/// Deadline of an operation unless the caller gives another one.
pub const DEADLINE_MS_DEFAULT: u32 = 30_000;

/// Longest deadline a request may carry; a larger one is cut to this.
pub const DEADLINE_MS_MAX: u32 = 600_000;

/// Servers a file can be striped over: the written-slots mask is 64 bits wide.
pub const STRIPE_WIDTH_MAX: usize = 64;

/// Strips of one round of a file with varying strips: four turns for each slot; every request looks through them.
pub const STRIPS_MAX: usize = 256;

/// Units for each slot in one turn of its group: with the largest unit and width a round still fits into 56 bits.
pub const GROUP_FACTOR_MAX: u32 = 1 << 20;

/// Default stripe unit: the request size at which loopback and 10 Gb/s networks are fastest (docs/decisions).
pub const STRIPE_UNIT_BYTES_DEFAULT: u64 = 256 * 1024;

/// Largest stripe unit: one chunk.
pub const STRIPE_UNIT_BYTES_MAX: u64 = CHUNK_BYTES;

/// Entries in one page of a directory listing.
pub const LIST_ENTRIES_MAX: u32 = 4096;

/// A session not renewed for this long is closed by the metadata service.
pub const SESSION_LEASE_MS: u32 = 60_000;

/// A client renews its session, and a data server reports, this often.
pub const HEARTBEAT_MS: u32 = 2_000;

/// A request that waits longer is told of in the log, with the name of its server: long enough that a busy server is
/// not reported, short enough that whoever wonders finds the reason.
pub const SLOW_MS: u32 = 5_000;

/// A data server silent for this long is shown as not responding.
pub const NODE_SILENT_MS: u32 = 10_000;

/// How long a client that watches for changes may believe an answer without asking again: the longest time for which a
/// change elsewhere can stay unseen when the network is broken. Hot names are asked for again this often.
pub const CACHE_LEASE_MS: u32 = 30_000;

/// The metadata service remembers who may believe an answer for so much longer than that, so that clocks of different
/// speed do no harm.
pub const CACHE_LEASE_MARGIN_MS: u32 = 3_000;

/// Slots of each of the two tables of who may believe what. Many answers share a slot when more are out than this; the
/// price is a change told to somebody whom it does not concern. Both tables take 16 MiB, once there is a watcher.
pub const CACHE_HOLDER_SLOTS: usize = 1 << 20;

/// Changes kept for a session until it has received them. Beyond it the session has to forget everything: it is cut
/// off, or so slow that it could not follow.
pub const WATCH_CHANGES_MAX: usize = 4096;

/// Bytes of names in them.
pub const WATCH_NAME_BYTES_MAX: usize = 256 * 1024;

/// Changes in one answer: with the longest names about half of a message.
pub const WATCH_BATCH_MAX: usize = 1024;

/// A watching session is answered after this long although nothing has changed, which tells it that it still hears of
/// changes; one that has heard nothing for twice this long believes no further answers.
pub const WATCH_WAIT_MS: u32 = 5_000;

/// Locks and waiters for locks of all clients: about 150 MiB.
pub const LOCKS_MAX: usize = 1_000_000;

/// Locks and waiters of one client: what it holds has to fit into one message when it takes its locks back.
pub const LOCKS_OF_SESSION_MAX: usize = 10_000;

/// A client that waits for a lock asks again this often, should it have missed being told.
pub const LOCK_POLL_MS: u32 = 2_000;

/// Areas of one node: far more than directories that somebody wants to give names to.
pub const NODE_AREAS_MAX: usize = 256;

/// Longest name of an area or of a node in a reference: it is typed by people.
pub const AREA_NAME_BYTES_MAX: usize = 64;

/// Channels of one node unless its configuration says otherwise: 100,000 of them take some 30 MiB.
pub const CHANNELS_MAX_DEFAULT: usize = 100_000;

/// Channels of a client that has not renewed them for this long are closed.
pub const CHANNEL_LEASE_MS: u32 = 60_000;

/// Ranges of one list read; as many as the lengths and checksums of single bytes find place for in a small message.
pub const READ_LIST_RANGES_MAX: usize = 1024;

/// Processes of its own machine that one data server hands descriptors to at once; the others read over TCP. Each costs
/// a thread that sleeps.
pub const LOCAL_VISITORS_MAX: usize = 128;

/// Targets of one node: more disks than a machine has; each has a pool of threads.
pub const NODE_TARGETS_MAX: usize = 64;

/// Ranges of one list read or list write of an object; more are sent in further requests.
pub const LIST_RANGES_MAX: usize = 1024;
