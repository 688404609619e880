//! The directory of a one-machine cluster.
//!
//! ```text
//! DIR/FORMAT              number of the format of all this
//! DIR/cluster.key         secret of the cluster, unless it runs with --insecure
//! DIR/client.toml         for clients
//! DIR/lock                held while nodes are being started
//! DIR/log/NAME.log        what each node has to say
//! DIR/nodes/NAME/         node.toml; member.json, which says what the node has had; lock and running.json while it
//!                         runs; trouble while it cannot register; its metadata or targets
//! ```

use crate::failure::{At, Failure, Outcome};
use crate::format::shell_quoted;
use crate::node::config::{CopySection, DataSection, LogSection, MetaSection, NodeConfig, RoleName};
use crate::node::files;
use crate::node::targets;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use vazao_wire::key::ClusterKey;

/// The format this program writes and reads.
pub(crate) const FORMAT: u32 = 1;

/// The words before the number, so that the file explains itself.
const FORMAT_PREFIX: &str = "vazao cluster directory, format ";

/// The metadata node's name.
pub(crate) const META_NAME: &str = "meta1";

/// Any free port of this machine.
const ANY_PORT: &str = "127.0.0.1:0";

/// A directory that holds a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterDirectory {
    root: PathBuf,
}

impl ClusterDirectory {
    /// The cluster in `root`, which has to exist.
    pub(crate) fn open(root: &Path) -> Outcome<ClusterDirectory> {
        let shown = root.display();
        let format = match fs::read_to_string(root.join("FORMAT")) {
            Ok(format) => format,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Failure::new(no_cluster(root)));
            }
            Err(error) => return Err(error).at(root.join("FORMAT").display()),
        };
        check_format(&format).map_err(|problem| Failure::new(format!("{shown}: {problem}")))?;
        Ok(ClusterDirectory { root: fs::canonicalize(root).at(&shown)? })
    }

    /// The cluster in `root`; makes a new one where there is nothing yet.
    pub(crate) fn open_or_create(root: &Path, insecure: bool) -> Outcome<ClusterDirectory> {
        let shown = root.display();
        if root.join("FORMAT").exists() {
            return ClusterDirectory::open(root);
        }
        fs::DirBuilder::new().recursive(true).mode(0o755).create(root).at(&shown)?;
        let mut entries = fs::read_dir(root).at(&shown)?;
        if entries.next().is_some() {
            return Err(Failure::new(format!(
                "{shown}: is not empty and holds no Vazão cluster; give a new or an empty directory"
            )));
        }
        let directory = ClusterDirectory { root: fs::canonicalize(root).at(&shown)? };
        for name in ["log", "nodes"] {
            let path = directory.root.join(name);
            fs::create_dir(&path).at(path.display())?;
        }
        if !insecure {
            let key = ClusterKey::generate().at("making the cluster key")?;
            key.save(&directory.key_file()).at(directory.key_file().display())?;
        }
        // Last, so that a directory with this file is complete.
        files::replace(&directory.root.join("FORMAT"), &format!("{FORMAT_PREFIX}{FORMAT}\n"))?;
        Ok(directory)
    }

    /// The directory itself, absolute.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The cluster's secret.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.root.join("cluster.key")
    }

    /// What clients are given.
    pub(crate) fn client_file(&self) -> PathBuf {
        self.root.join("client.toml")
    }

    /// Held while nodes are being started.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// True when the cluster was made to run without a key.
    pub(crate) fn is_insecure(&self) -> bool {
        !self.key_file().exists()
    }

    /// A node's place.
    pub(crate) fn node(&self, name: &str) -> NodePlace {
        NodePlace {
            name: name.to_owned(),
            directory: self.root.join("nodes").join(name),
            log: self.root.join("log").join(format!("{name}.log")),
        }
    }

    /// All nodes: the metadata node, then the data servers by number.
    pub(crate) fn nodes(&self) -> Outcome<Vec<NodePlace>> {
        let path = self.root.join("nodes");
        let mut names = Vec::new();
        for entry in fs::read_dir(&path).at(path.display())? {
            let name = entry.at(path.display())?.file_name().to_string_lossy().into_owned();
            if path.join(&name).join("node.toml").exists() {
                names.push(name);
            }
        }
        names.sort_by_key(|name| (name != META_NAME, name.len(), name.clone()));
        Ok(names.iter().map(|name| self.node(name)).collect())
    }

    /// Makes the metadata node, with its configuration but nothing in it.
    pub(crate) fn add_meta(&self) -> Outcome {
        let node = self.node(META_NAME);
        let meta = Some(MetaSection { directory: PathBuf::from("meta") });
        self.add(&node, NodeConfig { meta, ..self.config(META_NAME, RoleName::Meta) })
    }

    /// Makes data server number `number`.
    pub(crate) fn add_data(&self, number: usize) -> Outcome {
        let node = self.node(&format!("data{number}"));
        let data = Some(DataSection { targets: vec![PathBuf::from("target1")], ..DataSection::default() });
        self.add(&node, NodeConfig { data, ..self.config(&node.name, RoleName::Data) })
    }

    fn add(&self, node: &NodePlace, config: NodeConfig) -> Outcome {
        fs::create_dir_all(&node.directory).at(node.directory.display())?;
        config.save(&node.config_file())
    }

    fn config(&self, name: &str, role: RoleName) -> NodeConfig {
        NodeConfig {
            name: name.to_owned(),
            roles: vec![role],
            listen: ANY_PORT.to_owned(),
            advertise: None,
            zone: String::new(),
            other_port_if_taken: true,
            // Written before each start; a file without any would be refused.
            metadata: if role == RoleName::Meta { Vec::new() } else { vec![ANY_PORT.to_owned()] },
            key_file: (!self.is_insecure()).then(|| PathBuf::from("../../cluster.key")),
            metrics: Some(ANY_PORT.to_owned()),
            // Where `NodePlace` looks for it, whatever the directory.
            state_dir: Some(PathBuf::from(".")),
            threads: 0,
            channels_max: None,
            descriptors_max: None,
            meta: None,
            zones: BTreeMap::new(),
            line: Vec::new(),
            data: None,
            copy: CopySection::default(),
            luarpc: None,
            log: LogSection::default(),
            area: Vec::new(),
        }
    }
}

