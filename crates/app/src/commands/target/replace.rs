//! `vazao target replace`: an empty directory takes the place of a lost target, and its copies are made again.
//!
//! The metadata service decides, durably, before anything is written here: from then on the target lags in all of its
//! groups, and the lost directory is not taken back. What follows may be cut off anywhere: the target is missing then,
//! and the command is given again with an empty directory.

use super::search::Search;
use super::{EFFECT_MS_MAX, POLL, is_same_disk, take_turn};
use crate::cli::Results;
use crate::commands::area::{NodeFiles, OfNode};
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format;
use crate::node::config::RoleName;
use crate::node::files::Lock;
use crate::node::memory::{KnownTarget, MemoryFile};
use crate::node::targets::{Replaced, TargetsFile, all};
use crate::node::{opening, state};
use crate::output::Output;
use rustix::fs::{Access, access};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use vazao_client::{Client, Config};
use vazao_disk::RealDisk;
use vazao_meter::Clock;
use vazao_model::limits::{CHUNK_BYTES, NODE_SILENT_MS};
use vazao_model::{ClusterMap, Node, NodeState, Target, TargetId, TargetState};
use vazao_store::{Replacement, begin_replacement};

/// Made by mkfs, and no contents.
const LOST_AND_FOUND: &str = "lost+found";

/// The number of a lost directory that its node does not remember any more.
const UNKNOWN: u128 = u128::MAX;

/// What is asked for.
pub(super) struct Wish<'a> {
    pub(super) target: &'a str,
    pub(super) directory: &'a Path,
    pub(super) lose_last_copies: bool,
}

/// Does it.
pub(super) fn replace(context: &Context, wish: &Wish<'_>, node: &OfNode, results: Results) -> Outcome {
    let node = node.find(context)?;
    if !node.config.has(RoleName::Data) {
        return Err(Failure::new(format!("node {}: has no data role, and so no targets", node.name)));
    }
    let client = match &node.cluster_file {
        Some(file) => Client::connect(&Config::load(file)?)?,
        None => context.client()?,
    };
    let id = client.administration().find_target(wish.target)?;
    let state = state::directory(&node.config, &node.directory)?;
    let known = MemoryFile::load(&state)?.get().targets.into_iter().find(|known| known.id == id.0);
    let path = fs::canonicalize(wish.directory).at(wish.directory.display())?;
    // One directory has one name in the node's files.
    let at_lost = known.as_ref().map(|known| &known.directory).filter(|lost| is_same(lost, &path));
    let path = at_lost.cloned().unwrap_or(path);
    let _turn = take_turn(&node.directory)?;
    // Held, it keeps the node from starting before all is written.
    let stopped = Lock::take(&state.join("lock"))?;
    let map = client.refresh_map()?;
    let (target, own) = target_of(&map, id, &node.name)?;
    check_lost(target, known.as_ref())?;
    check_directory(&path, id)?;
    check_free(&node, &path, known.as_ref())?;
    if stopped.is_some() {
        wait_until_silent(&client, &node.name, id)?;
    }
    if !wish.lose_last_copies {
        check_single_copies(&client, id)?;
    }
    let uuid = random_number()?;
    let shown = path.display().to_string();
    let administration = client.administration();
    let replaced = administration.replace_target(id, own.id, (uuid, &shown), wish.lose_last_copies);
    let (groups, older_groups) = replaced?;
    let again = |failure: Failure| {
        let why = failure.message().unwrap_or_default().to_owned();
        Failure::new(format!(
            "{why}; {id} is empty and missing now: give the command again, with an empty directory"
        ))
    };
    let replaces = known.as_ref().map_or(UNKNOWN, |known| known.uuid);
    let (cluster_id, node_id, chunk_bytes) = (map.cluster_id, own.id.0, CHUNK_BYTES);
    let replacement = Replacement { cluster_id, node: node_id, id: id.0, uuid, replaces, chunk_bytes };
    begin(&path, replacement).map_err(again)?;
    note(&node, known.as_ref(), Replaced { target: id.0, uuid, directory: path.clone() }).map_err(again)?;
    let runs = stopped.is_none();
    drop(stopped);
    if runs {
        wait(&client, &node.name, id, &path)?;
    }
    client.close()?;
    tell(results, &node.name, (id, &shown), (groups, older_groups))
}

