//! `vazao cat`: contents to standard output.

use crate::context::Context;
use crate::failure::{At, Failure, Outcome, report};
use crate::location::{show_volume, volume_paths};
use crate::output::Output;
use clap::Args;
use std::ffi::OsString;
use vazao_client::{Client, OpenMode};
use vazao_model::{Code, FileKind, VolumePath};

/// Bytes asked of the library in one call.
const READ_BYTES: usize = 1024 * 1024;

/// Arguments of `vazao cat`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vazao cat vz:/data/file | sha256sum")]
pub(crate) struct Arguments {
    /// What to write out
    #[arg(required = true, value_name = "vz:/PATH")]
    paths: Vec<OsString>,
}

/// Writes the files out, one after the other.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let paths = volume_paths(&arguments.paths)?;
    let client = context.client()?;
    let mut output = Output::new(false);
    let mut outcome = Ok(());
    for path in &paths {
        if let Err(failure) = one(&client, &mut output, path) {
            output.flush()?;
            report(&failure);
            outcome = Err(Failure::Reported);
        }
    }
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
    let file = client.open_file(attributes.inode, mode).at(&shown)?;
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
