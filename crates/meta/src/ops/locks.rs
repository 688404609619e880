//! SetLock, TestLock, CancelLock, ReclaimLocks: locks between clients.
//!
//! They are kept in memory and change no record, but for the list in a session's record of the files on which it may
//! have locks.

use crate::part::locks::{Grant, Owner, Place, Verdict, Wish};
use crate::schema::keys;
use crate::schema::records::SessionRecord;
use crate::service::MetaService;
use crate::service::answer::Settled;
use crate::service::fault::{Outcome, inode_fault};
use crate::sessions;
use prost::Message;
use vazao_model::limits::{LOCKED_INODES_KEPT, LOCKED_INODES_MAX, LOCKS_OF_SESSION_MAX};
use vazao_model::locks::{LockKind, LockMode, LockRange};
use vazao_model::{Code, InodeId, SessionId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

const SHARED: u32 = 1;
const EXCLUSIVE: u32 = 2;

pub(crate) fn set(service: &MetaService, request: &proto::SetLockRequest) -> Outcome<Settled> {
    let wish = wish(service, request.session, request.lock.as_ref(), request.waiter)?;
    let mut durable_at = None;
    if wish.mode.is_some() {
        // Before the lock: a service that restarts in between must not forget that this session may have some.
        durable_at = mark(service, wish.owner.session, wish.place.inode)?;
    }
    let (verdict, grants) = service.part().locks.set(wish, service.clock().now_ns());
    if verdict == Verdict::Granted && wish.mode.is_some() {
        // Marks for other files may have pushed this one out of the list before the lock was there.
        durable_at = durable_at.max(mark(service, wish.owner.session, wish.place.inode)?);
    }
    tell(service, &grants);
    if wish.place.kind == LockKind::Append && (verdict == Verdict::Waits || !grants.is_empty()) {
        // Also the next holder, while others wait behind it.
        let holder = service.part().locks.holder_in_the_way(wish.place);
        holder
            .into_iter()
            .for_each(|session| service.part().invalidations.tell_end_wanted(session, wish.place.inode));
    }
    let is_granted = verdict == Verdict::Granted && wish.mode.is_some();
    let version = if is_granted { version(service, wish.place.inode)? } else { 0 };
    let changes = service.part().invalidations.last(wish.owner.session);
    let response = proto::SetLockResponse { verdict: number(verdict), version, changes };
    Ok(Settled { answer: Ok(response.encode_to_vec()), durable_at })
}

fn number(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Granted => 0,
        Verdict::Waits => 1,
        Verdict::Taken => 2,
        Verdict::Deadlock => 3,
        Verdict::TooMany => 4,
        Verdict::TooEarly => 5,
    }
}

pub(crate) fn test(
    service: &MetaService,
    request: &proto::TestLockRequest,
) -> Outcome<proto::TestLockResponse> {
    let wish = wish(service, request.session, request.lock.as_ref(), 0)?;
    let found = service.part().locks.test(&wish);
    let held = found.map(|(held, process)| proto::Lock {
        inode: wish.place.inode.0,
        kind: wish.place.kind as u32,
        owner: held.owner.number,
        first: held.range.first,
        last: held.range.last,
        mode: if held.mode == LockMode::Exclusive { EXCLUSIVE } else { SHARED },
        // A process id means something on its own machine only.
        process: if held.owner.session.0 == request.session { process } else { 0 },
    });
    Ok(proto::TestLockResponse { held })
}

pub(crate) fn cancel(
    service: &MetaService,
    request: &proto::CancelLockRequest,
) -> Outcome<proto::CancelLockResponse> {
    let wish = wish(service, request.session, request.lock.as_ref(), request.waiter)?;
    let was_waiting = service.part().locks.cancel(wish.place, wish.owner.session, request.waiter);
    Ok(proto::CancelLockResponse { was_waiting })
}

