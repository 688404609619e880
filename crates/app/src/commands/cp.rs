//! `vazao cp`: files and trees into, out of and within the volume.

use crate::cli::Results;
use crate::context::Context;
use crate::copy::{self, Counts, Item, LocalTree, Meter, Transfer, Tree, VolumeTree, join};
use crate::failure::{At, Failure, Outcome, report};
use crate::format;
use crate::location::{Location, last_name, show};
use crate::output::Output;
use crate::signals::{self, Stop};
use clap::Args;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, stderr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use vazao_client::Client;
use vazao_lab::sampler::{Record, Recorder};
use vazao_lab::{servers, verdict};
use vazao_model::FileKind;

/// Arguments of `vazao cp`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao cp big.iso vz:/images/\n  vazao cp -r ~/data vz:/backup\n  vazao cp -rp vz:/backup/data /restore\n  vazao cp --json vz:/a vz:/b\n\nA file appears under its name only when it is whole: an interrupted copy leaves nothing, or what was there before."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Directories with all that is in them; symbolic links are copied as links
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep owner, permissions with set-id bits, and times
    #[arg(short)]
    preserve: bool,
    /// What to copy, and last where to: a new name, or the directory it goes into
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

/// A path with the tree it is in.
struct Side {
    tree: Arc<dyn Tree>,
    path: Vec<u8>,
    in_volume: bool,
}

struct Sides<'a> {
    context: &'a Context,
    local: Arc<dyn Tree>,
    volume: Option<(Client, Arc<dyn Tree>)>,
}

impl Sides<'_> {
    fn side(&mut self, argument: &OsStr) -> Outcome<Side> {
        match Location::parse(argument)? {
            Location::Local(path) => {
                Ok(Side { tree: Arc::clone(&self.local), path: path.into_os_string().into_vec(), in_volume: false })
            }
            Location::Volume(path) => {
                let tree = match &self.volume {
                    Some((_, tree)) => Arc::clone(tree),
                    None => {
                        let client = self.context.client()?;
                        let tree: Arc<dyn Tree> = Arc::new(VolumeTree::new(client.clone()));
                        self.volume = Some((client, Arc::clone(&tree)));
                        tree
                    }
                };
                Ok(Side { tree, path: path.to_bytes(), in_volume: true })
            }
        }
    }
}

/// Copies.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let Some((destination, sources)) = arguments.paths.split_last() else {
        return Err(Failure::usage("cp needs what to copy and where to"));
    };
    let stop = Stop::on_signals(signals::OF_COMMANDS)?;
    let mut sides = Sides { context, local: Arc::new(LocalTree), volume: None };
    let to = sides.side(destination)?;
    let mut from: Vec<(Side, &OsString)> = Vec::new();
    for source in sources {
        from.push((sides.side(source)?, source));
    }
    let (into, new_root) = destination_kind(&to, destination, from.len())?;
    let clock = vazao_meter::clock::system();
    let meter = Meter::new(Arc::clone(&clock), stderr().is_terminal());
    let watched = sides.volume.as_ref().map(|(client, _)| servers::find(&client.map()).watched);
    let recorder = Recorder::new(clock, watched.unwrap_or_default());
    let (outcome, record) = recorder.during(|| {
        let groups = [true, false].map(|in_volume| from.iter().filter(move |(side, _)| side.in_volume == in_volume));
        groups.into_iter().try_for_each(|group| {
            let group: Vec<&(Side, &OsString)> = group.collect();
            let Some((first, _)) = group.first() else { return Ok(()) };
            let transfer =
                Transfer { from: &*first.tree, to: &*to.tree, preserve: arguments.preserve, meter: &meter, stop: &stop };
            let mut items = Vec::new();
            for (side, argument) in group {
                match item(side, argument, &to, into, new_root, arguments.recursive) {
                    Ok(item) => items.push(item),
                    Err(failure) => meter.failed(|| report(&failure)),
                }
            }
            copy::run(transfer, items)
        })
    });
    let counts = meter.finish();
    summarize(&arguments, &counts, &record)?;
    outcome?;
    if let Some((client, _)) = sides.volume {
        client.close()?;
    }
    if counts.failed > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// Whether sources go into the destination, and whether it ends in a slash without being there.
