//! A copy between nodes, or between a node and the volume: a job that a node does, ordered and watched from here.

use crate::Connection;
use vazao_client::area::Reference;
use vazao_client::{Error, Result};
use vazao_model::Code;
use vazao_wire::{op, proto};

/// What `ControlJob` calls cancelling.
const CANCEL: u32 = 3;

/// How a copy is made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyOptions {
    /// Directories with all that is below them.
    pub recursive: bool,
    /// Files in the volume belong to whom their sources belong to.
    pub preserve: bool,
    /// What an earlier copy has brought is not sent again.
    pub resume: bool,
    /// Each file is read from the destination's disk again at its end and compared.
    pub checksum: bool,
    /// As `vazao cp --method` has it: `auto`, `streams:4`.
    pub method: String,
    /// At most so many a second; 0: no limit.
    pub rate_bytes: u64,
}

/// A job of a node. It goes on without this handle.
#[derive(Clone, Debug)]
pub struct Job {
    connection: Connection,
    id: String,
}

impl Connection {
    /// Has a node copy `source` to `destination`, of which one at least is in an area: `n1:/area/path`. The node is the
    /// source's, or the destination's where the source is in the volume.
    pub fn copy(&self, source: &[u8], destination: &[u8], options: &CopyOptions) -> Result<Job> {
        let client = self.client()?;
        let (source, destination) = (place(source), place(destination));
        let node = [&source, &destination].into_iter().find(|place| is_area(place)).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&source).into_owned();
            Error::new(
                Code::Invalid,
                format!("{shown}: no node has a part in this; name an area, as n1:/data/x"),
            )
        })?;
        let node = Reference::parse(node)?.node;
        let spec = proto::JobSpec {
            sources: vec![source],
            destination,
            recursive: options.recursive,
            preserve: options.preserve,
            resume: options.resume,
            checksum: options.checksum,
            method: options.method.clone(),
            rate_bytes: options.rate_bytes,
            nonce: nonce()?,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..proto::JobSpec::default()
        };
        let requester = format!("process {}", std::process::id());
        let request = proto::SubmitJobRequest { spec: Some(spec), requester };
        let answer = client.ask_node::<op::SubmitJob>(&node, &request)?;
        let job = answer.job.ok_or_else(|| unanswered(&node))?;
        Ok(Job { connection: self.clone(), id: job.id })
    }

    /// A job that was ordered before.
    pub fn job(&self, id: &str) -> Result<Job> {
        self.client()?;
        let job = Job { connection: self.clone(), id: id.to_owned() };
        job.node().map(|_| job.clone())
    }
}

impl Job {
    /// Its name: `n1-17`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The node that does it.
    fn node(&self) -> Result<&str> {
        let parts = self.id.rsplit_once('-').filter(|(_, number)| number.parse::<u64>().is_ok());
        let refused = || Error::new(Code::Invalid, format!("{}: no job's ID, as n1-17", self.id));
        parts.map(|(node, _)| node).ok_or_else(refused)
    }

    /// How far it is.
    pub fn status(&self) -> Result<proto::JobStatus> {
        let request = proto::ListJobsRequest { id: self.id.clone(), after: 0 };
        let answer = self.connection.client()?.ask_node::<op::ListJobs>(self.node()?, &request)?;
        answer.jobs.into_iter().next().ok_or_else(|| unanswered(&self.id))
    }

    /// Why single files failed, as far as they fit one answer.
    pub fn failures(&self) -> Result<Vec<String>> {
        let request = proto::ListJobFailuresRequest { id: self.id.clone(), after: 0 };
        let answer = self.connection.client()?.ask_node::<op::ListJobFailures>(self.node()?, &request)?;
        Ok(answer.failures.into_iter().map(|failure| failure.detail).collect())
    }

    /// Has it end. It is over once its status says so.
    pub fn cancel(&self) -> Result<()> {
        let request = proto::ControlJobRequest { id: self.id.clone(), action: CANCEL };
        self.connection.client()?.ask_node::<op::ControlJob>(self.node()?, &request).map(drop)
    }
}

/// A path as jobs have it: one that begins with a slash is in the volume.
fn place(path: &[u8]) -> Vec<u8> {
    let prefix: &[u8] = if path.first() == Some(&b'/') { b"vz:" } else { b"" };
    [prefix, path].concat()
}

fn is_area(place: &[u8]) -> bool {
    !place.starts_with(b"vz:") && Reference::looks_like(place)
}

/// A number that no other job has: one that is submitted again after a lost answer is the same job.
fn nonce() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(Code::Io, format!("taking a random number: {error}")))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

fn unanswered(what: &str) -> Error {
    Error::new(Code::BadRequest, format!("{what}: an answer without the job"))
}
