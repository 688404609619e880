//! Defects that are put in on purpose: a story that does not find them would not find those of the code either.

pub(crate) mod members;

use prost::Message;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vazao_disk::{Disk, MemoryDisk, Open};
use vazao_meter::Clock;
use vazao_model::Code;
use vazao_wire::service::Fault;
use vazao_wire::transport::{Buffer, Pending, Received, Transport};
use vazao_wire::{Method, proto};

/// What is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// Clients do not number their changes of objects: an earlier form of one that was sent again is carried out late.
    UnnumberedChanges,
    /// Some writes are answered and not sent: zeros, or old bytes, stand where something was written.
    SwallowedWrites,
    /// Servers take what they were told first as all there is, also where a disk of theirs was missing then: it can be
    /// neither read nor written once it is there.
    ForgottenGroups,
    /// Clients take the answer of a server that has not finished starting as final.
    FinalAnswers,
    /// An fsync is answered without one of the data servers that have a part of the file.
    UnsyncedServer,
    /// The metadata service answers what is to be durable before it is.
    EarlyAnswers,
    /// A member takes what the primary of an earlier epoch passes on.
    StaleEpochs,
    /// A primary takes what it passes on for done, whatever comes of it.
    UnawaitedForwards,
    /// A primary does not wait until leases that it has granted have ended.
    UnwaitedGrants,
    /// A lagging member counts again without what was changed while it did not.
    UncomparedMember,
    /// Members do not list what they took: a new primary serves without evening it out.
    UnlistedForwards,
    /// A member takes what its primary has given up, or sent again since.
    StaleStreams,
    /// A primary answers an fsync without one of the other members.
    UnsyncedMember,
    /// The metadata service says who has gone of a group before that is durable.
    EarlyDecisions,
    /// An older copy of a disk has the same number as the disk.
    OldDisks,
    /// The metadata service puts out the only current member of a group when that is silent, and goes on with one that
    /// lacks something.
    LastPutOut,
    /// One inside a data server.
    Inside(vazao_store::Defect),
}

/// Has a copy of a disk pass for the disk: with the incarnation that this one has by now.
pub(crate) fn pass_for(copy: &MemoryDisk, disk: &MemoryDisk) -> io::Result<()> {
    const FILE: &str = "INCARNATION";
    let latest = disk.open(FILE, Open::ReadOnly)?;
    let mut bytes = vec![0; usize::try_from(latest.length()?).unwrap_or_default()];
    latest.read_at(&mut bytes, 0)?;
    let file = copy.open(FILE, Open::Create)?;
    file.write_at(&bytes, 0)?;
    file.sync()
}

/// Takes the numbers out of changes of objects.
pub(crate) struct Unnumbered(pub(crate) Arc<dyn Transport>);

fn without_number(object: Option<proto::ObjectAddress>) -> Option<proto::ObjectAddress> {
    object.map(|object| proto::ObjectAddress { change: 0, attempt: 0, ..object })
}

/// Has `forget` change an encoded message.
fn changed<M: Message + Default>(message: &[u8], forget: impl FnOnce(&mut M)) -> Vec<u8> {
    let mut decoded = M::decode(message).expect("a whole request");
    forget(&mut decoded);
    decoded.encode_to_vec()
}

impl Transport for Unnumbered {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let message = match method {
            Method::Write => changed(message, |request: &mut proto::WriteRequest| {
                request.object = without_number(request.object.take());
            }),
            Method::TruncateObject => changed(message, |request: &mut proto::TruncateObjectRequest| {
                request.object = without_number(request.object.take());
            }),
            Method::PunchObject => changed(message, |request: &mut proto::PunchObjectRequest| {
                request.object = without_number(request.object.take());
            }),
            _ => message.to_vec(),
        };
        self.0.submit(address, method, &message, attachment, deadline_ns)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clock()
    }
}

/// One write of so many is swallowed.
const SWALLOWED_OF: u32 = 6;

/// Answers some writes to objects that are there without sending them.
pub(crate) struct Swallowing {
    inner: Arc<dyn Transport>,
    writes: AtomicU32,
}

impl Swallowing {
    pub(crate) fn new(inner: Arc<dyn Transport>) -> Swallowing {
        Swallowing { inner, writes: AtomicU32::new(0) }
    }
}

/// The answer to a request that was not sent.
struct Swallowed(Vec<u8>);

fn swallowed(answer: &impl Message) -> Box<dyn Pending> {
    Box::new(Swallowed(answer.encode_to_vec()))
}

impl Pending for Swallowed {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        Ok(Received { message: self.0, attachment: Buffer::new(Vec::new(), 0, None), service_us: 0 })
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl Transport for Swallowing {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let is_write = method == Method::Write
            && proto::WriteRequest::decode(message).expect("a client's own request").must_exist;
        if is_write && self.writes.fetch_add(1, Ordering::Relaxed) % SWALLOWED_OF == SWALLOWED_OF - 1 {
            return swallowed(&proto::WriteResponse::default());
        }
        self.inner.submit(address, method, message, attachment, deadline_ns)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

/// Answers for one data server that its objects are durable.
pub(crate) struct WithoutOne {
    pub(crate) inner: Arc<dyn Transport>,
    pub(crate) address: String,
}

impl Transport for WithoutOne {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        if method == Method::SyncObjects && address == self.address {
            return swallowed(&proto::SyncObjectsResponse::default());
        }
        self.inner.submit(address, method, message, attachment, deadline_ns)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

/// Has the metadata service answer reports before they are durable.
pub(crate) struct Early(pub(crate) Arc<dyn Transport>);

impl Transport for Early {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let message = match method {
            Method::Sync => return swallowed(&proto::SyncResponse::default()),
            Method::Commit => changed(message, |request: &mut proto::CommitRequest| request.sync = false),
            _ => message.to_vec(),
        };
        self.0.submit(address, method, &message, attachment, deadline_ns)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clock()
    }
}

/// Makes what passes by itself final.
pub(crate) struct Final(pub(crate) Arc<dyn Transport>);

struct FinalAnswer(Box<dyn Pending>);

impl Pending for FinalAnswer {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        self.0.wait().map_err(|fault| match fault.code {
            Code::Unavailable => Fault { code: Code::Unsupported, ..fault },
            _ => fault,
        })
    }

    fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

impl Transport for Final {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        Box::new(FinalAnswer(self.0.submit(address, method, message, attachment, deadline_ns)))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clock()
    }
}
