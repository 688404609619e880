//! The record of a placement group, under key `B`, as the model has it.
//!
//! Nothing but the model's rule makes or changes a [`Membership`] (`placement::Groups`), so there is no other way to
//! write a record. A target alone of which no process was noted has the short form of volumes of before. Whatever else
//! is written takes a schema that older programs refuse, as they would take every member for a current one.

use crate::schema::records::GroupRecord;
use crate::service::fault::Outcome;
use vazao_model::cluster::membership::Membership;
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

/// The record that says so.
pub(crate) fn record(id: GroupId, membership: &Membership) -> GroupRecord {
    if membership.is_plain() {
        let members = membership.current().map(|member| member.target.0).collect();
        return GroupRecord { epoch: membership.epoch, members, membership: None };
    }
    GroupRecord { membership: Some(members::group_members(id, membership)), ..GroupRecord::default() }
}
