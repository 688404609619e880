//! GetGroups and ReportMembers: what members of placement groups ask, and what they say of one another.

use crate::membership::reports::{Report, Said};
use crate::service::MetaService;
use crate::service::answer::Settled;
use crate::service::fault::Outcome;
use crate::service::transactions::decode;
use prost::Message;
use std::collections::BTreeSet;
use vazao_model::cluster::membership::MEMBERS_MAX;
use vazao_model::{Code, GroupId, NodeId, TargetId};
use vazao_wire::messages::members::group_members;
use vazao_wire::service::{Fault, Responder};
use vazao_wire::{op, proto};

/// Records in one answer, and reports in one request: both fit into a message several times.
const GROUPS_MAX: usize = 1024;

/// What is answered is durable: a member that knew of an epoch which power loss takes back would meet another one of
/// the same number.
pub(crate) fn get(service: &MetaService, request: &proto::GetGroupsRequest) -> Outcome<Settled> {
    let target = TargetId(request.target);
    let cluster = service.cluster();
    if !cluster.knows(target) {
        let text = format!("target {target}: not in this cluster; `vazao status` shows the targets");
        return Err(Fault::new(Code::NotFound, text));
    }
    let limit =
        Some(request.limit as usize).filter(|limit| (1..GROUPS_MAX).contains(limit)).unwrap_or(GROUPS_MAX);
    let mut found: Vec<_> =
        cluster.groups.of_member(target, GroupId(request.after)).take(limit + 1).collect();
    let more = found.len() > limit;
    found.truncate(limit);
    let all: BTreeSet<TargetId> =
        found.iter().flat_map(|(_, membership)| &membership.members).map(|member| member.target).collect();
    let server = |target: TargetId| {
        let node = NodeId(cluster.targets.get(&target)?.record.node);
        let address = cluster.nodes.get(&node)?.record.address.clone();
        Some(proto::MemberServer { target: target.0, node: node.0, address })
    };
    let servers = all.into_iter().filter_map(server).collect();
    let groups = found.into_iter().map(|(id, membership)| group_members(id, membership)).collect();
    let answer = Ok(proto::GetGroupsResponse { groups, more, servers }.encode_to_vec());
    Ok(Settled { answer, durable_at: Some(service.groups_changed_at()) })
}

/// Takes what a member says; it is answered once it is decided.
pub(crate) fn report(service: &MetaService, message: &[u8], responder: &mut dyn Responder) -> Outcome<()> {
    let request = decode::<op::ReportMembers>(message)?;
    check_asker(service, &request)?;
    if request.reports.len() > GROUPS_MAX {
        let count = request.reports.len();
        let text =
            format!("{count} reports of members, {GROUPS_MAX} are the most; send the rest behind them");
        return Err(Fault::new(Code::BadRequest, text));
    }
    let node = NodeId(request.node);
    let reports: Outcome<Vec<Report>> = request.reports.iter().map(|report| parsed(node, report)).collect();
    service.reports().add(reports?, service.clock().now_ns(), || responder.defer())
}

/// Refuses a process that does not have the identity of its node.
fn check_asker(service: &MetaService, request: &proto::ReportMembersRequest) -> Outcome<()> {
    let node = NodeId(request.node);
    let run = service.cluster().nodes.get(&node).map(|member| member.record.run);
    match run {
        None => {
            let text = format!("node {node} is not in this cluster; register it before it reports");
            Err(Fault::new(Code::Invalid, text))
        }
        Some(run) if run == 0 || run != request.run => {
            let text =
                format!("node {node} is served by another process by now; stop the one that reported this");
            Err(Fault::new(Code::InUse, text))
        }
        Some(_) => Ok(()),
    }
}

fn parsed(node: NodeId, report: &proto::MemberReport) -> Outcome<Report> {
    let group = GroupId(report.group);
    let wrong =
        |text: String| Fault::new(Code::BadRequest, format!("report of a member of group {group}: {text}"));
    if report.silent.len() > MEMBERS_MAX {
        let count = report.silent.len();
        return Err(wrong(format!(
            "{count} silent ones, {MEMBERS_MAX} are the most; name members of the group"
        )));
    }
    if report.silent.contains(&report.target) {
        return Err(wrong("a member does not hear itself; name others".to_owned()));
    }
    let silent: Vec<TargetId> = report.silent.iter().copied().map(TargetId).collect();
    let said = match (silent.is_empty(), &report.promote, &report.lead) {
        (false, None, None) => Said::Silent(silent),
        (true, Some(promote), None) => Said::Promote {
            target: TargetId(promote.target),
            process: promote.process,
            instead_of: Some(TargetId(promote.instead_of)).filter(|target| target.0 != 0),
        },
        (true, None, Some(lead)) => Said::Lead { kept_power: lead.kept_power },
        _ => {
            return Err(wrong(
                "it says nothing, or several things; send one of silent, promote, lead".to_owned(),
            ));
        }
    };
    let (target, process) = (TargetId(report.target), report.process);
    Ok(Report { node, group, epoch: report.epoch, target, process, said })
}
