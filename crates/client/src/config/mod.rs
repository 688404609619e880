//! The client's configuration file, `client.toml`: written by `vazao up`, copied to other machines by hand.
//!
//! ```toml
//! cluster = "home"
//! meta = ["192.0.2.10:7070"]
//! key_file = "cluster.key"    # relative to this file
//! ```

mod options;

pub use options::Options;
pub(crate) use options::own_name;

use crate::{Error, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use vazao_model::limits::DEADLINE_MS_MAX;
use vazao_model::{Code, zone};
use vazao_wire::key::ClusterKey;

/// Where a cluster is and how to prove that we may use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The cluster's name, for people.
    pub cluster: String,
    /// Addresses of metadata services, `host:port`.
    pub meta: Vec<String>,
    /// The file with the cluster key; `None` for a cluster that runs without one.
    pub key_file: Option<PathBuf>,
    /// The zone that its clients are in; empty: in none.
    pub zone: String,
    /// Deadline of each call; `None` for the default.
    pub deadline_ms: Option<u32>,
    /// Connections to each server; `None` for the default.
    pub connections_max: Option<usize>,
    /// Bytes read ahead of one reader; `None` for the default.
    pub read_ahead_bytes_max: Option<usize>,
    /// Bytes written but not yet acknowledged, over all files; `None` for the default.
    pub dirty_bytes_max: Option<usize>,
    /// Whether objects on data servers of this machine are read without the server; `None` for the default.
    pub short_circuit: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    cluster: String,
    meta: Vec<String>,
    key_file: Option<PathBuf>,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    insecure: bool,
    deadline_ms: Option<u32>,
    connections_max: Option<usize>,
    read_ahead_bytes_max: Option<usize>,
    dirty_bytes_max: Option<usize>,
    short_circuit: Option<bool>,
}

fn refused(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(Code::Invalid, format!("{}: {what}", path.display()))
}

/// Each node of a cluster has its client.toml here.
pub const NODE_CLIENT_FILE: &str = "/etc/vazao/client.toml";

/// The first file that is there, else the first.
fn first_there(files: &[PathBuf; 2], is_there: impl Fn(&Path) -> bool) -> PathBuf {
    files.iter().find(|file| is_there(file)).unwrap_or(&files[0]).clone()
}

impl Config {
    /// `$VAZAO_CLUSTER`, or else the first of [`Config::usual_paths`] that is there; where none is, the user's.
    pub fn default_path() -> PathBuf {
        match std::env::var_os("VAZAO_CLUSTER").filter(|path| !path.is_empty()) {
            Some(path) => path.into(),
            None => first_there(&Config::usual_paths(), Path::exists),
        }
    }

    /// Where a client.toml is looked for when none is named: in the user's configuration directory, and where each node
    /// of a cluster has one.
    pub fn usual_paths() -> [PathBuf; 2] {
        let home = std::env::var_os("HOME").unwrap_or_default();
        [Path::new(&home).join(".config/vazao/client.toml"), PathBuf::from(NODE_CLIENT_FILE)]
    }

    /// Reads a configuration file. Errors name the file and, where it is known, the line.
    pub fn load(path: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            let is_missing = e.kind() == std::io::ErrorKind::NotFound;
            let (code, why) = match is_missing {
                true => (Code::NotFound, String::new()),
                false => (Code::Io, format!(" ({e})")),
            };
            let remedy =
                "start a cluster with `vazao up --dir DIR`, or name its client.toml with --cluster or $VAZAO_CLUSTER";
            Error::new(code, format!("reading the cluster configuration {}{why}; {remedy}", path.display()))
        })?;
        Config::parse(path, &text)
    }

    /// Reads the text of a configuration file that lies at `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Config> {
        let text: Text = toml::from_str(text).map_err(|e| {
            let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map_or(String::new(), |line| format!("line {line}: "));
            refused(path, format!("{place}{}", e.message()))
        })?;
        if text.meta.is_empty() {
            return Err(refused(path, "`meta` is empty; list at least one metadata service, \"host:port\""));
        }
        if let Some(bad) = text.meta.iter().find(|address| !is_address(address)) {
            return Err(refused(path, format!("`meta` has \"{bad}\", which is not \"host:port\"")));
        }
        if text.key_file.is_none() && !text.insecure {
            return Err(refused(
                path,
                "`key_file` is missing; name the cluster's key, or say `insecure = true`",
            ));
        }
        if !text.zone.is_empty() {
            zone::check_name(&text.zone).map_err(|why| refused(path, why))?;
        }
        if let Some(bad) = text.deadline_ms.filter(|ms| !(1..=DEADLINE_MS_MAX).contains(ms)) {
            return Err(refused(
                path,
                format!("`deadline_ms` is {bad}, not between 1 and {DEADLINE_MS_MAX}"),
            ));
        }
        let directory = path.parent().unwrap_or(Path::new(""));
        Ok(Config {
            cluster: text.cluster,
            meta: text.meta,
            key_file: text.key_file.filter(|_| !text.insecure).map(|file| directory.join(file)),
            zone: text.zone,
            deadline_ms: text.deadline_ms,
            connections_max: text.connections_max,
            read_ahead_bytes_max: text.read_ahead_bytes_max,
            dirty_bytes_max: text.dirty_bytes_max,
            short_circuit: text.short_circuit,
        })
    }

    /// The key, read from its file. Errors: it cannot be read, or is none.
    pub(crate) fn key(&self) -> Result<ClusterKey> {
        let Some(path) = &self.key_file else { return Ok(ClusterKey::insecure()) };
        ClusterKey::load(path).map_err(|e| Error::new(Code::Io, e.to_string()))
    }

    /// The options it asks for.
    pub fn options(&self) -> Options {
        let defaults = Options::default();
        Options {
            zone: self.zone.clone(),
            deadline_ms: self.deadline_ms.unwrap_or(defaults.deadline_ms),
            connections_max: self.connections_max.unwrap_or(defaults.connections_max).max(1),
            read_ahead_bytes_max: self.read_ahead_bytes_max.unwrap_or(defaults.read_ahead_bytes_max),
            dirty_bytes_max: self.dirty_bytes_max.unwrap_or(defaults.dirty_bytes_max),
            short_circuit: self.short_circuit.unwrap_or(defaults.short_circuit),
            ..defaults
        }
    }
}

