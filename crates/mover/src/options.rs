//! How a mover runs.

use std::path::PathBuf;

/// Files that arrive at once; each may take a buffer of 256 KiB for each of its connections.
const COPIES_IN_MAX: usize = 256;

/// Files sent at once.
const COPIES_OUT_MAX: usize = 64;

/// Of them to one other node: more would only divide the same line.
const COPIES_PAIR_MAX: usize = 16;

/// How a mover runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The node's name.
    pub node: String,
    /// Its own directory: journals of what arrives, and jobs.
    pub directory: PathBuf,
    /// `host:port` for data connections; port 0 takes a free one.
    pub listen: String,
    /// Files that arrive at once; further senders must retry later (backpressure).
    pub copies_in_max: usize,
    /// Files sent at once; further ones wait in the queue.
    pub copies_out_max: usize,
    /// Of them to one other node.
    pub copies_pair_max: usize,
}

impl Options {
    /// The defaults for a node that keeps its own files in `directory`.
    pub fn new(node: &str, directory: PathBuf, listen: &str) -> Options {
        Options {
            node: node.to_owned(),
            directory,
            listen: listen.to_owned(),
            copies_in_max: COPIES_IN_MAX,
            copies_out_max: COPIES_OUT_MAX,
            copies_pair_max: COPIES_PAIR_MAX,
        }
    }
}
