//! What a machine is to have: worked out and checked before anything is written.

use super::unit::{Unit, unit};
use super::{Own, SYSTEM_DIRECTORY};
use crate::commands::target::{check_contents, is_same_disk};
use crate::failure::{At, Failure, Outcome};
use crate::format::shell_quoted;
use crate::node::config::{
    AreaSection, CopySection, DataSection, LogSection, MetaSection, NodeConfig, RoleName,
};
use crate::node::state;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use vazao_client::config::is_address;
use vazao_client::config::is_loopback;
use vazao_client::{Client, Options};
use vazao_model::Code;
use vazao_wire::key::ClusterKey;
use vazao_wire::tcp::{TcpTransport, TransportOptions};

const META_PORT: u16 = 7000;

const OTHER_PORT: u16 = 7001;

/// The port for copies is this much higher, so that a firewall can be opened for it.
const COPY_PORT_DISTANCE: u16 = 100;

/// The port of `/metrics` is this much higher.
const METRICS_PORT_DISTANCE: u16 = 200;

/// A metadata service that serves has answered by then.
const TRY_MS_MAX: u32 = 5_000;

/// Longest text that is read as a key: more is something else.
const KEY_TEXT_BYTES_MAX: u64 = 4_096;

/// Names that would be taken for something else in `NAME:/AREA/path`.
const RESERVED_NAMES: [&str; 2] = ["vz", "ftp"];

/// Where a unit is found by systemd.
const UNIT_DIRECTORY: &str = "/etc/systemd/system";

/// All of it.
pub(super) struct Plan {
    /// Where key and configuration lie.
    pub(super) directory: PathBuf,
    pub(super) config: NodeConfig,
    /// `None`: the key that is there is kept, or a new one is made.
    pub(super) key: Option<ClusterKey>,
    /// Where clients and further nodes reach the metadata service.
    pub(super) metadata: String,
    /// This machine, for others.
    host: String,
    pub(super) unit: Unit,
}

/// The first node of a cluster.
pub(super) fn first(own: &Own, zone: Option<&str>, metadata: Option<&Path>) -> Outcome<Plan> {
    let mut plan = Plan::of(own, zone, META_PORT)?;
    let directory = match metadata {
        Some(directory) => std::path::absolute(directory).at(directory.display())?,
        None => state::directory(&plan.config, &plan.directory)?.join("metadata"),
    };
    plan.config.roles.insert(0, RoleName::Meta);
    plan.config.roles.retain(|role| *role != RoleName::Area);
    plan.config.meta = Some(MetaSection { directory });
    plan.finish()
}

/// A further node of the cluster whose metadata service is at `address`.
pub(super) fn further(
    own: &Own,
    zone: Option<&str>,
    address: &str,
    key_file: Option<&Path>,
) -> Outcome<Plan> {
    if !is_address(address) {
        let what = format!("{address}: not HOST:PORT; `vazao node init` has printed it on the first machine");
        return Err(Failure::usage(what));
    }
    if own.data.is_empty() && own.area.is_empty() {
        return Err(Failure::usage("a node without use: give --data DIR, --area NAME=DIR or both"));
    }
    let mut plan = Plan::of(own, zone, OTHER_PORT)?;
    address.clone_into(&mut plan.metadata);
    plan.config.metadata = vec![address.to_owned()];
    plan.key = Some(key(key_file, &plan)?);
    plan.finish()
}

/// The key that was named, or the one that lies where it belongs.
fn key(file: Option<&Path>, plan: &Plan) -> Outcome<ClusterKey> {
    let own = plan.key_file();
    let load = |path: &Path| ClusterKey::load(path).map_err(|error| Failure::new(error.to_string()));
    let Some(file) = file else {
        if own.exists() {
            return load(&own);
        }
        let address = &plan.metadata;
        let first = address.rsplit_once(':').map_or("", |(host, _)| host);
        return Err(Failure::usage(format!(
            "{}: no key is there yet; give the cluster's: `ssh root@{first} cat {SYSTEM_DIRECTORY}/cluster.key | vazao node \
             join {address} --key-file - …`",
            own.display()
        )));
    };
    if file != Path::new("-") {
        return load(file);
    }
    let mut text = String::new();
    std::io::stdin().take(KEY_TEXT_BYTES_MAX).read_to_string(&mut text).at("standard input")?;
    ClusterKey::parse(&text).map_err(|why| {
        Failure::new(format!("standard input: {why}; pass on cluster.key of a node of the cluster"))
    })
}

