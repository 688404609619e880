//! `vazao target accept-old`: what may be old on a target whose disk is an older copy, and the decision to go on with
//! it.

use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format;
use crate::location::show_volume;
use crate::output::Output;
use crate::walk::pages;
use vazao_client::{Client, Entry};
use vazao_model::ids::ROOT;
use vazao_model::{Attributes, FileKind, InodeId, Target, TargetId, TargetState, Timestamp, VolumePath};

/// Clocks of clients and of the server may differ by this much.
const CLOCKS_SECONDS: i64 = 120;

/// Lists what may be old, or goes on with the target as it is.
pub(super) fn accept(context: &Context, name: &str, yes_lose_writes: bool) -> Outcome {
    let client = context.client()?;
    let map = client.refresh_map()?;
    let id = client.find_target(name)?;
    let target = map.target(id).filter(|target| target.state == TargetState::Stale);
    let Some(target) = target else {
        return Err(Failure::new(format!(
            "target {id} is not stale: there is nothing to accept; see `vazao status`"
        )));
    };
    if yes_lose_writes {
        println!("{}", client.accept_old_target(id, target.found)?);
        return Ok(());
    }
    let mut output = Output::new(false);
    let mut search = Search { client: &client, target: id, since: since(target), found: 0 };
    search.run(&mut output)?;
    output.finish()?;
    let count = format::count(search.found, "file", "files");
    Err(Failure::new(format!(
        "target {id}: {}\n{count} on it changed since and may be old or broken, as listed. If the right disk is lost, \
         `vazao target accept-old {id} --yes-lose-writes` serves it as it is; restore these files from copies then",
        target.trouble
    )))
}

/// What changed before this moment is on the disk. 1970 where nothing is known of the disk's age.
fn since(target: &Target) -> Timestamp {
    let written = Timestamp::from_seconds(target.found_seconds);
    Timestamp { seconds: written.seconds - CLOCKS_SECONDS, ..written }
}

/// Files with data on a target that were changed since.
struct Search<'a> {
    client: &'a Client,
    target: TargetId,
    since: Timestamp,
    found: u64,
}

impl Search<'_> {
    fn run(&mut self, output: &mut Output) -> Outcome {
        let mut waiting = vec![(ROOT, VolumePath::default())];
        while let Some((directory, path)) = waiting.pop() {
            let mut below = Vec::new();
            pages(self.client, directory, &path, true, |entries| {
                for entry in entries {
                    let path = path.join(&entry.name);
                    match entry.kind {
                        FileKind::Directory => below.push((entry.inode, path)),
                        FileKind::File => self.file(output, &entry, &path)?,
                        _ => {}
                    }
                }
                Ok(())
            })?;
            waiting.extend(below);
        }
        Ok(())
    }

    fn file(&mut self, output: &mut Output, entry: &Entry, path: &VolumePath) -> Outcome {
        let Some(attributes) = entry.attributes.as_ref().filter(|attributes| self.is_recent(attributes))
        else {
            return Ok(());
        };
        if !self.lies_here(entry.inode, path)? {
            return Ok(());
        }
        self.found += 1;
        output.line(&format!("{}  {}", format::minute(attributes.modified), show_volume(path)))
    }

    fn is_recent(&self, attributes: &Attributes) -> bool {
        attributes.modified >= self.since || attributes.changed >= self.since
    }

    fn lies_here(&self, inode: InodeId, path: &VolumePath) -> Outcome<bool> {
        let layout = self.client.layout(inode).at(show_volume(path))?;
        Ok(layout.is_some_and(|layout| layout.targets.contains(&self.target)))
    }
}
