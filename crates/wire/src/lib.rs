//! Frames, the one table of operations, connections: how any part of Vazão talks to another.
//!
//! The protocol is specified byte by byte in `docs/wire.md`. This crate knows what an operation is called and what it
//! carries, and nothing of what it does.

pub mod frame;
pub mod hello;
pub mod inline;
pub mod interrupt;
pub mod key;
pub mod lane;
pub mod local;
pub mod messages;
pub mod operation;
pub mod pool;
pub mod service;
pub mod shell;
pub mod tcp;
pub mod transport;
pub mod watchdog;

/// The messages of `proto/`, generated.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated code; the .proto is its documentation"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/vazao.v1.rs"));
}

pub use operation::{Method, Operation, op};
