//! Shows a directory's hints and a file's objects.

use super::copies;
use super::options::{shown, to_json};
use crate::failure::{At, Outcome};
use crate::format::{self, Lean};
use crate::location::show_volume;
use crate::output::Output;
use serde_json::json;
use std::collections::BTreeSet;
use vazao_client::Client;
use vazao_model::distribution::{Distribution, Pattern};
use vazao_model::{Attributes, ClusterMap, Layout, LayoutHint, Placement, VolumePath};

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
            let place = h.placement.as_ref().map(ToString::to_string);
            json!({
                "distribution": pattern, "stripe_unit_bytes": h.stripe_unit_bytes, "width": h.width, "place": place,
                "copies": h.copies,
            })
        };
        return output.value(
            &json!({"path": place, "kind": "directory", "set": hint(&own), "effective": hint(&effective)}),
        );
    }
    let origin = |set: bool| if set { "set here" } else { "inherited" };
    let pattern = effective.pattern.as_ref().unwrap_or(&Pattern::Stripe);
    output.line(&format!("{place}: new files in it get"))?;
    output.line(&format!("  distribution {} ({})", shown(pattern), origin(own.pattern.is_some())))?;
    if !matches!(pattern, Pattern::Strips(_) | Pattern::Local) {
        let unit = format::size(effective.stripe_unit_bytes);
        output.line(&format!("  stripe unit  {unit} ({})", origin(own.stripe_unit_bytes != 0)))?;
        let width = if effective.width == 0 { "all targets".to_owned() } else { effective.width.to_string() };
        output.line(&format!("  width        {width} ({})", origin(own.width != 0)))?;
    }
    let place = effective.placement.unwrap_or_default();
    output.line(&format!("  place        {} ({})", placed(&place), origin(own.placement.is_some())))?;
    // A service from before knows one copy only, and says nothing of it.
    output.line(&format!("  copies       {} ({})", effective.copies.max(1), origin(own.copies != 0)))
}

/// A placement in words.
fn placed(place: &Placement) -> String {
    match place {
        Placement::Everywhere => "everywhere".to_owned(),
        Placement::NearWriter => "near-writer: the zone of the client that writes".to_owned(),
        Placement::Zone(zone) => format!("zone {zone}"),
    }
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
    let missed = client.zone_missed(attributes.inode).at(&place)?;
    if output.json {
        let mut value = layout_json(&place, attributes, &layout, &map);
        value["zone_missed"] = json!(missed);
        return output.value(&value);
    }
    output.line(&format!(
        "{place}: {} ({} bytes), {}, width {}, generation {}",
        format::size(attributes.size),
        attributes.size,
        described(&layout.distribution),
        layout.width(),
        layout.generation
    ))?;
    let mut head = vec![
        ("SLOT", Lean::Right),
        ("TARGET", Lean::Left),
        ("NODE", Lean::Left),
        ("ADDRESS", Lean::Left),
        ("BYTES", Lean::Right),
        ("FIRST OFFSETS", Lean::Left),
    ];
    if !map.zones().is_empty() {
        head.insert(3, ("ZONE", Lean::Left));
    }
    let rows: Vec<Vec<String>> =
        (0..layout.width()).map(|slot| row(slot, attributes, &layout, &map)).collect();
    output.text(&format::table(&head, &rows))?;
    output.text(&copies::text(&layout, &map))?;
    missed.map_or(Ok(()), |zone| output.line(&about_missed(&place, &zone)))
}

fn about_missed(place: &str, zone: &str) -> String {
    let place = format::shell_quoted(place);
    format!(
        "not in zone {zone}, where it was to lie: no target there had room when it got this layout; once one has, \
         `vazao layout --convert {place}` moves it"
    )
}

/// Where a slot lies, for people.
struct Holder {
    target: String,
    node: String,
    zone: String,
    address: String,
}

fn holder(layout: &Layout, slot: u32, map: &ClusterMap) -> Holder {
    let group = layout.groups[slot as usize];
    let target = map.members(group).first().copied();
    let node = target.and_then(|target| map.node(map.target(target)?.node));
    let unknown = || "unknown".to_owned();
    Holder {
        target: target.map_or_else(|| group.to_string(), |target| target.to_string()),
        node: node.map_or_else(unknown, |n| n.name.clone()),
        zone: node.map_or_else(String::new, |n| n.zone.clone()),
        address: node.map_or_else(unknown, |n| n.address.clone()),
    }
}

/// The zones that a layout's targets are in, sorted.
pub(super) fn zones_of(layout: &Layout, map: &ClusterMap) -> Vec<String> {
    let members = layout.groups.iter().flat_map(|group| map.members(*group));
    let zones = members.map(|target| map.zone_of(target).to_owned()).filter(|zone| !zone.is_empty());
    zones.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Bytes of a file that one slot has.
pub(crate) fn slot_bytes(layout: &Layout, slot: u32, size: u64) -> u64 {
    if layout.is_written(slot) { layout.distribution.object_length(slot, size, layout.width()) } else { 0 }
}

fn row(slot: u32, attributes: &Attributes, layout: &Layout, map: &ClusterMap) -> Vec<String> {
    let holder = holder(layout, slot, map);
    let bytes = slot_bytes(layout, slot, attributes.size);
    let mut starts = strip_starts(layout, slot, bytes);
    let more = if starts.len() > OFFSETS_SHOWN { ", …" } else { "" };
    starts.truncate(OFFSETS_SHOWN);
    let offsets = starts.into_iter().map(format::human).collect::<Vec<_>>().join(", ");
    let mut row = vec![slot.to_string(), holder.target, holder.node];
    row.extend((!map.zones().is_empty()).then(|| format::or_dash(&holder.zone)));
    row.extend([holder.address, bytes.to_string(), format!("{offsets}{more}")]);
    row
}

fn layout_json(place: &str, attributes: &Attributes, layout: &Layout, map: &ClusterMap) -> serde_json::Value {
    let slots: Vec<serde_json::Value> = (0..layout.width())
        .map(|slot| {
            let Holder { target, node, zone, address } = holder(layout, slot, map);
            let bytes = slot_bytes(layout, slot, attributes.size);
            let zone = Some(zone).filter(|zone| !zone.is_empty());
            let group = layout.groups[slot as usize];
            let members = copies::json(group, map);
            json!({
                "slot": slot, "target": target, "node": node, "zone": zone, "address": address, "bytes": bytes,
                "group": group.to_string(), "copies": map.copies(group), "members": members,
            })
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
