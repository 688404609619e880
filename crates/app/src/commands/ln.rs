//! `vazao ln`: further names and symbolic links.

use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::location::{last_name, show_volume, volume_path};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use vazao_client::{Client, NewInode};
use vazao_model::{Code, FileKind, VolumePath};

/// Arguments of `vazao ln`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao ln vz:/file vz:/second-name\n  vazao ln -s ../data/file vz:/links/file"
)]
pub(crate) struct Arguments {
    /// A symbolic link: TARGET is kept as it is written (a leading vz: is dropped)
    #[arg(short)]
    symbolic: bool,
    /// What the new name stands for
    target: OsString,
    /// The new name, or the directory it goes into
    #[arg(value_name = "vz:/NAME")]
    name: OsString,
}

/// Makes the name.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let name = volume_path(&arguments.name)?;
    let target = if arguments.symbolic { None } else { Some(volume_path(&arguments.target)?) };
    let client = context.client()?;
    let name = within(&client, name, &arguments.target)?;
    let shown = show_volume(&name);
    let Some((parent, last)) = name.split_last() else {
        return Err(vazao_client::Error::new(Code::Exists, shown).into());
    };
    let parent = client.resolve(&parent, true).at(&shown)?;
    match target {
        Some(target) => {
            let attributes = client.resolve(&target, false).at(show_volume(&target))?;
            client.link(attributes.inode, parent.inode, last).at(&shown)?;
        }
        None => {
            let text = arguments.target.as_bytes();
            let contents = text.strip_prefix(b"vz:").unwrap_or(text).to_vec();
            client.create(parent.inode, last, &new_link(contents)).at(&shown)?;
        }
    }
    client.close()?;
    Ok(())
}

fn within(client: &Client, name: VolumePath, target: &OsString) -> Outcome<VolumePath> {
    match client.resolve(&name, true) {
        Ok(attributes) if attributes.kind == FileKind::Directory => {
            let last =
                last_name(target).ok_or_else(|| Failure::usage("the target has no name of its own"))?;
            Ok(name.join(last.as_bytes()))
        }
        Ok(_) => Ok(name),
        Err(error) if error.code == Code::NotFound => Ok(name),
        Err(error) => Err(error).at(show_volume(&name)),
    }
}

/// A new symbolic link of this user.
pub(crate) fn new_link(contents: Vec<u8>) -> NewInode {
    NewInode {
        kind: FileKind::Symlink,
        mode: 0o777,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        contents,
        ..NewInode::default()
    }
}
