//! The configuration of one node, `node.toml`. Paths in it are relative to the directory it lies in.

use super::calls::LuarpcSection;
use crate::failure::{At, Failure, Outcome};
use crate::process::logging::Form;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use vazao_client::config::is_address;
use vazao_model::Role;
use vazao_model::zone::Line;
use vazao_model::zone::{self, ZoneRanges};

/// What `node.toml` says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeConfig {
    /// Unique in the cluster.
    pub(crate) name: String,
    /// What the node does: "meta", "data", "area" or several of them. Any node exports areas once it has some.
    pub(crate) roles: Vec<RoleName>,
    /// `host:port` to serve on; port 0 takes a free one.
    pub(crate) listen: String,
    /// `host:port` that others reach it at, where `listen` is a wildcard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) advertise: Option<String>,
    /// The zone that the node is in: nodes and clients that name the same one are near one another. Without it, that of
    /// its address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) zone: String,
    /// When the port of `listen` is taken, take any other.
    #[serde(default, skip_serializing_if = "is_no")]
    pub(crate) other_port_if_taken: bool,
    /// The metadata service: `host:port`. Not needed by a node that is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) metadata: Vec<String>,
    /// The cluster key. Only `--insecure` does without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    /// `host:port` of /metrics and /healthz; none are served without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<String>,
    /// Where it keeps what it remembers, jobs and journals of copies; `state.rs` has the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Threads that serve requests; 0: as many as CPUs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) threads: usize,
    /// Open channels into files of areas; the next one is refused. 100,000 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) channels_max: Option<usize>,
    /// Files kept open for channels; a quarter of the process's limit by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) descriptors_max: Option<usize>,
    /// For the role "meta".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) meta: Option<MetaSection>,
    /// For the role "meta": of each zone the ranges of addresses of nodes and clients that name none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) zones: BTreeMap<String, Vec<String>>,
    /// For the role "meta": lines between zones that carry little.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) line: Vec<LineSection>,
    /// For the role "data".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<DataSection>,
    /// Copies between nodes.
    #[serde(default, skip_serializing_if = "CopySection::is_default")]
    pub(crate) copy: CopySection,
    /// Remote calls; none are answered without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) luarpc: Option<LuarpcSection>,
    /// Logs.
    #[serde(default, skip_serializing_if = "LogSection::is_default")]
    pub(crate) log: LogSection,
    /// Directories that are exported in place; `vazao area add` keeps its own in areas.toml.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) area: Vec<AreaSection>,
}

/// A role as the file names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RoleName {
    /// Serves metadata.
    Meta,
    /// Serves data.
    Data,
    /// Exports directories.
    Area,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Meta => Role::Meta,
            RoleName::Data => Role::Data,
            RoleName::Area => Role::Area,
        }
    }
}

/// `[[line]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LineSection {
    /// At its ends.
    pub(crate) zones: [String; 2],
    /// What it carries each way: "2 Mb/s".
    pub(crate) rate: String,
}

/// `[meta]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetaSection {
    /// Where the metadata lies.
    pub(crate) directory: PathBuf,
}

/// `[data]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataSection {
    /// One directory for each disk.
    pub(crate) targets: Vec<PathBuf>,
    /// Space of each target's file system that is left alone, as a size: "1GiB".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reserve: Option<String>,
    /// The node starts although targets that it had are missing, and serves the others.
    #[serde(default, skip_serializing_if = "is_no")]
    pub(crate) without_missing: bool,
    /// Clients on this machine are handed descriptors and read without the server.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub(crate) short_circuit: bool,
}

impl Default for DataSection {
    fn default() -> DataSection {
        DataSection { targets: Vec::new(), reserve: None, without_missing: false, short_circuit: true }
    }
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

fn is_no(value: &bool) -> bool {
    !*value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

/// `[copy]`: how this node takes part in copies.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopySection {
    /// `host:port` for data connections; by default a free port beside that of `listen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,
    /// Files that arrive at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copies_in_max: Option<usize>,
    /// Files sent at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copies_out_max: Option<usize>,
    /// Of them to one other node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copies_pair_max: Option<usize>,
}

impl CopySection {
    fn is_default(&self) -> bool {
        *self == CopySection::default()
    }

