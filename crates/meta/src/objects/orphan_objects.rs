//! The search for orphan objects: objects that no file has any more and that no reclaim record names.
//!
//! A write that arrives after the objects of its file were removed makes one of them again. A generation that was
//! lost with the power leaves its objects behind. No record lists those. So the search walks through each target's
//! objects, a page a tick, and looks each one up here.
//!
//! Why a removal is safe:
//!
//! - An object exists only because its layout was assigned or proposed.
//! - An assigned layout was committed before its number left this service, and the page was listed before the
//!   transaction that looks for the layout began.
//! - A proposed layout is in the table of proposals for as long as it may be installed (`proposals.rs`).
//! - Inode numbers and generations are never reused, so an object found dead stays dead, once its death is durable.
//!
//! An object of a placement group with several members is removed by the primary at all current ones, whichever of them
//! it was found at. One that only a lagging member has stays until that one has caught up.
//!
//! Two safeguards stand beyond that argument. An object is removed only when it was found dead at two times that lie
//! a grace period apart. An object with a number that this service has not given out yet is never removed: the
//! metadata is older than the data then, as after a restored backup.

use crate::part::conversions;
use crate::schema::keys;
use crate::service::MetaService;
use crate::service::context::Context;
use crate::service::fault::Outcome;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use vazao_model::{Code, GroupId, InodeId, ObjectId, TargetId};
use vazao_wire::op;
use vazao_wire::proto::{self, ListObjectsResponse};
use vazao_wire::transport::{Transport, submit};

/// Objects of a target looked at in a tick.
const PAGE: u32 = 1024;

/// Orphan objects remembered for a target; those beyond are found by a later pass.
const ORPHAN_OBJECTS_MAX: usize = 65_536;

/// A target whose last pass found nothing is walked through again after so many grace periods.
const REST_GRACES: u64 = 6;

/// How long a server may take over a page.
const DEADLINE_NS: u64 = 5_000_000_000;

/// Where the search stands.
#[derive(Debug)]
pub(crate) struct OrphanObjects {
    grace_ns: u64,
    walks: Mutex<BTreeMap<TargetId, Walk>>,
}

/// The walk through one target's objects.
#[derive(Debug, Default)]
struct Walk {
    /// When the next page is due.
    due_ns: u64,
    began_ns: u64,
    pass: u64,
    cookie: Vec<u8>,
    /// Objects found dead, and when first.
    found: BTreeMap<ObjectId, Found>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    first_ns: u64,
    pass: u64,
}

/// What an object is to this service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// A file has it, or it is the reclaimer's.
    Known,
    /// No file has it, nor ever will.
    Orphan,
    /// It carries a number that has not been given out yet.
    FromTheFuture,
}

impl OrphanObjects {
    /// A search that begins a grace period from now.
    pub(crate) fn new(grace_ms: u32) -> OrphanObjects {
        OrphanObjects { grace_ns: u64::from(grace_ms) * 1_000_000, walks: Mutex::default() }
    }
}

/// One tick's work: a page of each target that is due.
pub(crate) fn run(service: &MetaService, transport: &dyn Transport) -> Outcome<()> {
    let orphan_objects = service.orphan_objects();
    // Only the tick thread runs this; a second one returns at once.
    let Some(mut walks) = orphan_objects.walks.try_lock() else { return Ok(()) };
    let now_ns = service.clock().now_ns();
    let served = service.cluster().served(now_ns);
    let deadline_ns = transport.clock().now_ns().saturating_add(DEADLINE_NS);
    let mut pages = Vec::new();
    for (target, address) in served {
        let first = || Walk { due_ns: now_ns.saturating_add(orphan_objects.grace_ns), ..Walk::default() };
        let walk = walks.entry(target).or_insert_with(first);
        if walk.due_ns > now_ns {
            continue;
        }
        walk.begin(now_ns);
        let cookie = walk.cookie.clone();
        let request = proto::ListObjectsRequest { target: target.0, cookie, limit: PAGE, group: 0 };
        let call = submit::<op::ListObjects>(transport, &address, &request, &[], deadline_ns);
        pages.push((target, address, call));
    }
    for (target, address, call) in pages {
        let Some(walk) = walks.get_mut(&target) else { continue };
        // A server that does not answer is asked again when the pass would have been over.
        match call.wait() {
            Ok((page, _)) => look_through(service, transport, (target, &address), walk, &page)?,
            Err(fault) => {
                tracing::debug!(%target, %fault, "its objects could not be listed");
                walk.due_ns = now_ns.saturating_add(orphan_objects.grace_ns);
            }
        }
    }
    Ok(())
}

