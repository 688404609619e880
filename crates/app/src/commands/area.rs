//! `vazao area`: which directories of a node are exported. To change that one needs the node's own files; the network
//! key is not enough.

use super::node::SYSTEM_DIRECTORY;
use super::status::{area_json, area_table, areas};
use crate::cli::Results;
use crate::cluster::directory::{ClusterDirectory, META_NAME};
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format::shell_quoted;
use crate::node::areas::AreasFile;
use crate::node::config::{AreaSection, NodeConfig};
use crate::node::files::Lock;
use crate::node::owners;
use crate::output::Output;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vazao_client::{Client, Config};
use vazao_meter::Clock;

/// A running node looks at its areas once a second.
const EFFECT_MS_MAX: u64 = 5_000;

/// How often one looks whether it has.
const POLL: Duration = Duration::from_millis(50);

/// Arguments of `vazao area`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Export a directory of this machine under a name
    #[command(
        after_help = "Examples:\n  vazao area add data /srv/data                     of the node of this machine\n  vazao area add data ~/data --read-only --dir /tmp/v\n  vazao area add in /srv/in --owner ana:lab --node-config /etc/vazao/node.toml\n\nFrom then on NODE:/data/… names what is in it. A running node notices within a second."
    )]
    Add {
        /// Its name in NODE:/NAME/path
        name: String,
        /// The directory
        directory: PathBuf,
        /// Nothing in it can be changed through the node
        #[arg(long)]
        read_only: bool,
        /// Whose the files are that are made in it, names or numbers; the node has to run as that user or as root
        #[arg(long, value_name = "USER[:GROUP]")]
        owner: Option<String>,
        #[command(flatten)]
        node: OfNode,
    },
    /// Export a directory no longer; it stays as it is
    #[command(after_help = "Example:\n  vazao area remove data")]
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        node: OfNode,
    },
    /// List what the nodes of the cluster export
    #[command(after_help = "Examples:\n  vazao area list\n  vazao area list --json | jq .area")]
    List {
        #[command(flatten)]
        results: Results,
    },
}

/// Which node, by its files.
#[derive(Debug, Args)]
pub(super) struct OfNode {
    /// The node's configuration [default: the one beside the client.toml in use, else /etc/vazao/node.toml]
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    node_config: Option<PathBuf>,
    /// The directory of a cluster that `vazao up` made [default: where the client.toml in use is, if it is one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Of a cluster of `vazao up`: which of its nodes [default: its first data server]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

/// A node's files.
pub(super) struct NodeFiles {
    pub(super) name: String,
    pub(super) directory: PathBuf,
    pub(super) config: NodeConfig,
    /// The options that name it, as a person types them behind a command.
    pub(super) typed: String,
    /// For asking the node whether it has noticed, where a client.toml is at hand.
    pub(super) client_file: Option<PathBuf>,
    /// Of the cluster that it is of, running or not, where its directory says that.
    pub(super) cluster_file: Option<PathBuf>,
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    match arguments.what {
        What::Add { name, directory, read_only, owner, node } => {
            owner.as_deref().map(owners::find).transpose()?;
            let section = AreaSection { name, path: directory, read_only, owner, mounted_at: None };
            add(&node.find(context)?, section)
        }
        What::Remove { name, node } => remove(&node.find(context)?, &name),
        What::List { results } => list(context, results),
    }
}

/// The configuration of a node of its own, in its directory.
const NODE_FILE: &str = "node.toml";

impl OfNode {
    pub(super) fn find(&self, context: &Context) -> Outcome<NodeFiles> {
        if let Some(file) = &self.node_config {
            return self.of_file(file);
        }
        if let Some(root) = &self.dir {
            return self.in_directory(root);
        }
        // Who has a cluster in use means it, and on a node's machine the node.
        let in_use = context.cluster_file().ok().and_then(|file| file.parent().map(Path::to_owned));
        let places = in_use.into_iter().chain([PathBuf::from(SYSTEM_DIRECTORY)]);
        self.in_one_of(places)
    }

    /// The node of the first of `places` that has one.
    fn in_one_of(&self, places: impl Iterator<Item = PathBuf>) -> Outcome<NodeFiles> {
        let is_one =
            |place: &PathBuf| place.join(NODE_FILE).exists() || ClusterDirectory::open(place).is_ok();
        match places.into_iter().find(is_one) {
            Some(place) => self.in_directory(&place),
            None => Err(Failure::usage(format!(
                "which node? This machine has no {SYSTEM_DIRECTORY}/{NODE_FILE}: give --node-config FILE, or the --dir DIR \
                 that `vazao up --dir DIR` was given"
            ))),
        }
    }

