//! A metadata service without sockets: one request at a time, answered before the call returns.

use crate::{Background, MetaOptions, MetaService};
use parking_lot::Mutex;
use prost::Message;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use vazao_disk::{Disk, MemoryDisk};
use vazao_meter::{Clock, ManualClock};
use vazao_model::{Code, FileKind, InodeId, ids::ROOT};
use vazao_wire::service::{Answer, Deferred, Fault, Request, Responder, Service};
use vazao_wire::transport::{Buffer, Pending, Received, Transport};
use vazao_wire::{Method, Operation, op, proto};

/// An answer that takes longer does not come.
const ANSWER_MS_MAX: u32 = 60_000;

/// Keeps the one answer.
#[derive(Default)]
pub(crate) struct Inbox {
    answer: Arc<Mutex<Option<Answer>>>,
}

impl Inbox {
    pub(crate) fn take(&self) -> Option<Answer> {
        self.answer.lock().take()
    }

    fn put(&self, answer: Answer) {
        assert!(self.answer.lock().replace(answer).is_none(), "answered twice");
    }
}

impl Responder for Inbox {
    fn reply(&mut self, message: &[u8]) {
        self.put(Ok((message.to_vec(), Vec::new())));
    }

    fn try_reply_with(
        &mut self,
        _message: &[u8],
        _length: usize,
        _fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        panic!("metadata has no attachments");
    }

    fn fail(&mut self, fault: &Fault) {
        self.put(Err(fault.clone()));
    }

    fn defer(&mut self) -> Deferred {
        let answer = Arc::clone(&self.answer);
        Deferred::new(move |late| {
            answer.lock().replace(late);
        })
    }
}

/// Sends a request; the answer is there once the service let it go.
pub(crate) fn send<O: Operation>(service: &MetaService, request: &O::Request) -> Inbox {
    let mut inbox = Inbox::default();
    let message = request.encode_to_vec();
    let request =
        Request { method: O::METHOD, id: 1, message: &message, attachment: &[], deadline_ns: u64::MAX };
    service.handle(request, &mut inbox);
    inbox
}

/// Sends a request and flushes, as a loop thread would.
pub(crate) fn call<O: Operation>(service: &MetaService, request: &O::Request) -> Result<O::Response, Fault> {
    let inbox = send::<O>(service, request);
    service.flush()?;
    let (message, _) = answer_of(&inbox).expect("answered after a flush")?;
    Ok(O::Response::decode(message.as_slice()).expect("an answer decodes"))
}

/// The answer: at once, or from a thread for changes that wait for the engine.
pub(crate) fn answer_of(inbox: &Inbox) -> Option<Answer> {
    let answer = |_| {
        let taken = inbox.take();
        if taken.is_none() {
            vazao_meter::SystemClock.sleep(Duration::from_millis(1));
        }
        taken
    };
    (0..ANSWER_MS_MAX).find_map(answer)
}

/// A service with one session, and shorthand for its operations.
pub(crate) struct World {
    pub(crate) service: Arc<MetaService>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) session: u64,
    sequence: Mutex<u64>,
}

pub(crate) fn options(engine: &str) -> MetaOptions {
    MetaOptions {
        engine: engine.to_owned(),
        background: Background::Manual,
        seed: Some(7),
        ..MetaOptions::default()
    }
}

impl World {
    pub(crate) fn new() -> World {
        World::with(options("memory"))
    }

    pub(crate) fn with(options: MetaOptions) -> World {
        World::on(Arc::new(MemoryDisk::new(1)), options)
    }

