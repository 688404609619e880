//! `vazao layout`: which targets hold which bytes, and how new files are to be laid out.

mod options;
mod show;

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format;
use crate::location::{show_volume, volume_path};
use crate::output::Output;
use clap::Args;
use options::HintOptions;
use std::ffi::OsString;
use vazao_client::Client;
use vazao_model::{Attributes, FileKind, VolumePath};

const EXAMPLES: &str = "Examples:
  vazao layout vz:/data/file                                        where its bytes lie
  vazao layout vz:/data --stripe-unit 1M --width 2                  for files created in it from now on
  vazao layout vz:/data --distribution strips --strips 1M,4M,1M     more for the second target, which is faster
  vazao layout vz:/data --distribution groups --groups 2 --factor 8 8 units a target in one half, then in the other
  vazao layout vz:/scratch --distribution local                     each file whole, on its writer's own machine
  vazao layout vz:/data --distribution inherit                      as the directory above has it";

/// Arguments of `vazao layout`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    hint: HintOptions,
    /// A file or directory
    #[arg(value_name = "vz:/PATH")]
    path: OsString,
}

/// Shows or sets.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let path = volume_path(&arguments.path)?;
    arguments.hint.check()?;
    let client = context.client()?;
    let attributes = client.resolve(&path, true).at(show_volume(&path))?;
    if arguments.hint.is_any() {
        set(&client, &arguments, &path, &attributes)?;
    }
    let mut output = Output::new(arguments.results.json);
    match attributes.kind {
        FileKind::Directory => show::directory(&client, &mut output, &path, &attributes)?,
        FileKind::File => show::file(&client, &mut output, &path, &attributes)?,
        other => {
            let shown = show_volume(&path);
            return Err(Failure::new(format!("{shown}: is a {} and has no layout", format::kind(other))));
        }
    }
    output.finish()?;
    client.close()?;
    Ok(())
}

fn set(client: &Client, arguments: &Arguments, path: &VolumePath, attributes: &Attributes) -> Outcome {
    let (present, _) = client.layout_hint(attributes.inode).at(show_volume(path))?;
    let hint = arguments.hint.over(present)?;
    client.set_layout_hint(attributes.inode, hint.clone()).map_err(|error| {
        let has_data = attributes.kind == FileKind::File && attributes.size > 0;
        let why = if has_data { " (a file with data keeps its layout; copy it to get another)" } else { "" };
        Failure::from(error.about(format!("{}{why}", show_volume(path))))
    })?;
    let (stored, _) = client.layout_hint(attributes.inode).at(show_volume(path))?;
    if stored.pattern != hint.pattern {
        let text = "the metadata service is older than this command and knows simple stripes only; update it";
        return Err(Failure::new(format!("{}: {text}", show_volume(path))));
    }
    Ok(())
}
