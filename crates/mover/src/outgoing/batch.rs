//! Many small files in one request: a round trip and a sync for each would cost more than their bytes.

use super::{Destination, Manner, Surroundings, WHOLE_BYTES_MAX, about, begin_request, changed};
use crate::source::Source;
use std::sync::Arc;
use vazao_model::Code;
use vazao_model::checksum::crc32c;
use vazao_wire::op::CopyBatch;
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::submit;

/// Files of one request: their syncs share what a sync costs, and one batch is little to send again.
pub(crate) const FILES_MAX: usize = 128;

/// Bytes of them together: a block's worth. A file that may be larger than what is left goes in the next batch.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// Bytes of their paths: the request's message has to fit into a frame twice over.
pub(crate) const PATH_BYTES_MAX: usize = 128 * 1024;

/// One of the files.
pub struct BatchFile {
    /// What it is read from.
    pub source: Arc<dyn Source>,
    /// Where it goes.
    pub to: Destination,
    /// When one that is there is replaced, as numbered in a job's specification.
    pub overwrite: u32,
}

impl std::fmt::Debug for BatchFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BatchFile({} to {})", self.source.shown(), self.to.shown())
    }
}

/// What became of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is there now, durable.
    Done,
    /// What was there was kept.
    Skipped,
}

/// Reads one whole file; what has changed meanwhile is not sent.
fn read(file: &BatchFile, around: &Surroundings, bytes: &mut Vec<u8>) -> Result<proto::CopyBatchFile, Fault> {
    let version = file.source.version()?;
    if version.size > WHOLE_BYTES_MAX {
        // Planned as a small one.
        return Err(changed(file.source.shown()));
    }
    let start = bytes.len();
    bytes.resize(start + version.size as usize, 0);
    let count = file.source.read_at(&mut bytes[start..], 0);
    let is_whole =
        count.and_then(|count| Ok(count == bytes.len() - start && file.source.version()? == version));
    if !matches!(is_whole, Ok(true)) {
        bytes.truncate(start);
        return Err(is_whole.err().unwrap_or_else(|| changed(file.source.shown())));
    }
    let begin = begin_request(&*file.source, around, &file.to, &version, Manner::default());
    Ok(proto::CopyBatchFile {
        begin: Some(begin),
        checksum: crc32c(&bytes[start..]),
        overwrite: file.overwrite,
    })
}

fn outcome(outcome: proto::CopyBatchOutcome, to: &Destination) -> Result<Sent, Fault> {
    match (outcome.code, outcome.skipped) {
        (0, false) => Ok(Sent::Done),
        (0, true) => Ok(Sent::Skipped),
        (code, _) => Err(about(Fault::new(Code::from_number(code), outcome.detail), to)),
    }
}

/// Sends files to one node in one request. What became of each, in their order; the bytes sent.
pub fn send_batch(
    files: &[BatchFile],
    around: &Surroundings,
    read_back: bool,
) -> (Vec<Result<Sent, Fault>>, u64) {
    let mut bytes = Vec::with_capacity(BYTES_MAX as usize);
    let started_ns = around.clock.now_ns();
    let read: Vec<Result<proto::CopyBatchFile, Fault>> =
        files.iter().map(|file| read(file, around, &mut bytes)).collect();
    around.counts.read_ns.add(around.clock.now_ns().saturating_sub(started_ns));
    let (mut entries, mut outcomes) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
    for entry in read {
        outcomes.push(entry.map(|entry| entries.push(entry)));
    }
    let request = proto::CopyBatchRequest { files: entries, read_back };
    let answer = match request.files.is_empty() {
        true => Ok(Vec::new()),
        false => files.first().map_or_else(|| Ok(Vec::new()), |one| ask(&request, &bytes, around, &one.to)),
    };
    let mut answers = answer.map(Vec::into_iter);
    let told = files.iter().zip(outcomes).map(|(file, read)| {
        read?;
        match &mut answers {
            Ok(answers) => answers.next().map_or_else(|| Err(malformed(&file.to)), |o| outcome(o, &file.to)),
            Err(fault) => Err(fault.clone()),
        }
    });
    (told.collect(), bytes.len() as u64)
}

fn malformed(to: &Destination) -> Fault {
    Fault::new(Code::BadRequest, format!("node {}: an answer of another number of files than sent", to.node))
}

fn ask(
    request: &proto::CopyBatchRequest,
    bytes: &[u8],
    around: &Surroundings,
    to: &Destination,
) -> Result<Vec<proto::CopyBatchOutcome>, Fault> {
    around.wait_for_limit(bytes.len() as u64)?;
    let deadline_ns = around.deadline_ns(u64::from(around.control.timeouts.block_ms));
    let started_ns = around.clock.now_ns();
    let pending = submit::<CopyBatch>(&*around.transport, &to.address, request, bytes, deadline_ns);
    let answered = pending.wait();
    // Without a connection nothing was sent; cut in the middle it may have been.
    if !matches!(&answered, Err(fault) if fault.code == Code::Unreachable) {
        around.counts.sent_bytes.add(bytes.len() as u64);
    }
    let (answer, _) = answered.map_err(|fault| about(fault, to))?;
    around.counts.confirm_ns.add(around.clock.now_ns().saturating_sub(started_ns));
    around.counts.disk_ns.add(answer.disk_ns);
    match answer.outcomes.len() == request.files.len() {
        true => Ok(answer.outcomes),
        false => Err(malformed(to)),
    }
}
