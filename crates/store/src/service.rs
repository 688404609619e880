//! The data server as a [`Service`]: finds the target, does what needs no waiting at once, hands the rest to a pool.

use crate::error::OpenError;
use crate::fan_out::{Asked, Handed, Then, Work};
use crate::health::damage::Place;
use crate::lease::Leases;
use crate::object::attempts::Terms;
use crate::object::lent::Lent;
use crate::object::{Mode, Stop, internal};
use crate::ops;
use crate::options::{MissingTarget, Options};
use crate::replication::{self, Body, Change, Duty, Replication};
use crate::targets::Target;
use crate::targets::{Groups, Targets};
use crate::unknown_groups::UnknownGroups;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vazao_disk::Disk;
use vazao_meter::{Accounts, Cause, Clock, Exposition};
use vazao_model::limits::BLOCK_BYTES;
use vazao_model::{Code, GroupId, ObjectId, TargetState};
use vazao_wire::service::{Answer, Call, Fault, Request, Responder, Service};
use vazao_wire::shell::{self, Shell, decode};
use vazao_wire::{Method, proto};

thread_local! {
    /// Bytes of a write that were lent.
    static FETCHED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A data server: the targets of one node.
pub struct DataService {
    pub(crate) targets: Targets,
    pub(crate) options: Options,
    pub(crate) address: RwLock<String>,
    /// What clients of this machine are told; empty without a door.
    door: RwLock<proto::LocalDoorResponse>,
    pub(crate) lent: Lent,
    /// The latest that it was told of the history of the metadata.
    pub(crate) mark: Mutex<proto::HistoryMark>,
    pub(crate) groups: RwLock<Groups>,
    pub(crate) leases: Leases,
    pub(crate) unknown_groups: UnknownGroups,
    pub(crate) replication: Replication,
    /// Targets that it had and that are not there.
    pub(crate) missing: Mutex<Vec<MissingTarget>>,
    pub(crate) shell: Arc<Shell>,
    pub(crate) is_stopped: AtomicBool,
}

impl std::fmt::Debug for DataService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataService").field("targets", &self.targets.len()).finish_non_exhaustive()
    }
}

/// The fault of an operation that was allowed to wait.
pub(crate) fn fault(stop: Stop) -> Fault {
    match stop {
        Stop::Fault(fault) => fault,
        Stop::Wait => internal("an operation that may wait asked to be allowed to"),
    }
}

