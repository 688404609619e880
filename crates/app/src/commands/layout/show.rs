//! Shows a directory's hints and a file's objects.

use super::options::{shown, to_json};
use crate::failure::{At, Outcome};
use crate::format::{self, Lean};
use crate::location::show_volume;
use crate::output::Output;
use serde_json::json;
use vazao_client::Client;
use vazao_model::distribution::{Distribution, Pattern};
use vazao_model::{Attributes, ClusterMap, Layout, LayoutHint, VolumePath};

/// Offsets of a slot's bytes that are shown.
const OFFSETS_SHOWN: usize = 3;

/// What new files of a directory get.
pub(super) fn directory(
    client: &Client,
    output: &mut Output,
    path: &VolumePath,
    attributes: &Attributes,
) -> Outcome {
    let place = show_volume(path);
    let (own, effective) = client.layout_hint(attributes.inode).at(&place)?;
    if output.json {
        let hint = |h: &LayoutHint| {
            let pattern = h.pattern.as_ref().map(to_json);
            json!({"distribution": pattern, "stripe_unit_bytes": h.stripe_unit_bytes, "width": h.width})
        };
        return output.value(
            &json!({"path": place, "kind": "directory", "set": hint(&own), "effective": hint(&effective)}),
        );
    }
    let origin = |set: bool| if set { "set here" } else { "inherited" };
    let pattern = effective.pattern.as_ref().unwrap_or(&Pattern::Stripe);
    output.line(&format!("{place}: new files in it get"))?;
    output.line(&format!("  distribution {} ({})", shown(pattern), origin(own.pattern.is_some())))?;
    if matches!(pattern, Pattern::Strips(_) | Pattern::Local) {
        return Ok(());
    }
    output.line(&format!(
        "  stripe unit  {} ({})",
        format::size(effective.stripe_unit_bytes),
        origin(own.stripe_unit_bytes != 0)
    ))?;
    let width = if effective.width == 0 { "all targets".to_owned() } else { effective.width.to_string() };
    output.line(&format!("  width        {width} ({})", origin(own.width != 0)))
}

/// Where the bytes of a file lie.
pub(super) fn file(
    client: &Client,
    output: &mut Output,
    path: &VolumePath,
    attributes: &Attributes,
) -> Outcome {
    let place = show_volume(path);
    let Some(layout) = client.layout(attributes.inode).at(&place)? else {
        if output.json {
            return output
                .value(&json!({"path": place, "kind": "file", "size": attributes.size, "inline": true}));
        }
        let size = format::size(attributes.size);
        return output
            .line(&format!("{place}: {size}, kept with its metadata; no data server holds any of it"));
    };
    let map = client.map();
    if output.json {
        return output.value(&layout_json(&place, attributes, &layout, &map));
    }
    output.line(&format!(
        "{place}: {} ({} bytes), {}, width {}, generation {}",
        format::size(attributes.size),
        attributes.size,
        described(&layout.distribution),
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

fn holder(layout: &Layout, slot: u32, map: &ClusterMap) -> (String, String, String) {
    let group = layout.groups[slot as usize];
    let target = map.members(group).first().copied();
    let node = target.and_then(|target| map.node(map.target(target)?.node));
    let unknown = || "unknown".to_owned();
    let name = node.map_or_else(unknown, |n| n.name.clone());
    (
        target.map_or_else(|| group.to_string(), |target| target.to_string()),
        name,
        node.map_or_else(unknown, |n| n.address.clone()),
    )
}

/// Bytes of a file that one slot has.
pub(crate) fn slot_bytes(layout: &Layout, slot: u32, size: u64) -> u64 {
    if layout.is_written(slot) { layout.distribution.object_length(slot, size, layout.width()) } else { 0 }
}

fn row(slot: u32, attributes: &Attributes, layout: &Layout, map: &ClusterMap) -> Vec<String> {
    let (target, node, address) = holder(layout, slot, map);
    let bytes = slot_bytes(layout, slot, attributes.size);
    let mut starts = strip_starts(layout, slot, bytes);
    let more = if starts.len() > OFFSETS_SHOWN { ", …" } else { "" };
    starts.truncate(OFFSETS_SHOWN);
    let offsets = starts.into_iter().map(format::human).collect::<Vec<_>>().join(", ");
    vec![slot.to_string(), target, node, address, bytes.to_string(), format!("{offsets}{more}")]
}

fn layout_json(place: &str, attributes: &Attributes, layout: &Layout, map: &ClusterMap) -> serde_json::Value {
    let slots: Vec<serde_json::Value> = (0..layout.width())
        .map(|slot| {
            let (target, node, address) = holder(layout, slot, map);
            let bytes = slot_bytes(layout, slot, attributes.size);
            json!({"slot": slot, "target": target, "node": node, "address": address, "bytes": bytes})
        })
        .collect();
    json!({
        "path": place,
        "kind": "file",
        "size": attributes.size,
        "inline": false,
        "distribution": to_json(&layout.distribution.pattern()),
        "away": layout.distribution == Distribution::Local { is_away: true },
        "stripe_unit_bytes": layout.distribution.unit_bytes(),
        "width": layout.width(),
        "generation": layout.generation,
        "slots": slots,
    })
}

/// Where in the file the first strips of a slot begin, one more than are shown.
fn strip_starts(layout: &Layout, slot: u32, bytes: u64) -> Vec<u64> {
    let (mut starts, mut position) = (Vec::new(), 0);
    while position < bytes && starts.len() <= OFFSETS_SHOWN {
        let Some(start) = layout.distribution.file_offset(slot, position, layout.width()) else { break };
        starts.push(start);
        let strip = layout.distribution.piece_at(start, layout.width());
        position = position.saturating_add(strip.length);
    }
    starts
}

/// A distribution in words.
fn described(distribution: &Distribution) -> String {
    let pattern = shown(&distribution.pattern());
    match distribution {
        Distribution::SimpleStripe { unit_bytes } | Distribution::Groups { unit_bytes, .. } => {
            format!("{pattern}, stripe unit {}", format::size(*unit_bytes))
        }
        Distribution::Local { is_away: true } => {
            format!(
                "{pattern} (the writer's machine had no data server: its target was chosen as for any file)"
            )
        }
        _ => pattern,
    }
}
