//! What a command works with: the common options and, once it is needed, a client of the chosen cluster.

use crate::cli::Common;
use crate::cluster::directory::ClusterDirectory;
use crate::failure::{Failure, Outcome, without_advice};
use crate::node::owners;
use std::path::{Path, PathBuf};
use vazao_client::config::is_loopback;
use vazao_client::{Client, Config, Options};
use vazao_model::{ClusterMap, Code};
use vazao_wire::key::ClusterKey;

/// The environment variable that names the cluster.
pub(crate) const CLUSTER_VARIABLE: &str = "VAZAO_CLUSTER";

/// The surroundings of one command.
pub(crate) struct Context {
    /// Options that every command has.
    pub(crate) common: Common,
    /// What `vazao top` calls this client: a command, or where it is mounted.
    pub(crate) called: String,
}

impl Context {
    /// The client.toml in effect: the option's, the environment's, the user's, that of the node of this machine.
    pub(crate) fn cluster_file(&self) -> Outcome<PathBuf> {
        if let Some(file) = &self.common.cluster {
            return Ok(file.clone());
        }
        let given = std::env::var_os(CLUSTER_VARIABLE).is_some_and(|file| !file.is_empty());
        let file = Config::default_path();
        if given {
            return Ok(file);
        }
        if !file.exists() {
            let [own, node] = Config::usual_paths();
            return Err(Failure::new(format!(
                "no cluster given, and neither {} nor {} exists; start one with `vazao up --dir DIR` and run the export line it prints, or give --cluster FILE",
                own.display(),
                node.display()
            )));
        }
        Ok(file)
    }

    /// `cp (ana@host1, process 4711)`.
    fn client_name(&self) -> String {
        let (user, host) = (owners::own_name(), rustix::system::uname());
        let host = host.nodename().to_string_lossy();
        format!("{} ({user}@{host}, process {})", self.called, std::process::id())
    }

    /// Connects to the cluster.
    pub(crate) fn client(&self) -> Outcome<Client> {
        self.client_with(|_| ())
    }

    /// Connects with other options than the configuration asks for.
    pub(crate) fn client_with(&self, change: impl FnOnce(&mut Options)) -> Outcome<Client> {
        let file = self.cluster_file()?;
        let config = Config::load(&file)?;
        // What it says of a key that cannot be used is a cause and a remedy; the client would add "input/output error".
        if let Some(key) = &config.key_file {
            ClusterKey::load(key).map_err(|error| Failure::new(error.to_string()))?;
        }
        let mut options = config.options();
        options.name = self.client_name();
        if let Some(zone) = &self.common.zone {
            options.zone.clone_from(zone);
        }
        change(&mut options);
        let zone = options.zone.clone();
        let client = Client::connect_with(&config, options).map_err(|error| {
            let is_unreachable = error.code == Code::Unreachable;
            let hint = loopback_hint(&file, &config).filter(|_| is_unreachable);
            match hint {
                Some(hint) => Failure::new(format!("{}; {hint}", without_advice(&error))),
                None => Failure::from(error),
            }
        })?;
        // That of client.toml stands in `vazao status`: not every command is to say so again.
        if zone != config.zone {
            warn_of_unknown_zone(&client, &zone);
        }
        Ok(client)
    }
}

/// That no node is in a zone, and in which ones there are some.
pub(crate) fn unknown_zone(map: &ClusterMap, zone: &str) -> String {
    let known = match map.zones().as_slice() {
        [] => "no node is in any".to_owned(),
        zones => format!("zones of nodes: {}", zones.join(", ")),
    };
    format!("no node is in zone {zone} ({known})")
}

/// Logs that no node is in the zone of a client.
fn warn_of_unknown_zone(client: &Client, zone: &str) {
    let map = client.map();
    if !zone.is_empty() && !map.zones().contains(&zone) {
        let problem = unknown_zone(&map, zone);
        tracing::warn!("{problem}; files placed near their writer go everywhere");
    }
}

/// What to say when nothing answers at an address that only this machine reaches: a client.toml of `vazao up` may have
/// been copied to another one. `None`: it names others, or lies in its cluster's directory.
pub(crate) fn loopback_hint(file: &Path, config: &Config) -> Option<String> {
    let is_at_home = file.parent().is_some_and(|directory| ClusterDirectory::open(directory).is_ok());
    let host = |address: &String| address.rsplit_once(':').map_or(String::new(), |(host, _)| host.to_owned());
    if is_at_home || !config.meta.iter().all(|address| is_loopback(&host(address))) {
        return None;
    }
    Some(format!(
        "{} names this machine itself ({}): a cluster of `vazao up` is reached on its own machine only, and for several \
         there is `vazao node init`",
        file.display(),
        config.meta.join(", ")
    ))
}
