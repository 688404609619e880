//! One file on its way to another node: what every method works with; many small ones in one request (`batch`).

pub(crate) mod batch;

use crate::control::{Control, Counts, Underway};
use crate::ftp::Url;
use crate::grid::{BlockSet, Grid, Work};
use crate::source::{Source, Version};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::op::{CopyAbort, CopyBegin, CopyEnd, CopyWhole};
use vazao_wire::proto;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Transport, call, submit};

/// Files up to this size go in one request, whatever the method: several round trips for each would cost more than
/// their bytes.
pub const WHOLE_BYTES_MAX: u64 = 256 * 1024;

/// The end of a copy waits for the destination's disk to take all of it, and reads it back where that is wanted.
const END_MS_MAX: u64 = 600_000;

/// Where a copy goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The node's name.
    pub node: String,
    /// `host:port` of its daemon.
    pub address: String,
    /// The area.
    pub area: String,
    /// The final name in it.
    pub path: Vec<u8>,
}

impl Destination {
    /// As messages show it.
    pub fn shown(&self) -> String {
        format!("{}:/{}/{}", self.node, self.area, String::from_utf8_lossy(&self.path))
    }
}

/// How one file is to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// What has arrived before is forgotten.
    pub fresh: bool,
    /// A file that is there is not replaced.
    pub no_replace: bool,
    /// The destination is read from its disk again at the end.
    pub read_back: bool,
}

/// A limit of bandwidth is waited for in steps of this, so that an order to stop is heard.
const LIMIT_STEP: Duration = Duration::from_millis(50);

/// What all copies of a job have in common.
#[derive(Clone)]
pub struct Surroundings {
    /// Carries the requests.
    pub transport: Arc<dyn Transport>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Orders to the copies.
    pub control: Arc<Control>,
    /// What they count.
    pub counts: Arc<Counts>,
    /// The name of the node that sends.
    pub node: String,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Surroundings {
    pub(crate) fn deadline_ns(&self, milliseconds: u64) -> u64 {
        self.clock.now_ns() + milliseconds * 1_000_000
    }

    /// Waits until the job's limit lets `bytes` through. Errors: it is to stop.
    pub(crate) fn wait_for_limit(&self, bytes: u64) -> Result<(), Fault> {
        let started_ns = self.clock.now_ns();
        let waited = loop {
            let now_ns = self.clock.now_ns();
            if let Err(fault) = self.control.check(now_ns) {
                break Err(fault);
            }
            let ready_ns = self.control.ready_ns(bytes, now_ns);
            if ready_ns <= now_ns {
                break Ok(());
            }
            self.clock.sleep(LIMIT_STEP.min(Duration::from_nanos(ready_ns - now_ns)));
        };
        self.counts.limit_ns.add(self.clock.now_ns().saturating_sub(started_ns));
        waited
    }
}

/// A file on its way.
pub struct Outgoing {
    /// What it is read from.
    pub source: Arc<dyn Source>,
    /// What it has in common with others.
    pub around: Surroundings,
    /// Where it goes.
    pub to: Destination,
    /// How it is cut.
    pub grid: Grid,
    pub(crate) id: [u8; 16],
    pub(crate) token: [u8; 16],
    /// `host:port` for data connections.
    pub(crate) data_address: String,
    version: Version,
    manner: Manner,
    work: Mutex<Work>,
    /// How long its beginning took: a round trip and the making of a file.
    begin_ns: u64,
    /// The shortest time in which a connection stood; all ones: none did yet.
    connect_ns: AtomicU64,
    /// What confirmations have told of the destination's disk.
    disk_ns: AtomicU64,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outgoing({} to {})", self.source.shown(), self.to.shown())
    }
}

/// What beginning a copy led to.
#[derive(Debug)]
pub enum Started {
    /// It is to be sent.
    Ready(Arc<Outgoing>),
    /// It is at its destination already, whole and under its name.
    Complete,
}

/// The id of a copy: another one for every version of the source and every destination.
pub(crate) fn id_of(source: &dyn Source, node: &str, version: &Version, to: &Destination) -> [u8; 16] {
    let mut hash = Sha256::new();
    let parts: [&[u8]; 5] =
        [node.as_bytes(), source.shown().as_bytes(), to.node.as_bytes(), to.area.as_bytes(), &to.path];
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let Version { size, modified, changed, identity } = version;
    for number in
        [*size, modified.seconds as u64, u64::from(modified.nanoseconds), *changed, identity.0, identity.1]
    {
        hash.update(number.to_le_bytes());
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hash.finalize()[..16]);
    id
}

pub(crate) fn begin_request(
    source: &dyn Source,
    around: &Surroundings,
    to: &Destination,
    version: &Version,
    manner: Manner,
) -> proto::CopyBeginRequest {
    proto::CopyBeginRequest {
        copy: id_of(source, &around.node, version, to).to_vec(),
        area: to.area.clone(),
        path: to.path.clone(),
        size: version.size,
        block_bytes: Grid::of(version.size).block_bytes,
        mode: source.mode(),
        modified: Some(version.modified.into()),
        source: source.shown().to_owned(),
        source_node: around.node.clone(),
        source_identity: source.identity(),
        fresh: manner.fresh,
        no_replace: manner.no_replace,
        is_ftp: false,
    }
}

