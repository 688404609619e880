//! BeginConversion, SwitchLayout, EndConversion: another layout for the bytes that a file has.
//!
//! A conversion is a record beside the inode, with the layout that the file is to get. While it stands the new objects
//! belong to it; the file keeps its old ones. The switch is one transaction: it takes place only when the record still
//! stands and the file has the layout and the length that were copied. That no write to the old objects is missed is
//! the data servers' part: they are sealed before (`store::fences`).

use crate::objects::orphans;
use crate::ops::layout::checked_hint;
use crate::part::conversions;
use crate::placement::{self, Writer};
use crate::schema::keys;
use crate::schema::numbers;
use crate::schema::records::{ConversionRecord, InodeRecord, LayoutRecord};
use crate::service::context::Context;
use crate::service::fault::{Outcome, inode_fault};
use crate::sessions;
use vazao_model::{Code, GroupId, InodeId, Layout, LayoutHint, SessionId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

pub(crate) fn begin(
    context: &mut Context<'_>,
    request: &proto::BeginConversionRequest,
) -> Outcome<proto::BeginConversionResponse> {
    let id = InodeId(request.inode);
    let record = file(context, id)?;
    let mut hint = checked_hint(id, request.hint.clone().unwrap_or_default())?;
    if hint.stripe_unit_bytes == 0 {
        hint.stripe_unit_bytes = limits::STRIPE_UNIT_BYTES_DEFAULT;
    }
    let Some(present) = record.layout.clone() else {
        return Ok(proto::BeginConversionResponse { size: record.size, ..Default::default() });
    };
    if !record.contents.is_empty() {
        return Err(busy(id, "its contents are just moving to data servers"));
    }
    keep_copies(context, id, &present, &mut hint)?;
    let (generation, _) = numbers::next_generation(context.service.boot(), record.generation)?;
    let writer = Writer::of(request.host, &request.zone)?;
    let zone = writer.zone_wanted(&hint);
    has_room(context, id, zone)?;
    let new = placement::layout(context, id, generation, &hint, &writer)?;
    let from = proto::Layout::from(&present);
    let old = Layout::try_from(from.clone())?;
    let new = Layout { life: old.life, ..new };
    let is_same_place = is_same_place(context, &old, &new, zone);
    let unchanged = old.distribution == new.distribution && is_same_place;
    let to = proto::Layout::from(&new);
    let response = proto::BeginConversionResponse {
        from: Some(from),
        to: Some(to.clone()),
        size: record.size,
        unchanged,
    };
    if request.dry_run || unchanged {
        return Ok(response);
    }
    context.grow()?;
    all_follow(context, id)?;
    let session = conversions::owner(request.once.as_ref())?;
    if let Some(other) = conversions::find(context, id)? {
        if other.session != session.0 && !other.is_ending {
            return Err(busy(id, "another client converts it right now"));
        }
        if !other.is_ending {
            conversions::end(context, id, other);
        }
        return Err(busy(id, "an earlier conversion of it is not cleaned up yet; try again"));
    }
    let conversion = ConversionRecord {
        session: session.0,
        layout: Some(LayoutRecord::from(to)),
        from: Some(present),
        is_ending: false,
    };
    context.write(keys::conversion(id), &conversion);
    context.put_inode(id, &InodeRecord { generation, ..record });
    // If a crash lost the record, the seals on the old objects would never be lifted.
    context.answer_when_durable = true;
    Ok(response)
}

/// The new layout has as many copies as the old one. Errors: others are asked for.
fn keep_copies(
    context: &Context<'_>,
    id: InodeId,
    present: &LayoutRecord,
    hint: &mut LayoutHint,
) -> Outcome<()> {
    let groups: Vec<GroupId> = present.groups.iter().copied().map(GroupId).collect();
    let (copies, _) = context.service.cluster().copies_of(&groups);
    if hint.copies != 0 && hint.copies as usize != copies {
        let text = format!(
            "inode {id}: it has {copies} copies, and conversion to {} is not built; copy it to a new file in a \
             directory whose files have as many",
            hint.copies
        );
        return Err(Fault::new(Code::Unsupported, text));
    }
    hint.copies = copies as u32;
    Ok(())
}

/// A file that goes elsewhere while its zone is full would be copied for nothing.
fn has_room(context: &Context<'_>, id: InodeId, zone: Option<&str>) -> Outcome<()> {
    let now_ns = context.service.clock().now_ns();
    let Some(zone) = zone.filter(|zone| !context.service.cluster().has_room_in(zone, now_ns)) else {
        return Ok(());
    };
    let text = format!(
        "inode {id}: no target of zone {zone} has room, and the file stays as it is; make room there, or see \
         `vazao status`"
    );
    Err(Fault::new(Code::NoSpace, text))
}

/// Stripes over the same number of targets are as good as others, if these are in the zone that is wanted; a local file
/// has to be where its writer is.
fn is_same_place(context: &Context<'_>, old: &Layout, new: &Layout, zone: Option<&str>) -> bool {
    let is_local = old.width() == 1;
    let cluster = context.service.cluster();
    let primary = |layout: &Layout| cluster.primary_of(layout.groups[0]);
    let is_in_zone = zone.is_none_or(|zone| cluster.is_in_zone(&old.groups, zone));
    is_in_zone && old.width() == new.width() && (!is_local || primary(old) == primary(new))
}

pub(crate) fn switch(
    context: &mut Context<'_>,
    request: &proto::SwitchLayoutRequest,
) -> Outcome<proto::SwitchLayoutResponse> {
    let id = InodeId(request.inode);
    let mut record = file(context, id)?;
    let session = conversions::owner(request.once.as_ref())?;
    let conversion = conversions::find(context, id)?.filter(|c| c.is_of(session, request.generation));
    let Some(conversion) = conversion else {
        return Err(Fault::new(Code::Stale, format!("inode {id}: the conversion was given up")));
    };
    let present = record.layout.as_ref().map(|layout| (layout.generation, layout.life));
    let copied = conversion.from.as_ref().map(|layout| (layout.generation, layout.life));
    if present != copied || record.size != request.size || !record.contents.is_empty() {
        return Err(busy(id, "it was cut, or changed its length, while it was converted"));
    }
    all_follow(context, id)?;
    let (Some(old), Some(mut new)) = (record.layout.take(), conversion.layout) else {
        return Err(Fault::new(Code::Corrupt, format!("conversion of inode {id}")));
    };
    let slots = u64::MAX >> (64 - new.groups.len().clamp(1, 64));
    new.written_slots = request.written_slots & slots;
    orphans::reclaim_objects(context, id, &old);
    record.layout = Some(new);
    record.zone_missed.clear();
    record.allocated_bytes = request.allocated_bytes.filter(|bytes| *bytes < record.size);
    record.version += 1;
    context.put_inode(id, &record);
    context.contents_changed(id);
    context.delete(keys::conversion(id));
    context.answer_when_durable = true;
    Ok(proto::SwitchLayoutResponse {})
}

pub(crate) fn end(
    context: &mut Context<'_>,
    request: &proto::EndConversionRequest,
) -> Outcome<proto::EndConversionResponse> {
    let id = InodeId(request.inode);
    let session = conversions::owner(request.once.as_ref())?;
    let conversion = conversions::find(context, id)?.filter(|conversion| {
        let is_stalled = request.stalled && !conversion.is_ending;
        is_stalled || conversion.is_of(session, request.generation)
    });
    let ended = conversion.is_some();
    if let Some(conversion) = conversion {
        conversions::end(context, id, conversion);
    }
    Ok(proto::EndConversionResponse { ended })
}

impl ConversionRecord {
    fn is_of(&self, session: SessionId, generation: u32) -> bool {
        let new = self.layout.as_ref().map(|layout| layout.generation);
        self.session == session.0 && new == Some(generation) && !self.is_ending
    }
}

fn file(context: &mut Context<'_>, id: InodeId) -> Outcome<InodeRecord> {
    let record = context.inode(id)?;
    if !record.is_file() {
        let code = if record.is_directory() { Code::IsDirectory } else { Code::Invalid };
        return Err(inode_fault(code, id));
    }
    Ok(record)
}

/// A client that knows nothing of conversions would write to objects that are gone, and make them anew.
fn all_follow(context: &mut Context<'_>, id: InodeId) -> Outcome<()> {
    match sessions::left_behind(context)? {
        None => Ok(()),
        Some(client) => Err(Fault::new(
            Code::VersionMismatch,
            format!(
                "inode {id}: the client {client} is of a version that knows no conversions; end it first"
            ),
        )),
    }
}

fn busy(id: InodeId, why: &str) -> Fault {
    Fault::new(Code::InUse, format!("inode {id}: {why}"))
}
