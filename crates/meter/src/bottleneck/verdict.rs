//! A verdict: the resource, where it is, how much of its ceiling was used, and why that is said.

use super::judge::CONCLUSIVE;
use super::own::{percent, rate_text};
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
    /// A rate that was set for the work itself.
    BandwidthLimit,
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
            Resource::BandwidthLimit => "bandwidth_limit",
            Resource::Lock => "lock",
            Resource::NoAnswer => "no_answer",
            Resource::Caller => "caller",
            Resource::Idle => "idle",
            Resource::Unknown => "unknown",
        }
    }
}

/// By what of it a resource limits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// There is only one, or it is not known.
    #[default]
    Unstated,
    /// A disk: its device is busy.
    Busy,
    /// A disk: control groups allow no more.
    Allowed,
    /// A disk: it is waited for, and nothing shows why.
    Unseen,
    /// A link at a rate that is stated or set.
    Link,
    /// A way that is full, at no known rate.
    Way,
    /// Round trips: the window of a connection is closed.
    Window,
    /// Round trips: requests follow one another.
    OneAtATime,
    /// Processors: a quota.
    Quota,
    /// Processors: one thread.
    Thread,
    /// Processors: all of a machine.
    Machine,
}

/// Which way bytes go through the place that limits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To it: a disk is written, a link receives.
    Into,
    /// From it.
    OutOf,
}

impl Direction {
    /// As sentences have it.
    pub fn words(self) -> &'static str {
        match self {
            Direction::Into => "into",
            Direction::OutOf => "out of",
        }
    }
}

/// A rate that was set for the work, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct SetRate<'a> {
    /// How it was set, for people: `--bwlimit`.
    pub what: &'a str,
    /// Bytes a second.
    pub allowed: f64,
    /// Bytes a second that moved.
    pub moved: f64,
    /// Share of the time in which it was waited for.
    pub waited: f64,
}

/// What limited, and how much of its ceiling was reached.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The limit.
    pub resource: Resource,
    /// By what of it.
    #[serde(default)]
    pub kind: Kind,
    /// Which way its bytes go; `None` where it has none.
    #[serde(default)]
    pub direction: Option<Direction>,
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
    /// The same of work for which a rate was set too: where that was waited for most, it is the limit.
    pub fn or_set_rate(self, set: SetRate<'_>) -> Verdict {
        let is_nothing = matches!(self.resource, Resource::Caller | Resource::Idle | Resource::Unknown);
        let least = if is_nothing { CONCLUSIVE } else { self.score.max(CONCLUSIVE) };
        if set.waited < least || set.allowed <= 0.0 {
            return self;
        }
        let text = format!(
            "the rate set for {} by {}: {} of {}, waited for {} of the time",
            self.place,
            set.what,
            rate_text(set.moved),
            rate_text(set.allowed),
            percent(set.waited.min(1.0))
        );
        let (resource, share) = (Resource::BandwidthLimit, Some((set.moved / set.allowed).min(1.0)));
        Verdict { resource, place: self.place, share, score: set.waited.min(1.0), text, ..Verdict::default() }
    }

    /// The same of work that asked another system's `server` one thing after the other, and waited for its answers a
    /// share `waited` of the time: where nothing else was found, that is the limit.
    pub fn or_answers_of(self, server: &str, waited: f64) -> Verdict {
        let is_nothing = matches!(self.resource, Resource::Caller | Resource::Idle | Resource::Unknown);
        if !is_nothing || waited < CONCLUSIVE {
            return self;
        }
        let (place, score) = (server.to_owned(), waited.min(1.0));
        let text = format!("answers of {server}: waited for {} of the time", percent(score));
        Verdict {
            resource: Resource::RoundTrip,
            kind: Kind::OneAtATime,
            place,
            score,
            text,
            ..Verdict::default()
        }
    }

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