/// Judges the objects of a page, and removes those found dead long enough ago.
fn look_through(
    service: &MetaService,
    transport: &dyn Transport,
    (target, address): (TargetId, &str),
    walk: &mut Walk,
    page: &ListObjectsResponse,
) -> Outcome<()> {
    let objects: Vec<ObjectId> = page.objects.iter().map(object_id).collect();
    let (judged, _) = service.transact(None, |context| {
        objects.iter().map(|&object| standing(context, object)).collect::<Outcome<Vec<_>>>()
    })?;
    let grace_ns = service.orphan_objects().grace_ns;
    let now_ns = service.clock().now_ns();
    let mut dead = BTreeSet::new();
    for (&object, standing) in objects.iter().zip(judged?) {
        match standing {
            Standing::Known => {}
            Standing::FromTheFuture => warn_of_the_future(service, target, object),
            Standing::Orphan if walk.is_old(object, now_ns, grace_ns) => {
                dead.insert(object);
            }
            Standing::Orphan => {
                service.metrics().orphan_objects_found.add(u64::from(walk.note(object, now_ns)))
            }
        }
    }
    if !dead.is_empty() {
        // Power loss must not bring a file back whose objects are gone.
        service.engine().sync()?;
        for (holder, dead) in by_holder(service, (target, address), now_ns, dead) {
            remove(service, transport, (holder.0, &holder.1), walk, &dead);
        }
    }
    walk.advance(page, now_ns, grace_ns);
    Ok(())
}

/// What the metadata says about an object that a data server has. One whose records cannot be read may be the last of a
/// file, and stays; the search goes on behind it.
fn standing(context: &mut Context<'_>, object: ObjectId) -> Outcome<Standing> {
    match recorded_standing(context, object) {
        Err(fault) if fault.code == Code::Corrupt => Ok(Standing::Known),
        other => other,
    }
}

fn recorded_standing(context: &mut Context<'_>, object: ObjectId) -> Outcome<Standing> {
    let service = context.service;
    let record = context.find_inode(object.inode)?;
    let layout = record.as_ref().and_then(|record| record.layout.as_ref());
    if layout.is_some_and(|layout| layout.generation == object.generation) {
        return Ok(Standing::Known);
    }
    if context.exists(&keys::reclaim(object.inode, object.generation))? {
        return Ok(Standing::Known);
    }
    let conversion = conversions::find(context, object.inode)?.and_then(|conversion| conversion.layout);
    if conversion.is_some_and(|layout| layout.generation == object.generation) {
        return Ok(Standing::Known);
    }
    if service.part().proposals.knows(object.inode, object.generation, service.clock().now_ns()) {
        return Ok(Standing::Known);
    }
    let last = record.map_or(0, |record| record.generation);
    let unborn = object.generation > last && !service.may_have_been_given(object.generation);
    if object.inode >= service.unused_inodes() || unborn {
        return Ok(Standing::FromTheFuture);
    }
    Ok(Standing::Orphan)
}

fn warn_of_the_future(service: &MetaService, target: TargetId, object: ObjectId) {
    if service.metrics().objects_unknown.get() == 0 {
        tracing::error!(
            %target, %object,
            "an object of a file that this metadata has never known: it is older than the data, or of another volume. \
             Such objects are left alone; if a backup of the metadata was restored, files changed since are lost"
        );
    }
    service.metrics().objects_unknown.add(1);
}