    /// What the mover of a node is opened with.
    pub(crate) fn options(&self, name: &str, listen: &str, directory: &Path) -> vazao_mover::Options {
        let listen = self.listen.clone().unwrap_or_else(|| any_port(listen));
        let mut options = vazao_mover::Options::new(name, directory.to_owned(), &listen);
        let set = |place: &mut usize, given: Option<usize>| *place = given.unwrap_or(*place).max(1);
        set(&mut options.copies_in_max, self.copies_in_max);
        set(&mut options.copies_out_max, self.copies_out_max);
        set(&mut options.copies_pair_max, self.copies_pair_max);
        options
    }
}

/// `[log]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogSection {
    /// Level, unless the command line or the environment says otherwise; "info" by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) level: Option<String>,
    /// "text" or "json".
    #[serde(default)]
    pub(crate) format: Form,
}

impl LogSection {
    fn is_default(&self) -> bool {
        *self == LogSection::default()
    }
}

/// One `[[area]]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AreaSection {
    /// Its name in `NODE:/NAME/path`.
    pub(crate) name: String,
    /// The directory.
    pub(crate) path: PathBuf,
    /// Nothing in it can be changed through the node.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// `USER[:GROUP]`, whose files are that are made in it; names of this machine's /etc/passwd, or numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    /// Where the file system is mounted that it lies on; without that nothing is exported. `vazao area add` notes it,
    /// and a node remembers it of those in its node.toml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mounted_at: Option<PathBuf>,
}

/// `host:0` for a `host:port` whose port is taken.
pub(crate) fn any_port(listen: &str) -> String {
    listen.rsplit_once(':').map_or_else(|| listen.to_owned(), |(host, _)| format!("{host}:0"))
}

impl NodeConfig {
    /// Reads and checks a file. Its relative paths come back joined to its directory.
    pub(crate) fn load(file: &Path) -> Outcome<NodeConfig> {
        let mut config = NodeConfig::read(file)?;
        let directory = file.parent().unwrap_or(Path::new("."));
        let join = |path: &mut PathBuf| *path = directory.join(&*path);
        config.key_file.iter_mut().for_each(join);
        config.luarpc.iter_mut().flat_map(|luarpc| &mut luarpc.secret_file).for_each(join);
        config.meta.iter_mut().for_each(|meta| join(&mut meta.directory));
        config.data.iter_mut().flat_map(|data| &mut data.targets).for_each(join);
        Ok(config)
    }

    /// Reads and checks a file and leaves its paths as they are written.
    pub(crate) fn read(file: &Path) -> Outcome<NodeConfig> {
        let shown = file.display();
        let text = fs::read_to_string(file).at(&shown)?;
        NodeConfig::parse(&text).map_err(|problem| Failure::new(format!("{shown}: {problem}")))
    }