/// The port of data connections at the host of a daemon's address.
pub(crate) fn data_address(address: &str, port: u32) -> Result<String, Fault> {
    let host = address.rsplit_once(':').map(|(host, _)| host);
    match (host, u16::try_from(port)) {
        (Some(host), Ok(port)) if port > 0 => Ok(format!("{host}:{port}")),
        _ => Err(Fault::new(Code::BadRequest, format!("{address}: port {port} for data"))),
    }
}

/// Names the other node in a fault that is about the way to it.
pub(crate) fn about(fault: Fault, to: &Destination) -> Fault {
    let what = if fault.code.is_silence() { "node " } else { "" };
    Fault::new(fault.code, format!("{what}{}: {}", to.node, fault.detail))
}

/// Copies a small file in one request. Returns its bytes.
pub fn send_whole(
    source: &dyn Source,
    around: &Surroundings,
    to: &Destination,
    manner: Manner,
) -> Result<u64, Fault> {
    let version = source.version()?;
    let mut bytes = vec![0; version.size.min(WHOLE_BYTES_MAX) as usize];
    let started_ns = around.clock.now_ns();
    let count = source.read_at(&mut bytes, 0)?;
    around.counts.read_ns.add(around.clock.now_ns().saturating_sub(started_ns));
    if count < bytes.len() || source.version()? != version {
        return Err(changed(source.shown()));
    }
    let begin = begin_request(source, around, to, &version, manner);
    let checksum = vazao_model::checksum::crc32c(&bytes);
    let request = proto::CopyWholeRequest { begin: Some(begin), checksum };
    let deadline_ns = around.deadline_ns(u64::from(around.control.timeouts.block_ms));
    let started_ns = around.clock.now_ns();
    let pending = submit::<CopyWhole>(&*around.transport, &to.address, &request, &bytes, deadline_ns);
    let (answer, _) = pending.wait().map_err(|fault| about(fault, to))?;
    around.counts.confirm_ns.add(around.clock.now_ns().saturating_sub(started_ns));
    around.counts.disk_ns.add(answer.disk_ns);
    around.counts.sent_bytes.add(version.size);
    Ok(version.size)
}

/// The fault of a source that is not what it was.
pub(crate) fn changed(shown: &str) -> Fault {
    Fault::new(Code::Stale, format!("{shown}: changed while it was copied"))
}

/// Begins a copy, or finds out how far it got before.
pub fn begin(
    source: Arc<dyn Source>,
    around: Surroundings,
    to: Destination,
    manner: Manner,
) -> Result<Started, Fault> {
    let version = source.version()?;
    let request = begin_request(&*source, &around, &to, &version, manner);
    let deadline_ns = around.deadline_ns(u64::from(around.control.timeouts.connect_ms));
    let started_ns = around.clock.now_ns();
    let pending = submit::<CopyBegin>(&*around.transport, &to.address, &request, &[], deadline_ns);
    let (answer, arrived) = pending.wait().map_err(|fault| about(fault, &to))?;
    let begin_ns = around.clock.now_ns().saturating_sub(started_ns);
    if answer.is_complete {
        return Ok(Started::Complete);
    }
    let grid = Grid::of(version.size);
    let work = work_of(grid, &answer, &arrived).ok_or_else(|| {
        Fault::new(Code::BadRequest, format!("{}: an answer that does not fit its file", to.shown()))
    })?;
    let malformed = |_| Fault::new(Code::BadRequest, format!("{}: a token of a wrong length", to.shown()));
    Ok(Started::Ready(Arc::new(Outgoing {
        token: answer.token.as_slice().try_into().map_err(malformed)?,
        id: id_of(&*source, &around.node, &version, &to),
        data_address: data_address(&to.address, answer.port)?,
        source,
        around,
        to,
        grid,
        version,
        manner,
        work: Mutex::new(work),
        begin_ns,
        connect_ns: AtomicU64::new(u64::MAX),
        disk_ns: AtomicU64::new(0),
    })))
}

/// What is left to be sent, from the answer's bits and checksums.
fn work_of(grid: Grid, answer: &proto::CopyBeginResponse, arrived: &[u8]) -> Option<Work> {
    let blocks = grid.blocks();
    let mut checksums = vec![0; blocks];
    if answer.finished_blocks == 0 {
        return Some(Work::new(grid, BlockSet::new(blocks), checksums));
    }
    let (bits, sums) = arrived.split_at_checked(blocks.div_ceil(64) * 8)?;
    let finished = BlockSet::from_bytes(bits, blocks);
    if finished.len() as u64 != answer.finished_blocks || sums.len() != 4 * finished.len() {
        return None;
    }
    let mut sums = sums.chunks_exact(4).filter_map(|four| four.try_into().ok().map(u32::from_le_bytes));
    for block in (0..blocks).filter(|&block| finished.has(block)) {
        checksums[block] = sums.next()?;
    }
    Some(Work::new(grid, finished, checksums))
}