/// Where one node of the cluster keeps its things.
#[derive(Clone, Debug)]
pub(crate) struct NodePlace {
    /// Its name.
    pub(crate) name: String,
    /// Its directory.
    pub(crate) directory: PathBuf,
    /// Its log.
    pub(crate) log: PathBuf,
}

impl NodePlace {
    /// Its configuration.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.directory.join("node.toml")
    }

    /// The directories of its targets, absolute.
    pub(crate) fn target_directories(&self) -> Outcome<Vec<PathBuf>> {
        let config = NodeConfig::load(&self.config_file())?;
        let fixed = config.data.map_or(Vec::new(), |section| section.targets);
        targets::all(&fixed, &self.directory)
    }

    /// Its process, while it runs.
    pub(crate) fn process(&self) -> Outcome<Option<u32>> {
        files::holder(&self.directory.join("lock"))
    }

    /// Where it writes why it cannot register.
    pub(crate) fn trouble_file(&self) -> PathBuf {
        files::trouble_file(&self.directory)
    }

    /// What it tells while it runs.
    pub(crate) fn notice(&self) -> Option<files::Notice> {
        files::Notice::load(&self.directory.join("running.json"))
    }
}

/// What to do about a directory that holds no cluster. A new one is made in a new or empty directory only.
fn no_cluster(root: &Path) -> String {
    let shown = root.display();
    let is_empty = fs::read_dir(root).map_or(true, |mut entries| entries.next().is_none());
    if root.join("node.toml").exists() {
        return format!(
            "{shown}: is the directory of a node, not of a cluster of `vazao up`; the node is started and stopped by \
             `systemctl start vazao` and `systemctl stop vazao`"
        );
    }
    if !is_empty {
        return format!(
            "{shown}: holds no Vazão cluster; give the directory that `vazao up --dir DIR` was given"
        );
    }
    let typed = shell_quoted(&root.to_string_lossy());
    format!("{shown}: holds no Vazão cluster; `vazao up --dir {typed}` makes one")
}

