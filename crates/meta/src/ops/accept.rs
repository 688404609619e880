//! AcceptOld: an operator goes on with an older copy of a target, or of the metadata, and gives up what it lacks.

use crate::schema::keys;
use crate::schema::numbers;
use crate::schema::records::NumberRecord;
use crate::service::MetaService;
use crate::service::answer::Settled;
use crate::service::fault::Outcome;
use prost::Message;
use vazao_model::{Code, TargetId};
use vazao_wire::proto;
use vazao_wire::service::Fault;

/// The answer leaves when the decision is durable.
pub(crate) fn run(service: &MetaService, request: &proto::AcceptOldRequest) -> Outcome<Settled> {
    match request.target {
        0 => accept_metadata(service),
        id => accept_target(service, TargetId(id), request.incarnation),
    }
}

fn accept_target(service: &MetaService, id: TargetId, incarnation: u64) -> Outcome<Settled> {
    let position = service.change_cluster(
        |cluster| cluster.accept_old(id, incarnation),
        |context, changed| {
            let record = changed.targets.get(&id).map(|held| &held.record);
            record.into_iter().for_each(|record| context.write(keys::target(id), record));
            Ok(())
        },
    )?;
    tracing::warn!(%id, incarnation, "an operator goes on with an older copy of this target");
    let note = format!("{id} is served as it is with the next report of its server, within some seconds");
    Ok(settled(note, position))
}

/// The counters that distinguish files skip all numbers that the lost changes may have used: a new file must not find
/// the objects of one that this directory does not know.
fn accept_metadata(service: &MetaService) -> Outcome<Settled> {
    let history = service.history();
    let Some(behind) = history.to_accept() else {
        let text = match history.is_behind() {
            true => history.trouble(),
            false => "the metadata is current, as far as known: there is nothing to accept".to_owned(),
        };
        return Err(Fault::new(Code::Invalid, text));
    };
    let lost = history.lost_commits(&behind, service.engine().figures().position);
    let (written, position) = service.transact(None, |context| {
        numbers::skip(context, history.next_start(&behind), lost)?;
        context.write(keys::LINEAGE.to_vec(), &NumberRecord { value: history.next_lineage(&behind) });
        Ok(())
    })?;
    written?;
    history.set_accepted();
    tracing::warn!(lost, "an operator goes on with an older copy of the metadata, from the next start on");
    let note = "restart the metadata service: it goes on with this directory as it is".to_owned();
    Ok(settled(note, position))
}

fn settled(note: String, position: crate::engine::Position) -> Settled {
    let answer = Ok(proto::AcceptOldResponse { note }.encode_to_vec());
    Settled { answer, durable_at: Some(position) }
}
