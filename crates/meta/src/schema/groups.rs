//! The record of a placement group, under key `B`, as the model has it.
//!
//! Nothing but the model's rule makes or changes a [`Membership`] (`placement::Groups`), so there is no other way to
//! write a record. A target alone of which no process was noted has the short form of volumes of before. Whatever else
//! is written takes a schema that older programs refuse, as they would take every member for a current one.

use crate::placement::PlacementGroup;
use crate::schema::records::{GroupRecord, LostMemberRecord};
use crate::service::fault::Outcome;
use vazao_model::cluster::membership::{COPIES_MAX, Membership};
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::messages::members;
use vazao_wire::service::Fault;

/// What a record says. Errors: a newer program wrote it; it is of another group, or none that changes of members make.
pub(crate) fn membership(id: GroupId, record: &GroupRecord) -> Outcome<Membership> {
    let broken = |text: String| Fault::new(Code::Corrupt, format!("record of placement group {id}: {text}"));
    let Some(message) = &record.membership else {
        let alone: Vec<(TargetId, u64)> = record.members.iter().map(|id| (TargetId(*id), 0)).collect();
        let made = Membership::new(&alone).map(|made| Membership { epoch: record.epoch, ..made });
        let whole = made.filter(Membership::is_whole);
        return whole.ok_or_else(|| {
            broken(format!("no changes lead to members {:?} in epoch {}", record.members, record.epoch))
        });
    };
    match members::membership(message) {
        Ok((named, membership)) if named == id => Ok(membership),
        Ok((named, _)) => Err(broken(format!("it is that of group {named}"))),
        Err(fault) if fault.code == Code::VersionMismatch => Err(fault),
        Err(fault) => Err(broken(fault.detail)),
    }
}

/// The group that a record is of. Errors: as [`membership`]; more copies than there can be.
pub(crate) fn group(id: GroupId, record: &GroupRecord) -> Outcome<PlacementGroup> {
    let mut group = PlacementGroup::new(membership(id, record)?);
    if record.copies as usize > COPIES_MAX {
        let text =
            format!("record of placement group {id}: {} copies, {COPIES_MAX} are the most", record.copies);
        return Err(Fault::new(Code::Corrupt, text));
    }
    if record.copies != 0 {
        group.copies = record.copies as usize;
    }
    if record.made_for != 0 {
        group.made_for = TargetId(record.made_for);
    }
    group.lost = record.lost.iter().map(|lost| (TargetId(lost.target), lost.seconds)).collect();
    Ok(group)
}

/// The record that says so.
pub(crate) fn record(id: GroupId, group: &PlacementGroup) -> GroupRecord {
    let membership = &group.membership;
    if membership.is_plain() {
        let members = membership.current().map(|member| member.target.0).collect();
        return GroupRecord { epoch: membership.epoch, members, ..GroupRecord::default() };
    }
    let lost =
        group.lost.iter().map(|(target, seconds)| LostMemberRecord { target: target.0, seconds: *seconds });
    GroupRecord {
        membership: Some(members::group_members(id, membership)),
        copies: group.copies as u32,
        made_for: group.made_for.0,
        lost: lost.collect(),
        ..GroupRecord::default()
    }
}