    fn in_directory(&self, root: &Path) -> Outcome<NodeFiles> {
        let file = root.join(NODE_FILE);
        if file.exists() { self.of_file(&file) } else { self.in_cluster(root) }
    }

    fn of_file(&self, file: &Path) -> Outcome<NodeFiles> {
        let config = NodeConfig::load(file)?;
        let file = std::path::absolute(file).at(file.display())?;
        if let Some(wanted) = self.node.as_ref().filter(|wanted| **wanted != config.name) {
            let (shown, name) = (file.display(), &config.name);
            return Err(Failure::usage(format!(
                "{shown}: is of node {name}, not of {wanted}: leave --node out"
            )));
        }
        let directory = file.parent().unwrap_or(Path::new("/")).to_owned();
        let typed = format!(" --node-config {}", shell_quoted(&file.to_string_lossy()));
        let (name, client_file, cluster_file) = (config.name.clone(), None, None);
        Ok(NodeFiles { name, directory, config, typed, client_file, cluster_file })
    }

    fn in_cluster(&self, root: &Path) -> Outcome<NodeFiles> {
        let cluster = ClusterDirectory::open(root)?;
        let nodes = cluster.nodes()?;
        let is_meant = |name: &str| match &self.node {
            Some(wanted) => name == wanted,
            None => name != META_NAME,
        };
        let Some(node) = nodes.iter().find(|node| is_meant(&node.name)) else {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            let wanted = self.node.as_deref().unwrap_or("a data server");
            return Err(Failure::new(format!(
                "{}: has no node {wanted}; there are {}",
                root.display(),
                names.join(", ")
            )));
        };
        let config = NodeConfig::load(&node.config_file())?;
        let client_file = node.process()?.is_some().then(|| cluster.client_file());
        let (name, directory) = (node.name.clone(), node.directory.clone());
        let typed = format!(" --dir {} --node {name}", shell_quoted(&cluster.root().to_string_lossy()));
        let cluster_file = Some(cluster.client_file());
        Ok(NodeFiles { name, directory, config, typed, client_file, cluster_file })
    }
}

impl NodeFiles {
    /// Changes areas.toml; two of us at once take turns.
    fn change(&self, change: impl FnOnce(&mut Vec<AreaSection>) -> Outcome) -> Outcome {
        let lock = self.directory.join("areas.lock");
        let clock = vazao_meter::SystemClock;
        let deadline_ns = clock.now_ns() + EFFECT_MS_MAX * 1_000_000;
        let _lock = loop {
            match Lock::take(&lock)? {
                Some(lock) => break lock,
                None if clock.now_ns() > deadline_ns => {
                    return Err(Failure::new(format!("{}: held by another `vazao area`", lock.display())));
                }
                None => clock.sleep(POLL),
            }
        };
        let mut file = AreasFile::load(&self.directory)?;
        change(&mut file.area)?;
        file.save(&self.directory)
    }

