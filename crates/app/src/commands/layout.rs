//! `vazao layout`: which targets hold which bytes, and how new files are to be laid out.

mod convert;
mod copies;
mod options;
mod show;

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format;
use crate::location::{show_volume, volume_path};
use crate::output::Output;
use clap::Args;
pub(crate) use copies::{json as copies_json, table as copies_table};
use options::HintOptions;
pub(crate) use options::check_copies;
pub(crate) use show::slot_bytes;
use std::ffi::{OsStr, OsString};
use vazao_client::Client;
use vazao_model::{Attributes, Code, FileKind, VolumePath};

const EXAMPLES: &str = "Examples:
  vazao layout vz:/data/file                                        where its bytes lie
  vazao layout vz:/data --stripe-unit 1M --width 2                  for files created in it from now on
  vazao layout vz:/data --distribution strips --strips 1M,4M,1M     more for the second target, which is faster
  vazao layout vz:/data --distribution groups --groups 2 --factor 8
      8 units a target in one half, then in the other
  vazao layout vz:/scratch --distribution local                     each file whole, on its writer's own machine
  vazao layout vz:/rio --place near-writer                          on targets of the zone of the client that writes
  vazao layout vz:/data --copies 2                                  each new file on two hosts
  vazao layout vz:/data --distribution inherit                      as the directory above has it
  vazao layout --convert vz:/data/file --width 4                    rewrites a file that is in use
  vazao layout --convert -r vz:/old --place zone=rio --rate 2M      moves files into a zone
  vazao layout --convert -r vz:/data --dry-run                      what it takes to give all what new files get";

/// Arguments of `vazao layout`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    hint: HintOptions,
    /// Rewrite files that have data, online, into what the options say; without options into what new files of their
    /// directory get. Readers and writers go on meanwhile
    #[arg(long)]
    convert: bool,
    /// Convert all files below directories
    #[arg(short, long, requires = "convert")]
    recursive: bool,
    /// Only say what would be converted, and how many bytes that is
    #[arg(long, requires = "convert")]
    dry_run: bool,
    /// Bytes a second that are copied at most, as 50M; 0: as fast as it goes
    #[arg(long, value_name = "SIZE", value_parser = vazao_model::size::parse_size, default_value = "0", requires = "convert")]
    rate: u64,
    /// Files or directories
    #[arg(value_name = "vz:/PATH", required = true)]
    paths: Vec<OsString>,
}

/// What is said of a number of copies for a file that has data.
const COPIES_OF_DATA: &str = " (a file with data keeps its number of copies: no conversion to another one is built; copy \
                              it to a new file in a directory with --copies)";

/// Shows or sets.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    arguments.hint.check()?;
    if arguments.convert && arguments.hint.has_copies() {
        let text = "--convert keeps the number of copies of a file: a conversion to another one is not built. Set --copies \
                    for the directory without --convert, and copy the files to new ones in it";
        return Err(Failure::usage(text.to_owned()));
    }
    let client = context.client()?;
    let mut output = Output::new(arguments.results.json);
    let outcome = match arguments.convert {
        true => convert::run(&client, &mut output, &arguments),
        false => arguments.paths.iter().try_for_each(|path| one(&client, &mut output, &arguments, path)),
    };
    output.finish()?;
    client.close()?;
    outcome
}

fn one(client: &Client, output: &mut Output, arguments: &Arguments, path: &OsStr) -> Outcome {
    let path = volume_path(path)?;
    let attributes = client.resolve(&path, true).at(show_volume(&path))?;
    if arguments.hint.is_any() {
        set(client, arguments, &path, &attributes)?;
    }
    match attributes.kind {
        FileKind::Directory => show::directory(client, output, &path, &attributes),
        FileKind::File => show::file(client, output, &path, &attributes),
        other => {
            let shown = show_volume(&path);
            Err(Failure::new(format!("{shown}: is a {} and has no layout", format::kind(other))))
        }
    }
}

fn set(client: &Client, arguments: &Arguments, path: &VolumePath, attributes: &Attributes) -> Outcome {
    let (present, _) = client.layout_hint(attributes.inode).at(show_volume(path))?;
    let hint = arguments.hint.over(present)?;
    let set = match arguments.hint.is_same_host() {
        true => client.set_layout_hint_with_nodes_as_hosts(attributes.inode, hint.clone()),
        false => client.set_layout_hint(attributes.inode, hint.clone()),
    };
    set.map_err(|error| {
        let has_data = attributes.kind == FileKind::File && attributes.size > 0;
        let is_refused = error.code == Code::Invalid && !arguments.hint.is_same_host();
        let why = match (has_data, arguments.hint.has_copies()) {
            (false, true) if is_refused => {
                " (for trying out, with --same-host, each server counts as a host)"
            }
            (false, _) => "",
            (true, true) => COPIES_OF_DATA,
            (true, false) => " (a file with data keeps its layout; --convert gives it another)",
        };
        Failure::from(error.about(format!("{}{why}", show_volume(path))))
    })?;
    let (stored, _) = client.layout_hint(attributes.inode).at(show_volume(path))?;
    if stored.copies != hint.copies {
        let text = "the metadata service is older than this command and knows no copies; update it";
        return Err(Failure::new(format!("{}: {text}", show_volume(path))));
    }
    if stored.placement != hint.placement {
        let text = "the metadata service is older than this command and knows no placements; update it";
        return Err(Failure::new(format!("{}: {text}", show_volume(path))));
    }
    if stored.pattern != hint.pattern {
        let text = "the metadata service is older than this command and knows simple stripes only; update it";
        return Err(Failure::new(format!("{}: {text}", show_volume(path))));
    }
    Ok(())
}
