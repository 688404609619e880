//! `vazao target`: gives a data server one more disk, or one in the place of a lost one, for which it needs the node's
//! own files; lists the files on one, and goes on with an old copy of one, for which the network key is enough.

mod files;
mod old;
mod replace;
mod search;

use super::area::{NodeFiles, OfNode};
use crate::cli::Results;
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::node::config::RoleName;
use crate::node::files::Lock;
use crate::node::opening;
use crate::node::targets::{Replaced, TargetsFile, all};
use clap::{Args, Subcommand};
use rustix::fs::{Access, access};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vazao_client::{Client, Config};
use vazao_meter::Clock;

/// A running node looks once a second, and reports every two seconds.
const EFFECT_MS_MAX: u64 = 15_000;

/// How often one looks whether it has.
const POLL: Duration = Duration::from_millis(50);

/// What may be in the directory of a target (docs/on-disk.md).
const OF_TARGETS: [&str; 13] = [
    "TARGET",
    "TARGET.new",
    "LOCK",
    "STATE",
    "INCARNATION",
    "BOOT",
    "FAILED",
    "FETCHING",
    "FETCHING.new",
    "SEALED",
    "objects",
    "groups",
    "lost+found",
];

/// Arguments of `vazao target`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Give a data server one more target directory, while it runs or before its next start
    #[command(
        after_help = "Examples:\n  vazao target add /disks/b/vazao                 to the node of this machine\n  vazao target add /disks/b/vazao --dir /tmp/v --node data2\n\nOne directory for each disk. New files are striped over all targets of all servers; existing ones stay where they are.\nThe directory is empty, or a target of this node. `vazao status` shows the targets."
    )]
    Add {
        /// The directory, on a disk of its own
        directory: PathBuf,
        #[command(flatten)]
        node: OfNode,
    },
    /// Have an empty directory take the place of a lost target, and make its copies again
    #[command(
        after_help = "Examples:\n  vazao target replace t3 /disks/new/vazao         of the node of this machine\n  vazao target replace t3 /disks/c/vazao --dir /tmp/v --node data2\n\nThe directory is empty: on a new disk, at the lost one's path or at another. It may be given while the node runs, and\nbefore its next start. The target keeps its number. It serves nothing until its copies are made again from the others,\nwhich `vazao status` shows. The lost directory is not taken back.\nFiles that have their only copy on the target are refused to be lost: `vazao target files t3 --lost` lists them."
    )]
    Replace {
        /// The lost target, as `vazao status` names it
        target: String,
        /// The empty directory
        directory: PathBuf,
        /// What has no other good copy is lost: reading such files fails, or shows what an older copy has
        #[arg(long)]
        yes_lose_last_copies: bool,
        #[command(flatten)]
        node: OfNode,
        #[command(flatten)]
        results: Results,
    },
    /// List the files that have bytes on a target, also when it is gone
    #[command(
        after_help = "Examples:\n  vazao target files t3\n  vazao target files t3 --lost > lost\n  vazao target files t3 --json | jq -r .path\n\nOne line for each name of a file, as it is found, behind how many other copies there are of what it has on the target;\n`lost` and `only copy` stand for none. The whole volume is looked through. The layouts tell, not the target.\nFiles up to 16 KiB are kept with the metadata, and lie on no target. What a program has written and not synced or closed\nyet may be missing."
    )]
    Files {
        /// The target, as `vazao status` names it
        target: String,
        /// Those without another copy only, by their names alone
        #[arg(long)]
        lost: bool,
        #[command(flatten)]
        results: Results,
    },
    /// Go on with a target whose disk is an older copy, or list what may be old on it
    #[command(
        after_help = "Examples:\n  vazao target accept-old t3                      lists the files that may be old\n  vazao target accept-old t3 --yes-lose-writes    serves it as it is\n\nFor a disk that was restored from an image and cannot be replaced by a newer one. Files that were written since read as\nthey were, or fail where they lie on other targets too; restore them from copies."
    )]
    AcceptOld {
        /// The target, as `vazao status` names it
        target: String,
        /// What was written to it since is lost
        #[arg(long)]
        yes_lose_writes: bool,
    },
}

/// Does it.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    match arguments.what {
        What::Add { directory, node } => add(&directory, &node.find(context)?),
        What::Replace { target, directory, yes_lose_last_copies: lose_last_copies, node, results } => {
            let wish = replace::Wish { target: &target, directory: &directory, lose_last_copies };
            replace::replace(context, &wish, &node, results)
        }
        What::Files { target, lost, results } => files::list(context, &target, lost, results),
        What::AcceptOld { target, yes_lose_writes } => old::accept(context, &target, yes_lose_writes),
    }
}