    /// Reads and checks the text of a file. Errors: what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<NodeConfig, String> {
        let config: NodeConfig = toml::from_str(text).map_err(|e| e.to_string())?;
        config.check()?;
        Ok(config)
    }

    /// Writes the file whole or not at all.
    pub(crate) fn save(&self, file: &Path) -> Outcome {
        let text = toml::to_string(self).map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
        super::files::replace(file, &text)
    }

    /// True when the node has this role.
    pub(crate) fn has(&self, role: RoleName) -> bool {
        self.roles.contains(&role)
    }

    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err("name is empty; give the node a name that no other one of the cluster has".to_owned());
        }
        let is_file_name = Path::new(&self.name).file_name().is_some_and(|name| name == self.name.as_str());
        if !is_file_name || self.name.chars().any(char::is_control) {
            return Err(format!(
                "name {:?} cannot be the name of a directory; use letters and digits",
                self.name
            ));
        }
        if !self.zone.is_empty() {
            zone::check_name(&self.zone)?;
        }
        ZoneRanges::new(&self.zones).map_err(|why| format!("section [zones]: {why}"))?;
        self.lines().map_err(|why| format!("section [[line]]: {why}"))?;
        if self.roles.is_empty() {
            return Err(
                "roles is empty; write roles = [\"meta\"], [\"data\"], [\"area\"] or several".to_owned()
            );
        }
        self.check_sections()?;
        self.check_metadata()?;
        if let Some(reserve) = self.data.as_ref().and_then(|data| data.reserve.as_ref()) {
            vazao_model::size::parse_size(reserve).map_err(|e| format!("reserve: {e}"))?;
        }
        self.luarpc.iter().try_for_each(LuarpcSection::check)?;
        self.check_addresses()
    }

    /// The lines between zones.
    pub(crate) fn lines(&self) -> Result<Vec<Line>, String> {
        let read = |section: &LineSection| {
            section.rate.parse().map(|rate| Line { zones: section.zones.clone(), rate })
        };
        let lines = self.line.iter().map(read).collect::<Result<Vec<Line>, String>>()?;
        Line::check_all(&lines).map(|()| lines)
    }

    /// A section that no role uses would be left aside without a word, and with it the disks that it names.
    fn check_sections(&self) -> Result<(), String> {
        let unused = |section: &str, role: &str| {
            let section =
                format!("section [{section}] is used by the role {role}, which this node does not have");
            format!("{section}; add \"{role}\" to roles, or remove the section")
        };
        match (self.has(RoleName::Meta), &self.meta) {
            (true, None) => return Err("role meta needs a section [meta] with directory = \"…\"".to_owned()),
            (false, Some(_)) => return Err(unused("meta", "meta")),
            (false, None) if !self.zones.is_empty() => return Err(unused("zones", "meta")),
            (false, None) if !self.line.is_empty() => return Err(unused("[line]", "meta")),
            _ => {}
        }
        let targets = self.data.as_ref().map(|data| data.targets.len());
        match (self.has(RoleName::Data), targets) {
            (true, None | Some(0)) => {
                Err("role data needs a section [data] with targets = [\"…\"]".to_owned())
            }
            (false, Some(_)) => Err(unused("data", "data")),
            _ => Ok(()),
        }
    }

    /// A node with the role meta has a volume of its own and joins no other: one that names another metadata service
    /// would begin a second, empty volume, and what is written to it would not be found.
    fn check_metadata(&self) -> Result<(), String> {
        if !self.has(RoleName::Meta) {
            let none = "metadata is empty; write metadata = [\"host:port\"] of the metadata service";
            return if self.metadata.is_empty() { Err(none.to_owned()) } else { Ok(()) };
        }
        let is_own = |address: &String| *address == self.listen || Some(address) == self.advertise.as_ref();
        let Some(other) = self.metadata.iter().find(|address| !is_own(address)) else { return Ok(()) };
        let others: Vec<String> =
            self.roles.iter().filter(|role| **role != RoleName::Meta).map(quoted).collect();
        let roles = match others.is_empty() {
            true => "[\"data\"] or [\"area\"]".to_owned(),
            false => format!("[{}]", others.join(", ")),
        };
        Err(format!(
            "role meta begins a volume of its own, and metadata names the metadata service of another one, {other}; a \
             cluster has one metadata service. To join that one, write roles = {roles} and remove the section [meta]; \
             for a volume of its own, remove the line metadata"
        ))
    }

    /// Has remote calls answered at `[HOST:]PORT`; without a host, on this machine only.
    pub(crate) fn answer_calls_at(&mut self, at: &str) -> Outcome {
        let listen = if at.contains(':') { at.to_owned() } else { format!("127.0.0.1:{at}") };
        let before = self.luarpc.take();
        let (write, secret_file) =
            before.map_or((false, None), |section| (section.write, section.secret_file));
        let section = LuarpcSection { listen, write, secret_file };
        let checked = section.check();
        self.luarpc = Some(section);
        checked.map_err(|problem| Failure::usage(format!("--luarpc {at}: {problem}")))
    }

    fn check_addresses(&self) -> Result<(), String> {
        let mut addresses = vec![("listen", &self.listen)];
        addresses.extend(self.advertise.iter().map(|address| ("advertise", address)));
        addresses.extend(self.metadata.iter().map(|address| ("metadata", address)));
        addresses.extend(self.metrics.iter().map(|address| ("metrics", address)));
        addresses.extend(self.copy.listen.iter().map(|address| ("[copy] listen", address)));
        if let Some((key, wrong)) = addresses.iter().find(|(_, address)| !is_address(address)) {
            return Err(format!("{key} has \"{wrong}\", which is not \"host:port\""));
        }
        let wildcard = ["0.0.0.0:", "[::]:"].iter().any(|prefix| self.listen.starts_with(prefix));
        if wildcard && self.advertise.is_none() {
            return Err(format!(
                "listen = \"{}\" is a wildcard; add advertise = \"host:port\" that other machines reach this node at",
                self.listen
            ));
        }
        Ok(())
    }
}

