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

/// Unwritten extents that an inode record keeps, and ranges that one report names as written: some hundred bytes of a
/// record, and more than files have that are not written at random over a hole. Of more the shortest count as written.
pub const UNWRITTEN_EXTENTS_MAX: usize = 64;

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

/// Connections one daemon serves; beyond it a new one is closed with `Overloaded` instead of starving the others,
/// unless one that has not proved the key can make room for it.
pub const CONNECTIONS_MAX: usize = 10_000;

/// Slots of a client session, which is the number of changing metadata requests it may have in flight.
pub const SESSION_SLOTS_MAX: u32 = 64;

/// Memory for requests of which a part has arrived, of all connections of one server: as much as 60 of the largest or
/// 900 usual ones take that arrive at the same time. Beyond it connections are not read from until others have done.
pub const UNFINISHED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A request up to this size arrives whatever the others have: metadata operations and reads go on while large writes
/// wait for memory. All connections together take 160 MiB.
pub const UNFINISHED_BYTES_FREE: usize = 16 * 1024;

/// Memory for answers that their peers have not taken, of all connections of one server. Beyond it a connection whose
/// peer has something to take gets no further work done, beyond twice as much no connection does.
pub const UNSENT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// While others wait for memory, a connection in the middle of a request must bring something within this time. A
/// packet lost twice is sent again sooner, except over the longest ways.
pub const STALLED_MS_MAX: u32 = 1_000;

/// While others wait for memory, a request has to be there as a whole within this time: a peer that sends byte by byte
/// never stalls.
pub const UNFINISHED_MS_MAX: u32 = 10_000;

/// While answers take too much memory, a peer must acknowledge some of its own within this time.
pub const UNREAD_MS_MAX: u32 = 3_000;

/// A peer that takes none of its answers for this long is disconnected, even when memory is not short: twice the
/// default deadline, after which its requester has timed out.
pub const UNSENT_MS_MAX: u32 = 60_000;

/// A hello must be complete within this time, so that a silent peer costs no connection.
pub const HELLO_MS_MAX: u32 = 10_000;

/// A connection over which something is sent again and again, and nothing is acknowledged for this long, is given up.
/// TCP waits twice as long after each loss: after a network was away for 20 s, what is sent again over the same
/// connection may take 25 s more, over a new one a second.
pub const UNACKNOWLEDGED_MS_MAX: u32 = 6_000;

/// An idle connection is probed after this time, then every second: a client that waits for an answer must notice
/// that the way back is gone. A server of 10,000 connections gets 2,500 probes a second from idle clients.
pub const PROBE_MS: u32 = 4_000;

/// So many such probes in a row without an acknowledgement, and the connection is given up.
pub const PROBES_MAX: u32 = 3;

/// HTTP connections of a daemon's metrics port: scrapers and people. The one that has been the longest without
/// finishing anything makes room for a new one.
pub const HTTP_CONNECTIONS_MAX: usize = 64;

/// Request line and header of an HTTP request: browsers send about 2 KiB, Prometheus 300 bytes.
pub const HTTP_HEAD_BYTES_MAX: usize = 8 * 1024;

/// Header lines of an HTTP request: browsers send some 20.
pub const HTTP_HEADERS_MAX: usize = 64;

/// An HTTP request must be complete, and its answer taken, within this time: Prometheus itself gives up after 10 s.
pub const HTTP_MS_MAX: u32 = 10_000;

/// An HTTP connection may rest for this long between two requests: longer than the usual minute between two scrapes.
pub const HTTP_IDLE_MS_MAX: u32 = 75_000;

/// Requests over one HTTP connection, so that none is there for ever.
pub const HTTP_REQUESTS_MAX: u32 = 1_000;

/// Data connections of copies that have not said which copy they belong to: enough for a burst of new copies. The
/// oldest one makes room for a new one.
pub const GREETING_CONNECTIONS_MAX: usize = 1_024;

/// FTP sessions that have not logged in: each has a thread. The oldest one makes room for a new one.
pub const FTP_STRANGERS_MAX: usize = 64;

/// A daemon that was asked to stop, or a command, gives its peers this long to answer what is under way. With what
/// follows it ends within 5 s.
pub const STOP_MS_MAX: u32 = 3_000;