impl DataService {
    /// Opens the targets in `disks`, each with the path that people know it by. An empty directory becomes a new
    /// target. Errors: anything that makes one of them unfit; none is served then.
    pub fn open(
        disks: Vec<(Arc<dyn Disk>, String)>,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<DataService>, OpenError> {
        if let Some(problem) = options.problem() {
            return Err(OpenError::Options(problem.to_owned()));
        }
        let shell = Shell::new("vazao_data", clock);
        let share = disks.len();
        let mut targets = Vec::with_capacity(share);
        for (disk, label) in disks {
            let target = Target::open(disk, &label, &options, share, shell.clock(), shell.accounts())?;
            targets.push(Arc::new(target));
        }
        crate::registration::check_identities(&targets, options.cluster_id)?;
        let address = RwLock::new(options.address.clone());
        let targets = Targets::new(targets)?;
        let (door, lent, is_stopped) = (RwLock::default(), Lent::default(), AtomicBool::new(false));
        let mark = Mutex::new(crate::registration::latest_mark(&targets));
        let missing = Mutex::new(options.missing.clone());
        let replication = Replication::new(Arc::clone(shell.clock()));
        let leases = Leases::default();
        targets.iter().for_each(|target| target.follow(&leases.latest));
        let service = Arc::new(DataService {
            targets,
            options,
            address,
            door,
            lent,
            mark,
            groups: RwLock::default(),
            leases,
            unknown_groups: UnknownGroups::default(),
            replication,
            missing,
            shell,
            is_stopped,
        });
        service.replication.serve(&service);
        Ok(service)
    }

    /// Opens or formats one more target while the server runs; it is announced with the next heartbeat. Errors: as in
    /// [`DataService::open`]; the others go on either way.
    pub fn add_target(&self, disk: Arc<dyn Disk>, label: &str) -> Result<(), OpenError> {
        // Before the others are looked at, who must not wait for its disk.
        let (shell, share) = (&self.shell, self.targets.len() + 1);
        let mut target = Target::open(disk, label, &self.options, share, shell.clock(), shell.accounts())?;
        // Adding one while others are missing is on purpose.
        target.is_meant = true;
        target.follow(&self.leases.latest);
        let target = Arc::new(target);
        self.targets.add(|others| {
            let identity = target.identity();
            let is_lost = |other: &&Arc<Target>| {
                identity.replaces != 0
                    && other.identity().uuid == identity.replaces
                    && !other.state().is_readable()
            };
            let (lost, stay): (Vec<_>, Vec<_>) = others.iter().partition(is_lost);
            let all: Vec<_> = stay.into_iter().chain([&target]).map(Arc::clone).collect();
            crate::registration::check_identities(&all, self.options.cluster_id)?;
            lost.iter().for_each(|lost| lost.retire());
            self.missing.lock().retain(|it| ![identity.uuid, identity.replaces].contains(&it.uuid));
            Ok(target)
        })
    }

    /// The numbers of the directories that it has open.
    pub fn served_numbers(&self) -> Vec<u128> {
        self.targets.iter().map(|target| target.identity().uuid).collect()
    }

    /// The targets that are missing at present.
    pub fn missing_targets(&self) -> Vec<MissingTarget> {
        self.missing.lock().clone()
    }

    /// Announces the door through which it hands out descriptors.
    pub fn announce_door(&self, door: proto::LocalDoorResponse) {
        *self.door.write() = door;
    }

    /// How many of its targets have failed or are stale: when one more has, no client may go on reading it past the
    /// server. What the page cache has of one that hangs may be read.
    pub fn failed_targets(&self) -> usize {
        let is_out = |state: TargetState| !state.is_readable() && state != TargetState::Hung;
        self.targets.iter().filter(|target| is_out(target.state())).count()
    }

    /// How many of its targets take no more data: when that changes, it is to be reported at once.
    pub fn full_targets(&self) -> usize {
        self.targets.iter().filter(|target| target.room.is_full()).count()
    }

    /// Background work; to be called about once a second. Ends epochs, goes on with the sweep after an unclean stop,
    /// looks at the space left. Each target does it in threads of its own: one whose disk hangs holds up no other, nor
    /// the caller.
    pub fn tick(&self) {
        for target in self.targets.iter().filter(|_| !self.is_stopped()) {
            target.begin_tick(self.options.checkpoint_ms, self.latest_mark());
        }
    }

    /// Writes its metrics out.
    pub fn expose(&self, out: &mut Exposition) {
        self.shell.expose(&[Cause::Disk, Cause::Lock, Cause::Compute], out);
        self.shell.expose_bytes(out);
        let deferred: usize = self.targets.iter().map(|target| target.waits.waiting()).sum();
        out.gauge("vazao_data_deferred", "Requests waiting for a disk now.", &[], deferred as f64);
        let open: usize = self.targets.iter().map(|t| t.cache.open_chunks()).sum();
        out.gauge("vazao_data_open_chunks", "Chunks with open files.", &[], open as f64);
        for target in self.targets.iter() {
            let id = target.id().0.to_string();
            let labels = [("target", id.as_str())];
            let left = target.room.reported().space.available_bytes as f64;
            out.gauge("vazao_data_available_bytes", "Space left after the reserve.", &labels, left);
        }
        for target in self.targets.iter() {
            let id = target.id().0.to_string();
            let blocks = target.damage.counts().corrupt_blocks as f64;
            let help = "Blocks found damaged, and neither written anew nor removed since.";
            out.gauge("vazao_data_corrupt_blocks", help, &[("target", id.as_str())], blocks);
        }
        for target in self.targets.iter() {
            let id = target.id().0.to_string();
            let objects = target.damage.counts().missing_objects as f64;
            let help = "Objects found missing where a file has bytes in them.";
            out.gauge("vazao_data_missing_objects", help, &[("target", id.as_str())], objects);
        }
        for target in self.targets.iter() {
            let id = target.id().0.to_string();
            let blocks = target.repairs().1 as f64;
            let help = "Checksums computed again after an unclean stop.";
            out.counter("vazao_data_repaired_blocks_total", help, &[("target", id.as_str())], blocks);
        }
        for target in self.targets.iter() {
            let id = target.id().0.to_string();
            let (blocks, objects) = target.restores.counts();
            let help = "Damaged blocks and missing objects repaired from another copy.";
            for (what, count) in [("block", blocks), ("object", objects)] {
                let labels = [("target", id.as_str()), ("what", what)];
                out.counter("vazao_data_repaired_from_copies_total", help, &labels, count as f64);
            }
        }
        for target in self.targets.iter() {
            let id = target.id().0.to_string();
            let seconds = target.waits.silent_ns() as f64 / 1e9;
            let help = "How long its disk has not answered anything it was asked; 0: it answers.";
            out.gauge("vazao_data_silent_seconds", help, &[("target", id.as_str())], seconds);
        }
        self.expose_lagging(out);
    }

    /// What was done: bytes, and operations by duration.
    pub fn work(&self) -> vazao_meter::measures::Work {
        self.shell.work()
    }

    /// Where its time went.
    pub fn accounts(&self) -> Arc<Accounts> {
        Arc::clone(self.shell.accounts())
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// The target with this id, when it can be used.
    pub(crate) fn target(&self, id: u32) -> Result<&Arc<Target>, Fault> {
        let target = self.targets.iter().find(|t| t.id().0 == id && id != 0);
        let target = target.ok_or_else(|| self.not_here(id))?;
        target.check()?;
        Ok(target)
    }

    fn not_here(&self, id: u32) -> Fault {
        match self.missing_targets().into_iter().find(|missing| missing.id == id) {
            Some(missing) => {
                Fault::new(Code::TargetFailed, format!("target t{id} is missing: {}", missing.why))
            }
            None => {
                let epoch = self.groups.read().told_epoch();
                Fault::new(Code::WrongTarget, format!("target t{id}")).as_of(epoch)
            }
        }
    }

    /// The object and its target, while the server serves.
    pub(crate) fn serving_target_of(
        &self,
        address: Option<&proto::ObjectAddress>,
    ) -> Result<(&Arc<Target>, ObjectId), Fault> {
        if self.is_stopped() {
            return Err(Fault::new(Code::Unavailable, "the data server is stopping"));
        }
        self.target_of(address)
    }

    pub(crate) fn target_of(
        &self,
        address: Option<&proto::ObjectAddress>,
    ) -> Result<(&Arc<Target>, ObjectId), Fault> {
        let address = address.ok_or_else(|| Fault::new(Code::BadRequest, "no object is named"))?;
        let id = ops::object(address)?;
        Ok((self.addressed(address)?, id))
    }

    /// The object that a request changes, and the terms. What the sender has given up is refused from here on.
    fn changed(
        &self,
        address: Option<&proto::ObjectAddress>,
        must_exist: bool,
    ) -> Result<(&Arc<Target>, ObjectId, Terms), Fault> {
        let (target, id) = self.target_of(address)?;
        target.give_up(id, address.map_or(&[], |address| &address.given_up))?;
        Ok((target, id, Terms::of(address, must_exist)))
    }

    /// Has `work` done where it may wait, and its answer delivered. Errors: there is too much to do already; the disk
    /// hangs.
    fn defer(
        &self,
        call: Call,
        target: &Arc<Target>,
        bytes: usize,
        responder: &mut dyn Responder,
        work: impl FnOnce(&Target) -> Answer + Send + 'static,
    ) -> Result<(), Fault> {
        let (lane, target) = (target.waits.lane(), Arc::clone(target));
        shell::defer(lane, call, bytes, responder, move || {
            target.check()?;
            work(&target)
        })
    }

    fn read(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let proto::ReadRequest { object, offset, length } = decode(request)?;
        let (target, id) = self.target_of(object.as_ref())?;
        ops::read::check(id, offset, length)?;
        self.may_read(object.as_ref())?;
        let still = self.may_still_read(object.as_ref());
        let mode = if target.waits.lane().is_some() { Mode::Fast } else { Mode::Blocking };
        let read = target.waits.reads.run(responder, |responder| {
            target.read(id, offset, length, mode, &mut |message, length, fill| {
                let mut fill = |place: &mut [u8]| Ok(fill(place)? && still.check().map(|()| true)?);
                responder.try_reply_with(message, length, &mut fill)
            })
        });
        match read.unwrap_or(Err(Stop::Wait)) {
            Ok(()) => Ok(()),
            Err(Stop::Fault(fault)) => Err(fault),
            Err(Stop::Wait) => self.defer(call, target, length as usize, responder, move |target| {
                let read = read_blocking(target, id, offset, length)?;
                still.check().map(|()| read)
            }),
        }
    }

    fn write(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let write: proto::WriteRequest = decode(request)?;
        match write.lent {
            None => self.write_bytes(call, write, request.attachment, responder),
            Some(lent) => FETCHED.with_borrow_mut(|fetched| {
                let bytes = self.lent.fetch(&lent, fetched)?;
                self.write_bytes(call, write, bytes, responder)
            }),
        }
    }

    fn write_bytes(
        &self,
        call: Call,
        write: proto::WriteRequest,
        bytes: &[u8],
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        let touched = || vec![replication::bytes(write.offset, bytes.len() as u64)];
        if self.duty(write.object.as_ref(), touched)? == Duty::Lead {
            let body = Body::Write(proto::WriteRequest { lent: None, ..write });
            return self.lead(call, Change { body, bytes: bytes.to_vec() }, responder);
        }
        let proto::WriteRequest { object, offset, checksums, sync, must_exist, .. } = write;
        let (target, id, terms) = self.changed(object.as_ref(), must_exist)?;
        ops::write::check(target, id, offset, &checksums, bytes)?;
        self.shell.count_written(bytes.len());
        if !sync && target.waits.lane().is_some() {
            let write =
                |_: &mut dyn Responder| target.write(id, offset, &checksums, bytes, Mode::Fast, terms);
            match target.waits.writes.run(responder, write).unwrap_or(Err(Stop::Wait)) {
                Ok(object_length) => {
                    let answer = proto::WriteResponse { object_length, boot: target.boot };
                    responder.reply(&answer.encode_to_vec());
                    return Ok(());
                }
                Err(Stop::Fault(fault)) => return Err(fault),
                Err(Stop::Wait) => {}
            }
        }
        let bytes = bytes.to_vec();
        self.defer(call, target, bytes.len(), responder, move |target| {
            let object_length =
                target.write(id, offset, &checksums, &bytes, Mode::Blocking, terms).map_err(fault)?;
            if sync {
                target.sync(id).map_err(fault)?;
            }
            Ok((proto::WriteResponse { object_length, boot: target.boot }.encode_to_vec(), Vec::new()))
        })
    }

    fn compare(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let proto::CompareBlocksRequest { object, offset, length, with_bytes } = decode(request)?;
        let (target, id) = self.target_of(object.as_ref())?;
        ops::read::check(id, offset, length)?;
        if self.duty(object.as_ref(), Vec::new)? != Duty::Follow {
            return Err(Fault::new(Code::BadRequest, format!("object {id}: only members compare")));
        }
        self.defer(call, target, length as usize, responder, move |target| {
            let range = offset..offset + u64::from(length);
            let (compared, bytes) = DataService::compare_blocks(target, id, range, with_bytes)?;
            Ok((compared.encode_to_vec(), bytes))
        })
    }

    /// A block of this member is replaced by the primary's, where it fails its checksum.
    fn restore(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let restore: proto::RestoreBlockRequest = decode(request)?;
        let (target, id) = self.target_of(restore.object.as_ref())?;
        if self.duty(restore.object.as_ref(), Vec::new)? != Duty::Follow {
            return Err(Fault::new(Code::BadRequest, format!("object {id}: only members restore blocks")));
        }
        let bytes = request.attachment.to_vec();
        self.defer(call, target, bytes.len(), responder, move |target| {
            Ok((DataService::restored(target, &restore, bytes)?.encode_to_vec(), Vec::new()))
        })
    }

    fn scrub(&self, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let request: proto::ScrubRequest = decode(request)?;
        let target = self.target(request.target)?;
        let (repair, is_inline) = (self.repair_of_scrub(), self.options.inline);
        responder.reply(&ops::scrub::scrub(target, &request, repair, is_inline)?.encode_to_vec());
        Ok(())
    }

    fn read_list(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        let proto::ReadListRequest { object, ranges } = decode(request)?;
        let (target, id) = self.target_of(object.as_ref())?;
        let bytes = ops::list_io::check(id, &ranges)?;
        self.may_read(object.as_ref())?;
        let still = self.may_still_read(object.as_ref());
        self.defer(call, target, bytes, responder, move |target| {
            let read = target.read_list(id, &ranges)?;
            still.check().map(|()| read)
        })
    }

    fn write_list(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        let write: proto::WriteListRequest = decode(request)?;
        let touched =
            || write.ranges.iter().map(|it| replication::bytes(it.offset, u64::from(it.length))).collect();
        if self.duty(write.object.as_ref(), touched)? == Duty::Lead {
            let bytes = request.attachment.to_vec();
            return self.lead(call, Change { body: Body::WriteList(write), bytes }, responder);
        }
        let proto::WriteListRequest { object, ranges, checksums, must_exist } = write;
        let (target, id, terms) = self.changed(object.as_ref(), must_exist)?;
        target.check_list(id, &ranges, &checksums, request.attachment)?;
        self.shell.count_written(request.attachment.len());
        let bytes = request.attachment.to_vec();
        self.defer(call, target, bytes.len(), responder, move |target| {
            let written = target.write_list(id, &ranges, &checksums, &bytes, terms);
            let object_length = written.map_err(fault)?;
            let answer = proto::WriteListResponse { object_length, boot: target.boot };
            Ok((answer.encode_to_vec(), Vec::new()))
        })
    }

    fn truncate(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        let cut: proto::TruncateObjectRequest = decode(request)?;
        if self.duty(cut.object.as_ref(), || vec![replication::behind(cut.length)])? == Duty::Lead {
            return self.lead(call, Change::new(Body::Truncate(cut)), responder);
        }
        let proto::TruncateObjectRequest { object, length, must_exist } = cut;
        let (target, id, terms) = self.changed(object.as_ref(), must_exist)?;
        ops::check_range(id, length, 0)?;
        self.defer(call, target, 0, responder, move |target| {
            target.truncate(id, length, terms).map_err(fault)?;
            Ok((proto::TruncateObjectResponse { boot: target.boot }.encode_to_vec(), Vec::new()))
        })
    }

    fn punch(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let punch: proto::PunchObjectRequest = decode(request)?;
        if self.duty(punch.object.as_ref(), || vec![replication::bytes(punch.offset, punch.length)])?
            == Duty::Lead
        {
            return self.lead(call, Change::new(Body::Punch(punch)), responder);
        }
        let proto::PunchObjectRequest { object, offset, length, must_exist } = punch;
        let (target, id, terms) = self.changed(object.as_ref(), must_exist)?;
        ops::check_range(id, offset, length)?;
        self.defer(call, target, 0, responder, move |target| {
            target.punch(id, offset, length, terms).map_err(fault)?;
            Ok((proto::PunchObjectResponse { boot: target.boot }.encode_to_vec(), Vec::new()))
        })
    }

    fn copy(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let r: proto::CopyObjectRangeRequest = decode(request)?;
        if self.are_led(r.object.as_slice()) || self.are_led(r.source.as_slice()) {
            let (bytes, deadline_ns) = (r.length as usize, call.deadline_ns);
            return self
                .replicate(call, bytes, responder, move |service| service.copy_to_all(&r, deadline_ns));
        }
        let (source, source_id) = self.target_of(r.source.as_ref())?;
        let (target, id, terms) = self.changed(r.object.as_ref(), r.must_exist)?;
        let from = ops::copy::Place { object: source_id, offset: r.source_offset };
        let (to, length) = (ops::copy::Place { object: id, offset: r.offset }, r.length);
        ops::copy::check(from, to, length)?;
        let take = move |target: &Target, (message, bytes): (Vec<u8>, Vec<u8>)| {
            let broken = |_| internal("an answer of our own that cannot be decoded");
            let answer = proto::ReadResponse::decode(&*message).map_err(broken)?;
            target.take_copy(from, to, length, &answer, &bytes, terms)?;
            Ok((proto::CopyObjectRangeResponse { boot: target.boot }.encode_to_vec(), Vec::new()))
        };
        let read = move |source: &Target| read_blocking(source, from.object, from.offset, length);
        let (Some(lane), false) = (source.waits.lane(), Arc::ptr_eq(source, target)) else {
            let same = Arc::clone(source);
            let both = move |target: &Target| take(target, read(&same)?);
            return self.defer(call, target, length as usize, responder, both);
        };
        // No thread of the one waits for the disk of the other.
        let (target, held) = (Arc::clone(target), Arc::clone(source));
        let write = move |read: Answer, whole| {
            let (mut handed, name) = (Handed::to(whole), call.method.name());
            let written = read.and_then(|read| {
                let lane = target.waits.lane().ok_or_else(|| internal("a target without threads"))?;
                let held = Arc::clone(&target);
                lane.defer(name, length as usize, call.deadline_ns, &mut handed, move || take(&held, read))
            });
            if let Err(fault) = written {
                handed.fail(&fault);
            }
        };
        let mut then = Then::new(responder, write);
        lane.defer(call.method.name(), length as usize, call.deadline_ns, &mut then, move || read(&held))
    }

    fn fence(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let fence: proto::FenceObjectsRequest = decode(request)?;
        if self.are_led(&fence.objects) {
            return self
                .replicate(call, 0, responder, move |service| service.fence_all(fence, call.deadline_ns));
        }
        self.follow_all(&fence.objects)?;
        let proto::FenceObjectsRequest { objects, token, step } = fence;
        let (target, _) = self.target_of(objects.first())?;
        let of_one = |address: &proto::ObjectAddress| {
            let (other, id) = self.target_of(Some(address))?;
            let is_one = Arc::ptr_eq(other, target);
            is_one.then_some(id).ok_or_else(|| Fault::new(Code::BadRequest, "a fence around two targets"))
        };
        let ids = objects.iter().map(of_one).collect::<Result<Vec<ObjectId>, Fault>>()?;
        self.defer(call, target, 0, responder, move |target| {
            let done = match step {
                1 => target.watch(&ids, token).map(|()| true),
                2 => target.seal(&ids, token),
                3 => target.lift(&ids, token).map(|()| true),
                other => Err(Fault::new(Code::BadRequest, format!("step {other} of a fence")).into()),
            };
            let changed = !done.map_err(fault)?;
            Ok((proto::FenceObjectsResponse { changed }.encode_to_vec(), Vec::new()))
        })
    }

    fn ranges(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let proto::ObjectRangesRequest { object, offset, limit } = decode(request)?;
        let (target, id) = self.target_of(object.as_ref())?;
        ops::check_range(id, offset, 0)?;
        self.may_read(object.as_ref())?;
        let still = self.may_still_read(object.as_ref());
        self.defer(call, target, 0, responder, move |target| {
            let ranges = target.ranges(id, offset, limit).map_err(fault)?;
            still.check().map(|()| (ranges.encode_to_vec(), Vec::new()))
        })
    }

    fn stat(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let proto::StatObjectRequest { object } = decode(request)?;
        let (target, id) = self.target_of(object.as_ref())?;
        self.may_read(object.as_ref())?;
        let still = self.may_still_read(object.as_ref());
        self.defer(call, target, 0, responder, move |target| {
            let stat = target.stat(id).map_err(fault)?;
            still.check().map(|()| (stat.encode_to_vec(), Vec::new()))
        })
    }

    fn list(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let proto::ListObjectsRequest { target, cookie, limit, group } = decode(request)?;
        let group = Some(GroupId(group)).filter(|group| group.0 != 0);
        let target = self.target(target)?;
        self.defer(call, target, 0, responder, move |target| {
            Ok((target.list(&cookie, limit, group).map_err(fault)?.encode_to_vec(), Vec::new()))
        })
    }

    fn report_damage(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        let proto::ReportDamageRequest { object, offset, missing } = decode(request)?;
        let (target, id) = self.target_of(object.as_ref())?;
        ops::check_range(id, offset, 0)?;
        let place = if missing { Place::Missing } else { Place::Block(offset / BLOCK_BYTES as u64) };
        self.defer(call, target, 0, responder, move |target| {
            let damaged = target.note_reported(id, place).map_err(fault)?;
            Ok((proto::ReportDamageResponse { damaged }.encode_to_vec(), Vec::new()))
        })
    }

    fn sync(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let sync: proto::SyncObjectsRequest = decode(request)?;
        if self.are_led(&sync.objects) {
            return self
                .replicate(call, 0, responder, move |service| service.sync_all(sync, call.deadline_ns));
        }
        self.follow_all(&sync.objects)?;
        let proto::SyncObjectsRequest { objects, boot } = sync;
        for address in &objects {
            let (target, id) = self.target_of(Some(address))?;
            check_boot(target, id, boot, target.boot)?;
        }
        let work: Work = |target, objects| {
            let is_missing = |&(id, _): &Asked| Ok(u64::from(!target.sync(id)?));
            objects.iter().map(is_missing).sum()
        };
        let finish = |missing| proto::SyncObjectsResponse { missing }.encode_to_vec();
        self.fan_out(call, &objects, responder, work, finish)
    }

    fn remove(&self, call: Call, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let remove: proto::RemoveObjectsRequest = decode(request)?;
        if self.are_led(&remove.objects) {
            return self
                .replicate(call, 0, responder, move |service| service.remove_all(remove, call.deadline_ns));
        }
        self.follow_all(&remove.objects)?;
        let proto::RemoveObjectsRequest { objects } = remove;
        let finish = |removed| proto::RemoveObjectsResponse { removed }.encode_to_vec();
        self.fan_out(call, &objects, responder, |target, objects| target.remove(objects), finish)
    }

    pub(crate) fn dispatch(
        &self,
        call: Call,
        request: &Request<'_>,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        if self.is_stopped() {
            return Err(Fault::new(Code::Unavailable, "the data server is stopping"));
        }
        match request.method {
            Method::Ping => {
                responder.reply(&proto::PingResponse { run: self.options.run }.encode_to_vec());
                Ok(())
            }
            Method::Read => self.read(call, request, responder),
            Method::Write => self.write(call, request, responder),
            Method::TruncateObject => self.truncate(call, request, responder),
            Method::SyncObjects => self.sync(call, request, responder),
            Method::RemoveObjects => self.remove(call, request, responder),
            Method::StatObject => self.stat(call, request, responder),
            Method::PunchObject => self.punch(call, request, responder),
            Method::ObjectRanges => self.ranges(call, request, responder),
            Method::CopyObjectRange => self.copy(call, request, responder),
            Method::FenceObjects => self.fence(call, request, responder),
            Method::ListObjects => self.list(call, request, responder),
            Method::ReportDamage => self.report_damage(call, request, responder),
            Method::Scrub => self.scrub(request, responder),
            Method::ReadList => self.read_list(call, request, responder),
            Method::WriteList => self.write_list(call, request, responder),
            Method::KeepAlive => {
                let answer = self.keep_alive(&decode(request)?)?;
                responder.reply(&answer.encode_to_vec());
                Ok(())
            }
            Method::CollectUnconfirmed => {
                let answer = self.unconfirmed(&decode(request)?)?;
                responder.reply(&answer.encode_to_vec());
                Ok(())
            }
            Method::CatchUp => {
                let catch_up: proto::CatchUpRequest = decode(request)?;
                self.replicate(call, 0, responder, move |service| {
                    let answer = service.take_catch_up(&catch_up)?;
                    Ok((answer.encode_to_vec(), Vec::new()))
                })
            }
            Method::CompareBlocks => self.compare(call, request, responder),
            Method::RepairObject => {
                let repair: proto::RepairObjectRequest = decode(request)?;
                self.replicate(call, 0, responder, move |service| {
                    let repaired = service.repair_of_other(&repair, call.deadline_ns)?;
                    Ok((repaired.encode_to_vec(), Vec::new()))
                })
            }
            Method::CompareCopies => {
                let compare: proto::CompareCopiesRequest = decode(request)?;
                self.replicate(call, 0, responder, move |service| {
                    let compared = service.compare_copies(&compare, call.deadline_ns)?;
                    Ok((compared.encode_to_vec(), Vec::new()))
                })
            }
            Method::RestoreBlock => self.restore(call, request, responder),
            Method::LocalDoor => {
                let door = self.door.read();
                responder.reply(&door.encode_to_vec());
                Ok(())
            }
            other => Err(Fault::new(Code::Unsupported, format!("{} on a data server", other.name()))),
        }
    }
}

impl Service for DataService {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        self.shell.serve(&request, responder, |responder| self.dispatch(request.call(), &request, responder));
    }

    fn may_hang(&self) -> bool {
        !self.options.inline
    }

    fn look(&self) {
        self.targets.iter().for_each(|target| target.waits.look());
    }
}

/// Refuses to call durable what may be gone: it was answered before the machine lost power.
pub(crate) fn check_boot(target: &Target, id: ObjectId, boot: u64, known: u64) -> Result<(), Fault> {
    if boot == 0 || boot == known {
        return Ok(());
    }
    let detail =
        format!("{target}, object {id}: the machine lost power after it was written; write it again");
    Err(Fault::new(Code::Io, detail))
}

/// Reads into memory.
pub(crate) fn read_blocking(target: &Target, id: ObjectId, offset: u64, length: u32) -> Answer {
    let mut answer: Answer = Err(internal("a read ended without an answer"));
    let read = target.read(id, offset, length, Mode::Blocking, &mut |message, length, fill| {
        let mut attachment = vec![0; length];
        answer = fill(&mut attachment).map(|_| (message.to_vec(), attachment));
        true
    });
    read.map_err(fault)?;
    answer
}
