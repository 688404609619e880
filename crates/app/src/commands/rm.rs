//! `vazao rm`: files and trees away.

use crate::context::Context;
use crate::failure::{At, Failure, Outcome, report};
use crate::location::place::{self, Place, places};
use crate::location::{patterns, show_volume, walk};
use crate::parallel;
use clap::Args;
use std::ffi::OsString;
use vazao_client::{Client, Entry};
use vazao_model::{Code, FileKind, InodeId, VolumePath};

/// Arguments of `vazao rm`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao rm vz:/data/file n1:/scratch/file\n  vazao rm -r vz:/data/old\n  vazao rm -rf vz:/maybe"
)]
pub(crate) struct Arguments {
    /// Directories with all that is in them
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// No error when it is not there
    #[arg(short)]
    force: bool,
    /// What to remove
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Removes.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let paths = places(&arguments.paths)?;
    let client = context.client()?;
    let paths = patterns::expand(&client, paths)?;
    let mut outcome = Ok(());
    for path in &paths {
        let removed = match path {
            Place::Volume(path) => one(&client, path, &arguments),
            Place::Area(reference) => place::remove(&client, reference, arguments.recursive, arguments.force),
        };
        if let Err(failure) = removed {
            report(&failure);
            outcome = Err(Failure::Reported);
        }
    }
    client.close()?;
    outcome
}

fn one(client: &Client, path: &VolumePath, arguments: &Arguments) -> Outcome {
    let shown = show_volume(path);
    let Some((parent_path, name)) = path.split_last() else {
        return Err(Failure::new(format!(
            "{shown}: the root of the volume is not removed; name what is in it"
        )));
    };
    let attributes = match client.resolve(path, false) {
        Err(error) if arguments.force && error.code == Code::NotFound => return Ok(()),
        other => other.at(&shown)?,
    };
    let parent = client.resolve(&parent_path, true).at(&shown)?;
    if attributes.kind != FileKind::Directory {
        return client.unlink(parent.inode, name).at(&shown);
    }
    if !arguments.recursive {
        return Err(Failure::new(format!(
            "{shown}: is a directory; give -r to remove it with all that is in it"
        )));
    }
    empty(client, path, attributes.inode)?;
    client.remove_directory(parent.inode, name).at(&shown)
}

/// Removes all that is in a directory: files of one directory at a time by several threads, then the directories from
/// the deepest up.
fn empty(client: &Client, path: &VolumePath, inode: InodeId) -> Outcome {
    let mut waiting = vec![(path.clone(), inode)];
    let mut directories = Vec::new();
    while let Some((path, inode)) = waiting.pop() {
        walk::pages(client, inode, &path, false, |page| {
            let (below, files): (Vec<Entry>, Vec<Entry>) =
                page.into_iter().partition(|entry| entry.kind == FileKind::Directory);
            for entry in below {
                let below_path = path.join(&entry.name);
                waiting.push((below_path.clone(), entry.inode));
                directories.push((inode, below_path));
            }
            parallel::for_each(&files, |entry| unlink(client, inode, &path, entry))
        })?;
    }
    for (parent, path) in directories.iter().rev() {
        let name = path.components().last().map_or(&b""[..], Vec::as_slice);
        client.remove_directory(*parent, name).at(show_volume(path))?;
    }
    Ok(())
}

fn unlink(client: &Client, directory: InodeId, path: &VolumePath, entry: &Entry) -> Outcome {
    match client.unlink(directory, &entry.name) {
        Err(error) if error.code == Code::NotFound => Ok(()),
        other => other.at(show_volume(&path.join(&entry.name))),
    }
}
