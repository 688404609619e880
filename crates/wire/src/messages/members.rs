//! The record of a placement group between its message and the model. The same message is what the metadata service
//! keeps and what members are told. What comes from a peer or a disk is checked here.

use crate::proto;
use crate::service::Fault;
use vazao_model::cluster::membership::{Change, MEMBERS_MAX, Member, Membership, Standing};
use vazao_model::{Code, GroupId, TargetId};

const CURRENT: u32 = 1;
const LAGGING: u32 = 2;
const LEAVING: u32 = 3;

const PUT_OUT: u32 = 1;
const STARTED: u32 = 2;
const LEADS: u32 = 3;
const PROMOTED: u32 = 4;
const ADDED: u32 = 5;
const RETIRED: u32 = 6;
const REMOVED: u32 = 7;
const LOST: u32 = 8;

/// The record of group `id` as a message.
pub fn group_members(id: GroupId, membership: &Membership) -> proto::GroupMembers {
    proto::GroupMembers {
        group: id.0,
        epoch: membership.epoch,
        members: membership.members.iter().map(member_message).collect(),
        losses: membership.losses,
        why: membership.why.as_ref().map(change_message),
    }
}

/// The group and its record. Errors: `VersionMismatch` for what a newer program wrote, `BadRequest` for a record that
/// the rule of members cannot have made.
pub fn membership(message: &proto::GroupMembers) -> Result<(GroupId, Membership), Fault> {
    let id = GroupId(message.group);
    let in_group = |fault: Fault| Fault::new(fault.code, format!("placement group {id}: {}", fault.detail));
    if message.members.len() > MEMBERS_MAX {
        let text = format!("{} members, {MEMBERS_MAX} are the most", message.members.len());
        return Err(in_group(Fault::new(Code::BadRequest, text)));
    }
    let members: Result<Vec<Member>, Fault> = message.members.iter().map(member).collect();
    let why = message.why.as_ref().map(change).transpose().map_err(in_group)?;
    let members = members.map_err(in_group)?;
    let membership = Membership { epoch: message.epoch, members, losses: message.losses, why };
    if !membership.is_whole() {
        let text = format!("no changes lead to members {:?} in epoch {}", message.members, message.epoch);
        return Err(in_group(Fault::new(Code::BadRequest, text)));
    }
    Ok((id, membership))
}

fn member_message(member: &Member) -> proto::GroupMember {
    let (standing, since) = match member.standing {
        Standing::Current => (CURRENT, 0),
        Standing::Lagging { since } => (LAGGING, since),
        Standing::Leaving { since } => (LEAVING, since),
    };
    proto::GroupMember { target: member.target.0, run: member.run, standing, since }
}

fn member(message: &proto::GroupMember) -> Result<Member, Fault> {
    let (target, since) = (TargetId(message.target), message.since);
    let standing = match message.standing {
        CURRENT => Standing::Current,
        LAGGING => Standing::Lagging { since },
        LEAVING => Standing::Leaving { since },
        other => return Err(newer(format!("unknown standing {other} of member {target}"))),
    };
    Ok(Member { target, run: message.run, standing })
}

fn change_message(change: &Change) -> proto::MemberChange {
    let of = |kind, target: &TargetId| proto::MemberChange {
        kind,
        targets: vec![target.0],
        ..proto::MemberChange::default()
    };
    match change {
        Change::PutOut(targets) => {
            let targets = targets.iter().map(|target| target.0).collect();
            proto::MemberChange { kind: PUT_OUT, targets, ..proto::MemberChange::default() }
        }
        Change::Started { target, run } => proto::MemberChange { run: *run, ..of(STARTED, target) },
        Change::Leads { target, run, kept_power } => {
            proto::MemberChange { run: *run, kept_power: *kept_power, ..of(LEADS, target) }
        }
        Change::Promote { target, run, by: (by, by_run), instead_of } => proto::MemberChange {
            run: *run,
            by: by.0,
            by_run: *by_run,
            instead_of: instead_of.map_or(0, |target| target.0),
            ..of(PROMOTED, target)
        },
        Change::Add { target, run } => proto::MemberChange { run: *run, ..of(ADDED, target) },
        Change::Retire(target) => of(RETIRED, target),
        Change::Remove(target) => of(REMOVED, target),
        Change::Lost(target) => of(LOST, target),
    }
}

