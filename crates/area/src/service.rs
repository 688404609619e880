//! The areas of a node as a [`Service`]: reads of what is cached are answered at once, the rest goes to the threads of
//! their area.

use crate::area::{Area, Surroundings};
use crate::channels::{Channel, Channels};
use crate::descriptors::Descriptors;
use crate::export::{self, AreaConfig, Exports};
use crate::metrics::Metrics;
use crate::ops::read::Reading;
use crate::ops::{self, InArea, channel, list, names, read, write, xattrs};
use crate::options::Options;
use crate::replies::Replies;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use vazao_meter::machine::DiskWatches;
use vazao_meter::measures::Measures;
use vazao_meter::{Cause, Clock, Exposition};
use vazao_model::Code;
use vazao_wire::lane::Lane;
use vazao_wire::service::{Answer, Call, Fault, Request, Responder, Service};
use vazao_wire::shell::{self, Shell, decode};
use vazao_wire::{Method, proto};

/// What outlives a single request and is used by the threads of the areas too.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) channels: Channels,
    pub(crate) descriptors: Descriptors,
    pub(crate) replies: Replies,
    pub(crate) metrics: Metrics,
    pub(crate) shell: Arc<Shell>,
    around: Surroundings,
    pub(crate) clock: Arc<dyn Clock>,
    /// Another one after the machine lost power; 0: not known.
    pub(crate) boot: u64,
    exports: RwLock<Arc<Exports>>,
    /// Areas that are not exported any more while something still waits for their file systems.
    retired: Mutex<Vec<Arc<Area>>>,
    /// Held while other areas are exported.
    changing: Mutex<()>,
}

