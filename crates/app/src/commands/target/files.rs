//! `vazao target files`: the files that have bytes on a target.

use super::search::{Found, Search};
use crate::cli::Results;
use crate::commands::layout::slot_bytes;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::format;
use crate::output::{Output, put_name};
use serde_json::{Map, Value, json};

/// Lists them.
pub(super) fn list(context: &Context, name: &str, results: Results) -> Outcome {
    let client = context.client()?;
    let target = client.administration().find_target(name)?;
    let mut output = Output::new(results.json);
    let search = Search::new(&client, target);
    let is_complete = search.run(&mut output, |_| true, |output, found| show(output, &found))?;
    output.finish()?;
    client.close()?;
    if is_complete {
        return Ok(());
    }
    Err(Failure::new(format!(
        "target {target}: what is named above could not be looked at; files there may have bytes on it, too"
    )))
}

/// One line; nothing where its slots on the target have never been written to.
fn show(output: &mut Output, found: &Found) -> Outcome {
    let Found { path, attributes, layout, slots } = found;
    let written: Vec<u32> = slots.iter().copied().filter(|slot| layout.is_written(*slot)).collect();
    if written.is_empty() {
        return Ok(());
    }
    let path = [b"vz:", path.to_bytes().as_slice()].concat();
    if !output.json {
        output.name(&path)?;
        return output.text("\n");
    }
    let bytes: u64 = written.iter().map(|slot| slot_bytes(layout, *slot, attributes.size)).sum();
    let mut object = Map::new();
    put_name(&mut object, "path", &path);
    object.insert("inode".to_owned(), json!(attributes.inode.0));
    object.insert("size".to_owned(), json!(attributes.size));
    object.insert("target_bytes".to_owned(), json!(bytes));
    object.insert("modified".to_owned(), json!(format::instant(attributes.modified)));
    output.value(&Value::Object(object))
}
