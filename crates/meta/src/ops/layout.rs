//! AssignLayout, SetLayoutHint, GetLayoutHint: where files' bytes go.
//!
//! A hint is inherited once, when an inode is created: the new inode takes what is in effect in its directory. A later
//! change of the directory's hint concerns what is created later.

use crate::objects::orphans;
use crate::placement::{self, Writer};
use crate::schema::numbers;
use crate::schema::records::{HintRecord, InodeRecord, LayoutRecord, PlacementRecord};
use crate::service::context::Context;
use crate::service::fault::{Outcome, inode_fault};
use vazao_model::cluster::membership::COPIES_MAX;
use vazao_model::distribution::Pattern;
use vazao_model::layout::check_stripe_unit;
use vazao_model::{Code, InodeId, Layout, LayoutHint, Placement, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Gives a file a layout. A file with inline contents gets it in two steps, because of a race: two clients that
/// outgrow it at the same time must not overwrite each other's bytes. The first answer proposes a layout, which no
/// other client knows, and shows the contents. The second request says that they have been copied, and installs the
/// layout if they are still the same. If they are not, or the file has got another layout meanwhile, the answer is a
/// new proposal, or that layout.
pub(crate) fn assign(
    context: &mut Context<'_>,
    request: &proto::AssignLayoutRequest,
) -> Outcome<proto::AssignLayoutResponse> {
    let id = InodeId(request.inode);
    let mut record = context.inode(id)?;
    if !record.is_file() {
        let code = if record.is_directory() { Code::IsDirectory } else { Code::Invalid };
        return Err(inode_fault(code, id));
    }
    let writer = Writer::of(request.host, &request.zone)?;
    if let Some(copied) = &request.copied
        && let Some(installed) = install_copied(context, id, &mut record, copied, &writer)?
    {
        return Ok(installed);
    }
    if let Some(layout) = &record.layout {
        let layout = Some(layout.into());
        return Ok(proto::AssignLayoutResponse { layout, contents: None, version: record.version });
    }
    context.grow()?;
    let hint = effective(record.hint.as_ref())?;
    let (generation, wait) = numbers::next_generation(context.service.boot(), record.generation)?;
    let layout = placement::layout(context, id, generation, &hint, &writer)?;
    let layout = proto::Layout::from(&layout);
    context.answer_when_durable |= wait;
    record.generation = generation;
    if record.contents.is_empty() {
        return install(context, id, &mut record, layout, &writer);
    }
    context.service.part().proposals.note(id, generation, context.service.clock().now_ns());
    // The version stays: a proposal changes nothing that another one is compared with.
    context.put_inode(id, &record);
    let (contents, version) = (Some(record.contents), record.version);
    Ok(proto::AssignLayoutResponse { layout: Some(layout), contents, version })
}

/// Installs a proposed layout to which the inline contents have been copied; `None` when they have changed since, or
/// when the proposal is forgotten: its objects may have been removed as orphan objects.
fn install_copied(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    copied: &proto::CopiedContents,
    writer: &Writer<'_>,
) -> Outcome<Option<proto::AssignLayoutResponse>> {
    let layout = copied.layout.clone().unwrap_or_default();
    let refuse = |why: &str| Fault::new(Code::Invalid, format!("inode {id}: the proposed layout {why}"));
    Layout::try_from(layout.clone()).map_err(|fault| refuse(&fault.detail))?;
    if layout.generation > record.generation {
        return Err(refuse("was never proposed"));
    }
    if record.layout.as_ref().is_some_and(|present| present.generation == layout.generation) {
        return Ok(None);
    }
    let is_known =
        context.service.part().proposals.take(id, layout.generation, context.service.clock().now_ns());
    if !is_known || record.layout.is_some() || record.version != copied.version {
        orphans::reclaim_objects(context, id, &LayoutRecord::from(layout));
        return Ok(None);
    }
    install(context, id, record, layout, writer).map(Some)
}

/// The layout becomes the file's; its inline contents, if it has any, are in objects. The answer has the version from
/// before it, by which a client sees whether this service has lost power and forgotten a report.
fn install(
    context: &mut Context<'_>,
    id: InodeId,
    record: &mut InodeRecord,
    layout: proto::Layout,
    writer: &Writer<'_>,
) -> Outcome<proto::AssignLayoutResponse> {
    let hint = effective(record.hint.as_ref())?;
    let installed = LayoutRecord::from(layout.clone());
    record.zone_missed = placement::missed(context, id, &installed, writer.zone_wanted(&hint));
    placement::note_copies(context, id, &installed);
    let version = record.version;
    let inline = record.contents.len() as u64;
    record.allocated_bytes = (inline < record.size).then_some(inline);
    record.contents = Vec::new();
    record.layout = Some(installed);
    // As all that a file grows by: nothing but its contents was written so far.
    record.set_unwritten(std::iter::once(inline..record.size).collect());
    record.version += 1;
    context.put_inode(id, record);
    Ok(proto::AssignLayoutResponse { layout: Some(layout), contents: None, version })
}

pub(crate) fn set_hint(
    context: &mut Context<'_>,
    request: &proto::SetLayoutHintRequest,
) -> Outcome<proto::SetLayoutHintResponse> {
    let id = InodeId(request.inode);
    let hint = checked_hint(id, request.hint.clone().unwrap_or_default())?;
    let mut record = context.inode(id)?;
    if !record.is_directory() && !record.is_file() {
        return Err(inode_fault(Code::Invalid, id));
    }
    if record.layout.is_some() {
        let text = format!("inode {id}: its data is striped already, copy it to a new file");
        return Err(Fault::new(Code::InUse, text));
    }
    context.grow()?;
    let mut stored = record.hint.take().unwrap_or_default();
    (stored.own_unit_bytes, stored.own_width) = (hint.stripe_unit_bytes, hint.width);
    stored.own_pattern = hint.pattern.as_ref().map(|pattern| proto::Pattern::from(pattern).into());
    let placement: Option<PlacementRecord> =
        hint.placement.as_ref().map(|placement| proto::Placement::from(placement).into());
    if stored.own_placement != placement {
        check_zone(context, id, hint.placement.as_ref())?;
        stored.own_placement = placement;
    }
    if stored.own_copies != hint.copies {
        context.service.provide_groups(hint.copies as usize, request.nodes_are_hosts)?;
        stored.own_copies = hint.copies;
    }
    record.hint = Some(stored);
    context.touch(&mut record);
    context.put_inode(id, &record);
    Ok(proto::SetLayoutHintResponse {})
}

/// Refuses a zone that no target is in: it is mistyped more often than planned. A hint that stays the same is not
/// looked at again, because the zone may have gone since.
fn check_zone(context: &Context<'_>, id: InodeId, placement: Option<&Placement>) -> Outcome<()> {
    let Some(Placement::Zone(zone)) = placement else { return Ok(()) };
    let cluster = context.service.cluster();
    let zones = cluster.zones();
    if zones.contains(zone.as_str()) {
        return Ok(());
    }
    let known = match zones.is_empty() {
        true => "no target is in any zone".to_owned(),
        false => format!("zones with targets: {}", zones.into_iter().collect::<Vec<_>>().join(", ")),
    };
    let text = format!(
        "inode {id}: no target is in zone {zone} ({known}); name a zone that has some, or write zone = \"{zone}\" in \
         node.toml of data servers there and start them again"
    );
    Err(Fault::new(Code::Invalid, text))
}

pub(crate) fn get_hint(
    context: &mut Context<'_>,
    request: &proto::GetLayoutHintRequest,
) -> Outcome<proto::GetLayoutHintResponse> {
    let record = context.inode(InodeId(request.inode))?;
    let effective = effective(record.hint.as_ref())?;
    let own = record.hint.unwrap_or_default();
    let hint = proto::LayoutHint {
        stripe_unit_bytes: own.own_unit_bytes,
        width: own.own_width,
        pattern: own.own_pattern.as_ref().map(Into::into),
        placement: own.own_placement.as_ref().map(Into::into),
        copies: own.own_copies,
    };
    let zone_missed = if record.layout.is_some() { record.zone_missed } else { String::new() };
    Ok(proto::GetLayoutHintResponse { hint: Some(hint), effective: Some(effective.into()), zone_missed })
}

/// Refuses a hint that no layout could be made from.
pub(crate) fn checked_hint(id: InodeId, hint: proto::LayoutHint) -> Outcome<LayoutHint> {
    let refuse = |why: String| Fault::new(Code::Invalid, format!("inode {id}: {why}"));
    let hint = LayoutHint::try_from(hint).map_err(|fault| refuse(fault.detail))?;
    if hint.stripe_unit_bytes != 0 {
        check_stripe_unit(hint.stripe_unit_bytes).map_err(|e| refuse(e.to_string()))?;
    }
    if hint.width as usize > limits::STRIPE_WIDTH_MAX {
        return Err(refuse(format!("stripe width {} is above {}", hint.width, limits::STRIPE_WIDTH_MAX)));
    }
    if hint.copies as usize > COPIES_MAX {
        return Err(refuse(format!("{} copies: a file has 1 to {COPIES_MAX}; 0 inherits", hint.copies)));
    }
    Ok(hint)
}

/// What is in effect under these hints; a width of 0 means all targets.
pub(crate) fn effective(hint: Option<&HintRecord>) -> Outcome<LayoutHint> {
    let hint = hint.cloned().unwrap_or_default();
    let first = |a: u64, b: u64, c: u64| [a, b, c].into_iter().find(|&n| n != 0).unwrap_or(0);
    let pattern = hint.own_pattern.or(hint.inherited_pattern);
    let pattern = pattern.map(|record| Pattern::try_from(&proto::Pattern::from(&record))).transpose()?;
    let placement = hint.own_placement.or(hint.inherited_placement);
    let placement =
        placement.map(|record| Placement::try_from(&proto::Placement::from(&record))).transpose()?;
    Ok(LayoutHint {
        stripe_unit_bytes: first(
            hint.own_unit_bytes,
            hint.inherited_unit_bytes,
            limits::STRIPE_UNIT_BYTES_DEFAULT,
        ),
        width: if hint.own_width != 0 { hint.own_width } else { hint.inherited_width },
        pattern: Some(pattern.unwrap_or(Pattern::Stripe)),
        placement: Some(placement.unwrap_or_default()),
        copies: [hint.own_copies, hint.inherited_copies].into_iter().find(|&n| n != 0).unwrap_or(1),
    })
}

/// The hints of an inode created in `directory`.
pub(crate) fn inherited(directory: &InodeRecord) -> Option<HintRecord> {
    directory.hint.as_ref().map(|hint| {
        let inherit = |own: u64, above: u64| if own != 0 { own } else { above };
        HintRecord {
            own_unit_bytes: 0,
            own_width: 0,
            inherited_unit_bytes: inherit(hint.own_unit_bytes, hint.inherited_unit_bytes),
            inherited_width: inherit(hint.own_width.into(), hint.inherited_width.into()) as u32,
            own_pattern: None,
            inherited_pattern: hint.own_pattern.clone().or_else(|| hint.inherited_pattern.clone()),
            own_placement: None,
            inherited_placement: hint.own_placement.clone().or_else(|| hint.inherited_placement.clone()),
            own_copies: 0,
            inherited_copies: inherit(hint.own_copies.into(), hint.inherited_copies.into()) as u32,
        }
    })
}
