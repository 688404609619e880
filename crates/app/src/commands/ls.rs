//! `vazao ls`: directories of the volume and of areas, sorted, or unsorted with a page of memory.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{Failure, Outcome, report};
use crate::format;
use crate::location::patterns::{self, node_of};
use crate::location::place::{Place, places};
use crate::output::{Output, put_name};
use clap::Args;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use vazao_client::{Client, Entry};
use vazao_model::{Attributes, FileKind};

/// Arguments of `vazao ls`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao ls vz:/\n  vazao ls -lh vz:/data\n  vazao ls -l n1:/scratch/run7       an area of node n1\n  vazao ls n1:                       the areas of node n1\n  vazao ls 'vz:/data/*.dat'          quoted, so that the shell leaves it alone\n  vazao ls -U vz:/huge | wc -l"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// One line each with type, permissions, links, owner, group, size and time (UTC)
    #[arg(short)]
    long: bool,
    /// Sizes as 1.5K, 23M, 4.0G
    #[arg(short)]
    human: bool,
    /// Directories below as well
    #[arg(short = 'R')]
    recursive: bool,
    /// Names that begin with a dot as well
    #[arg(short)]
    all: bool,
    /// A directory itself, not what is in it
    #[arg(short)]
    directory: bool,
    /// Unsorted, as the volume has them: begins at once and keeps one page in memory
    #[arg(short = 'U')]
    unsorted: bool,
    /// What to list
    #[arg(value_name = "PATH", default_value = "vz:/")]
    paths: Vec<OsString>,
}

struct Listing<'a> {
    client: &'a Client,
    arguments: &'a Arguments,
    output: Output,
    /// A heading goes before each directory.
    headings: bool,
    begun: bool,
    failed: bool,
}

/// Lists.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let (nodes, paths): (Vec<_>, Vec<_>) =
        arguments.paths.iter().cloned().partition(|path| node_of(path).is_some());
    let paths = places(&paths)?;
    let client = context.client()?;
    let paths = patterns::expand(&client, paths)?;
    let headings = nodes.len() + paths.len() > 1 || arguments.recursive;
    let output = Output::new(arguments.results.json);
    let mut listing =
        Listing { client: &client, arguments: &arguments, output, headings, begun: false, failed: false };
    for node in nodes.iter().filter_map(|node| node_of(node)) {
        let listed = listing.areas(node);
        listing.noted(listed)?;
    }
    for path in &paths {
        let listed = listing.argument(path);
        listing.noted(listed)?;
    }
    let failed = listing.failed;
    listing.output.finish()?;
    client.close()?;
    if failed { Err(Failure::Reported) } else { Ok(()) }
}