/// Timeout of a client's goodbye to the metadata service: without it the session ends when its lease expires.
pub const GOODBYE_MS_MAX: u32 = 1_500;

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

/// A request that waits longer is reported in the log, with the name of its server: long enough that a busy server is
/// not reported, short enough that the log explains a hang while it lasts.
pub const SLOW_MS: u32 = 5_000;

/// A file system on which operations are under way and none has ended for this long is slow at best: only a few more
/// requests wait for it, for the others would hold up what comes behind them on their connections.
pub const SLOW_DISK_MS: u32 = 2_000;

/// The same for this long, and no thread left that could ask: an area hangs, and requests for it fail at once. Disks
/// that were asleep turn by then.
pub const AREA_HANGS_MS: u32 = 15_000;

/// The same of a target, whose threads need not all be stuck for that: one of its own looks whether its disk answers.
pub const TARGET_HANGS_MS: u32 = AREA_HANGS_MS;

/// A data server that ends waits so long for the disk of a target that hangs. What was answered as synced is
/// on that disk; the rest is swept by the next start.
pub const CLOSING_MS_MAX: u32 = 60_000;

/// A single operation that takes longer is reported even though other operations of its file system complete: half a
/// minute of syncing is nothing special.
pub const STUCK_MS: u32 = 60_000;

/// A data server silent for this long is shown as not responding.
pub const NODE_SILENT_MS: u32 = 10_000;

/// A node silent for this long counts as lost: what would have to wait for it fails at once until it reports again. As
/// long as a request's deadline, so that a server that is back within that is noticed only as a delay.
pub const NODE_LOST_MS: u32 = DEADLINE_MS_DEFAULT;

/// How long a client that watches for changes may believe an answer without asking again: the longest time for which a
/// change elsewhere can stay unseen when the network is broken. Hot names are asked for again this often.
pub const CACHE_LEASE_MS: u32 = 30_000;

/// The metadata service keeps an interest bit longer than the lease by this margin, so that clocks of different speed
/// do no harm.
pub const CACHE_LEASE_MARGIN_MS: u32 = 3_000;

/// Slots of each of the two interest tables for cached answers. Many answers share a slot when more are cached than
/// this; the price is a spurious invalidation. Both tables take 16 MiB, once there is a watcher.
pub const CACHE_HOLDER_SLOTS: usize = 1 << 20;

/// Changes kept for a session until it has received them. Beyond it the session has to forget everything: it is cut
/// off, or so slow that it could not follow.
pub const WATCH_CHANGES_MAX: usize = 4096;

/// Bytes of names in them.
pub const WATCH_NAME_BYTES_MAX: usize = 256 * 1024;

/// Changes in one answer: with the longest names about half of a message.
pub const WATCH_BATCH_MAX: usize = 1024;

/// A long poll for changes is answered after this long although nothing has changed, which proves that the stream is
/// alive. A session without an answer for twice this long caches no further answers.
pub const WATCH_WAIT_MS: u32 = 5_000;

/// Locks and waiters for locks of all clients: about 150 MiB.
pub const LOCKS_MAX: usize = 1_000_000;

/// Locks and waiters of one client: what it holds has to fit into one message when it takes its locks back.
pub const LOCKS_OF_SESSION_MAX: usize = 10_000;

/// Files that a session's record names as those on which it may have locks: the record is written with each new one,
/// and stays below 45 KiB. A session with locks on more than half as many files is waited for on all files.
pub const LOCKED_INODES_MAX: usize = 4096;

/// Of more files than this a session's record keeps only twice as many as the session has locks.
pub const LOCKED_INODES_KEPT: usize = 256;

/// A client that waits for a lock polls this often, in case the notification was lost.
pub const LOCK_POLL_MS: u32 = 2_000;

/// Areas of one node: far more directories than are worth naming one by one.
pub const NODE_AREAS_MAX: usize = 256;

/// Directories further down that one stat in an area tells, too: each takes some microseconds and a hundred bytes.
pub const AREA_BELOW_MAX: usize = 256;

/// Longest name of an area or of a node in a reference: it is typed by people.
pub const AREA_NAME_BYTES_MAX: usize = 64;

/// Longest name of a zone: it is typed by people, and a column of tables.
pub const ZONE_NAME_BYTES_MAX: usize = 32;

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