fn add(directory: &Path, node: &NodeFiles) -> Outcome {
    if !node.config.has(RoleName::Data) {
        return Err(Failure::new(format!("node {}: has no data role, and so no targets", node.name)));
    }
    let fixed = node.config.data.as_ref().map_or(Vec::new(), |data| data.targets.clone());
    let path = std::fs::canonicalize(directory).at(directory.display())?;
    let is_usable =
        path.is_dir() && access(&path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if !is_usable {
        return Err(Failure::new(format!("{}: not a directory that can be written to", path.display())));
    }
    check_contents(&path)?;
    let _turn = take_turn(&node.directory)?;
    let present = all(&fixed, &node.directory)?;
    if present.iter().any(|other| other.canonicalize().is_ok_and(|other| other == path)) {
        let shown = path.display();
        return Err(Failure::new(format!("{shown}: is a target of node {} already", node.name)));
    }
    if let Some(other) = present.iter().find(|other| is_same_disk(other, &path)) {
        let (path, other) = (path.display(), other.display());
        eprintln!("{path}: on the same file system as the target {other}; it adds neither rate nor space");
    }
    let client = match &node.client_file {
        Some(file) => Some(Client::connect(&Config::load(file)?)?),
        None => None,
    };
    let before = client.as_ref().map_or(Ok(0), |client| count(client, &node.name))?;
    let mut file = TargetsFile::load(&node.directory)?;
    refuse_former(&path, &file)?;
    file.lost.retain(|lost| *lost != path);
    file.targets.push(path.clone());
    file.save(&node.directory)?;
    if let Some(client) = client {
        if let Err(failure) = wait(&client, &node.name, before, &path) {
            // Left there it would keep the node from its next start.
            file.targets.retain(|target| *target != path);
            file.save(&node.directory)?;
            return Err(failure);
        }
        client.close()?;
    }
    println!("{} is a target of node {}", path.display(), node.name);
    Ok(())
}

/// Refuses a directory that holds something else than a target.
pub(crate) fn check_contents(path: &Path) -> Outcome {
    for entry in std::fs::read_dir(path).at(path.display())? {
        let name = entry.at(path.display())?.file_name();
        if !OF_TARGETS.iter().any(|known| name == *known) {
            let (path, name) = (path.display(), name.display());
            return Err(Failure::new(format!(
                "{path}: holds {name}, which is no part of a target; give a directory of its own"
            )));
        }
    }
    Ok(())
}

/// Refuses a directory in whose place another one was given.
fn refuse_former(path: &Path, file: &TargetsFile) -> Outcome {
    let found = opening::look_at_all(&[path.to_owned()])?;
    let Some(Ok(Some(name))) = found.first().map(|found| &found.target) else { return Ok(()) };
    match file.replaced.iter().find(|it| it.target == name.id && it.uuid != name.uuid) {
        None => Ok(()),
        Some(Replaced { target, directory, .. }) => Err(Failure::new(format!(
            "{}: holds what was target t{target} before {} took its place, and is not served any more; empty it, and it \
             can be a new target",
            path.display(),
            directory.display()
        ))),
    }
}

/// Whether both lie on one file system, as far as they are there.
pub(crate) fn is_same_disk(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|status| status.dev());
    device(one).is_some() && device(one) == device(other)
}

/// Two of us at once take turns.
fn take_turn(directory: &Path) -> Outcome<Lock> {
    let path = directory.join("targets.lock");
    let clock = vazao_meter::SystemClock;
    let deadline_ns = clock.now_ns() + EFFECT_MS_MAX * 1_000_000;
    loop {
        if let Some(lock) = Lock::take(&path)? {
            return Ok(lock);
        }
        if clock.now_ns() > deadline_ns {
            return Err(Failure::new(format!("{}: held by another `vazao target`", path.display())));
        }
        clock.sleep(POLL);
    }
}

/// Targets that the metadata service knows of a node.
fn count(client: &Client, node: &str) -> Outcome<usize> {
    let map = client.refresh_map()?;
    let id = map.nodes.iter().find(|n| n.name == node).map(|n| n.id);
    Ok(map.targets.iter().filter(|target| Some(target.node) == id).count())
}

/// Waits until the running node has announced the target.
fn wait(client: &Client, node: &str, before: usize, path: &Path) -> Outcome {
    let clock = vazao_meter::SystemClock;
    let deadline_ns = clock.now_ns() + EFFECT_MS_MAX * 1_000_000;
    while count(client, node)? <= before {
        if clock.now_ns() > deadline_ns {
            let path = path.display();
            return Err(Failure::new(format!(
                "node {node} runs and has not announced {path}: its log says why; nothing was changed"
            )));
        }
        clock.sleep(POLL);
    }
    Ok(())
}
