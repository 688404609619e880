//! The areas of a node as a [`Service`]: reads of what is cached are answered at once, the rest goes to a pool.

use crate::channels::{Channel, Channels};
use crate::descriptors::Descriptors;
use crate::export::{self, Area, AreaConfig, Exports};
use crate::metrics::Metrics;
use crate::ops::read::Reading;
use crate::ops::{self, channel, list, names, read, write, xattrs};
use crate::options::Options;
use crate::replies::Replies;
use prost::Message;
use std::cell::RefCell;
use std::sync::{Arc, PoisonError, RwLock};
use vazao_meter::machine::DiskWatches;
use vazao_meter::measures::Measures;
use vazao_meter::{Accounts, Clock, Exposition};
use vazao_model::Code;
use vazao_wire::pool::Pool;
use vazao_wire::service::{Answer, Fault, Request, Responder, Service};
use vazao_wire::{Method, proto};

/// What outlives a single request and is used by the threads of the pool too.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) channels: Channels,
    pub(crate) descriptors: Descriptors,
    pub(crate) replies: Replies,
    pub(crate) metrics: Metrics,
    pub(crate) accounts: Arc<Accounts>,
    disks: Arc<DiskWatches>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Another one after the machine lost power; 0: not known.
    pub(crate) boot: u64,
    exports: RwLock<Arc<Exports>>,
}

/// The areas of one node.
pub struct AreaService {
    pub(crate) shared: Arc<Shared>,
    pool: Option<Pool>,
}

impl std::fmt::Debug for AreaService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AreaService").field("channels", &self.shared.channels.len()).finish_non_exhaustive()
    }
}

/// One request on its way through the service.
#[derive(Clone, Copy)]
struct Call {
    method: Method,
    start_ns: u64,
    deadline_ns: u64,
}

/// Work that may wait for a disk.
type Work = Box<dyn FnOnce(&Shared) -> Answer + Send>;

impl Shared {
    pub(crate) fn area(&self, name: &str) -> Result<Arc<Area>, Fault> {
        self.exports().get(name, &self.options.name)
    }