fn destination_kind(to: &Side, argument: &OsStr, sources: usize) -> Outcome<(bool, bool)> {
    let slash = argument.as_bytes().ends_with(b"/");
    let shown = to.tree.show(&to.path);
    match to.tree.find(&to.path, true)? {
        Some(found) if found.kind == FileKind::Directory => Ok((true, false)),
        _ if sources > 1 => Err(Failure::new(format!("{shown}: not a directory; several sources need one to go into"))),
        Some(_) if slash => Err(Failure::new(format!("{shown}: not a directory"))),
        Some(_) => Ok((false, false)),
        None => Ok((false, slash)),
    }
}

fn item(side: &Side, argument: &OsStr, to: &Side, into: bool, new_root: bool, recursive: bool) -> Outcome<Item> {
    let shown = side.tree.show(&side.path);
    // As cp does: a link named by the user is followed, unless whole trees are copied as they are.
    let found = side.tree.find(&side.path, !recursive)?;
    let found = found.ok_or_else(|| Failure::new(format!("{shown}: no such file or directory")))?;
    let is_directory = found.kind == FileKind::Directory;
    if is_directory && !recursive {
        return Err(Failure::new(format!("{shown}: is a directory; give -r to copy it with all that is in it")));
    }
    if new_root && !is_directory {
        let shown = to.tree.show(&to.path);
        return Err(Failure::new(format!("{shown}/: no such directory; make it with mkdir first")));
    }
    let destination = match (into, last_name(argument_path(argument))) {
        (true, Some(name)) => join(&to.path, name.as_bytes()),
        _ => to.path.clone(),
    };
    if let Some(there) = to.tree.find(&destination, true)? {
        let shown_there = to.tree.show(&destination);
        if there.identity == found.identity {
            return Err(Failure::new(format!("{shown} and {shown_there} are the same file")));
        }
        match (is_directory, there.kind == FileKind::Directory) {
            (true, false) => return Err(Failure::new(format!("{shown_there}: not a directory, {shown} is one"))),
            (false, true) => return Err(Failure::new(format!("{shown_there}: is a directory, {shown} is none"))),
            _ => {}
        }
    }
    if is_directory && lies_in(side, &found, to, &destination)? {
        return Err(Failure::new(format!("{shown}: cannot be copied into itself")));
    }
    Ok(Item { source: side.path.clone(), found, destination })
}

/// The part of an argument that is a path: without `vz:`.
fn argument_path(argument: &OsStr) -> &OsStr {
    OsStr::from_bytes(argument.as_bytes().strip_prefix(b"vz:").unwrap_or(argument.as_bytes()))
}

/// True when one of the directories above `destination` is the source itself.
fn lies_in(side: &Side, found: &copy::Found, to: &Side, destination: &[u8]) -> Outcome<bool> {
    if side.in_volume != to.in_volume {
        return Ok(false);
    }
    let local = || std::path::absolute(OsStr::from_bytes(destination)).map(PathBuf::into_os_string);
    let whole = if to.in_volume { destination.to_vec() } else { local().at(show(destination))?.into_vec() };
    let mut above = whole.as_slice();
    while let Some(slash) = above.iter().rposition(|&b| b == b'/') {
        above = &above[..slash];
        let path = if above.is_empty() { b"/" } else { above };
        if to.tree.find(path, true)?.is_some_and(|there| there.identity == found.identity) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn summarize(arguments: &Arguments, counts: &Counts, record: &Record) -> Outcome {
    let rate = counts.bytes as f64 / counts.seconds.max(1e-9);
    let verdict = verdict::judge(record);
    let mut output = Output::new(arguments.results.json);
    if output.json {
        output.value(&json!({
            "bytes": counts.bytes,
            "files": counts.files,
            "failed": counts.failed,
            "seconds": counts.seconds,
            "bytes_per_second": rate,
            "bottleneck": { "side": slower_side(counts), "limit": verdict },
            "reading_seconds": counts.reading_s,
            "writing_seconds": counts.writing_s,
        }))?;
    } else if stderr().is_terminal() {
        eprintln!(
            "{} files, {} in {}, {}; mostly {}: {}",
            counts.files,
            format::size(counts.bytes),
            format::duration((counts.seconds * 1e9) as u64),
            format::rate(rate),
            slower_side(counts),
            verdict.text
        );
    }
    output.finish()
}

/// Which side the copy's threads spent more time on.
fn slower_side(counts: &Counts) -> &'static str {
    if counts.reading_s > counts.writing_s { "reading the source" } else { "writing the destination" }
}