/// A role as node.toml has it.
fn quoted(role: &RoleName) -> String {
    format!("\"{}\"", Role::from(*role).name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Outcome<NodeConfig> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("node.toml");
        fs::write(&file, text).expect("written");
        NodeConfig::load(&file)
    }

    const DATA: &str = "name = \"d\"\nroles = [\"data\"]\nlisten = \"127.0.0.1:0\"\nmetadata = [\"m:1\"]\n";

    #[test]
    fn relative_paths_start_at_the_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("node.toml");
        fs::write(&file, format!("{DATA}key_file = \"k\"\n[data]\ntargets = [\"t\", \"/abs\"]\n"))
            .expect("written");
        let config = NodeConfig::load(&file).expect("valid");
        assert_eq!(config.key_file, Some(directory.path().join("k")));
        let targets = config.data.map(|data| data.targets);
        assert_eq!(targets, Some(vec![directory.path().join("t"), PathBuf::from("/abs")]));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let config: NodeConfig =
            toml::from_str(&format!("{DATA}[data]\ntargets = [\"t\"]\n")).expect("valid");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("node.toml");
        config.save(&file).expect("saved");
        assert_eq!(NodeConfig::read(&file), Ok(config));
    }

    /// A second node with the role meta and `metadata` of the first began an empty volume of its own, and said nothing.
    #[test]
    fn a_node_with_metadata_of_its_own_does_not_name_that_of_another_one() {
        let meta =
            "name = \"m2\"\nroles = [\"meta\"]\nlisten = \"0.0.0.0:7000\"\nadvertise = \"host2:7000\"\n";
        let with = |roles: &str, metadata: &str| {
            let text = format!(
                "{meta}metadata = [\"{metadata}\"]\n[meta]\ndirectory = \"m\"\n[data]\ntargets = [\"t\"]\n"
            );
            read(&text.replace("[\"meta\"]", roles))
        };
        let refused = |roles| with(roles, "host1:7000").expect_err("refused").message().map(str::to_owned);
        let refused = |roles| refused(roles).expect("has a message");
        assert!(refused("[\"meta\", \"data\"]").contains("host1:7000"));
        assert!(
            refused("[\"meta\", \"data\"]")
                .contains("write roles = [\"data\"] and remove the section [meta]")
        );
        assert!(refused("[\"data\", \"meta\", \"area\"]").contains("roles = [\"data\", \"area\"]"));
        assert!(with("[\"meta\", \"data\"]", "host2:7000").is_ok(), "it may name itself");
    }

    #[test]
    fn a_section_that_no_role_uses_is_refused_instead_of_left_aside() {
        let data = format!("{DATA}[data]\ntargets = [\"t\"]\n");
        let area = data.replace("[\"data\"]", "[\"area\"]");
        for (text, role) in [(format!("{data}[meta]\ndirectory = \"m\"\n"), "meta"), (area, "data")] {
            let message = read(&text).expect_err("refused").message().expect("has a message").to_owned();
            assert!(message.contains(&format!("add \"{role}\" to roles")), "{message}");
        }
    }

    #[test]
    fn mistakes_are_named_with_the_file_and_what_to_write() {
        let cases = [
            (DATA.to_owned(), "targets"),
            (format!("{DATA}[data]\ntargets = [\"t\"]\nreserve = \"much\"\n"), "reserve"),
            (format!("{DATA}colour = 1\n"), "colour"),
            (format!("{DATA}zone = \"a b\"\n"), "zone name \"a b\""),
            (DATA.replace("\"d\"", "\"../d\""), "../d"),
            (DATA.replace("\"data\"", "\"cook\""), "cook"),
            (DATA.replace("127.0.0.1", "0.0.0.0") + "[data]\ntargets = [\"t\"]\n", "advertise"),
            (DATA.replace("\"m:1\"", "") + "[data]\ntargets = [\"t\"]\n", "metadata"),
            (DATA.replace("m:1", "m") + "[data]\ntargets = [\"t\"]\n", "host:port"),
            (
                DATA.replace("metadata", "advertise = \"h\"\nmetadata") + "[data]\ntargets = [\"t\"]\n",
                "advertise",
            ),
        ];
        for (text, expected) in cases {
            let failure = read(&text).expect_err("refused");
            let message = failure.message().expect("has a message");
            assert!(message.contains("node.toml") && message.contains(expected), "{expected}: {message}");
        }
    }
}
