//! Conversions that were abandoned: their fences are lifted and their new objects removed.
//!
//! - A conversion is abandoned by its client, or when that client's session ends. It first becomes *ending*: from
//!   then on no switch is accepted.
//! - Only then are the seals of the old objects lifted. Otherwise a write could come between a lifted seal and a
//!   switch, and be lost.
//! - The record is removed when every server has answered: of a placement group the primary, for all current members.

use crate::objects::orphans;
use crate::schema::keys;
use crate::schema::records::ConversionRecord;
use crate::service::MetaService;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use prost::Message;
use std::collections::BTreeMap;
use vazao_model::{Code, GroupId, InodeId, SessionId, TargetId};
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, submit};
use vazao_wire::{op, proto};

/// Conversions read at a time.
const PAGE: usize = 256;

/// How long a server may take to lift fences.
const DEADLINE_NS: u64 = 5_000_000_000;

/// Step of `FenceObjects` that takes fences away.
const LIFT: u32 = 3;

/// The session that asks for a change.
pub(crate) fn owner(once: Option<&proto::Once>) -> Outcome<SessionId> {
    let missing = || Fault::new(Code::BadRequest, "a conversion without a session");
    once.map(|once| SessionId(once.session)).ok_or_else(missing)
}

/// The conversion of a file, where there is one.
pub(crate) fn find(context: &mut Context<'_>, id: InodeId) -> Outcome<Option<ConversionRecord>> {
    context.read(&keys::conversion(id), "conversion")
}

/// Gives a conversion up: no switch from now on, its new objects are removed, its fences lifted by the next tick.
pub(crate) fn end(context: &mut Context<'_>, id: InodeId, conversion: ConversionRecord) {
    if let Some(layout) = &conversion.layout {
        orphans::reclaim_objects(context, id, layout);
    }
    context.write(keys::conversion(id), &ConversionRecord { is_ending: true, ..conversion });
}

/// One tick's work.
pub(crate) fn run(service: &MetaService, transport: &dyn Transport) -> Outcome<()> {
    let mut range = keys::conversions();
    loop {
        let (pairs, _) = service.transact(None, |context| context.scan(&range, PAGE))?;
        let pairs = pairs?;
        look_at(service, transport, &pairs)?;
        match pairs.last() {
            Some((last, _)) if pairs.len() == PAGE => range.start = keys::after(last),
            _ => return Ok(()),
        }
    }
}

fn look_at(service: &MetaService, transport: &dyn Transport, pairs: &[(Vec<u8>, Vec<u8>)]) -> Outcome<()> {
    for (key, value) in pairs {
        let broken = |e: &dyn std::fmt::Display| Fault::new(Code::Corrupt, format!("conversion record: {e}"));
        let conversion = ConversionRecord::decode(value.as_slice()).map_err(|e| broken(&e))?;
        let id = keys::number(key, 0).map(InodeId).ok_or_else(|| broken(&"its key"))?;
        if conversion.is_ending {
            finish(service, transport, id, &conversion)?;
        } else if !is_owned(service, SessionId(conversion.session))? {
            let (given_up, _) = service.transact(None, |context| {
                let same = find(context, id)?.filter(|now| *now == conversion);
                if let Some(conversion) = same {
                    end(context, id, conversion);
                }
                Ok(())
            })?;
            given_up?;
        }
    }
    Ok(())
}

fn is_owned(service: &MetaService, session: SessionId) -> Outcome<bool> {
    let (known, _) = service.transact(None, |context| context.exists(&keys::session(session)))?;
    known
}

/// Lifts the fences of an ended conversion; when all servers have answered, the record goes.
fn finish(
    service: &MetaService,
    transport: &dyn Transport,
    id: InodeId,
    conversion: &ConversionRecord,
) -> Outcome<()> {
    // If power loss undid the end, a switch could be accepted whose seals are lifted already.
    service.engine().sync()?;
    let Some(from) = &conversion.from else { return forget(service, id, conversion) };
    let token = conversion.layout.as_ref().map_or(0, |layout| u64::from(layout.generation));
    let now_ns = service.clock().now_ns();
    let mut by_target: BTreeMap<TargetId, Vec<proto::ObjectAddress>> = BTreeMap::new();
    for (&group, slot) in from.groups.iter().zip(0..) {
        let group = GroupId(group);
        let Some(target) = service.cluster().primary_of(group) else { continue };
        let object = proto::ObjectAddress {
            target: target.0,
            inode: id.0,
            generation: from.generation,
            slot,
            group: group.shared().0,
            ..Default::default()
        };
        by_target.entry(target).or_default().push(object);
    }
    let deadline_ns = transport.clock().now_ns().saturating_add(DEADLINE_NS);
    let mut all = true;
    let mut calls = Vec::new();
    for (target, objects) in by_target {
        if !service.cluster().knows(target) {
            continue;
        }
        let address = service.cluster().address_of(target, now_ns).map(str::to_owned);
        let Some(address) = address else {
            all = false;
            continue;
        };
        let request = proto::FenceObjectsRequest { objects, token, step: LIFT };
        calls.push(submit::<op::FenceObjects>(transport, &address, &request, &[], deadline_ns));
    }
    for call in calls {
        if let Err(fault) = call.wait() {
            tracing::debug!(inode = %id, %fault, "fences of a conversion could not be lifted yet");
            all = false;
        }
    }
    if all { forget(service, id, conversion) } else { Ok(()) }
}

fn forget(service: &MetaService, id: InodeId, conversion: &ConversionRecord) -> Outcome<()> {
    let (done, _) = service.transact(None, |context| {
        if find(context, id)?.is_some_and(|now| now == *conversion) {
            context.delete(keys::conversion(id));
        }
        Ok(())
    })?;
    done
}
