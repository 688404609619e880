//! `vazao target files`: the files that have bytes on a target.

use super::search::{Found, Search};
use crate::cli::Results;
use crate::commands::layout::slot_bytes;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format;
use crate::output::{Output, put_name};
use serde_json::{Map, Value, json};
use vazao_model::NodeState;

/// Lists them.
pub(super) fn list(context: &Context, name: &str, lost: bool, results: Results) -> Outcome {
    let client = context.client()?;
    let target = client.administration().find_target(name)?;
    let mut output = Output::new(results.json);
    let map = client.refresh_map()?;
    let serves = map.target(target).is_some_and(|target| target.state.is_readable())
        && map
            .target(target)
            .is_some_and(|target| map.node(target.node).is_some_and(|it| it.state == NodeState::Up));
    let shown = Shown { lost_only: lost, none: if serves { "only copy" } else { "lost" } };
    let search = Search::new(&client, target);
    let is_complete = search.run(&mut output, |_| true, |output, found| shown.show(output, &found))?;
    output.finish()?;
    client.close()?;
    if is_complete {
        return Ok(());
    }
    Err(Failure::new(format!(
        "target {target}: what is named above could not be looked at; files there may have bytes on it, too"
    )))
}

/// How files are listed.
struct Shown {
    /// Those that have no other copy only, without a word on that.
    lost_only: bool,
    /// What stands for no other copy.
    none: &'static str,
}

impl Shown {
    fn copies(&self, other_copies: usize) -> String {
        match other_copies {
            0 => self.none.to_owned(),
            1 => "1 other copy".to_owned(),
            count => format!("{count} other copies"),
        }
    }

    /// One line; nothing where its slots on the target have never been written to.
    fn show(&self, output: &mut Output, found: &Found) -> Outcome {
        let written = found.written();
        if written.is_empty() || (self.lost_only && found.other_copies > 0) {
            return Ok(());
        }
        let path = [b"vz:", found.path.to_bytes().as_slice()].concat();
        if output.json {
            return show_json(output, found, &path, &written);
        }
        if !self.lost_only {
            output.text(&format!("{:<15}  ", self.copies(found.other_copies)))?;
        }
        output.name(&path)?;
        output.text("\n")
    }
}

fn show_json(output: &mut Output, found: &Found, path: &[u8], written: &[u32]) -> Outcome {
    let Found { attributes, layout, other_copies, .. } = found;
    let bytes: u64 = written.iter().map(|slot| slot_bytes(layout, *slot, attributes.size)).sum();
    let mut object = Map::new();
    put_name(&mut object, "path", path);
    object.insert("inode".to_owned(), json!(attributes.inode.0));
    object.insert("size".to_owned(), json!(attributes.size));
    object.insert("target_bytes".to_owned(), json!(bytes));
    object.insert("modified".to_owned(), json!(format::instant(attributes.modified)));
    object.insert("other_copies".to_owned(), json!(other_copies));
    output.value(&Value::Object(object))
}