    pub(crate) fn on(disk: Arc<dyn Disk>, options: MetaOptions) -> World {
        let clock = Arc::new(ManualClock::default());
        let service = MetaService::open(disk, options, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        World::over(service, clock)
    }

    pub(crate) fn over(service: Arc<MetaService>, clock: Arc<ManualClock>) -> World {
        let opened = call::<op::OpenSession>(&service, &proto::OpenSessionRequest::default()).unwrap();
        World { service, clock, session: opened.session, sequence: Mutex::new(0) }
    }

    /// The same client, with the service started again.
    pub(crate) fn started_again(&self, disk: &MemoryDisk, options: MetaOptions) -> World {
        let clock = Arc::clone(&self.clock);
        let service =
            MetaService::open(Arc::new(disk.boot()), options, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let sequence = Mutex::new(*self.sequence.lock());
        World { service, clock, session: self.session, sequence }
    }

    /// Another client of the same service.
    pub(crate) fn another_client(&self) -> World {
        World::over(Arc::clone(&self.service), Arc::clone(&self.clock))
    }

    /// The client that has opened `session`.
    pub(crate) fn as_session(&self, session: u64) -> World {
        let (service, clock) = (Arc::clone(&self.service), Arc::clone(&self.clock));
        World { service, clock, session, sequence: Mutex::new(0) }
    }

    pub(crate) fn once(&self) -> Option<proto::Once> {
        let mut sequence = self.sequence.lock();
        *sequence += 1;
        Some(proto::Once { session: self.session, slot: 0, sequence: *sequence, seat: 0 })
    }

    pub(crate) fn call<O: Operation>(&self, request: &O::Request) -> Result<O::Response, Code> {
        self.try_call::<O>(request).map_err(|fault| fault.code)
    }

    pub(crate) fn try_call<O: Operation>(&self, request: &O::Request) -> Result<O::Response, Fault> {
        call::<O>(&self.service, request)
    }

    pub(crate) fn create_as(&self, request: proto::CreateRequest) -> Result<proto::Inode, Code> {
        let request = proto::CreateRequest { once: self.once(), ..request };
        self.call::<op::Create>(&request).map(|response| response.inode.unwrap())
    }

    pub(crate) fn make(&self, parent: InodeId, name: &str, kind: FileKind) -> Result<InodeId, Code> {
        let contents = if kind == FileKind::Symlink { b"target".to_vec() } else { Vec::new() };
        let request = proto::CreateRequest {
            parent: parent.0,
            name: name.into(),
            kind: kind.number(),
            mode: 0o644,
            contents,
            exclusive: true,
            ..Default::default()
        };
        self.create_as(request).map(|inode| InodeId(inode.attributes.unwrap().inode))
    }

    pub(crate) fn file(&self, parent: InodeId, name: &str) -> InodeId {
        self.make(parent, name, FileKind::File).unwrap()
    }

    pub(crate) fn directory(&self, parent: InodeId, name: &str) -> InodeId {
        self.make(parent, name, FileKind::Directory).unwrap()
    }

    pub(crate) fn lookup(&self, parent: InodeId, name: &str) -> Result<proto::Attributes, Code> {
        let request = proto::LookupRequest { parent: parent.0, name: name.into(), seat: 0 };
        self.call::<op::Lookup>(&request).map(|response| response.inode.unwrap().attributes.unwrap())
    }

    pub(crate) fn stat(&self, inode: InodeId) -> Result<proto::Attributes, Code> {
        let request = proto::GetAttributesRequest { inode: inode.0, seat: 0 };
        self.call::<op::GetAttributes>(&request).map(|response| response.inode.unwrap().attributes.unwrap())
    }

    pub(crate) fn open(&self, inode: InodeId) -> Result<proto::Inode, Code> {
        let request = proto::OpenRequest { inode: inode.0, ..Default::default() };
        self.call::<op::Open>(&request).map(|response| response.inode.unwrap())
    }

    pub(crate) fn link(&self, inode: InodeId, parent: InodeId, name: &str) -> Result<u32, Code> {
        let request =
            proto::LinkRequest { once: self.once(), inode: inode.0, parent: parent.0, name: name.into() };
        self.call::<op::Link>(&request).map(|response| response.inode.unwrap().attributes.unwrap().links)
    }

    pub(crate) fn remove(&self, parent: InodeId, name: &str, directory: bool) -> Result<u32, Code> {
        self.remove_held(parent, name, directory, InodeId(0))
    }

    pub(crate) fn remove_held(
        &self,
        parent: InodeId,
        name: &str,
        directory: bool,
        held: InodeId,
    ) -> Result<u32, Code> {
        let request = proto::UnlinkRequest {
            once: self.once(),
            parent: parent.0,
            name: name.into(),
            directory,
            held_inode: held.0,
        };
        self.call::<op::Unlink>(&request).map(|response| response.links)
    }

    pub(crate) fn rename(
        &self,
        from: (InodeId, &str),
        to: (InodeId, &str),
        mode: u32,
    ) -> Result<proto::RenameResponse, Code> {
        let request = proto::RenameRequest {
            once: self.once(),
            parent: from.0.0,
            name: from.1.into(),
            new_parent: to.0.0,
            new_name: to.1.into(),
            mode,
            held: Vec::new(),
        };
        self.call::<op::Rename>(&request)
    }

    pub(crate) fn list(&self, directory: InodeId, cookie: u64, limit: u32) -> proto::ListResponse {
        let request =
            proto::ListRequest { directory: directory.0, cookie, limit, with_attributes: false, seat: 0 };
        self.call::<op::List>(&request).unwrap()
    }

    /// Sorted names of a directory.
    pub(crate) fn names(&self, directory: InodeId) -> Vec<String> {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let page = self.list(directory, cookie, 100);
            names.extend(page.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()));
            cookie = page.entries.last().map_or(cookie, |e| e.cookie);
            if page.end {
                names.sort();
                return names;
            }
        }
    }