impl Underway for Outgoing {
    fn finished_bytes(&self) -> u64 {
        Outgoing::finished_bytes(self)
    }
}

impl Outgoing {
    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }

    /// A block is confirmed.
    pub(crate) fn confirm(&self, block: usize, checksum: u32) {
        self.work().finish(block, checksum);
    }

    /// How long its beginning took.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// A connection stood after this long.
    pub(crate) fn note_connect(&self, nanoseconds: u64) {
        self.connect_ns.fetch_min(nanoseconds, Ordering::Relaxed);
        self.around.counts.round_trip_ns.store(self.round_trip_ns(), Ordering::Relaxed);
    }

    /// The destination waited so long for its disk.
    pub(crate) fn note_disk(&self, nanoseconds: u64) {
        self.disk_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        self.around.counts.disk_ns.add(nanoseconds);
    }

    /// The round trip to the other node, as far as connections told.
    pub(crate) fn round_trip_ns(&self) -> u64 {
        self.connect_ns.load(Ordering::Relaxed).min(self.begin_ns)
    }

    /// Bytes at the receiver.
    pub fn finished_bytes(&self) -> u64 {
        self.work().finished_bytes()
    }

    /// True when a block lies in a hole of the source.
    pub(crate) fn is_hole(&self, block: usize) -> Result<bool, Fault> {
        let start = self.grid.start(block);
        let end = start + self.grid.length(block);
        Ok(self.source.next_data(start)?.is_none_or(|data| data >= end))
    }

    /// Reads all of `buffer` at `offset`. Errors: the file has become shorter.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Fault> {
        let started_ns = self.around.clock.now_ns();
        let count = self.source.read_at(buffer, offset)?;
        self.around.counts.read_ns.add(self.around.clock.now_ns().saturating_sub(started_ns));
        match count == buffer.len() {
            true => Ok(()),
            false => Err(changed(self.source.shown())),
        }
    }

    /// Where the destination's FTP endpoint takes this file: port and name.
    pub(crate) fn ftp(&self) -> Result<(u16, String), Fault> {
        let request = begin_request(&*self.source, &self.around, &self.to, &self.version, self.manner);
        let request = proto::CopyBeginRequest { is_ftp: true, fresh: false, ..request };
        let deadline_ns = self.around.deadline_ns(u64::from(self.around.control.timeouts.connect_ms));
        let answer = call::<CopyBegin>(&*self.around.transport, &self.to.address, &request, deadline_ns);
        let answer = answer.map_err(|fault| about(fault, &self.to))?;
        if answer.is_complete {
            // It was whole before the node was started anew: the next try finds it.
            let why = format!("node {}: {} is there already", self.to.node, self.to.shown());
            return Err(Fault::new(Code::BadHandle, why));
        }
        let url = Url::parse(answer.ftp.as_bytes()).map_err(|_| {
            let why = "has no FTP endpoint; its daemon is of an older version";
            Fault::new(Code::Unsupported, format!("node {}: {why}", self.to.node))
        })?;
        Ok((url.port, String::from_utf8_lossy(&url.path).into_owned()))
    }

    /// A fault of the way to the destination.
    pub(crate) fn fault(&self, code: Code, what: impl std::fmt::Display) -> Fault {
        Fault::new(code, format!("node {} ({}): {what}", self.to.node, self.data_address))
    }

    /// All blocks are confirmed: makes the file visible. Errors: the source changed meanwhile, or the destination
    /// says no.
    pub fn end(&self) -> Result<(), Fault> {
        let checksum = {
            let work = self.work();
            if !work.is_finished() {
                return Err(self.fault(Code::Disconnected, "not all blocks were confirmed"));
            }
            work.checksum()
        };
        if self.source.version()? != self.version {
            self.give_up(true);
            return Err(changed(self.source.shown()));
        }
        let request = proto::CopyEndRequest {
            copy: self.id.to_vec(),
            token: self.token.to_vec(),
            checksum,
            read_back: self.manner.read_back,
        };
        let deadline_ns = self.around.deadline_ns(END_MS_MAX);
        let answer = call::<CopyEnd>(&*self.around.transport, &self.to.address, &request, deadline_ns);
        let answer = answer.map_err(|fault| about(fault, &self.to))?;
        // Of all of it, confirmations have told a part.
        let told_ns = self.disk_ns.load(Ordering::Relaxed);
        self.around.counts.disk_ns.add(answer.disk_ns.saturating_sub(told_ns));
        Ok(())
    }

    /// Tells the destination that nothing more comes; `forget` has it remove what has arrived.
    pub fn give_up(&self, forget: bool) {
        let (copy, token) = (self.id.to_vec(), self.token.to_vec());
        let request = proto::CopyAbortRequest { copy, token, forget };
        let deadline_ns = self.around.deadline_ns(u64::from(self.around.control.timeouts.connect_ms));
        // A destination that does not hear it forgets by itself in time.
        let _ = call::<CopyAbort>(&*self.around.transport, &self.to.address, &request, deadline_ns);
    }
}