    /// Waits until the running node exports the area, or does no more. Returns why it cannot be used, if so.
    fn wait(&self, name: &str, is_exported: bool) -> Outcome<Option<String>> {
        let Some(file) = &self.client_file else { return Ok(None) };
        let client = Client::connect(&Config::load(file)?)?;
        let clock = vazao_meter::SystemClock;
        let deadline_ns = clock.now_ns() + EFFECT_MS_MAX * 1_000_000;
        loop {
            let areas = client.areas(&self.name)?;
            let found = areas.iter().find(|area| area.name == name);
            if found.is_some() == is_exported {
                let trouble = found.map(|area| area.trouble.clone()).filter(|trouble| !trouble.is_empty());
                client.close()?;
                return Ok(trouble);
            }
            if clock.now_ns() > deadline_ns {
                return Err(Failure::new(format!(
                    "node {} runs and has not taken over {}; its log says why",
                    self.name,
                    AreasFile::path(&self.directory).display()
                )));
            }
            clock.sleep(POLL);
        }
    }
}

fn add(node: &NodeFiles, asked: AreaSection) -> Outcome {
    vazao_area::check_name(&asked.name).map_err(Failure::usage)?;
    let (name, read_only) = (asked.name.clone(), asked.read_only);
    let path = std::fs::canonicalize(&asked.path).at(asked.path.display())?;
    if !path.is_dir() {
        return Err(Failure::new(format!("{}: not a directory; an area is one", path.display())));
    }
    let fixed = node.config.area.iter().any(|area| area.name == name);
    let whose = asked.owner.as_ref().map(|owner| format!(", its new files {owner}'s")).unwrap_or_default();
    let mounted_at = Some(vazao_area::mount_point(&path).at(path.display())?);
    let section = AreaSection { path: path.clone(), mounted_at, ..asked };
    node.change(|areas| {
        if fixed || areas.iter().any(|area| area.name == name) {
            let (node, options) = (&node.name, &node.typed);
            return Err(Failure::new(format!(
                "node {node} has an area {name} already; `vazao area remove {name}{options}` first, or choose another name"
            )));
        }
        areas.push(section);
        Ok(())
    })?;
    if let Some(trouble) = node.wait(&name, true)? {
        // An area that cannot be used is removed again.
        node.change(|areas| {
            areas.retain(|area| area.name != name);
            Ok(())
        })?;
        return Err(Failure::new(format!("{}:/{name}: {trouble}", node.name)));
    }
    let access = if read_only { ", read-only" } else { "" };
    println!("{}:/{name} is {}{access}{whose}", node.name, path.display());
    Ok(())
}

fn remove(node: &NodeFiles, name: &str) -> Outcome {
    if node.config.area.iter().any(|area| area.name == name) {
        return Err(Failure::new(format!(
            "area {name} of node {} is in its node.toml: take it out there and restart the node",
            node.name
        )));
    }
    node.change(|areas| {
        let before = areas.len();
        areas.retain(|area| area.name != name);
        if areas.len() == before {
            let names: Vec<&str> = areas.iter().map(|area| area.name.as_str()).collect();
            let there = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
            return Err(Failure::new(format!("node {} has no area {name}: {there}", node.name)));
        }
        Ok(())
    })?;
    node.wait(name, false)?;
    println!("{}:/{name} is not exported any more", node.name);
    Ok(())
}

fn list(context: &Context, results: Results) -> Outcome {
    let client = context.client()?;
    let map = client.refresh_map()?;
    client.close()?;
    let mut output = Output::new(results.json);
    if output.json {
        for (node, area) in areas(&map) {
            output.value(&json!({"node": node.name, "area": area_json(area)}))?;
        }
        return output.finish();
    }
    let table = area_table(&map);
    if table.is_empty() {
        output.line("no areas; `vazao area add NAME DIR` on a node's machine exports one")?;
    }
    output.text(&table)?;
    output.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::examples::wrong_remedies;

    fn of(dir: Option<&Path>, node: Option<&str>) -> OfNode {
        OfNode { node_config: None, dir: dir.map(Path::to_owned), node: node.map(str::to_owned) }
    }

    /// `area list` said "`vazao area add NAME DIR` on a node's machine", which was refused there without `--dir`; with
    /// `--dir /etc/vazao` it proposed `vazao up --dir /etc/vazao`.
    #[test]
    fn a_node_is_found_by_its_directory_and_where_nothing_else_is_named_by_the_one_in_use() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let (node, cluster) = (root.path().join("etc"), root.path().join("c"));
        std::fs::create_dir(&node).expect("made");
        let text = "name = \"n7\"\nlisten = \"n7:7001\"\nroles = [\"area\"]\nmetadata = [\"n1:7000\"]\n";
        std::fs::write(node.join(NODE_FILE), format!("{text}key_file = \"cluster.key\"\n")).expect("written");
        let made = ClusterDirectory::open_or_create(&cluster, false).expect("made");
        made.add_meta().expect("added");
        made.add_data(1).expect("added");
        assert_eq!(of(Some(&node), None).in_directory(&node).expect("found").name, "n7");
        let first =
            |places: &[&Path]| of(None, None).in_one_of(places.iter().map(|place| place.to_path_buf()));
        assert_eq!(first(&[root.path(), &node]).expect("found").name, "n7");
        let found = first(&[&cluster, &node]).expect("found");
        assert_eq!(found.name, "data1");
        assert!(
            found.typed.starts_with(" --dir ") && found.typed.ends_with("/c --node data1"),
            "{}",
            found.typed
        );
        let failure = first(&[root.path()]).err().expect("there is none");
        assert_eq!(wrong_remedies(failure.message().expect("said")), Vec::<String>::new());
        let other = of(None, Some("n8")).in_directory(&node).err().expect("another node");
        assert!(other.message().is_some_and(|message| message.contains("is of node n7, not of n8")));
    }
}