fn check_format(text: &str) -> Result<(), String> {
    let number = text.trim_end().strip_prefix(FORMAT_PREFIX).and_then(|number| number.parse::<u32>().ok());
    match number {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(format!(
            "a cluster directory of format {newer}, written by a newer vazao; this one understands format {FORMAT}: use the newer program"
        )),
        Some(older) => Err(format!(
            "a cluster directory of format {older}, written by an older vazao; this one understands format {FORMAT}: copy the data out with the older program and into a new cluster"
        )),
        None => Err("its file FORMAT is not one of Vazão's; give another directory".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::examples::wrong_remedies;

    fn message(outcome: Outcome<ClusterDirectory>) -> String {
        outcome.expect_err("refused").message().expect("has a message").to_owned()
    }

    #[test]
    fn a_directory_is_made_once_and_found_again() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = root.path().join("new/cluster");
        let made = ClusterDirectory::open_or_create(&path, false).expect("made");
        let key = fs::read_to_string(made.key_file()).expect("has a key");
        let again = ClusterDirectory::open_or_create(&path, false).expect("found");
        assert_eq!(fs::read_to_string(again.key_file()).expect("has a key"), key);
    }

    #[test]
    fn other_peoples_directories_are_left_alone() {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::write(root.path().join("thesis"), "years").expect("written");
        assert!(message(ClusterDirectory::open_or_create(root.path(), false)).contains("not empty"));
        assert!(message(ClusterDirectory::open(root.path())).contains("holds no Vazão cluster"));
    }

    /// `vazao down --dir /etc/vazao` proposed `vazao up --dir /etc/vazao`, which was refused.
    #[test]
    fn a_directory_without_a_cluster_is_proposed_for_one_only_where_that_works() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let proposed = |path: &Path| {
            let message = message(ClusterDirectory::open(path));
            assert_eq!(wrong_remedies(&message), Vec::<String>::new(), "{message}");
            let typed = format!("`vazao up --dir {}`", shell_quoted(&path.to_string_lossy()));
            let is_proposed = message.contains(&typed);
            let is_possible = ClusterDirectory::open_or_create(path, true).is_ok();
            assert_eq!(is_proposed, is_possible, "{message}");
            message
        };
        let [new, empty, full, node] = ["new", "empty", "full", "node"].map(|name| root.path().join(name));
        [&empty, &full, &node].iter().for_each(|path| fs::create_dir(path).expect("made"));
        fs::write(full.join("thesis"), "years").expect("written");
        fs::write(node.join("node.toml"), "").expect("written");
        for path in [&new, &empty, &full] {
            proposed(path);
        }
        assert!(proposed(&node).contains("systemctl"), "{}", proposed(&node));
    }

    #[test]
    fn directories_of_other_formats_are_refused_with_a_clear_word() {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (format, word) in [("2", "newer"), ("0", "older"), ("x", "not one of")] {
            fs::write(root.path().join("FORMAT"), format!("{FORMAT_PREFIX}{format}\n")).expect("written");
            assert!(message(ClusterDirectory::open(root.path())).contains(word), "{format}");
        }
    }

    #[test]
    fn nodes_come_in_the_order_they_are_started_in() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = root.path().join("c");
        let directory = ClusterDirectory::open_or_create(&path, true).expect("made");
        for number in [10, 2, 1] {
            directory.add_data(number).expect("added");
        }
        directory.add_meta().expect("added");
        let names: Vec<String> = directory.nodes().expect("listed").into_iter().map(|n| n.name).collect();
        assert_eq!(names, ["meta1", "data1", "data2", "data10"]);
    }
}