/// Until the metadata service has noticed that the node does not run, it takes the target for one that serves.
fn wait_until_silent(client: &Client, node: &str, id: TargetId) -> Outcome {
    let clock = vazao_meter::SystemClock;
    let deadline_ns = clock.now_ns() + (u64::from(NODE_SILENT_MS) + 3_000) * 1_000_000;
    loop {
        let map = client.refresh_map()?;
        let seems_up = map.nodes.iter().any(|it| it.name == node && it.state == NodeState::Up);
        let serves = map.target(id).is_some_and(|target| target.state.is_readable());
        if !(seems_up && serves) || clock.now_ns() > deadline_ns {
            return Ok(());
        }
        clock.sleep(POLL);
    }
}

fn target_of<'a>(map: &'a ClusterMap, id: TargetId, node: &str) -> Outcome<(&'a Target, &'a Node)> {
    let target = map.target(id);
    let own = map.nodes.iter().find(|it| it.name == node);
    let (Some(target), Some(own)) = (target, own) else {
        return Err(Failure::new(format!(
            "node {node} has never joined the cluster; `vazao status` lists its nodes"
        )));
    };
    if target.node == own.id {
        return Ok((target, own));
    }
    let holder = map.nodes.iter().find(|it| it.id == target.node).map_or("another node", |it| &it.name);
    Err(Failure::new(format!(
        "target {id} is of node {holder}, not of {node}: give the command there, or with --node-config (--dir and --node) \
         of that node"
    )))
}

/// Refuses to give up what is there.
fn check_lost(target: &Target, known: Option<&KnownTarget>) -> Outcome {
    let is_out = matches!(target.state, TargetState::Failed | TargetState::Stale | TargetState::Hung);
    let Some(known) = known.filter(|_| !is_out) else { return Ok(()) };
    let found = opening::look_at_all(std::slice::from_ref(&known.directory))?;
    let is_there = found.iter().any(|it| matches!(&it.target, Ok(Some(name)) if name.uuid == known.uuid));
    if !is_there || known.directory.join("FAILED").exists() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "target {} is there, in {}: it is not lost. Start its node; to replace its disk by another one, stop the node and \
         take the disk out, or move the directory away",
        target.id,
        known.directory.display()
    )))
}

fn check_directory(path: &Path, id: TargetId) -> Outcome {
    let shown = path.display();
    let may_write = access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if !path.is_dir() || !may_write {
        return Err(Failure::new(format!("{shown}: not a directory that can be written to")));
    }
    let found = opening::look_at_all(&[path.to_owned()])?;
    if let Some(Ok(Some(name))) = found.first().map(|found| &found.target) {
        let what = match name.id {
            0 => "a target that has not joined a cluster".to_owned(),
            other if other == id.0 => format!("t{other} itself, or what it was"),
            other => format!("target t{other} of cluster {:016x}", name.cluster_id),
        };
        return Err(Failure::new(format!("{shown}: holds {what}; give an empty directory")));
    }
    for entry in fs::read_dir(path).at(shown.to_string())? {
        let name = entry.at(shown.to_string())?.file_name();
        if name != LOST_AND_FOUND {
            let name = name.display();
            return Err(Failure::new(format!("{shown}: holds {name}; give an empty directory")));
        }
    }
    Ok(())
}

/// Refuses the directory of another target of the node, whose disk may only not be mounted.
fn check_free(node: &NodeFiles, path: &Path, known: Option<&KnownTarget>) -> Outcome {
    let fixed = node.config.data.as_ref().map_or(Vec::new(), |data| data.targets.clone());
    let is_lost_one = |other: &PathBuf| known.is_some_and(|known| is_same(other, &known.directory));
    let others: Vec<PathBuf> =
        all(&fixed, &node.directory)?.into_iter().filter(|other| !is_lost_one(other)).collect();
    if others.iter().any(|other| is_same(other, path)) {
        let shown = path.display();
        return Err(Failure::new(format!(
            "{shown}: is the directory of another target of node {}; give one of its own",
            node.name
        )));
    }
    if let Some(other) = others.iter().find(|other| is_same_disk(other, path)) {
        let (path, other) = (path.display(), other.display());
        eprintln!("{path}: on the same file system as the target {other}; it adds neither rate nor space");
    }
    Ok(())
}

