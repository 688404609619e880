//! OpenSession, RenewSession, CloseSession, Release: clients' stays, and the unlinked inodes they hold.
//!
//! These work on many records and take several transactions; each of them can be repeated.

use crate::objects::orphans;
use crate::ops::{self, layout};
use crate::schema::keys;
use crate::schema::records::{InodeRecord, SessionRecord, TimeRecord};
use crate::service::MetaService;
use crate::service::fault::Outcome;
use crate::sessions;
use vazao_model::ids::ROOT;
use vazao_model::zone::Line;
use vazao_model::{Code, InodeId, SessionId, limits};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// Inodes let go in one transaction, which keeps it below the engine's limit.
const RELEASES_AT_ONCE: usize = 128;

/// Orphans asked about in one renewal; the next one continues after them.
const ASKED_AT_ONCE: usize = 1024;

/// Bytes of a client's own description that are kept.
const CLIENT_BYTES_MAX: usize = 256;

pub(crate) fn open(
    service: &MetaService,
    request: &proto::OpenSessionRequest,
) -> Outcome<proto::OpenSessionResponse> {
    let session = SessionId(service.random_number()?);
    service.part().begin_session(session);
    let opened = begin(service, session, request);
    if opened.is_err() {
        service.part().forget_session(session);
    }
    let root = opened?;
    service.sessions().grant(session, service.clock().now_ns());
    Ok(proto::OpenSessionResponse {
        session: session.0,
        lease_ms: limits::SESSION_LEASE_MS,
        slots: limits::SESSION_SLOTS_MAX,
        map: Some(service.map_message()),
        volume_layout: Some(layout::effective(root.hint.as_ref())?.into()),
        zone: service.zone_at(&request.address),
        lines: service.lines().iter().map(line).collect(),
    })
}

fn line(line: &Line) -> proto::Line {
    proto::Line { zones: line.zones.to_vec(), bits_per_s: line.rate.0 }
}

/// Writes the record of a new session. Returns the root directory.
fn begin(
    service: &MetaService,
    session: SessionId,
    request: &proto::OpenSessionRequest,
) -> Outcome<InodeRecord> {
    let client: String = request.client.chars().take(CLIENT_BYTES_MAX / 4).collect();
    let (root, _) = service.transact(None, |context| {
        if context.exists(&keys::session(session))? {
            return Err(Fault::new(Code::Conflict, format!("session {session} exists already")));
        }
        let opened = Some(TimeRecord::from(context.now));
        let record = SessionRecord {
            client: client.clone(),
            opened,
            follows_conversions: request.follows_conversions,
            follows_groups: request.follows_groups,
            ..SessionRecord::default()
        };
        context.write(keys::session(session), &record);
        sessions::advance_epoch(context)?;
        context.inode(ROOT)
    })?;
    root
}

pub(crate) fn renew(
    service: &MetaService,
    request: &proto::RenewSessionRequest,
) -> Outcome<proto::RenewSessionResponse> {
    let session = SessionId(request.session);
    let lease = service.sessions().renew(session, service.clock().now_ns())?;
    if !service.history().is_behind() {
        release_all(service, session, &request.not_held)?;
    }
    let orphans = orphans_to_ask(service, session, lease.asked_last)?;
    service.sessions().set_asked_last(session, orphans.last().copied().unwrap_or(0));
    let now_ns = service.clock().now_ns();
    let report_measures = service.sessions().report(session, request.measures.as_ref(), now_ns);
    let is_newer = service.cluster().membership.epoch > request.epoch;
    let map = is_newer.then(|| service.map_message());
    let tells =
        request.covers_round.map(|covers| service.part().opens.renewed(session, covers, &request.open));
    let round = tells.unwrap_or_default();
    let lines = service.sessions().lines.share(session, &request.lines, now_ns);
    Ok(proto::RenewSessionResponse { map, orphans, report_measures, round, lines })
}

/// The next orphans after `asked_last`, starting over at the end.
fn orphans_to_ask(service: &MetaService, session: SessionId, asked_last: u64) -> Outcome<Vec<u64>> {
    let (pairs, _) = service.transact(Some(session), |context| {
        let all = keys::asked_of(session);
        let mut rest = all.clone();
        rest.start = keys::after(&keys::asked(session, InodeId(asked_last)));
        let mut pairs = context.scan(&rest, ASKED_AT_ONCE)?;
        if pairs.len() < ASKED_AT_ONCE {
            let before = all.start..rest.start;
            pairs.extend(context.scan(&before, ASKED_AT_ONCE - pairs.len())?);
        }
        Ok(pairs)
    })?;
    Ok(pairs?.iter().filter_map(|(key, _)| keys::number(key, 1)).collect())
}

pub(crate) fn close(
    service: &MetaService,
    request: &proto::CloseSessionRequest,
) -> Outcome<proto::CloseSessionResponse> {
    end(service, SessionId(request.session))?;
    Ok(proto::CloseSessionResponse {})
}

pub(crate) fn release(
    service: &MetaService,
    request: &proto::ReleaseRequest,
) -> Outcome<proto::ReleaseResponse> {
    release_all(service, SessionId(request.session), &request.inodes)?;
    Ok(proto::ReleaseResponse {})
}

fn release_all(service: &MetaService, session: SessionId, inodes: &[u64]) -> Outcome<()> {
    for part in inodes.chunks(RELEASES_AT_ONCE) {
        let (done, _) = service.transact(Some(session), |context| {
            part.iter().try_for_each(|&inode| orphans::release(context, session, InodeId(inode)))
        })?;
        done?;
    }
    Ok(())
}

/// Ends a session: lets go of what it may have held, forgets its slots and itself, then frees its locks. Its reports
/// are refused once its record is gone: each is carried out before the next holder of a lock gets it, or not at all.
pub(crate) fn end(service: &MetaService, session: SessionId) -> Outcome<()> {
    service.sessions().revoke(session);
    let ended = end_records(service, session);
    match ended {
        Ok(()) => {
            ops::locks::tell(service, &service.part().end_session(session));
            service.part().forget_session(session);
        }
        Err(_) => service.sessions().expire_later(session),
    }
    ended
}

fn end_records(service: &MetaService, session: SessionId) -> Outcome<()> {
    loop {
        let (finished, _) = service.transact(Some(session), |context| {
            let held = context.scan(&keys::asked_of(session), RELEASES_AT_ONCE)?;
            for inode in held.iter().filter_map(|(key, _)| keys::number(key, 1)) {
                orphans::release(context, session, InodeId(inode))?;
            }
            if held.len() == RELEASES_AT_ONCE {
                return Ok(false);
            }
            if context.exists(&keys::session(session))? {
                context.delete(keys::session(session));
                sessions::advance_epoch(context)?;
            }
            for (key, _) in context.scan(&keys::replies(session), limits::SESSION_SLOTS_MAX as usize)? {
                context.delete(key);
            }
            Ok(true)
        })?;
        if finished? {
            return Ok(());
        }
    }
}