pub(crate) fn reclaim(
    service: &MetaService,
    request: &proto::ReclaimLocksRequest,
) -> Outcome<proto::ReclaimLocksResponse> {
    if request.locks.len() > LOCKS_OF_SESSION_MAX {
        let text =
            format!("{} locks of one session, {LOCKS_OF_SESSION_MAX} are the most", request.locks.len());
        return Err(Fault::new(Code::NoLocks, text));
    }
    let session = known(service, request.session)?;
    let wishes: Outcome<Vec<Wish>> =
        request.locks.iter().map(|lock| wish(service, request.session, Some(lock), 0)).collect();
    let wishes = wishes?;
    for wish in &wishes {
        mark(service, session, wish.place.inode)?;
    }
    let former =
        (request.former != 0 && request.former != request.session).then_some(SessionId(request.former));
    let (lost, grants) = service.part().locks.reclaim(session, former, &wishes);
    tell(service, &grants);
    Ok(proto::ReclaimLocksResponse { lost })
}

/// Notifies the waiters that hold their locks now.
pub(crate) fn tell(service: &MetaService, grants: &[Grant]) {
    for grant in grants {
        service.part().invalidations.tell_grant(grant.session, grant.inode, grant.waiter);
    }
}

fn known(service: &MetaService, session: u64) -> Outcome<SessionId> {
    let session = SessionId(session);
    if service.sessions().is_known(session) { Ok(session) } else { Err(sessions::unknown(session)) }
}

fn wish(service: &MetaService, session: u64, lock: Option<&proto::Lock>, waiter: u64) -> Outcome<Wish> {
    let session = known(service, session)?;
    let lock = lock.ok_or_else(|| Fault::new(Code::BadRequest, "a request about a lock without it"))?;
    let inode = InodeId(lock.inode);
    let mode = match lock.mode {
        0 => None,
        SHARED => Some(LockMode::Shared),
        EXCLUSIVE => Some(LockMode::Exclusive),
        other => return Err(Fault::new(Code::Invalid, format!("lock mode {other} on inode {inode}"))),
    };
    let kind = LockKind::from_number(lock.kind)
        .ok_or_else(|| Fault::new(Code::Invalid, format!("kind {} of lock on inode {inode}", lock.kind)))?;
    if lock.first > lock.last {
        return Err(inode_fault(Code::Invalid, inode));
    }
    Ok(Wish {
        place: Place { inode, kind },
        owner: Owner { session, number: lock.owner },
        range: LockRange { first: lock.first, last: lock.last },
        mode,
        process: lock.process,
        waiter,
    })
}

fn version(service: &MetaService, inode: InodeId) -> Outcome<u64> {
    // An unlinked file that is open may still be locked; one that is gone has no version to compare.
    let (found, _) = service.transact(None, |context| context.find_inode(inode))?;
    Ok(found?.map_or(0, |record| record.version))
}

/// Notes in the session's record that it may have locks on the file. Returns the position that has to be durable before
/// the first one may leave.
fn mark(service: &MetaService, session: SessionId, inode: InodeId) -> Outcome<Option<u64>> {
    if service.part().locks.is_marked(session, inode) {
        return Ok(None);
    }
    let _one = service.part().locks.begin_marking();
    let (written, position) = service.transact(Some(session), |context| {
        let key = keys::session(session);
        let record = context.read::<SessionRecord>(&key, "session")?;
        let mut record = record.ok_or_else(|| sessions::unknown(session))?;
        add_mark(service, session, &mut record, inode);
        context.write(key, &record);
        Ok(sessions::marks(&record))
    })?;
    if let Some(marks) = written? {
        service.part().locks.mark(session, marks);
    }
    Ok(Some(position))
}

/// Adds a file to those that a session may have locked. A list that has become long for the locks of its session loses
/// the files on which that has none. A list that would stay more than half full, and be gone through again soon, stands
/// for all files.
fn add_mark(service: &MetaService, session: SessionId, record: &mut SessionRecord, inode: InodeId) {
    record.locked_inodes.push(inode.0);
    let locks = &service.part().locks;
    let kept = LOCKED_INODES_KEPT.max(2 * locks.count_of(session)).min(LOCKED_INODES_MAX);
    if record.locked_inodes.len() <= kept {
        return;
    }
    // After a restart they are not known until the session has taken them back: then all are kept.
    let held = locks.files_of(session);
    let is_held = |inode: u64| held.as_ref().is_none_or(|held| held.contains(&InodeId(inode)));
    record.locked_inodes.retain(|&marked| marked == inode.0 || is_held(marked));
    if record.locked_inodes.len() > LOCKED_INODES_MAX / 2 {
        record.locked_inodes.clear();
        record.has_locks = true;
    }
}