fn change(message: &proto::MemberChange) -> Result<Change, Fault> {
    let count = message.targets.len();
    let fits = if message.kind == PUT_OUT { count <= MEMBERS_MAX } else { count == 1 };
    if !fits {
        return Err(Fault::new(
            Code::BadRequest,
            format!("a change of kind {} about {count} members", message.kind),
        ));
    }
    let mut targets = message.targets.iter().copied().map(TargetId);
    let run = message.run;
    let change = match (message.kind, targets.next()) {
        (PUT_OUT, first) => Change::PutOut(first.into_iter().chain(targets).collect()),
        (STARTED, Some(target)) => Change::Started { target, run },
        (LEADS, Some(target)) => Change::Leads { target, run, kept_power: message.kept_power },
        (PROMOTED, Some(target)) => {
            let instead_of = Some(TargetId(message.instead_of)).filter(|old| old.0 != 0);
            Change::Promote { target, run, by: (TargetId(message.by), message.by_run), instead_of }
        }
        (ADDED, Some(target)) => Change::Add { target, run },
        (RETIRED, Some(target)) => Change::Retire(target),
        (REMOVED, Some(target)) => Change::Remove(target),
        (LOST, Some(target)) => Change::Lost(target),
        (other, _) => return Err(newer(format!("unknown change {other} of its members"))),
    };
    Ok(change)
}

fn newer(text: String) -> Fault {
    Fault::new(Code::VersionMismatch, format!("{text}; use the same version of vazao everywhere"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Membership {
        let members = [(TargetId(1), 4), (TargetId(2), 5), (TargetId(3), 6)];
        Membership::new(&members).expect("legal")
    }

    fn survives(now: &Membership) {
        let id = GroupId(GroupId::FIRST + 9);
        assert_eq!(membership(&group_members(id, now)).expect("whole"), (id, now.clone()));
    }

    #[test]
    fn records_after_every_kind_of_change_survive_their_message() {
        let [one, two, three_, four] = [1, 2, 3, 4].map(TargetId);
        let mut now = three();
        survives(&now);
        for change in [
            Change::PutOut(vec![one, three_]),
            Change::Started { target: one, run: 7 },
            Change::Leads { target: two, run: 8, kept_power: true },
            Change::Promote { target: one, run: 7, by: (two, 8), instead_of: None },
            Change::Add { target: four, run: 1 },
            Change::Promote { target: four, run: 1, by: (two, 8), instead_of: Some(one) },
            Change::Remove(one),
            Change::Retire(three_),
            Change::Leads { target: two, run: 9, kept_power: false },
            Change::Lost(four),
        ] {
            now = now.changed(now.epoch, change).expect("legal");
            survives(&now);
        }
        assert_eq!((now.losses, now.epoch), (1, 11));
    }

    type Spoil<'a> = &'a dyn Fn(&mut proto::GroupMembers);

    #[test]
    fn records_that_no_change_makes_or_that_are_not_understood_are_refused() {
        let good = group_members(GroupId(GroupId::FIRST), &three());
        let refused = |spoil: Spoil<'_>| {
            let mut message = good.clone();
            spoil(&mut message);
            membership(&message).expect_err("refused")
        };
        let why = |kind, targets: &[u32]| {
            Some(proto::MemberChange { kind, targets: targets.to_vec(), ..proto::MemberChange::default() })
        };
        let cases: [(Code, Spoil<'_>); 10] = [
            (Code::BadRequest, &|m| m.epoch = 0),
            (Code::BadRequest, &|m| m.members.clear()),
            (Code::BadRequest, &|m| m.members[1].target = 1),
            (Code::BadRequest, &|m| (m.members[1].standing, m.members[1].since) = (LAGGING, 2)),
            (Code::BadRequest, &|m| m.members = vec![m.members[0]; 1_000]),
            (Code::VersionMismatch, &|m| m.members[1].standing = 4),
            (Code::VersionMismatch, &|m| m.members[1].standing = 0),
            (Code::BadRequest, &|m| m.why = why(RETIRED, &[])),
            (Code::BadRequest, &|m| m.why = why(PUT_OUT, &[1; 1_000])),
            (Code::VersionMismatch, &|m| m.why = why(9, &[1])),
        ];
        for (code, spoil) in cases {
            let fault = refused(spoil);
            assert_eq!(fault.code, code, "{fault}");
            assert!(fault.detail.contains("placement group g0"), "{fault}");
        }
    }
}