/// The areas of one node.
pub struct AreaService {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for AreaService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AreaService").field("channels", &self.shared.channels.len()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn area(&self, name: &str) -> Result<Arc<Area>, Fault> {
        self.exports().get(name, &self.options.name).cloned()
    }

    fn exports(&self) -> Arc<Exports> {
        Arc::clone(&self.exports.read())
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
    /// A service with these areas. Errors: names that cannot be. An area whose directory is not there, or has not been
    /// opened within a moment, is tried again later and says so meanwhile.
    pub fn open(
        areas: Vec<AreaConfig>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<AreaService>, String> {
        export::check(&areas)?;
        let disks = DiskWatches::new(Arc::clone(&clock));
        let around = Surroundings { options: options.clone(), clock: Arc::clone(&clock), disks };
        let exports = Exports::of(areas, &Exports::default(), &around);
        let shared = Arc::new(Shared {
            channels: Channels::new(options.channels_max, options.lease_ms),
            descriptors: Descriptors::new(options.descriptors_max),
            replies: Replies::default(),
            metrics: Metrics::default(),
            shell: Shell::new("vazao_area", Arc::clone(&clock)),
            around,
            clock,
            boot: boot_id(),
            exports: RwLock::new(Arc::new(exports)),
            retired: Mutex::default(),
            changing: Mutex::default(),
            options,
        });
        Ok(Arc::new(AreaService { shared }))
    }

    /// Exports these areas from now on. Channels into areas that are gone or changed have to be opened again. Errors:
    /// names that cannot be; nothing changes then.
    pub fn set_areas(&self, areas: Vec<AreaConfig>) -> Result<(), String> {
        export::check(&areas)?;
        let _one = self.shared.changing.lock();
        // Requests go on with the old areas while directories are opened.
        let before = self.exports();
        let exports = Exports::of(areas, &before, &self.shared.around);
        let gone = before.gone(&exports);
        *self.shared.exports.write() = Arc::new(exports);
        gone.iter().for_each(|area| area.close());
        self.shared.retired.lock().extend(gone);
        Ok(())
    }

    /// Background work; to be called about once a second. Closes channels of clients that are gone, tries areas again
    /// whose directory was not there, looks whether file systems answer. It waits for none of them.
    pub fn tick(&self) {
        let expired = self.shared.channels.expire(self.shared.clock.now_ns());
        expired.iter().for_each(|&id| self.shared.descriptors.remove(id));
        self.shared.metrics.expired.add(expired.len() as u64);
        self.exports().areas().for_each(|area| area.tick(&self.shared.around.disks));
        let mut retired = self.shared.retired.lock();
        let done: Vec<Arc<Area>> = retired.extract_if(.., |area| !area.tick_closed()).collect();
        // The last owner of an area closes its directory.
        drop(retired);
        drop(done);
    }

    /// Lets running work finish and stops. Threads that still wait for their file system at `until_ns` are left to
    /// themselves.
    pub fn close(&self, until_ns: u64) {
        let exports = self.exports();
        // All hear of it before the first is waited for.
        for lane in exports.areas().flat_map(|area| area.lanes()) {
            let _ = lane.stop(Duration::ZERO);
        }
        let timeout = || Duration::from_nanos(until_ns.saturating_sub(self.shared.clock.now_ns()));
        for area in exports.areas() {
            let is_stuck = !area.lanes().all(|lane| lane.stop(timeout()));
            if is_stuck {
                tracing::warn!(area = area.name, "threads that wait for its file system are left behind");
            }
        }
    }

    /// Adds its disks and its work to what the node counts.
    pub fn fill(&self, measures: &mut Measures) {
        measures.disks.extend(self.shared.around.disks.measures());
        measures.work.add(&self.shared.shell.work());
    }

    /// Writes its metrics out.
    pub fn expose(&self, out: &mut Exposition) {
        let shared = &self.shared;
        shared.shell.expose(&[Cause::Disk], out);
        shared.shell.expose_bytes(out);
        shared.metrics.expose(out);
        out.gauge("vazao_area_channels", "Open channels.", &[], shared.channels.len() as f64);
        out.gauge("vazao_area_descriptors", "Files open for channels.", &[], shared.descriptors.len() as f64);
        let help = "How long its file system has not answered anything it was asked; 0: it answers.";
        for area in self.exports().areas() {
            let seconds = area.silent_ns() as f64 / 1e9;
            out.gauge("vazao_area_silent_seconds", help, &[("area", area.name.as_str())], seconds);
        }
    }

    pub(crate) fn exports(&self) -> Arc<Exports> {
        self.shared.exports()
    }

    /// Has `work` done by the area's own threads, and its answer delivered. Errors: there is too much to do already;
    /// the area's file system hangs.
    fn defer(
        &self,
        call: Call,
        area: &Area,
        bytes: usize,
        responder: &mut dyn Responder,
        work: impl FnOnce(&Shared) -> Answer + Send + 'static,
    ) -> Result<(), Fault> {
        let shared = Arc::clone(&self.shared);
        shell::defer(area.lane(false), call, bytes, responder, move || work(&shared))
    }

    /// Has `work`, which belongs to a copy into an area, done by the area's threads for copies, and its answer
    /// delivered. Errors: no such area; there is too much to do already; its file system hangs.
    pub fn defer_copy(
        &self,
        area: &str,
        call: Call,
        bytes: usize,
        responder: &mut dyn Responder,
        work: impl FnOnce() -> Answer + Send + 'static,
    ) -> Result<(), Fault> {
        shell::defer(self.shared.area(area)?.lane(true), call, bytes, responder, work)
    }

    /// Has `work`, which belongs to a copy into an area, done by the area's threads for copies, behind the back of the
    /// caller. False where there is no such area, or too much to do: `work` is dropped.
    pub fn run_for_copies(
        &self,
        area: &str,
        what: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> bool {
        let lane = |area: &Arc<Area>| area.lane(true).map(|lane| Lane::run(lane, what, work));
        self.shared.area(area).ok().as_ref().and_then(lane).unwrap_or(false)
    }

    /// True for an area whose directory is open.
    pub fn has(&self, area: &str) -> bool {
        self.shared.area(area).is_ok()
    }

    /// Areas that count as hanging, and why.
    pub fn hanging(&self) -> Vec<(String, String)> {
        let exports = self.exports();
        exports.areas().filter_map(|area| Some((area.name.clone(), area.hangs()?))).collect()
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
            }
            Ok::<bool, Fault>(is_done)
        })?;
        if is_done {
            return Ok(());
        }
        let area = Arc::clone(&channel.area);
        let work = move |shared: &Shared| {
            let reading = read::blocking(shared, &channel, &ranges)?;
            Ok((encode(&reading), reading.bytes))
        };
        self.defer(call, &area, bytes, responder, work)
    }

    /// An operation on names, done where it may wait.
    fn name<M: InArea + Message + Default + Send + 'static>(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
        work: fn(&Shared, &M) -> Answer,
    ) -> Result<(), Fault> {
        let message: M = decode(request)?;
        let area = self.shared.area(message.area())?;
        self.defer(call, &area, request.message.len(), responder, move |shared| work(shared, &message))
    }

    /// The same for one that carries a nonce.
    fn change<M: InArea + Message + Default + Send + 'static>(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
        nonce: fn(&M) -> u64,
        work: fn(&Shared, &M) -> Answer,
    ) -> Result<(), Fault> {
        let message: M = decode(request)?;
        let area = self.shared.area(message.area())?;
        let work = move |shared: &Shared| shared.replies.once(nonce(&message), || work(shared, &message));
        self.defer(call, &area, request.message.len(), responder, work)
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
        let area = Arc::clone(&channel.area);
        self.defer(call, &area, 0, responder, move |shared| work(shared, &channel))
    }

    fn write(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let message: proto::ChannelWriteRequest = decode(request)?;
        let channel = self.shared.channel(message.channel)?;
        let bytes = request.attachment.to_vec();
        let area = Arc::clone(&channel.area);
        let work = move |shared: &Shared| write::write(shared, &channel, &message, &bytes);
        self.defer(call, &area, request.attachment.len(), responder, work)
    }

    /// What needs no disk.
    fn at_once(&self, request: &Request<'_>) -> Result<Option<Vec<u8>>, Fault> {
        let shared = &self.shared;
        Ok(Some(match request.method {
            Method::Ping => proto::PingResponse { run: shared.options.run }.encode_to_vec(),
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
        self.shared
            .shell
            .serve(&request, responder, |responder| self.dispatch(request.call(), &request, responder));
    }
}
