//! A verdict: the resource, where it is, how much of its ceiling was used, and why that is said.

use serde::{Deserialize, Serialize};

/// What can limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A disk's rate.
    Disk,
    /// A network link's rate.
    Network,
    /// Round trips: what is in flight is too little for the time an answer takes to come.
    RoundTrip,
    /// Processors: a quota, a full machine, a single thread.
    Cpu,
    /// A lock within a process.
    Lock,
    /// A server that answered nothing.
    NoAnswer,
    /// The program that uses the file system: nothing here was waited for.
    Caller,
    /// Nothing was asked for.
    Idle,
    /// Nothing conclusive was seen.
    #[default]
    Unknown,
}

impl Resource {
    /// Its name for people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Disk => "disk",
            Resource::Network => "network",
            Resource::RoundTrip => "round_trip",
            Resource::Cpu => "cpu",
            Resource::Lock => "lock",
            Resource::NoAnswer => "no_answer",
            Resource::Caller => "caller",
            Resource::Idle => "idle",
            Resource::Unknown => "unknown",
        }
    }
}

/// What limited, and how much of its ceiling was reached.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The limit.
    pub resource: Resource,
    /// Where the resource is: a node, `client`, a host; for a link its narrow end, as far as that is known.
    pub place: String,
    /// The share of its ceiling, 0 to 1; `None` when the ceiling is not known.
    pub share: Option<f64>,
    /// Other programs use most of it.
    #[serde(default)]
    pub by_others: bool,
    /// How sure: 0 to 1.
    pub score: f64,
    /// In words, without the share.
    pub text: String,
}

impl Verdict {
    /// The line that ends a transfer.
    pub fn line(&self) -> String {
        let share = match (self.resource, self.share) {
            (
                Resource::Caller
                | Resource::Idle
                | Resource::Unknown
                | Resource::RoundTrip
                | Resource::Lock
                | Resource::NoAnswer,
                _,
            ) => String::new(),
            (_, Some(share)) => format!(" ({:.0}% of its ceiling)", share * 100.0),
            (_, None) => " (share of its ceiling unknown)".to_owned(),
        };
        format!("limit: {}{share}", self.text)
    }
}
