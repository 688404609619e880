//! An fsync's requests to data servers: objects are made durable on all servers at once.

use super::inode::OpenInode;
use super::missing;
use super::objects::object_address;
use super::sync_ledger::SyncBegun;
use super::unsynced::{Former, Unsynced};
use crate::Result;
use crate::data::DataCall;
use crate::meta::decode;
use std::collections::BTreeMap;
use std::sync::Arc;
use vazao_model::Layout;
use vazao_wire::{Method, op, proto};

/// Objects on their way to being durable.
pub(super) struct Syncing {
    slots: u64,
    layout: Option<Arc<Layout>>,
    /// What was changed, and under which starts of their machines.
    changes: Unsynced,
    /// What each server was asked for, and for which slots.
    calls: Vec<(DataCall, Vec<u32>)>,
    /// The same for single slots of layouts that the file has no more.
    former: Vec<(DataCall, Former, u32)>,
}

/// Asks for the objects changed since the last time to be made durable, on all servers at once.
pub(super) fn begin_sync(open: &OpenInode, deadline_ns: u64) -> Syncing {
    let mut state = open.lock();
    let written = state.placed.slots();
    let SyncBegun { slots, mut changes } = state.sync.begin(written);
    let layout = state.layout().cloned();
    drop(state);
    let mut former = Vec::new();
    for layout in changes.take_former() {
        for (boot, slot) in layout.by_boot() {
            let call = submit_sync(open, &layout.layout, &[slot], boot, deadline_ns);
            former.push((call, layout.only(slot), slot));
        }
    }
    let mut syncing = Syncing { slots, layout, changes, calls: Vec::new(), former };
    let Some(layout) = syncing.layout.clone().filter(|_| slots != 0) else { return syncing };
    for slots in slots_by_server(open, &layout, slots) {
        // A server that started anew while it was written to is asked about each of its starts.
        for (boot, slots) in syncing.changes.by_boot(&slots) {
            let call = submit_sync(open, &layout, &slots, boot, deadline_ns);
            syncing.calls.push((call, slots));
        }
    }
    syncing
}

pub(super) fn finish_sync(open: &OpenInode, begun: Syncing, deadline_ns: u64) -> Result<()> {
    let mut outcome = finish_former(open, begun.former, deadline_ns);
    // All are awaited even when one fails, so that none is left running behind the caller's back.
    for (mut call, mut slots) in begun.calls {
        let received = open.core.data.finish_data(&mut call, &[], deadline_ns);
        let missing = received.and_then(|received| Ok(decode::<op::SyncObjects>(&received)?.missing));
        let answer = match (missing, &begun.layout) {
            (Ok(missing), Some(layout)) if missing > 0 => {
                missing::check_missing(open, layout, &mut slots, deadline_ns)
            }
            (other, _) => other.map(|_| ()).map_err(|error| error.about(open.id)),
        };
        if let (Err(error), Some(layout)) = (&answer, &begun.layout) {
            let mut state = open.lock();
            let is_lost = state.sync.sync_failed(layout, &begun.changes, &slots, error);
            state.write_count += u64::from(is_lost);
        }
        outcome = outcome.and(answer);
    }
    if let Err(error) = &outcome {
        open.lock().sync.end_failed(begun.slots, error);
    }
    outcome
}

fn finish_former(open: &OpenInode, calls: Vec<(DataCall, Former, u32)>, deadline_ns: u64) -> Result<()> {
    let mut outcome = Ok(());
    for (mut call, former, slot) in calls {
        let answer = open.core.data.finish_data(&mut call, &[], deadline_ns).map(|_| ());
        let answer = answer.map_err(|error| error.about(open.id));
        if let Err(error) = &answer {
            let mut state = open.lock();
            let is_lost = state.sync.former_sync_failed(former, slot, error);
            state.write_count += u64::from(is_lost);
        }
        outcome = outcome.and(answer);
    }
    outcome
}

/// Asks for the objects of slots on one server to be made durable, which were changed during its start `boot`.
pub(super) fn submit_sync(
    open: &OpenInode,
    layout: &Layout,
    slots: &[u32],
    boot: u64,
    deadline_ns: u64,
) -> DataCall {
    let group_of = |slot: &u32| layout.groups.get(*slot as usize).copied().unwrap_or_default();
    let group = slots.first().map(group_of).unwrap_or_default();
    let objects = slots.iter().filter_map(|slot| object_address(open.id.0, layout, *slot)).collect();
    let message = prost::Message::encode_to_vec(&proto::SyncObjectsRequest { objects, boot });
    open.core.data.connect_ahead(layout, slots.first().copied().unwrap_or_default(), deadline_ns);
    open.core.data.submit_data(group, Method::SyncObjects, message, &[], deadline_ns)
}

/// The slots of one server together. A group whose server is not known stands alone: asking for it will refresh the
/// map. So does one of several members: another one that passes the request on knows no other group.
fn slots_by_server(open: &OpenInode, layout: &Layout, slots: u64) -> Vec<Vec<u32>> {
    let mut servers: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for (slot, group) in (0..).zip(&layout.groups).filter(|(slot, _)| slots & (1 << slot) != 0) {
        let (server, members) = open.core.servers.route(*group);
        let server = server.filter(|_| members.is_none());
        let key = server.map_or((0, group.0), |server| (server.node.0, 0));
        servers.entry(key).or_default().push(slot);
    }
    servers.into_values().collect()
}
