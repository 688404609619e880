//! `vazao du`: the space that trees take. A file with several names counts once.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::Outcome;
use crate::format;
use crate::location::patterns;
use crate::location::place::{Place, places};
use crate::output::{Output, put_name};
use clap::Args;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::ffi::OsString;
use vazao_client::Client;
use vazao_model::{Attributes, FileKind, InodeId};

/// Arguments of `vazao du`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vazao du -sh vz:/data n1:/scratch\n  vazao du vz:/")]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// One total for each argument
    #[arg(short)]
    summarize: bool,
    /// Sizes as 1.5K, 23M, 4.0G; else in KiB
    #[arg(short)]
    human: bool,
    /// Lengths of files, not the storage they take
    #[arg(long)]
    apparent_size: bool,
    /// What to count
    #[arg(value_name = "PATH", default_value = "vz:/")]
    paths: Vec<OsString>,
}

/// A directory being counted, and the one it adds to when it is done.
struct Count {
    path: Place,
    inode: InodeId,
    parent: Option<usize>,
    bytes: u64,
}

struct Counting<'a> {
    client: &'a Client,
    arguments: &'a Arguments,
    /// By the place that numbers them.
    seen: HashSet<(String, InodeId)>,
}

/// Counts.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let paths = places(&arguments.paths)?;
    let client = context.client()?;
    let paths = patterns::expand(&client, paths)?;
    let mut output = Output::new(arguments.results.json);
    let mut counting = Counting { client: &client, arguments: &arguments, seen: HashSet::new() };
    let outcome = output.each(&paths, |output, path| counting.argument(output, path));
    output.finish()?;
    client.close()?;
    outcome
}

impl Counting<'_> {
    fn argument(&mut self, output: &mut Output, path: &Place) -> Outcome {
        let attributes = path.stat(self.client, false)?;
        let own = self.bytes(path, &attributes);
        if attributes.kind != FileKind::Directory {
            return self.show(output, path, own);
        }
        let counts = self.tree(path, &attributes, own)?;
        // Children come after their parents in the list, so that going backwards shows them before.
        for count in counts.iter().rev() {
            if count.parent.is_none() || !self.arguments.summarize {
                self.show(output, &count.path, count.bytes)?;
            }
        }
        Ok(())
    }

    fn tree(&mut self, path: &Place, attributes: &Attributes, own: u64) -> Outcome<Vec<Count>> {
        let mut counts =
            vec![Count { path: path.clone(), inode: attributes.inode, parent: None, bytes: own }];
        let mut index = 0;
        while index < counts.len() {
            let (path, inode) = (counts[index].path.clone(), counts[index].inode);
            let client = self.client;
            path.pages(client, inode, true, |page| {
                for entry in page {
                    let bytes =
                        entry.attributes.as_ref().map_or(0, |attributes| self.bytes(&path, attributes));
                    if entry.kind == FileKind::Directory {
                        let path = path.join(&entry.name);
                        counts.push(Count { path, inode: entry.inode, parent: Some(index), bytes });
                    } else {
                        counts[index].bytes += bytes;
                    }
                }
                Ok(())
            })?;
            index += 1;
        }
        for index in (1..counts.len()).rev() {
            if let Some(parent) = counts[index].parent {
                counts[parent].bytes += counts[index].bytes;
            }
        }
        Ok(counts)
    }

    fn bytes(&mut self, path: &Place, attributes: &Attributes) -> u64 {
        let several_names = attributes.links > 1 && attributes.kind != FileKind::Directory;
        if several_names && !self.seen.insert((path.root(), attributes.inode)) {
            return 0;
        }
        if self.arguments.apparent_size { attributes.size } else { attributes.allocated_bytes }
    }

    fn show(&self, output: &mut Output, path: &Place, bytes: u64) -> Outcome {
        if output.json {
            let mut object = Map::new();
            put_name(&mut object, "path", &path.to_bytes());
            object.insert("bytes".to_owned(), json!(bytes));
            return output.value(&Value::Object(object));
        }
        let size = if self.arguments.human { format::human(bytes) } else { bytes.div_ceil(1024).to_string() };
        output.text(&format!("{size}\t"))?;
        output.name(&path.to_bytes())?;
        output.text("\n")
    }
}
