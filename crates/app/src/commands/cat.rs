//! `vazao cat`: contents to standard output.

use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::location::patterns;
use crate::location::place::{self, Place, places};
use crate::location::show_volume;
use crate::output::Output;
use clap::Args;
use std::ffi::OsString;
use vazao_client::area::{ChannelOptions, Reference};
use vazao_client::{Client, OpenMode};
use vazao_model::{Code, FileKind, VolumePath};

/// Bytes asked of the library in one call.
const READ_BYTES: usize = 1024 * 1024;

/// The same through a channel, which reads nothing ahead: several requests in flight.
const AREA_READ_BYTES: usize = 4 * 1024 * 1024;

/// Arguments of `vazao cat`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vazao cat vz:/data/file | sha256sum\n  vazao cat n1:/scratch/log")]
pub(crate) struct Arguments {
    /// What to write out
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
}

/// Writes the files out, one after the other.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let paths = places(&arguments.paths)?;
    let client = context.client()?;
    let paths = patterns::expand(&client, paths)?;
    let mut output = Output::new(false);
    let outcome = output.each(&paths, |output, path| match path {
        Place::Volume(path) => one(&client, output, path),
        Place::Area(reference) => from_area(&client, output, reference),
    });
    output.finish()?;
    client.close()?;
    outcome
}

fn one(client: &Client, output: &mut Output, path: &VolumePath) -> Outcome {
    let shown = show_volume(path);
    let attributes = client.resolve(path, true).at(&shown)?;
    match attributes.kind {
        FileKind::File => {}
        FileKind::Directory => return Err(vazao_client::Error::new(Code::IsDirectory, shown).into()),
        other => {
            return Err(Failure::new(format!(
                "{shown}: is a {} and has no contents",
                crate::format::kind(other)
            )));
        }
    }
    let mode = OpenMode { read: true, ..OpenMode::default() };
    let (_, file) = client.open_path(path, mode).at(&shown)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    loop {
        let count = file.read_at(&mut buffer, offset).at(&shown)?;
        if count == 0 {
            return file.close().at(&shown);
        }
        output.bytes(&buffer[..count])?;
        offset += count as u64;
    }
}

fn from_area(client: &Client, output: &mut Output, reference: &Reference) -> Outcome {
    let area = place::area(client, reference);
    let channel = place::at(reference, area.open(&reference.path, &ChannelOptions::default()))?;
    let mut buffer = vec![0; AREA_READ_BYTES];
    let mut offset = 0;
    loop {
        let count = place::at(reference, channel.read_at(&mut buffer, offset))?;
        if count == 0 {
            return place::at(reference, channel.close());
        }
        output.bytes(&buffer[..count])?;
        offset += count as u64;
    }
}
