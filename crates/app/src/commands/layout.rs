//! `vazao layout`: which targets hold which bytes, and how new files are to be striped.

use crate::cli::Results;
use crate::context::Context;
use crate::failure::{At, Failure, Outcome};
use crate::format::{self, Lean};
use crate::location::{show_volume, volume_path};
use crate::output::Output;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use vazao_client::Client;
use vazao_model::distribution::Distribution;
use vazao_model::layout::check_stripe_unit;
use vazao_model::limits::STRIPE_WIDTH_MAX;
use vazao_model::{Attributes, ClusterMap, FileKind, Layout, LayoutHint, VolumePath};

/// Arguments of `vazao layout`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vazao layout vz:/data/file\n  vazao layout vz:/data --stripe-unit 1M --width 2    for files created in it from now on"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    results: Results,
    /// Bytes that go to one target before the next one's turn: a multiple of 64K; 0 inherits
    #[arg(long, value_name = "SIZE", value_parser = format::parse_size)]
    stripe_unit: Option<u64>,
    /// Targets that a file is spread over; 0 inherits
    #[arg(long, value_name = "N")]
    width: Option<u32>,
    /// A file or directory
    #[arg(value_name = "vz:/PATH")]
    path: OsString,
}

/// Shows or sets.
pub(crate) fn run(context: &Context, arguments: Arguments) -> Outcome {
    let path = volume_path(&arguments.path)?;
    check(&arguments)?;
    let client = context.client()?;
    let attributes = client.resolve(&path, true).at(show_volume(&path))?;
    if arguments.stripe_unit.is_some() || arguments.width.is_some() {
        set(&client, &arguments, &path, &attributes)?;
    }
    let mut output = Output::new(arguments.results.json);
    match attributes.kind {
        FileKind::Directory => directory(&client, &mut output, &path, &attributes)?,
        FileKind::File => file(&client, &mut output, &path, &attributes)?,
        other => {
            let shown = show_volume(&path);
            return Err(Failure::new(format!("{shown}: is a {} and has no layout", format::kind(other))));
        }
    }
    output.finish()?;
    client.close()?;
    Ok(())
}

fn check(arguments: &Arguments) -> Outcome {
    if let Some(unit) = arguments.stripe_unit.filter(|&unit| unit != 0) {
        check_stripe_unit(unit).map_err(|e| Failure::usage(format!("--stripe-unit: {e}")))?;
    }
    if arguments.width.is_some_and(|width| width as usize > STRIPE_WIDTH_MAX) {
        return Err(Failure::usage(format!("--width: at most {STRIPE_WIDTH_MAX}")));
    }
    Ok(())
}

fn set(client: &Client, arguments: &Arguments, path: &VolumePath, attributes: &Attributes) -> Outcome {
    let (present, _) = client.layout_hint(attributes.inode).at(show_volume(path))?;
    let hint = LayoutHint {
        stripe_unit_bytes: arguments.stripe_unit.unwrap_or(present.stripe_unit_bytes),
        width: arguments.width.unwrap_or(present.width),
    };
    client.set_layout_hint(attributes.inode, hint).map_err(|error| {
        let has_data = attributes.kind == FileKind::File && attributes.size > 0;
        let why = if has_data { " (a file with data keeps its layout; copy it to get another)" } else { "" };
        Failure::from(error.about(format!("{}{why}", show_volume(path))))
    })
}

fn directory(client: &Client, output: &mut Output, path: &VolumePath, attributes: &Attributes) -> Outcome {
    let shown = show_volume(path);
    let (own, effective) = client.layout_hint(attributes.inode).at(&shown)?;
    if output.json {
        let hint = |h: LayoutHint| json!({"stripe_unit_bytes": h.stripe_unit_bytes, "width": h.width});
        return output.value(
            &json!({"path": shown, "kind": "directory", "set": hint(own), "effective": hint(effective)}),
        );
    }
    let origin = |set: bool| if set { "set here" } else { "inherited" };
    output.line(&format!("{shown}: new files in it get"))?;
    output.line(&format!(
        "  stripe unit  {} ({})",
        format::size(effective.stripe_unit_bytes),
        origin(own.stripe_unit_bytes != 0)
    ))?;
    let width = if effective.width == 0 { "all targets".to_owned() } else { effective.width.to_string() };
    output.line(&format!("  width        {width} ({})", origin(own.width != 0)))
}

