//! `vazao mv`: new names within the volume, or within an area of a node.

use crate::context::Context;
use crate::failure::{At, Failure, Outcome, report};
use crate::location::place;
use crate::location::{Location, show_volume};
use clap::Args;
use std::ffi::OsString;
use vazao_client::area::Reference;
use vazao_client::{Client, RenameMode};
use vazao_model::{Code, FileKind, VolumePath};

/// Arguments of `vazao mv`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao mv vz:/a vz:/b\n  vazao mv vz:/a vz:/b vz:/directory/\n  vazao mv n1:/scratch/a n1:/scratch/b"
)]
pub(crate) struct Arguments {
    /// Do not replace what is there
    #[arg(short)]
    no_replace: bool,
    /// What to move, and last its new name or the directory it goes into
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Moves.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let (mut paths, mut references) = (Vec::new(), Vec::new());
    for argument in &arguments.paths {
        match Location::parse(argument)? {
            Location::Volume(path) => paths.push(path),
            Location::Area(reference) => references.push(reference),
            Location::Ftp(_) => {
                return Err(Failure::usage("mv works in the volume and in areas, not on FTP servers"));
            }
            Location::Local(path) => {
                return Err(Failure::usage(format!(
                    "{} is on this machine; mv works within the volume: copy with `vazao cp`, then remove",
                    path.display()
                )));
            }
        }
    }
    if !references.is_empty() {
        return if paths.is_empty() { within_area(context, &references, &arguments) } else { Err(apart()) };
    }
    let Some((destination, sources)) = paths.split_last() else {
        return Err(Failure::usage("mv needs what to move and where to"));
    };
    let client = context.client()?;
    let into = into_directory(&client, destination)?;
    if sources.len() > 1 && !into {
        return Err(Failure::new(format!(
            "{}: not a directory; several files can only be moved into one",
            show_volume(destination)
        )));
    }
    let mut outcome = Ok(());
    for source in sources {
        if let Err(failure) = one(&client, source, destination, into, arguments.no_replace) {
            report(&failure);
            outcome = Err(Failure::Reported);
        }
    }
    client.close()?;
    outcome
}

fn into_directory(client: &Client, path: &VolumePath) -> Outcome<bool> {
    match client.resolve(path, true) {
        Ok(attributes) => Ok(attributes.kind == FileKind::Directory),
        Err(error) if error.code == Code::NotFound => Ok(false),
        Err(error) => Err(error).at(show_volume(path)),
    }
}

fn one(client: &Client, source: &VolumePath, destination: &VolumePath, into: bool, keep: bool) -> Outcome {
    let shown = show_volume(source);
    let Some((from, name)) = source.split_last() else {
        return Err(Failure::new(format!("{shown}: the root of the volume cannot be moved")));
    };
    let destination = if into { destination.join(name) } else { destination.clone() };
    let Some((to, new_name)) = destination.split_last() else {
        return Err(Failure::new("vz:/: the root of the volume cannot be replaced"));
    };
    let from = client.resolve(&from, true).at(&shown)?;
    let to = client.resolve(&to, true).at(show_volume(&destination))?;
    let mode = if keep { RenameMode::NoReplace } else { RenameMode::Replace };
    client
        .rename(from.inode, name, to.inode, new_name, mode)
        .at(format!("{shown} to {}", show_volume(&destination)))
}

fn apart() -> Failure {
    Failure::usage("mv works within the volume or within one area of one node: copy, then remove")
}

fn within_area(context: &Context, references: &[Reference], arguments: &Arguments) -> Outcome {
    let Some((destination, sources)) = references.split_last() else { return Err(apart()) };
    let same = |r: &Reference| r.node == destination.node && r.area == destination.area;
    if !sources.iter().all(same) {
        return Err(apart());
    }
    let client = context.client()?;
    let area = place::area(&client, destination);
    let into = match area.stat(&destination.path, true) {
        Ok(attributes) => attributes.kind == FileKind::Directory,
        Err(error) if error.code == Code::NotFound => false,
        Err(error) => return place::at(destination, Err(error)),
    };
    if sources.len() > 1 && !into {
        return Err(Failure::new(format!(
            "{destination}: not a directory; several files can only be moved into one"
        )));
    }
    let mode = if arguments.no_replace { RenameMode::NoReplace } else { RenameMode::Replace };
    let mut outcome = Ok(());
    for source in sources {
        let to = match source.name() {
            Some(name) if into => destination.join(name),
            _ => destination.clone(),
        };
        if let Err(failure) = place::at(source, area.rename(&source.path, &to.path, mode)) {
            report(&failure);
            outcome = Err(Failure::Reported);
        }
    }
    client.close()?;
    outcome
}
