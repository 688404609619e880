//! `vazao mkdir`: new directories.

use crate::context::Context;
use crate::failure::{At, Failure, Outcome, report};
use crate::location::place::{self, Place, places};
use crate::location::show_volume;
use clap::Args;
use std::ffi::OsString;
use vazao_client::{Client, NewInode};
use vazao_model::ids::ROOT;
use vazao_model::{Attributes, Code, FileKind, VolumePath};

const MODE_DEFAULT: u32 = 0o755;

/// Arguments of `vazao mkdir`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao mkdir vz:/data\n  vazao mkdir n1:/scratch/run7\n  vazao mkdir -p -m 700 vz:/a/b/c"
)]
pub(crate) struct Arguments {
    /// Those above as well; no error when it is there
    #[arg(short)]
    parents: bool,
    /// Permissions in octal [default: 755]
    #[arg(short, value_name = "MODE", value_parser = parse_mode)]
    mode: Option<u32>,
    /// What to make
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o7777);
    mode.ok_or_else(|| format!("'{text}' is no octal mode such as 755"))
}

/// A new directory of this user.
pub(crate) fn new_directory(mode: u32) -> NewInode {
    NewInode {
        kind: FileKind::Directory,
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..NewInode::default()
    }
}

/// Makes them.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let paths = places(&arguments.paths)?;
    let client = context.client()?;
    let mode = arguments.mode.unwrap_or(MODE_DEFAULT);
    let mut outcome = Ok(());
    for path in &paths {
        let made = match path {
            Place::Area(reference) => place::make_directory(&client, reference, mode, arguments.parents),
            Place::Volume(path) if arguments.parents => with_parents(&client, path, mode).map(drop),
            Place::Volume(path) => one(&client, path, mode),
        };
        if let Err(failure) = made {
            report(&failure);
            outcome = Err(Failure::Reported);
        }
    }
    client.close()?;
    outcome
}

fn one(client: &Client, path: &VolumePath, mode: u32) -> Outcome {
    let shown = show_volume(path);
    let Some((parent, name)) = path.split_last() else {
        return Err(vazao_client::Error::new(Code::Exists, shown).into());
    };
    let parent = client.resolve(&parent, true).at(&shown)?;
    client.create(parent.inode, name, &new_directory(mode)).at(&shown).map(drop)
}

/// Makes a directory and those above it; returns it, new or not. Links to directories on the way are followed.
pub(crate) fn with_parents(client: &Client, path: &VolumePath, mode: u32) -> Outcome<Attributes> {
    let mut here = VolumePath::default();
    let mut attributes = client.attributes(ROOT).at(show_volume(path))?;
    for (index, name) in path.components().iter().enumerate() {
        here = here.join(name);
        let shown = show_volume(&here);
        let mode = if index + 1 == path.components().len() { mode } else { MODE_DEFAULT };
        attributes = match client.create(attributes.inode, name, &new_directory(mode)) {
            Err(error) if error.code == Code::Exists => client.resolve(&here, true).at(&shown)?,
            other => other.at(&shown)?,
        };
        if attributes.kind != FileKind::Directory {
            return Err(vazao_client::Error::new(Code::NotDirectory, shown).into());
        }
    }
    Ok(attributes)
}