/// Whether a text is "host:port", a port between 0 and 65535.
pub fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Whether only this machine reaches a host.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost" || host == "[::1]" || host.starts_with("127.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_recognised() {
        assert!(["127.0.0.1", "localhost", "[::1]"].iter().all(|host| is_loopback(host)));
        assert!(!["192.0.2.1", "host1", "[2001:db8::1]"].iter().any(|host| is_loopback(host)));
    }

    fn parse(text: &str) -> Result<Config> {
        Config::parse(Path::new("/etc/vazao/client.toml"), text)
    }

    /// `vazao status` on a machine that is a node said "no cluster given", with the node's client.toml in its place.
    #[test]
    fn the_users_file_comes_before_that_of_the_node_and_either_may_be_missing() {
        let files = ["/own", "/node"].map(PathBuf::from);
        let found = |there: &[&str]| {
            first_there(&files, |file| there.iter().any(|there| file == Path::new(there)))
                .display()
                .to_string()
        };
        assert_eq!(found(&[]), "/own");
        assert_eq!(found(&["/node"]), "/node");
        assert_eq!(found(&["/own", "/node"]), "/own");
        assert_eq!(Config::usual_paths()[1], Path::new(NODE_CLIENT_FILE));
    }

    #[test]
    fn a_key_file_is_relative_to_the_configuration() {
        let config =
            parse("meta = [\"h:1\"]\nkey_file = \"cluster.key\"\ndeadline_ms = 500\n").expect("valid");
        assert_eq!(config.key_file, Some(PathBuf::from("/etc/vazao/cluster.key")));
        assert_eq!(config.options().deadline_ms, 500);
        let absolute = parse("meta = [\"h:1\"]\nkey_file = \"/k\"\n").expect("valid");
        assert_eq!(absolute.key_file, Some(PathBuf::from("/k")));
    }

    #[test]
    fn a_mistake_is_named_with_file_and_line() {
        let error = parse("meta = [\"h:1\"]\nkey_fil = \"k\"\n").expect_err("unknown key").to_string();
        assert!(error.contains("/etc/vazao/client.toml: line 2") && error.contains("key_fil"), "{error}");
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_remedy() {
        for (text, word) in [
            ("meta = []\nkey_file = \"k\"", "at least one"),
            ("meta = [\"host\"]\nkey_file = \"k\"", "host:port"),
            ("meta = [\"h:1\"]", "insecure = true"),
            ("meta = [\"h:1\"]\nkey_file = \"k\"\ndeadline_ms = 0", "deadline_ms"),
            ("meta = [\"h:1\"]\nkey_file = \"k\"\nzone = \"a b\"", "zone name"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(parse("meta = [\"h:1\"]\ninsecure = true").expect("valid").key_file.is_none());
    }

    #[test]
    fn a_missing_file_says_how_to_get_one() {
        let error = Config::load(Path::new("/nonexistent/client.toml")).expect_err("missing");
        assert_eq!(error.code, Code::NotFound);
        assert!(error.to_string().contains("vazao up"), "{error}");
    }
}
