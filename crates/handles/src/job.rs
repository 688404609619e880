//! A copy between nodes, or between a node and the volume: a job that a node does, ordered and watched from here.

use crate::Connection;
use vazao_client::{Error, Result};
use vazao_model::Code;
use vazao_mover::remote::{self, Action};
use vazao_wire::proto;

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
        let sources = [job_place(source)];
        let spec = proto::JobSpec {
            destination: job_place(destination),
            recursive: options.recursive,
            preserve: options.preserve,
            resume: options.resume,
            checksum: options.checksum,
            method: options.method.clone(),
            rate_bytes: options.rate_bytes,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..proto::JobSpec::default()
        };
        let requester = format!("process {}", std::process::id());
        let jobs = remote::order(self.client()?, &sources, &spec, &requester)?;
        // One source, one node.
        let job =
            jobs.into_iter().next().ok_or_else(|| Error::new(Code::Internal, "a copy without a job"))?;
        Ok(Job { connection: self.clone(), id: job.id })
    }

    /// A job that was ordered before.
    pub fn job(&self, id: &str) -> Result<Job> {
        self.client()?;
        match remote::node_of(id) {
            Some(_) => Ok(Job { connection: self.clone(), id: id.to_owned() }),
            None => Err(Error::new(Code::Invalid, format!("{id}: no job's ID, as n1-17"))),
        }
    }
}

impl Job {
    /// Its name: `n1-17`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How far it is.
    pub fn status(&self) -> Result<proto::JobStatus> {
        remote::status(self.connection.client()?, &self.id)
    }

    /// Why single files failed, as far as they fit one answer.
    pub fn failures(&self) -> Result<Vec<String>> {
        let (failures, _) = remote::failures(self.connection.client()?, &self.id, 0)?;
        Ok(failures.into_iter().map(|failure| failure.detail).collect())
    }

    /// Has it end. It is over once its status says so.
    pub fn cancel(&self) -> Result<()> {
        remote::control(self.connection.client()?, &self.id, Action::Cancel)
    }
}

/// A path as jobs have it: one that begins with a slash is in the volume.
pub fn job_place(path: &[u8]) -> Vec<u8> {
    let prefix: &[u8] = if path.first() == Some(&b'/') { b"vz:" } else { b"" };
    [prefix, path].concat()
}