/// Whether both name one directory, as far as they are there.
fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    whole(one) == whole(other)
}

/// Refuses to give up files that have no copy elsewhere: until their disk is back they can still be had.
fn check_single_copies(client: &Client, id: TargetId) -> Outcome {
    let (mut lost, mut output) = (0, Output::new(false));
    let is_complete = Search::new(client, id).run(
        &mut output,
        |_| true,
        |_, found| {
            lost += u64::from(!found.written().is_empty() && found.other_copies == 0);
            Ok(())
        },
    )?;
    let count = match (lost, is_complete) {
        (0, true) => return Ok(()),
        (0, false) => {
            "what is named above could not be looked at, and may have its only copy on it".to_owned()
        }
        _ => format!("{} no good copy elsewhere", format::count(lost, "file has", "files have")),
    };
    Err(Failure::new(format!(
        "target {id}: {count}; `vazao target files {id} --lost` lists them. Put its disk back if you can. If it is lost, \
         --yes-lose-last-copies goes on without: reading them fails then, until they are put back from a backup or removed"
    )))
}

fn random_number() -> Outcome<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| Failure::new(format!("the kernel's random numbers: {e}")))?;
    Ok(u128::from_le_bytes(bytes))
}

/// Makes the directory the target.
fn begin(path: &Path, replacement: Replacement) -> Outcome {
    let shown = path.display().to_string();
    let disk = RealDisk::open(path).at(&shown)?;
    begin_replacement(&disk, &shown, replacement).map_err(|error| Failure::new(error.to_string()))?;
    // The node may run as another user, whose directory this is.
    let owner = fs::metadata(path).at(&shown)?;
    for entry in fs::read_dir(path).at(&shown)? {
        let made = entry.at(&shown)?.path();
        if made.file_name().is_none_or(|name| name != LOST_AND_FOUND)
            && fs::metadata(&made).is_ok_and(|made| (made.uid(), made.gid()) != (owner.uid(), owner.gid()))
        {
            chown(&made, Some(owner.uid()), Some(owner.gid())).at(made.display())?;
        }
    }
    Ok(())
}

/// The node has this directory from now on, and not the lost one.
fn note(node: &NodeFiles, known: Option<&KnownTarget>, replaced: Replaced) -> Outcome {
    let mut file = TargetsFile::load(&node.directory)?;
    file.replace(&node.directory, known.map(|known| known.directory.as_path()), replaced);
    file.save(&node.directory)
}

/// Waits until the running node serves it.
fn wait(client: &Client, node: &str, id: TargetId, path: &Path) -> Outcome {
    let clock = vazao_meter::SystemClock;
    let deadline_ns = clock.now_ns() + EFFECT_MS_MAX * 1_000_000;
    while !client.refresh_map()?.target(id).is_some_and(|target| target.state.is_readable()) {
        if clock.now_ns() > deadline_ns {
            let path = path.display();
            return Err(Failure::new(format!(
                "{path} is target {id} of node {node}, which runs and does not serve it: its log says why"
            )));
        }
        clock.sleep(POLL);
    }
    Ok(())
}

fn tell(results: Results, node: &str, (id, path): (TargetId, &str), (groups, older): (u32, u32)) -> Outcome {
    let mut output = Output::new(results.json);
    if output.json {
        let object =
            json!({"target": id.0, "node": node, "directory": path, "groups": groups, "older_groups": older});
        output.value(&object)?;
        return output.finish();
    }
    let groups = format::count(u64::from(groups), "placement group", "placement groups");
    output.line(&format!("{path} is target {id} of node {node}, and empty"))?;
    output
        .line(&format!("its copies of {groups} are made again; `vazao status` counts those that lack one"))?;
    if older > 0 {
        let older = format::count(u64::from(older), "of them goes", "of them go");
        output.line(&format!("{older} on with an older copy: what was written since is lost"))?;
    }
    output.finish()
}