fn file(client: &Client, output: &mut Output, path: &VolumePath, attributes: &Attributes) -> Outcome {
    let shown = show_volume(path);
    let Some(layout) = client.layout(attributes.inode).at(&shown)? else {
        if output.json {
            return output
                .value(&json!({"path": shown, "kind": "file", "size": attributes.size, "inline": true}));
        }
        let size = format::size(attributes.size);
        return output
            .line(&format!("{shown}: {size}, kept with its metadata; no data server holds any of it"));
    };
    let map = client.map();
    if output.json {
        return output.value(&to_json(&shown, attributes, &layout, &map));
    }
    let Distribution::SimpleStripe { unit_bytes } = layout.distribution;
    output.line(&format!(
        "{shown}: {} ({} bytes), stripe unit {}, width {}, generation {}",
        format::size(attributes.size),
        attributes.size,
        format::size(unit_bytes),
        layout.width(),
        layout.generation
    ))?;
    let head = [
        ("SLOT", Lean::Right),
        ("TARGET", Lean::Left),
        ("NODE", Lean::Left),
        ("ADDRESS", Lean::Left),
        ("BYTES", Lean::Right),
        ("FIRST OFFSETS", Lean::Left),
    ];
    let rows: Vec<Vec<String>> =
        (0..layout.width()).map(|slot| row(slot, attributes, &layout, &map)).collect();
    output.text(&format::table(&head, &rows))
}

fn place(layout: &Layout, slot: u32, map: &ClusterMap) -> (String, String, String) {
    let target = layout.targets[slot as usize];
    let node = map.target(target).and_then(|t| map.node(t.node));
    let unknown = || "unknown".to_owned();
    let name = node.map_or_else(unknown, |n| n.name.clone());
    (target.to_string(), name, node.map_or_else(unknown, |n| n.address.clone()))
}

fn slot_bytes(layout: &Layout, slot: u32, size: u64) -> u64 {
    if layout.is_written(slot) { layout.distribution.object_length(slot, size, layout.width()) } else { 0 }
}

fn row(slot: u32, attributes: &Attributes, layout: &Layout, map: &ClusterMap) -> Vec<String> {
    let (target, node, address) = place(layout, slot, map);
    let bytes = slot_bytes(layout, slot, attributes.size);
    let unit = layout.distribution.unit_bytes();
    let offsets = (0..3u64)
        .filter(|turn| turn * unit < bytes)
        .filter_map(|turn| layout.distribution.file_offset(slot, turn * unit, layout.width()))
        .map(format::human)
        .collect::<Vec<_>>()
        .join(", ");
    let more = if bytes > 3 * unit { ", …" } else { "" };
    vec![slot.to_string(), target, node, address, bytes.to_string(), format!("{offsets}{more}")]
}

fn to_json(shown: &str, attributes: &Attributes, layout: &Layout, map: &ClusterMap) -> serde_json::Value {
    let slots: Vec<serde_json::Value> = (0..layout.width())
        .map(|slot| {
            let (target, node, address) = place(layout, slot, map);
            let bytes = slot_bytes(layout, slot, attributes.size);
            json!({"slot": slot, "target": target, "node": node, "address": address, "bytes": bytes})
        })
        .collect();
    json!({
        "path": shown,
        "kind": "file",
        "size": attributes.size,
        "inline": false,
        "distribution": "simple_stripe",
        "stripe_unit_bytes": layout.distribution.unit_bytes(),
        "width": layout.width(),
        "generation": layout.generation,
        "slots": slots,
    })
}
