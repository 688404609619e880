//! Copy methods: ways to get the blocks of one file to another node.
//!
//! A method takes blocks from [`Outgoing`] until there are none, and has each confirmed by the receiver. It knows
//! nothing of names, of jobs, or of how a copy begins and ends. `build` knows them all; `auto` chooses among them.

pub(crate) mod auto;
mod blocking;
pub(crate) mod build;
mod ftp;
mod nonblocking;
mod rpc;
mod sending;
mod streams;

use crate::outgoing::Outgoing;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use vazao_model::size::parse_size;
use vazao_wire::service::Fault;

/// Connections of one copy.
pub const STREAMS_MAX: u32 = 64;

/// Calls of one copy in flight: what one connection of the wire allows.
const WINDOW_MAX: u32 = 128;

/// Smallest and largest block of the method `rpc`.
const RPC_BLOCK_BYTES: std::ops::RangeInclusive<u32> = 4096..=1 << 20;

/// Smallest and largest socket buffer that can be asked for.
const BUFFER_BYTES: std::ops::RangeInclusive<u32> = 1024..=1 << 30;

/// Called once, when all blocks are confirmed or it cannot go on.
pub type Done = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// A way to get blocks to another node.
pub trait CopyMethod: Send + Sync {
    /// As on the command line.
    fn name(&self) -> String;

    /// Begins to send and returns; `done` is called from any thread.
    fn start(&self, copy: Arc<Outgoing>, done: Done);
}

/// A method as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Method {
    /// Measures and chooses.
    #[default]
    Auto,
    /// A thread and a connection for each copy.
    Blocking {
        /// Bytes of its socket buffers; `None`: as the system likes.
        buffer: Option<u32>,
    },
    /// Several connections for each copy; blocks go to whichever connection is free.
    Streams(u32),
    /// One event loop for all copies of a daemon.
    Nonblocking,
    /// A call for each block.
    Rpc {
        /// Bytes of each; `None`: adapted.
        block: Option<u32>,
        /// Calls in flight; `None`: as many as are good.
        window: Option<u32>,
    },
    /// A session with the destination's FTP endpoint for each copy.
    Ftp,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Auto => f.write_str("auto"),
            Method::Blocking { buffer: None } => f.write_str("blocking"),
            Method::Blocking { buffer: Some(bytes) } => write!(f, "blocking:buffer={bytes}"),
            Method::Streams(count) => write!(f, "streams:{count}"),
            Method::Nonblocking => f.write_str("nonblocking"),
            Method::Ftp => f.write_str("ftp"),
            Method::Rpc { block, window } => {
                let part = |name: &str, value: &Option<u32>| value.map(|value| format!("{name}={value}"));
                let parts: Vec<String> =
                    [part("block", block), part("window", window)].into_iter().flatten().collect();
                match parts.is_empty() {
                    true => f.write_str("rpc"),
                    false => write!(f, "rpc:{}", parts.join(",")),
                }
            }
        }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut settings = Vec::new();
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            settings.push(part.split_once('=').unwrap_or(("", part)));
        }
        let number = |key: &str, value: &str, range: &std::ops::RangeInclusive<u32>| {
            let number = parse_size(value).ok().and_then(|number| u32::try_from(number).ok());
            number.filter(|number| range.contains(number)).ok_or_else(|| {
                format!("{text}: {key} has to be between {} and {}", range.start(), range.end())
            })
        };
        let mut method = match name {
            "auto" => Method::Auto,
            "blocking" => Method::Blocking { buffer: None },
            "streams" if settings.is_empty() => return Err(format!("{text}: say how many, as streams:4")),
            "streams" => Method::Streams(1),
            "nonblocking" => Method::Nonblocking,
            "ftp" => Method::Ftp,
            "rpc" => Method::Rpc { block: None, window: None },
            _ => {
                return Err(format!(
                    "{text}: no such method; there are auto, blocking[:buffer=SIZE], streams:N, nonblocking, \
                     rpc[:block=SIZE,window=N] and ftp"
                ));
            }
        };
        for (key, value) in settings {
            match (&mut method, key) {
                (Method::Blocking { buffer }, "buffer") => *buffer = Some(number(key, value, &BUFFER_BYTES)?),
                (Method::Streams(count), "") => *count = number("N", value, &(1..=STREAMS_MAX))?,
                (Method::Rpc { block, .. }, "block") => {
                    let bytes = number(key, value, &RPC_BLOCK_BYTES)?;
                    if !bytes.is_power_of_two() {
                        return Err(format!("{text}: block has to be a power of two"));
                    }
                    *block = Some(bytes);
                }
                (Method::Rpc { window, .. }, "window") => {
                    *window = Some(number(key, value, &(1..=WINDOW_MAX))?);
                }
                _ => return Err(format!("{text}: {name} has no setting {key:?}")),
            }
        }
        Ok(method)
    }
}

#[cfg(test)]
mod names {
    use super::*;

    #[test]
    fn a_method_is_written_as_it_is_read() {
        for text in [
            "auto",
            "blocking",
            "blocking:buffer=4096",
            "streams:8",
            "nonblocking",
            "ftp",
            "rpc",
            "rpc:block=65536",
            "rpc:block=4096,window=16",
        ] {
            assert_eq!(text.parse::<Method>().expect(text).to_string(), text);
        }
        assert_eq!("blocking:buffer=128K".parse(), Ok(Method::Blocking { buffer: Some(131_072) }));
    }

    #[test]
    fn a_method_that_cannot_be_is_refused_with_what_there_is() {
        for (text, word) in [
            ("quick", "streams:N"),
            ("streams", "streams:4"),
            ("streams:0", "between 1"),
            ("streams:x", "between 1"),
            ("rpc:block=5000", "power of two"),
            ("rpc:block=2M", "between"),
            ("blocking:window=3", "no setting"),
            ("nonblocking:3", "no setting"),
            ("ftp:x=1", "no setting"),
        ] {
            let error = text.parse::<Method>().expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
