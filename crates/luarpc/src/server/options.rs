//! Bounds of a server, and what it counts.

use crate::client::Profile;
use crate::limits::{LINE_BYTES_MAX, MESSAGE_BYTES_MAX};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bounds of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// What becomes of a connection after an answer.
    pub profile: Profile,
    /// Connections; for one more, another is closed.
    pub connections_max: usize,
    /// Threads that carry out calls.
    pub workers: usize,
    /// Bytes of a line, of a request and of an answer.
    pub line_bytes_max: usize,
    /// Bytes of a request, and of an answer.
    pub message_bytes_max: usize,
    /// Bytes that all connections keep together, of requests and answers that are not whole.
    pub memory_bytes_max: usize,
    /// How long a connection may rest between two requests.
    pub idle_ms_max: u64,
    /// How long a request may take to come in, the first one from the connecting on, and an answer to be taken.
    pub transfer_ms_max: u64,
    /// How much the thread that waits for all connections gives way to other threads, as nice(2) has it; 0 to 19.
    /// It reads what strangers send: where they send without end, the rest of the process goes first.
    pub niceness: u8,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            profile: Profile::Keepalive,
            connections_max: 256,
            workers: 4,
            line_bytes_max: LINE_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            memory_bytes_max: 64 << 20,
            idle_ms_max: 300_000,
            transfer_ms_max: 10_000,
            niceness: 0,
        }
    }
}

/// What a server counts.
#[derive(Debug, Default)]
pub struct Statistics {
    pub(super) calls: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) memory_bytes: AtomicU64,
}

impl Statistics {
    /// Answers, errors included.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Of them those that were errors.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Connections at present.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that made room for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Bytes of requests and answers that are kept at present.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }
}
