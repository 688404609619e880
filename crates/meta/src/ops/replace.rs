//! ReplaceTarget: an empty directory takes the place of a lost target.

use crate::membership::replacing::Replaced;
use crate::schema::keys;
use crate::service::MetaService;
use crate::service::answer::Settled;
use crate::service::fault::Outcome;
use prost::Message;
use std::cell::RefCell;
use vazao_model::TargetId;
use vazao_wire::proto;

/// The answer leaves when the decision is durable: the directory becomes the target then.
pub(crate) fn run(service: &MetaService, request: &proto::ReplaceTargetRequest) -> Outcome<Settled> {
    let (id, now) = (TargetId(request.target), service.now());
    let decided = RefCell::new(Replaced::default());
    let position = service.change_cluster(
        |cluster| {
            let (excerpt, replaced) = cluster.replaced(request, now)?;
            *decided.borrow_mut() = replaced;
            Ok(excerpt)
        },
        |context, changed| {
            let decided = decided.borrow();
            if decided.is_done {
                return Ok(());
            }
            changed.write_membership(context)?;
            changed.write_groups(context, &decided.groups)?;
            let record = changed.targets.get(&id).map(|held| &held.record);
            record.into_iter().for_each(|record| context.write(keys::target(id), record));
            Ok(())
        },
    )?;
    let Replaced { groups, older, is_done } = decided.into_inner();
    if !is_done {
        let directory = &request.directory;
        tracing::warn!(%id, directory, groups = groups.len(), older, "an empty directory takes this target's place");
    }
    let answer = proto::ReplaceTargetResponse { groups: groups.len() as u32, older_groups: older as u32 };
    Ok(Settled { answer: Ok(answer.encode_to_vec()), durable_at: Some(position) })
}