    fn exports(&self) -> Arc<Exports> {
        Arc::clone(&self.exports.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The channel of this name, and word from its client.
    fn channel(&self, id: u64) -> Result<Arc<Channel>, Fault> {
        let gone = |why: &str| {
            let node = &self.options.name;
            Err(Fault::new(
                Code::BadHandle,
                format!("channel {id:016x} of node {node} {why}; open the file again"),
            ))
        };
        let Some(channel) = self.channels.get(id) else {
            return gone(
                "is not open: it was closed, its client was silent, or the daemon has been restarted",
            );
        };
        if !channel.area.is_open() {
            self.close(id);
            return gone("was into an area that is not exported any more, or otherwise now");
        }
        channel.lease.renew(self.clock.now_ns());
        Ok(channel)
    }

    fn close(&self, id: u64) {
        self.channels.remove(id);
        self.descriptors.remove(id);
    }

    fn record(&self, call: Call, fault: Option<&Fault>) {
        let ns = self.clock.now_ns().saturating_sub(call.start_ns);
        self.metrics.record(call.method, ns, fault.is_some());
    }

    /// Runs deferred work unless its requester has given up already.
    fn run(&self, call: Call, work: Work) -> Answer {
        if self.clock.now_ns() > call.deadline_ns {
            let detail = format!("node {}: waited too long for a thread", self.options.name);
            return Err(Fault::new(Code::Timeout, detail));
        }
        work(self)
    }
}

fn decode<M: Message + Default>(request: &Request<'_>) -> Result<M, Fault> {
    M::decode(request.message)
        .map_err(|e| Fault::new(Code::BadRequest, format!("{}: {e}", request.method.name())))
}

/// Half of the kernel's random boot id (random(4)), as data servers tell it.
fn boot_id() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

thread_local! {
    /// Bytes on their way from the page cache to an answer.
    static READING: RefCell<Reading> = RefCell::default();
}

impl AreaService {
    /// A service with these areas. Errors: names that cannot be, no threads. An area whose directory is not there is
    /// tried again later and says so meanwhile.
    pub fn open(
        areas: Vec<AreaConfig>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<AreaService>, String> {
        export::check(&areas)?;
        let pool = match options.threads {
            0 => None,
            threads => {
                let pool = Pool::new("area", threads, options.jobs_max, options.job_bytes_max);
                Some(pool.map_err(|e| format!("starting threads: {e}"))?)
            }
        };
        let disks = DiskWatches::new(Arc::clone(&clock));
        let exports = Exports::of(areas, &Exports::default(), &disks);
        let shared = Arc::new(Shared {
            channels: Channels::new(options.channels_max, options.lease_ms),
            descriptors: Descriptors::new(options.descriptors_max),
            replies: Replies::default(),
            metrics: Metrics::new(),
            accounts: Arc::default(),
            disks,
            clock,
            boot: boot_id(),
            exports: RwLock::new(Arc::new(exports)),
            options,
        });
        Ok(Arc::new(AreaService { shared, pool }))
    }

    /// Exports these areas from now on. Channels into areas that are gone or changed have to be opened again. Errors:
    /// names that cannot be; nothing changes then.
    pub fn set_areas(&self, areas: Vec<AreaConfig>) -> Result<(), String> {
        export::check(&areas)?;
        let mut exports = self.shared.exports.write().unwrap_or_else(PoisonError::into_inner);
        *exports = Arc::new(Exports::of(areas, &exports, &self.shared.disks));
        Ok(())
    }

    /// Background work; to be called about once a second. Closes channels of clients that are gone, tries areas again
    /// whose directory was not there.
    pub fn tick(&self) {
        let expired = self.shared.channels.expire(self.shared.clock.now_ns());
        expired.iter().for_each(|&id| self.shared.descriptors.remove(id));
        self.shared.metrics.expired.add(expired.len() as u64);
        if self.exports().has_trouble() {
            let mut exports = self.shared.exports.write().unwrap_or_else(PoisonError::into_inner);
            *exports = Arc::new(exports.tried_again(&self.shared.disks));
        }
    }

    /// Lets running work finish and stops.
    pub fn close(&self) {
        if let Some(pool) = &self.pool {
            pool.stop();
        }
    }

    /// Adds its disks and its work to what the node counts.
    pub fn fill(&self, measures: &mut Measures) {
        measures.disks.extend(self.shared.disks.measures());
        measures.work.add(&self.shared.metrics.work());
    }

    /// Writes its metrics out.
    pub fn expose(&self, out: &mut Exposition) {
        let shared = &self.shared;
        shared.metrics.expose(&shared.accounts, out);
        out.gauge("vazao_area_channels", "Open channels.", &[], shared.channels.len() as f64);
        out.gauge("vazao_area_descriptors", "Files open for channels.", &[], shared.descriptors.len() as f64);
    }

    pub(crate) fn exports(&self) -> Arc<Exports> {
        self.shared.exports()
    }

    /// Has `work` done where it may wait, and its answer delivered. Errors: there is too much to do already.
    fn defer(
        &self,
        call: Call,
        bytes: usize,
        responder: &mut dyn Responder,
        work: Work,
    ) -> Result<(), Fault> {
        let Some(pool) = &self.pool else {
            let (message, attachment) = self.shared.run(call, work)?;
            self.shared.record(call, None);
            responder.reply_with(&message, attachment.len(), &mut |place| {
                place.copy_from_slice(&attachment);
                Ok(())
            });
            return Ok(());
        };
        let place = pool.reserve(bytes).ok_or_else(|| {
            let detail = format!("node {}: too many requests wait for its disks", self.shared.options.name);
            Fault::new(Code::Overloaded, detail)
        })?;
        let deferred = responder.defer();
        let shared = Arc::clone(&self.shared);
        shared.metrics.deferred.add(1);
        place.submit(move || {
            let answer = shared.run(call, work);
            shared.record(call, answer.as_ref().err());
            drop(shared);
            deferred.finish(answer);
        });
        Ok(())
    }

    /// Reads what the page cache has in this thread, and leaves the rest to the pool.
    fn read(
        &self,
        call: Call,
        channel: u64,
        ranges: Vec<proto::ByteRange>,
        encode: fn(&Reading) -> Vec<u8>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        let bytes = read::check(&ranges)?;
        let channel = self.shared.channel(channel)?;
        read::check_access(&channel)?;
        let is_done = READING.with_borrow_mut(|reading| {
            let is_done = read::cached(&self.shared, &channel, &ranges, reading)?;
            if is_done {
                responder.reply_with(&encode(reading), reading.bytes.len(), &mut |place| {
                    place.copy_from_slice(&reading.bytes);
                    Ok(())
                });
                self.shared.metrics.read_bytes.add(reading.bytes.len() as u64);
                self.shared.record(call, None);
            }
            Ok::<bool, Fault>(is_done)
        })?;
        if is_done {
            return Ok(());
        }
        let work = move |shared: &Shared| {
            let reading = read::blocking(shared, &channel, &ranges)?;
            shared.metrics.read_bytes.add(reading.bytes.len() as u64);
            Ok((encode(&reading), reading.bytes))
        };
        self.defer(call, bytes, responder, Box::new(work))
    }

    /// An operation on names, done where it may wait.
    fn name<M: Message + Default + Send + 'static>(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
        work: fn(&Shared, &M) -> Answer,
    ) -> Result<(), Fault> {
        let message: M = decode(request)?;
        self.defer(call, request.message.len(), responder, Box::new(move |shared| work(shared, &message)))
    }

    /// The same for one that carries a nonce.
    fn change<M: Message + Default + Send + 'static>(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
        nonce: fn(&M) -> u64,
        work: fn(&Shared, &M) -> Answer,
    ) -> Result<(), Fault> {
        let message: M = decode(request)?;
        let work = move |shared: &Shared| shared.replies.once(nonce(&message), || work(shared, &message));
        self.defer(call, request.message.len(), responder, Box::new(work))
    }

    /// An operation on an open channel, done where it may wait.
    fn on_channel(
        &self,
        call: Call,
        id: u64,
        responder: &mut dyn Responder,
        work: impl FnOnce(&Shared, &Channel) -> Answer + Send + 'static,
    ) -> Result<(), Fault> {
        let channel = self.shared.channel(id)?;
        self.defer(call, 0, responder, Box::new(move |shared| work(shared, &channel)))
    }

    fn write(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let message: proto::ChannelWriteRequest = decode(request)?;
        let channel = self.shared.channel(message.channel)?;
        let bytes = request.attachment.to_vec();
        let work = move |shared: &Shared| write::write(shared, &channel, &message, &bytes);
        self.defer(call, request.attachment.len(), responder, Box::new(work))
    }

    /// What needs no disk.
    fn at_once(&self, request: &Request<'_>) -> Result<Option<Vec<u8>>, Fault> {
        let shared = &self.shared;
        Ok(Some(match request.method {
            Method::Ping => proto::PingResponse {}.encode_to_vec(),
            Method::ListAreas => proto::ListAreasResponse { areas: self.exports().list() }.encode_to_vec(),
            Method::CloseChannel => {
                shared.close(decode::<proto::CloseChannelRequest>(request)?.channel);
                proto::CloseChannelResponse {}.encode_to_vec()
            }
            Method::RenewChannels => {
                let client = decode::<proto::RenewChannelsRequest>(request)?.client;
                let channels = shared.channels.renew(client, shared.clock.now_ns());
                proto::RenewChannelsResponse { channels: u32::try_from(channels).unwrap_or(u32::MAX) }
                    .encode_to_vec()
            }
            _ => return Ok(None),
        }))
    }

    fn dispatch(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        if let Some(answer) = self.at_once(request)? {
            responder.reply(&answer);
            self.shared.record(call, None);
            return Ok(());
        }
        match request.method {
            Method::AreaStat => self.name(call, request, responder, names::stat),
            Method::AreaList => self.name(call, request, responder, list::list),
            Method::AreaReadLink => self.name(call, request, responder, names::read_link),
            Method::AreaSpace => self.name(call, request, responder, names::space),
            Method::AreaSetAttributes => self.name(call, request, responder, names::set_attributes),
            Method::AreaMakeDirectory => {
                self.change(call, request, responder, |r| r.nonce, names::make_directory)
            }
            Method::AreaRemove => self.change(call, request, responder, |r| r.nonce, names::remove),
            Method::AreaRename => self.change(call, request, responder, |r| r.nonce, names::rename),
            Method::AreaLink => self.change(call, request, responder, |r| r.nonce, names::link),
            Method::AreaGetXattr => self.name(call, request, responder, xattrs::get),
            Method::AreaListXattrs => self.name(call, request, responder, xattrs::list),
            Method::AreaSetXattr => self.change(call, request, responder, |r| r.nonce, xattrs::set),
            Method::AreaRemoveXattr => self.change(call, request, responder, |r| r.nonce, xattrs::remove),
            Method::AreaSymlink => self.change(call, request, responder, |r| r.nonce, names::symlink),
            Method::OpenChannel => self.name(call, request, responder, channel::open),
            other => self.dispatch_channel(other, call, request, responder),
        }
    }

    fn dispatch_channel(
        &self,
        method: Method,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        match method {
            Method::ChannelRead => {
                let proto::ChannelReadRequest { channel, offset, length } = decode(request)?;
                let ranges = vec![proto::ByteRange { offset, length }];
                self.read(call, channel, ranges, read_answer, responder)
            }
            Method::ChannelReadList => {
                let proto::ChannelReadListRequest { channel, ranges } = decode(request)?;
                self.read(call, channel, ranges, read_list_answer, responder)
            }
            Method::ChannelWrite => self.write(call, request, responder),
            Method::ChannelSync => {
                let message: proto::ChannelSyncRequest = decode(request)?;
                self.on_channel(call, message.channel, responder, move |s, c| write::sync(s, c, &message))
            }
            Method::ChannelTruncate => {
                let message: proto::ChannelTruncateRequest = decode(request)?;
                self.on_channel(call, message.channel, responder, move |s, c| write::truncate(s, c, &message))
            }
            Method::ChannelStat => {
                let message: proto::ChannelStatRequest = decode(request)?;
                self.on_channel(call, message.channel, responder, ops::channel::stat)
            }
            other => Err(Fault::new(Code::Unsupported, format!("{} on a service of areas", other.name()))),
        }
    }
}

fn read_answer(reading: &Reading) -> Vec<u8> {
    proto::ChannelReadResponse { checksums: reading.checksums.clone(), size: reading.size }.encode_to_vec()
}

fn read_list_answer(reading: &Reading) -> Vec<u8> {
    proto::ChannelReadListResponse {
        lengths: reading.lengths.clone(),
        checksums: reading.checksums.clone(),
        size: reading.size,
    }
    .encode_to_vec()
}

impl Service for AreaService {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let call = Call {
            method: request.method,
            start_ns: self.shared.clock.now_ns(),
            deadline_ns: request.deadline_ns,
        };
        if let Err(fault) = self.dispatch(call, &request, responder) {
            self.shared.record(call, Some(&fault));
            responder.fail(&fault);
        }
    }
}
