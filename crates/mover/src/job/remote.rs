//! Jobs as those see them who have nodes do them: ordered, looked at, ended.

use super::plan::{check, find};
use crate::place::Place;
use std::collections::BTreeMap;
use vazao_client::{Client, Error, Result};
use vazao_model::{Code, FileKind};
use vazao_wire::service::Fault;
use vazao_wire::{op, proto};

/// What a job may be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Action {
    /// To wait.
    Pause = 1,
    /// To go on.
    Resume = 2,
    /// To end. What has arrived of files that are under way stays beside their names.
    Cancel = 3,
    /// To be forgotten; it has to be over.
    Forget = 4,
}

/// The node that a job's ID names: `n1-17`.
pub fn node_of(id: &str) -> Option<&str> {
    id.rsplit_once('-').filter(|(_, number)| number.parse::<u64>().is_ok()).map(|(node, _)| node)
}

fn node_that_has(id: &str) -> Result<&str> {
    node_of(id).ok_or_else(|| Error::new(Code::Invalid, format!("{id}: no job's ID, as n1-17")))
}

/// A number that no other job has: a job that is submitted again with it is the same one.
pub fn nonce() -> Result<u64> {
    let mut bytes = [0; 8];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|e| Error::new(Code::Internal, format!("taking a random number: {e}")))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

fn error(fault: Fault) -> Error {
    Error::new(fault.code, fault.detail)
}

/// Sources by the node that does the copy: theirs, or for the volume's the destination's.
fn by_node(sources: &[Vec<u8>], destination: &[u8]) -> Result<BTreeMap<String, Vec<Vec<u8>>>> {
    let to = Place::parse(destination).map_err(error)?;
    let mut groups: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for source in sources {
        let node = match (Place::parse(source).map_err(error)?, &to) {
            (Place::Area(reference), _) => reference.node,
            (Place::Volume(_), Place::Area(to)) => to.node.clone(),
            (Place::Volume(from), Place::Volume(_)) => {
                let detail = format!("vz:{from} to {to}: no node has a part in this; read it and write it");
                return Err(Error::new(Code::Invalid, detail));
            }
        };
        groups.entry(node).or_default().push(source.clone());
    }
    Ok(groups)
}

fn is_directory(client: &Client, place: &[u8]) -> Result<bool> {
    let there = find(client, &Place::parse(place).map_err(error)?, true).map_err(error)?;
    Ok(there.is_some_and(|there| there.kind == FileKind::Directory))
}

/// Has each node that has a part in it do its part of the copy of `sources` that `spec` describes: one job each.
/// `requester` is who `vazao jobs` says has asked. Errors: what would fail all of it.
pub fn order(
    client: &Client,
    sources: &[Vec<u8>],
    spec: &proto::JobSpec,
    requester: &str,
) -> Result<Vec<proto::JobStatus>> {
    let groups = by_node(sources, &spec.destination)?;
    if groups.len() > 1 && !is_directory(client, &spec.destination)? {
        let shown = String::from_utf8_lossy(&spec.destination);
        let detail = format!("{shown}: not a directory; several sources need one to go into");
        return Err(Error::new(Code::NotDirectory, detail));
    }
    check(client, &proto::JobSpec { sources: sources.to_vec(), ..spec.clone() }).map_err(error)?;
    let submitted = groups.into_iter().map(|(node, sources)| {
        let spec = Some(proto::JobSpec { sources, nonce: nonce()?, ..spec.clone() });
        let request = proto::SubmitJobRequest { spec, requester: requester.to_owned() };
        let answer = client.ask_node::<op::SubmitJob>(&node, &request)?;
        answer.job.ok_or_else(|| without_job(&node))
    });
    submitted.collect()
}

fn without_job(what: &str) -> Error {
    Error::new(Code::BadRequest, format!("{what}: an answer without the job"))
}

/// One job as it is now.
pub fn status(client: &Client, id: &str) -> Result<proto::JobStatus> {
    let request = proto::ListJobsRequest { id: id.to_owned(), after: 0 };
    let answer = client.ask_node::<op::ListJobs>(node_that_has(id)?, &request)?;
    answer.jobs.into_iter().next().ok_or_else(|| without_job(id))
}

/// Tells a job something.
pub fn control(client: &Client, id: &str, action: Action) -> Result<()> {
    let request = proto::ControlJobRequest { id: id.to_owned(), action: action as u32 };
    client.ask_node::<op::ControlJob>(node_that_has(id)?, &request).map(drop)
}

/// The files of a job that failed, from the one after `seen` on: a page, and whether it is the last one.
pub fn failures(client: &Client, id: &str, seen: u64) -> Result<(Vec<proto::JobFailure>, bool)> {
    let request = proto::ListJobFailuresRequest { id: id.to_owned(), after: seen };
    let page = client.ask_node::<op::ListJobFailures>(node_that_has(id)?, &request)?;
    let is_last = page.end || page.failures.is_empty();
    Ok((page.failures, is_last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_a_job_is_in_its_id() {
        assert_eq!(node_of("data-1.lab-17"), Some("data-1.lab"));
        assert!(node_of("n1").is_none() && node_of("n1-x").is_none());
    }

    #[test]
    fn a_copy_is_done_by_the_nodes_that_have_the_sources_or_take_them_from_the_volume() {
        let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
        let nodes = |sources: &[&str], destination: &str| {
            let groups = by_node(&texts(sources), destination.as_bytes()).map_err(|error| error.code)?;
            Ok(groups.into_iter().map(|(node, sources)| (node, sources.len())).collect::<Vec<_>>())
        };
        let of = |name: &str, count: usize| (name.to_owned(), count);
        assert_eq!(nodes(&["a:/x/1", "b:/x/2", "a:/x/3"], "vz:/"), Ok(vec![of("a", 2), of("b", 1)]));
        assert_eq!(nodes(&["vz:/f", "a:/x/1"], "c:/y/"), Ok(vec![of("a", 1), of("c", 1)]));
        assert_eq!(nodes(&["vz:/f"], "vz:/g"), Err(Code::Invalid));
        assert_eq!(nodes(&["/local"], "vz:/g"), Err(Code::Invalid));
    }
}