impl Plan {
    /// What nodes of all kinds have.
    fn of(own: &Own, zone: Option<&str>, port: u16) -> Outcome<Plan> {
        let directory = std::path::absolute(&own.dir).at(own.dir.display())?;
        let name = own.name.clone().map_or_else(own_name, Ok)?;
        check_name(&name)?;
        let host = own.host.clone().map_or_else(host_name, Ok)?;
        let port = own.port.unwrap_or(port);
        let address = address(&host, port)?;
        let metrics_port = port.checked_add(METRICS_PORT_DISTANCE).filter(|_| port > 0);
        let metrics_port =
            metrics_port.ok_or_else(|| Failure::usage(format!("--port {port}: between 1 and 65335")))?;
        let copy_port = port + COPY_PORT_DISTANCE;
        // Who reaches it needs no key: this machine only, unless more is asked for.
        let watched_at = if is_loopback(&host) { host.as_str() } else { "127.0.0.1" };
        let metrics = own.metrics.clone().unwrap_or_else(|| format!("{watched_at}:{metrics_port}"));
        let areas = own.area.iter().map(|text| area(text)).collect::<Outcome<Vec<_>>>()?;
        let data = targets(&own.data)?;
        let mut roles = Vec::new();
        roles.extend(data.is_some().then_some(RoleName::Data));
        roles.extend((!areas.is_empty()).then_some(RoleName::Area));
        let bound = if is_loopback(&host) { host.as_str() } else { "0.0.0.0" };
        let config = NodeConfig {
            name,
            roles,
            listen: format!("{bound}:{port}"),
            advertise: (!is_loopback(&host)).then(|| address.clone()),
            zone: zone.unwrap_or_default().to_owned(),
            other_port_if_taken: false,
            metadata: Vec::new(),
            key_file: Some(PathBuf::from("cluster.key")),
            metrics: Some(metrics),
            state_dir: None,
            threads: 0,
            channels_max: None,
            descriptors_max: None,
            meta: None,
            zones: BTreeMap::new(),
            line: Vec::new(),
            data,
            luarpc: None,
            copy: CopySection { listen: Some(format!("{bound}:{copy_port}")), ..CopySection::default() },
            log: LogSection::default(),
            area: areas,
        };
        Ok(Plan { directory, config, key: None, metadata: address, host, unit: Unit::default() })
    }

    /// Checks it as the node will, and adds the unit.
    fn finish(mut self) -> Outcome<Plan> {
        NodeConfig::parse(&self.config_text()?).map_err(Failure::usage)?;
        let program = std::env::current_exe().at("finding this program")?;
        let system = Path::new(UNIT_DIRECTORY);
        let is_installed = self.directory == Path::new(SYSTEM_DIRECTORY) && system.is_dir();
        let place = if is_installed { system } else { &self.directory };
        self.unit = Unit {
            file: place.join("vazao.service"),
            text: unit(&self.config, &program, &self.config_file()),
            is_installed,
        };
        Ok(self)
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.directory.join("cluster.key")
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.directory.join("node.toml")
    }

    pub(super) fn client_file(&self) -> PathBuf {
        self.directory.join("client.toml")
    }

    /// node.toml.
    pub(super) fn config_text(&self) -> Outcome<String> {
        let text = toml::to_string(&self.config).map_err(|e| Failure::new(format!("node.toml: {e}")))?;
        Ok(format!("# Written by `vazao node`. All settings: docs/configuration.md\n{text}"))
    }

    /// client.toml.
    pub(super) fn client_text(&self) -> String {
        let heading = "# Written by `vazao node`. Copy it together with the key to let another machine in.";
        let zone = match self.config.zone.as_str() {
            "" => String::new(),
            // Who copies the file to a machine elsewhere has to change it.
            zone => format!("zone = \"{zone}\"\n"),
        };
        format!("{heading}\nmeta = [\"{}\"]\nkey_file = \"cluster.key\"\n{zone}", self.metadata)
    }

    /// What starts the node.
    pub(super) fn start_command(&self) -> String {
        match self.unit.is_installed {
            true => "systemctl daemon-reload && systemctl enable --now vazao".to_owned(),
            false => {
                format!("vazao serve --config {}", shell_quoted(&self.config_file().to_string_lossy()))
            }
        }
    }

    /// What makes the next machine a node, run there; `DIR` stands for its own disk.
    pub(super) fn next_command(&self) -> String {
        let key = shell_quoted(&self.key_file().to_string_lossy());
        let metadata = shell_quoted(&self.metadata);
        match is_loopback(&self.host) {
            // Others cannot come here; a further node on this machine needs a place of its own.
            true => format!(
                "vazao node join {metadata} --key-file {key} --host {} --name NAME --port PORT --dir DIR --data DIR",
                self.host
            ),
            false => format!(
                "ssh root@{} cat {key} | vazao node join {metadata} --key-file - --data DIR",
                shell_quoted(&self.host)
            ),
        }
    }

    /// What shows whether it worked.
    pub(super) fn status_command(&self) -> String {
        format!("vazao status --cluster {}", shell_quoted(&self.client_file().to_string_lossy()))
    }

    /// Where Prometheus finds the node's counters.
    pub(super) fn metrics_url(&self) -> String {
        let at = self.config.metrics.as_deref().unwrap_or_default();
        // Of a wildcard any address will do.
        let at = at.replacen("0.0.0.0", &self.host, 1);
        format!("http://{at}/metrics")
    }

    /// Ports that others connect to.
    pub(super) fn ports(&self) -> Vec<&str> {
        let listen = [Some(&self.config.listen), self.config.copy.listen.as_ref()];
        listen.into_iter().flatten().filter_map(|at| at.rsplit_once(':')).map(|(_, port)| port).collect()
    }