    /// A data server with one target joins.
    pub(crate) fn data_server(&self, name: &str) -> proto::RegisterNodeResponse {
        let target = proto::Target {
            state: 1,
            capacity_bytes: 1 << 40,
            available_bytes: 1 << 39,
            ..Default::default()
        };
        let request = proto::RegisterNodeRequest {
            name: name.to_owned(),
            address: format!("{name}:1"),
            roles: vec![2],
            targets: vec![target],
            ..Default::default()
        };
        self.call::<op::RegisterNode>(&request).unwrap()
    }

    pub(crate) fn assign_layout(&self, inode: InodeId) -> Result<proto::Layout, Fault> {
        self.outgrow(inode, None).map(|response| response.layout.unwrap())
    }

    pub(crate) fn outgrow(
        &self,
        inode: InodeId,
        copied: Option<proto::CopiedContents>,
    ) -> Result<proto::AssignLayoutResponse, Fault> {
        let request =
            proto::AssignLayoutRequest { once: self.once(), inode: inode.0, copied, ..Default::default() };
        self.try_call::<op::AssignLayout>(&request)
    }

    /// Nothing contradicts anything.
    pub(crate) fn assert_consistent(&self) {
        let checked = self.service.check().unwrap();
        assert_eq!(checked.problems, Vec::<String>::new());
    }
}

pub(crate) const TOP: InodeId = ROOT;

/// Object as a data server is asked to remove it: target, inode, generation, slot.
pub(crate) type Removed = (u32, u64, u32, u32);

/// Data servers that only remember what they removed.
#[derive(Default)]
pub(crate) struct Servers {
    clock: Arc<ManualClock>,
    down: Mutex<BTreeSet<String>>,
    /// Targets that failed: a message that names one is refused as a whole, as data servers do.
    failed: Mutex<BTreeSet<u32>>,
    removed: Mutex<Vec<Removed>>,
    /// Placement groups that were named with what was removed; 0: none was.
    groups: Mutex<BTreeSet<u32>>,
    /// Targets that were asked to lift the fences of objects.
    fenced: Mutex<Vec<u32>>,
    calls: Mutex<u32>,
}

impl Servers {
    pub(crate) fn set_down(&self, address: &str, down: bool) {
        let mut all = self.down.lock();
        if down {
            all.insert(address.to_owned())
        } else {
            all.remove(address)
        };
    }

    pub(crate) fn set_failed(&self, targets: &[u32]) {
        *self.failed.lock() = targets.iter().copied().collect();
    }

    pub(crate) fn removed(&self) -> Vec<Removed> {
        self.removed.lock().clone()
    }

    pub(crate) fn groups(&self) -> BTreeSet<u32> {
        self.groups.lock().clone()
    }

    pub(crate) fn fenced(&self) -> Vec<u32> {
        self.fenced.lock().clone()
    }

    pub(crate) fn calls(&self) -> u32 {
        *self.calls.lock()
    }
}

struct Answered(Result<Received, Fault>);

impl Pending for Answered {
    fn wait(self: Box<Self>) -> Result<Received, Fault> {
        self.0
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl Transport for Servers {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        _attachment: &[u8],
        _deadline_ns: u64,
    ) -> Box<dyn Pending> {
        *self.calls.lock() += 1;
        if self.down.lock().contains(address) {
            return Box::new(Answered(Err(Fault::new(Code::Unreachable, address))));
        }
        if method == Method::FenceObjects {
            let request = proto::FenceObjectsRequest::decode(message).unwrap();
            self.fenced.lock().extend(request.objects.iter().map(|object| object.target));
            let (message, attachment) = (Vec::new(), Buffer::default());
            return Box::new(Answered(Ok(Received { message, attachment, service_us: 0 })));
        }
        assert_eq!(method, Method::RemoveObjects);
        let request = proto::RemoveObjectsRequest::decode(message).unwrap();
        if request.objects.iter().any(|object| self.failed.lock().contains(&object.target)) {
            return Box::new(Answered(Err(Fault::new(Code::TargetFailed, address))));
        }
        let objects = request.objects.iter().map(|o| (o.target, o.inode, o.generation, o.slot));
        self.removed.lock().extend(objects);
        self.groups.lock().extend(request.objects.iter().map(|o| o.group));
        let message = proto::RemoveObjectsResponse::default().encode_to_vec();
        Box::new(Answered(Ok(Received { message, attachment: Buffer::default(), service_us: 0 })))
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}