impl Listing<'_> {
    fn noted(&mut self, listed: Outcome) -> Outcome {
        let Err(failure) = listed else { return Ok(()) };
        self.output.flush()?;
        report(&failure);
        self.failed = true;
        Ok(())
    }

    /// What a node exports.
    fn areas(&mut self, name: &str) -> Outcome {
        let map = self.client.refresh_map()?;
        let node = map.nodes.iter().find(|node| node.name == name);
        let node = node.ok_or_else(|| {
            Failure::new(format!("{name}:: there is no node of this name; `vazao status` shows them"))
        })?;
        if self.headings && !self.output.json {
            let gap = if self.begun { "\n" } else { "" };
            self.output.line(&format!("{gap}{name}:"))?;
        }
        self.begun = true;
        for area in &node.areas {
            let path = format!("{name}:/{}", area.name);
            match self.output.json {
                true => self.output.value(&json!({ "name": area.name, "path": path, "kind": "area" }))?,
                false => self.output.line(&area.name)?,
            }
        }
        Ok(())
    }

    fn argument(&mut self, path: &Place) -> Outcome {
        let attributes = path.stat(self.client, !self.arguments.long)?;
        if attributes.kind == FileKind::Directory && !self.arguments.directory {
            return self.tree(path.clone(), &attributes);
        }
        self.entry(path, None, &path.to_bytes(), attributes.kind, Some(&attributes))
    }

    /// A directory and, with -R, those below it, without recursion: depth costs memory, not stack.
    fn tree(&mut self, path: Place, attributes: &Attributes) -> Outcome {
        let mut waiting = vec![(path, attributes.inode)];
        while let Some((path, inode)) = waiting.pop() {
            self.heading(&path)?;
            let mut below = Vec::new();
            let with_attributes = self.arguments.long || self.output.json;
            if self.arguments.unsorted {
                let client = self.client;
                path.pages(client, inode, with_attributes, |page| self.entries(&path, &page, &mut below))?;
            } else {
                let entries = path.sorted(self.client, inode, with_attributes)?;
                self.entries(&path, &entries, &mut below)?;
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    fn heading(&mut self, path: &Place) -> Outcome {
        if self.headings && !self.output.json {
            let gap = if self.begun { "\n" } else { "" };
            self.output.text(gap)?;
            self.output.name(&path.to_bytes())?;
            self.output.line(":")?;
        }
        self.begun = true;
        Ok(())
    }

    fn entries(
        &mut self,
        path: &Place,
        entries: &[Entry],
        below: &mut Vec<(Place, vazao_model::InodeId)>,
    ) -> Outcome {
        for entry in entries {
            if entry.name.starts_with(b".") && !self.arguments.all {
                continue;
            }
            self.entry(path, Some(entry), &entry.name, entry.kind, entry.attributes.as_ref())?;
            if self.arguments.recursive && entry.kind == FileKind::Directory {
                below.push((path.join(&entry.name), entry.inode));
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &Place,
        entry: Option<&Entry>,
        name: &[u8],
        kind: FileKind,
        attributes: Option<&Attributes>,
    ) -> Outcome {
        let link = match (kind, attributes, self.arguments.long || self.output.json) {
            (FileKind::Symlink, Some(attributes), true) => {
                let link = if entry.is_some() { path.join(name) } else { path.clone() };
                Some(link.read_link(self.client, attributes.inode)?)
            }
            _ => None,
        };
        if self.output.json {
            let whole = if entry.is_some() { path.join(name) } else { path.clone() };
            let value = to_json(&whole, kind, attributes, link.as_deref());
            return self.output.value(&value);
        }
        if let (true, Some(attributes)) = (self.arguments.long, attributes) {
            self.output.text(&long_columns(attributes, self.arguments.human))?;
        }
        self.output.name(name)?;
        if let Some(link) = link {
            self.output.text(" -> ")?;
            self.output.name(&link)?;
        }
        self.output.text("\n")
    }
}

fn long_columns(attributes: &Attributes, human: bool) -> String {
    let size = if human { format::human(attributes.size) } else { attributes.size.to_string() };
    format!(
        "{} {:>3} {:>5} {:>5} {:>12} {} ",
        format::mode(attributes.kind, attributes.mode),
        attributes.links,
        attributes.uid,
        attributes.gid,
        size,
        format::minute(attributes.modified)
    )
}

/// What `ls --json` and `stat --json` say of an inode.
pub(crate) fn to_json(
    path: &Place,
    kind: FileKind,
    attributes: Option<&Attributes>,
    link: Option<&[u8]>,
) -> Value {
    let mut object = Map::new();
    put_name(&mut object, "name", path.name());
    put_name(&mut object, "path", &path.to_bytes());
    object.insert("kind".to_owned(), json!(format::kind(kind)));
    if let Some(a) = attributes {
        object.insert("inode".to_owned(), json!(a.inode.0));
        object.insert("mode".to_owned(), json!(format!("{:04o}", a.mode)));
        object.insert("uid".to_owned(), json!(a.uid));
        object.insert("gid".to_owned(), json!(a.gid));
        object.insert("links".to_owned(), json!(a.links));
        object.insert("size".to_owned(), json!(a.size));
        object.insert("allocated_bytes".to_owned(), json!(a.allocated_bytes));
        object.insert("accessed".to_owned(), json!(format::instant(a.accessed)));
        object.insert("modified".to_owned(), json!(format::instant(a.modified)));
        object.insert("changed".to_owned(), json!(format::instant(a.changed)));
    }
    if let Some(link) = link {
        put_name(&mut object, "link", link);
    }
    Value::Object(object)
}