/// Which target, and where, is to remove which of the objects that were found at `target`.
pub(crate) fn by_holder(
    service: &MetaService,
    (target, address): (TargetId, &str),
    now_ns: u64,
    dead: BTreeSet<ObjectId>,
) -> BTreeMap<(TargetId, String), BTreeSet<ObjectId>> {
    let cluster = service.cluster();
    let mut by_holder: BTreeMap<_, BTreeSet<ObjectId>> = BTreeMap::new();
    for object in dead {
        let current = cluster.groups.current(object.group).filter(|_| object.group.target().is_none());
        let holder = match current {
            None => Some((target, address.to_owned())),
            Some(current) if !current.contains(&target) => None,
            Some(current) => current
                .first()
                .and_then(|primary| Some((*primary, cluster.address_of(*primary, now_ns)?.to_owned()))),
        };
        if let Some(holder) = holder {
            by_holder.entry(holder).or_default().insert(object);
        }
    }
    by_holder
}

fn remove(
    service: &MetaService,
    transport: &dyn Transport,
    (target, address): (TargetId, &str),
    walk: &mut Walk,
    dead: &BTreeSet<ObjectId>,
) {
    let object_address = |object: &ObjectId| proto::ObjectAddress {
        target: target.0,
        inode: object.inode.0,
        generation: object.generation,
        slot: object.slot,
        group: object.group.0,
        ..Default::default()
    };
    let request = proto::RemoveObjectsRequest { objects: dead.iter().map(object_address).collect() };
    let deadline_ns = transport.clock().now_ns().saturating_add(DEADLINE_NS);
    match submit::<op::RemoveObjects>(transport, address, &request, &[], deadline_ns).wait() {
        Ok((response, _)) => {
            service.metrics().orphan_objects_removed.add(response.removed);
            walk.found.retain(|object, _| !dead.contains(object));
            tracing::info!(%target, "removed {} objects that no file has", response.removed);
        }
        // The next pass finds them again.
        Err(fault) => tracing::debug!(%target, %fault, "objects that no file has could not be removed"),
    }
}

impl Walk {
    fn begin(&mut self, now_ns: u64) {
        if self.cookie.is_empty() {
            self.began_ns = now_ns;
            self.pass += 1;
        }
    }

    fn is_old(&mut self, object: ObjectId, now_ns: u64, grace_ns: u64) -> bool {
        let Some(found) = self.found.get_mut(&object) else { return false };
        found.pass = self.pass;
        now_ns.saturating_sub(found.first_ns) >= grace_ns
    }

    /// Remembers an orphan object; true when it was not known.
    fn note(&mut self, object: ObjectId, now_ns: u64) -> bool {
        let found = Found { first_ns: now_ns, pass: self.pass };
        let is_new = self.found.len() < ORPHAN_OBJECTS_MAX && !self.found.contains_key(&object);
        if is_new {
            self.found.insert(object, found);
        }
        is_new
    }

    /// On to the next page, or after the last one to the next pass.
    fn advance(&mut self, page: &ListObjectsResponse, now_ns: u64, grace_ns: u64) {
        self.cookie = page.cookie.clone();
        if !self.cookie.is_empty() {
            return;
        }
        // What this pass has not seen is gone.
        let pass = self.pass;
        self.found.retain(|_, found| found.pass == pass);
        let graces = if self.found.is_empty() { REST_GRACES } else { 1 };
        self.due_ns = self.began_ns.saturating_add(grace_ns.saturating_mul(graces)).max(now_ns + 1);
    }
}

fn object_id(listed: &proto::ListedObject) -> ObjectId {
    ObjectId {
        inode: InodeId(listed.inode),
        generation: listed.generation,
        slot: listed.slot,
        group: GroupId(listed.group),
    }
}