    /// Asks the metadata service whether it takes this key, and has no other node of this name.
    pub(super) fn try_joining(&self) -> Outcome {
        let key = self.key.clone().unwrap_or_else(ClusterKey::insecure);
        let clock = vazao_meter::clock::system();
        let transport = TcpTransport::new(key, TransportOptions::default(), clock);
        let options = Options { deadline_ms: TRY_MS_MAX, background: false, ..Options::default() };
        let client = Client::open(transport, self.config.metadata.clone(), options);
        let client = client.map_err(|error| match error.code {
            Code::Unauthenticated => Failure::new(format!(
                "the metadata service at {} has another key: copy cluster.key from its machine",
                self.metadata
            )),
            _ => Failure::new(format!(
                "{error}; start the first node, and look at the address and at firewalls; --offline writes the files all \
                 the same"
            )),
        })?;
        let map = client.refresh_map()?;
        // The session ends by itself as well.
        let _ = client.close();
        let address = self.config.advertise.as_ref().unwrap_or(&self.config.listen);
        match map.nodes.iter().find(|node| node.name == self.config.name && node.address != *address) {
            None => Ok(()),
            Some(other) => Err(Failure::new(format!(
                "the cluster has a node {} at {}: give this one another name with --name, or the same --host and --port \
                 if it is that node",
                other.name, other.address
            ))),
        }
    }
}

fn host_name() -> Outcome<String> {
    let file = "/proc/sys/kernel/hostname";
    let host = std::fs::read_to_string(file).at(file)?.trim().to_owned();
    if host.is_empty() || is_loopback(&host) {
        return Err(Failure::usage(format!(
            "this machine is called {host:?}, by which no other one reaches it: give --host HOST"
        )));
    }
    Ok(host)
}

fn own_name() -> Outcome<String> {
    let file = "/proc/sys/kernel/hostname";
    let host = std::fs::read_to_string(file).at(file)?;
    Ok(host.trim().split('.').next().unwrap_or_default().to_owned())
}

fn check_name(name: &str) -> Outcome {
    if RESERVED_NAMES.contains(&name) {
        return Err(Failure::usage(format!(
            "node name {name:?}: means something else in paths; give --name"
        )));
    }
    let checked = vazao_area::check_name(name);
    checked.map_err(|why| Failure::usage(format!("{}; give --name", why.replace("area name", "node name"))))
}

fn address(host: &str, port: u16) -> Outcome<String> {
    let address = format!("{host}:{port}");
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_plain = !host.contains(|c: char| ":/@".contains(c) || c.is_whitespace() || c.is_control());
    if is_address(&address) && (is_bracketed || is_plain) {
        return Ok(address);
    }
    Err(Failure::usage(format!(
        "--host {host}: a name or an address without a port (that is --port); IPv6 in brackets"
    )))
}

fn area(text: &str) -> Outcome<AreaSection> {
    let Some((name, path)) = text.split_once('=') else {
        return Err(Failure::usage(format!("--area {text}: write NAME=DIR")));
    };
    vazao_area::check_name(name).map_err(Failure::usage)?;
    let path = std::fs::canonicalize(path).at(path)?;
    if !path.is_dir() {
        return Err(Failure::new(format!("{}: not a directory; an area is one", path.display())));
    }
    Ok(AreaSection { name: name.to_owned(), path, read_only: false, owner: None, mounted_at: None })
}

/// Directories for data: they may be made by the node, but not the ones above them, which are where disks are mounted.
fn targets(directories: &[PathBuf]) -> Outcome<Option<DataSection>> {
    let mut targets: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let path = std::path::absolute(directory).at(directory.display())?;
        let shown = path.display();
        let above = path.parent().unwrap_or(Path::new("/"));
        if !above.is_dir() {
            return Err(Failure::new(format!(
                "--data {shown}: {} is not there; mount the disk first, or make the directory",
                above.display()
            )));
        }
        if path.exists() {
            check_contents(&path)?;
        }
        if targets.contains(&path) {
            return Err(Failure::usage(format!("--data {shown}: named twice")));
        }
        // What is not there yet will be where the directory above it is.
        let on = |path: &Path| if path.exists() { path.to_owned() } else { path.with_file_name("") };
        if let Some(other) = targets.iter().find(|other| is_same_disk(&on(other), &on(&path))) {
            eprintln!(
                "{shown}: on the same file system as {}; it adds neither rate nor space",
                other.display()
            );
        }
        targets.push(path);
    }
    Ok((!targets.is_empty()).then(|| DataSection { targets, ..DataSection::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_names_that_cannot_work_are_refused_with_what_would() {
        assert_eq!(address("host1", 7000), Ok("host1:7000".to_owned()));
        assert_eq!(address("[2001:db8::1]", 1), Ok("[2001:db8::1]:1".to_owned()));
        for host in ["host1:7000", "2001:db8::1", "a b", "", "root@host1"] {
            assert!(address(host, 7000).is_err(), "{host}");
        }
        assert!(check_name("data-7.a").is_ok());
        for name in ["vz", "", "a/b", "..", "node 1"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
