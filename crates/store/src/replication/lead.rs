//! The primary's part: it has all current members carry a change out, and answers when that is so.

use super::change::{Body, Change, Touched};
use super::{Key, Sent};
use crate::fan_out::Handed;
use crate::lease::View;
use crate::object::attempts::Terms;
use crate::options::Defect;
use crate::service::{DataService, fault};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::time::Duration;
use vazao_model::cluster::lease::TERM_NS;
use vazao_model::{Code, GroupId, ObjectId, TargetId};
use vazao_wire::proto;
use vazao_wire::service::{Answer, Call, Deferred, Fault, Request, Responder};
use vazao_wire::transport::{Pending, Received, Transport};

/// How long one member may take for one form of a change. One that is silent, or whose disk is, is out of the group
/// before that; one behind a full link is slow, and gets no faster by being sent it once more.
pub(super) const FORWARD_NS: u64 = 8_000_000_000;

/// A member that could carry nothing out for so long after it first failed is accused, also where it answers questions.
const FAILING_NS: u64 = 3_000_000_000;

/// Without leases for so long the primary says so: a client then tries another member.
const UNSERVED_NS: u64 = 1_000_000_000;

/// How long it waits before it looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// How long it is waited for a connection to a member that counts before it is looked whether it still does.
const READY_NS: u64 = 20_000_000;
/// How long between two looks at the connection: to make one to a server nearby takes about as long.
const READY_PAUSE: Duration = Duration::from_millis(1);

/// How long another server is waited for before it is looked whether its answer still counts: most answers come sooner.
const ANSWERED_NS: u64 = 250_000_000;

/// How long a member that catches up may hold up a change: it is left behind then, and begins anew.
const WALKED_NS: u64 = 1_000_000_000;

/// For so long a member that is no primary tries to have a change made: its group goes on without a primary that is
/// silent within this.
const RELAY_NS: u64 = FORWARD_NS + 2 * TERM_NS;

/// How a change ended.
enum Outcome {
    /// All who count have it.
    Done(Answer),
    /// Some who count may have it, and one has refused it.
    Refused(Fault),
    /// It is not known who has it.
    Unresolved(Fault),
}

/// Whether an answer is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Yes,
    /// The caller has waited for long enough.
    TooLate,
    /// It says nothing any more.
    No,
}

/// Where a change stands.
#[derive(Default)]
struct Progress {
    /// Other members that have it.
    has: BTreeSet<TargetId>,
    /// What came of it here.
    own: Option<(Vec<u8>, Vec<u8>)>,
    /// One of them knows an earlier epoch.
    tells_record: bool,
    unserved_since_ns: Cell<Option<u64>>,
    /// Its caller waits until then.
    deadline_ns: u64,
}

impl DataService {
    /// Has a change made by all members, in a thread of its own, and answered.
    pub(crate) fn lead(
        &self,
        call: Call,
        change: Change,
        responder: &mut dyn Responder,
    ) -> Result<(), Fault> {
        let bytes = change.bytes.len();
        self.replicate(call, bytes, responder, move |service| service.make(&change, call.deadline_ns))
    }

    /// Has `work` done by a thread that may wait for other servers, and its answer delivered.
    pub(crate) fn replicate(
        &self,
        call: Call,
        bytes: usize,
        responder: &mut dyn Responder,
        work: impl FnOnce(&DataService) -> Answer + Send + 'static,
    ) -> Result<(), Fault> {
        if self.options.inline {
            match work(self) {
                Ok((message, _)) => responder.reply(&message),
                Err(fault) => responder.fail(&fault),
            }
            return Ok(());
        }
        let gone = || Fault::new(Code::Unavailable, "the data server is stopping");
        let service = self.replication.service.get().and_then(std::sync::Weak::upgrade).ok_or_else(gone)?;
        self.replication.pool.defer(call, bytes, responder, move || work(&service))
    }

    /// Makes a change as the primary, or takes it to the primary.
    pub(super) fn make(&self, change: &Change, deadline_ns: u64) -> Answer {
        let (target, id) = self.target_of(change.address())?;
        let key = (target.id(), id.group);
        let until_ns = deadline_ns.min(self.shell.clock().now_ns().saturating_add(RELAY_NS));
        loop {
            let view = self.view(key)?;
            if view.is_primary {
                self.take_over(key, deadline_ns)?;
                let made = self.make_as_primary(change, key, deadline_ns);
                return made.map_err(|fault| match fault.code {
                    // A file of the object cannot be used here or at another member, which makes it anew.
                    Code::Corrupt if !view.others.is_empty() => {
                        Fault::new(Code::Unavailable, fault.to_string())
                    }
                    _ => fault,
                });
            }
            // A primary that is silent, or has just begun, is waited for here: the group goes on with another one,
            // which may be this member.
            match self.relay(change, key, &view, until_ns) {
                Err(fault) if may_relay_again(change, fault.code) => {
                    if self.shell.clock().now_ns() >= until_ns || !self.pause() {
                        return Err(fault);
                    }
                    tracing::debug!(group = %key.1, %fault, "a change is taken to the primary again");
                }
                answer => return answer,
            }
        }
    }

    pub(super) fn make_as_primary(&self, change: &Change, key: Key, deadline_ns: u64) -> Answer {
        let (target, id) = self.target_of(change.address())?;
        let given_up = change.address().map_or(&[][..], |address| &address.given_up);
        target.give_up(id, given_up)?;
        if let Body::Sync(request) = &change.body {
            let known = known_under(&self.view(key)?);
            crate::service::check_boot(target, id, request.boot, known)?;
        }
        let ranges = change.touched();
        if ranges.is_empty() {
            return match self.carry_out(change, key, 0, deadline_ns, &mut Progress::default()) {
                Outcome::Done(answer) => answer,
                Outcome::Refused(fault) | Outcome::Unresolved(fault) => Err(fault),
            };
        }
        self.check_not_lost(key, target, id, change)?;
        let held = self.lock_blocks(id, &ranges)?;
        // Under the lock, which orders it with later forms of the change.
        target.admit(id, Terms::of(change.address(), change.must_exist()))?;
        if change.must_exist() && !target.exists(id).map_err(fault)? {
            return Err(self.absent(key, target, id));
        }
        self.check_source(key, target, id, change)?;
        let held = Some(held).filter(|_| self.options.defect != Some(Defect::EarlyUnlock));
        let number = self.replication.begin(key, Touched { object: id, ranges });
        let mut progress = Progress::default();
        match self.carry_out(change, key, number, deadline_ns, &mut progress) {
            Outcome::Done(answer) => {
                self.replication.end(key, number, Some(&progress.has));
                answer
            }
            Outcome::Refused(fault) => {
                self.replication.end(key, number, None);
                drop(held);
                // Tried again later where that is in vain now.
                let _ = self.even_out_known(key, deadline_ns);
                Err(fault)
            }
            Outcome::Unresolved(fault) => {
                self.replication.end(key, number, None);
                Err(fault)
            }
        }
    }

    /// Locks blocks of an object. Errors: in a simulation, where the one that holds them waits further up.
    pub(super) fn lock_blocks(
        &self,
        id: ObjectId,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<super::locks::Held<'_>, Fault> {
        let held = self.replication.locks.lock(id, ranges, !self.options.inline);
        held.ok_or_else(|| Fault::new(Code::Overloaded, format!("object {id}: another change is under way")))
    }

    /// Until all who count have the change, itself last, and it may be acknowledged.
    fn carry_out(
        &self,
        change: &Change,
        key: Key,
        number: u64,
        deadline_ns: u64,
        progress: &mut Progress,
    ) -> Outcome {
        progress.deadline_ns = deadline_ns;
        loop {
            let view = match self.view(key) {
                Ok(view) if view.is_primary => view,
                Ok(_) => return Outcome::Unresolved(not_primary(key)),
                Err(fault) => return Outcome::Unresolved(fault),
            };
            if self.is_stopped() {
                return Outcome::Unresolved(Fault::new(Code::Unavailable, "the data server is stopping"));
            }
            let now_ns = self.shell.clock().now_ns();
            if now_ns > deadline_ns {
                let why = format!("placement group {}: not all members have carried it out", key.1);
                return Outcome::Unresolved(Fault::new(Code::Timeout, why));
            }
            if let Some(fault) = progress.has_no_leases(key, &view, now_ns) {
                return Outcome::Unresolved(fault);
            }
            // One that catches up gets it, too; nothing waits for that.
            let walked = self.walked(key);
            let all =
                view.others.iter().copied().chain(walked.filter(|walked| !view.others.contains(walked)));
            let missing: Vec<TargetId> = all.filter(|other| !progress.has.contains(other)).collect();
            if !missing.is_empty() {
                let record = progress.tells_record.then(|| self.record(key)).flatten();
                let forward = self.replication.forward(key, view.epoch, number, record);
                match self.send_to_all(change, key, &forward, &missing, &view.others, progress) {
                    Ok(true) => {}
                    Ok(false) if !self.pause() => return Outcome::Unresolved(not_all(key)),
                    Ok(false) => {}
                    Err(fault) if is_refusal(fault.code) => return Outcome::Refused(fault),
                    Err(fault) => return Outcome::Unresolved(fault),
                }
                continue;
            }
            if progress.own.is_none() {
                match self.apply(change, key, view.epoch, deadline_ns) {
                    Ok(answer) => progress.own = Some(answer),
                    // Another epoch or stream has begun.
                    Err(fault) if fault.code == Code::WrongEpoch => {
                        if !self.pause() {
                            return Outcome::Unresolved(not_all(key));
                        }
                    }
                    Err(fault) if is_refusal(fault.code) => return Outcome::Refused(fault),
                    // Its own disk fails: the others go on without it.
                    Err(fault) => {
                        let fault = Fault::new(Code::Unavailable, fault.to_string());
                        return Outcome::Unresolved(fault);
                    }
                }
                continue;
            }
            if view.may_acknowledge {
                let answer = progress.own.take().unwrap_or_default();
                return Outcome::Done(Ok((change.answered_under(answer.0, known_under(&view)), answer.1)));
            }
            if !self.pause() {
                return Outcome::Unresolved(not_all(key));
            }
        }
    }

    /// Sends a change to those who lack it. False: one of them has to be sent it again. Errors: one refuses it, or has
    /// lost the object.
    fn send_to_all(
        &self,
        change: &Change,
        key: Key,
        forward: &proto::Forward,
        missing: &[TargetId],
        counting: &[TargetId],
        progress: &mut Progress,
    ) -> Result<bool, Fault> {
        let mut refused = None;
        let mut is_whole = true;
        for (other, sent) in self.submit(change, forward, missing, counting, FORWARD_NS) {
            let sent_ns = self.shell.clock().now_ns();
            let wanted = Cell::new(Wanted::Yes);
            let is_waited_for = || {
                wanted.set(self.is_waited_for(key, other, sent_ns, progress));
                wanted.get() == Wanted::Yes
            };
            match sent.and_then(|pending| self.await_while(pending, is_waited_for)) {
                Ok(_) => {
                    progress.has.insert(other);
                    self.leases.forget_failing(key, other);
                }
                Err(fault) if fault.code == Code::NotFound && change.must_exist() => {
                    match !counting.contains(&other) && self.pass_over(key, forward.number, other) {
                        false => refused = Some(self.lost_at(change, other)),
                        true => _ = progress.has.insert(other),
                    }
                }
                Err(fault) if !counting.contains(&other) => {
                    tracing::debug!(group = %key.1, target_id = other.0, %fault, "it falls behind again");
                    self.replication.note_failure(key, fault.code);
                    self.leave_behind(key, other);
                }
                Err(fault) if is_refusal(fault.code) => refused = Some(fault),
                Err(fault) => {
                    tracing::debug!(group = %key.1, target_id = other.0, %fault, "a change has to be sent again");
                    is_whole = false;
                    self.replication.note_failure(key, fault.code);
                    progress.tells_record |= fault.code == Code::WrongEpoch;
                    if wanted.get() != Wanted::No {
                        self.note_failing(key, other);
                    }
                }
            }
        }
        match refused {
            Some(fault) => Err(fault),
            None => Ok(is_whole),
        }
    }

    /// A member that catches up lacks the object of a change that is under way: it gets that as it is by then. False:
    /// it counts by now.
    fn pass_over(&self, key: Key, number: u64, other: TargetId) -> bool {
        let mut table = self.replication.table.lock();
        if self.view(key).is_ok_and(|view| view.others.contains(&other)) {
            return false;
        }
        if let Some(led) = table.led.get_mut(&key)
            && let (Some(touched), Some(missed)) = (led.open.get(&number), led.missed.get_mut(&other))
        {
            missed.add(touched);
        }
        true
    }

    /// Whether the answer of another member to a change is waited for.
    fn is_waited_for(&self, key: Key, other: TargetId, sent_ns: u64, progress: &Progress) -> Wanted {
        let now_ns = self.shell.clock().now_ns();
        let Some(view) = self.view(key).ok().filter(|view| view.is_primary && !self.is_stopped()) else {
            return Wanted::No;
        };
        let is_wanted = match view.others.contains(&other) {
            true => progress.has_no_leases(key, &view, now_ns).is_none(),
            // One that catches up may not be late.
            false => self.walked(key) == Some(other) && now_ns < sent_ns.saturating_add(WALKED_NS),
        };
        match is_wanted {
            true if now_ns > progress.deadline_ns => Wanted::TooLate,
            true => Wanted::Yes,
            false => Wanted::No,
        }
    }

    /// Waits for another server for as long as its answer is wanted. Errors: also `Timeout`, where it is no more.
    pub(super) fn await_while(
        &self,
        pending: Box<dyn Pending>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Received, Fault> {
        let clock = self.shell.clock();
        let mut turn_ns = ANSWERED_NS;
        // In a simulation what happens by itself takes no time.
        while clock.can_wait() && !pending.settle_by(clock.now_ns().saturating_add(turn_ns)) {
            if !is_wanted() {
                return Err(Fault::new(Code::Timeout, "its group went on without waiting for it"));
            }
            turn_ns = PAUSE.as_nanos() as u64;
        }
        pending.wait()
    }

    /// One that has carried nothing out for a while is accused, where this one leads and has its lease: it has not just
    /// stood still itself.
    fn note_failing(&self, key: Key, other: TargetId) {
        if self.leases.failed_for(key, other, self.shell.clock().now_ns()) > FAILING_NS
            && let Ok(view) = self.view(key)
            && view.is_primary
            && view.may_serve
            && view.others.contains(&other)
        {
            self.leases.note_failing(key, other, view.epoch);
        }
    }

    /// Sends a change to other members, all at the same time; each may take so long. Where there is no connection to
    /// one that counts it is soon looked again whether it still does: its group may go on without it meanwhile.
    pub(super) fn submit(
        &self,
        change: &Change,
        forward: &proto::Forward,
        others: &[TargetId],
        counting: &[TargetId],
        limit_ns: u64,
    ) -> Vec<(TargetId, Sent)> {
        let message = change.body.forwarded(forward.clone());
        let send = |&other: &TargetId| {
            let counts = counting.contains(&other);
            let way = if counts { self.ready_way_to(other) } else { self.way_to(other) };
            let sent = way.map(|(transport, address)| {
                let deadline_ns = transport.clock().now_ns() + limit_ns;
                transport.submit(&address, change.method(), &message, &change.bytes, deadline_ns)
            });
            (other, sent)
        };
        others.iter().map(send).collect()
    }

    /// How another member is reached, once there is a connection. The machine of a frozen server accepts one, and the
    /// server says nothing: to make it would block for seconds.
    pub(super) fn ready_way_to(&self, other: TargetId) -> Result<(&dyn Transport, String), Fault> {
        let (transport, address) = self.way_to(other)?;
        let clock = self.shell.clock();
        let until_ns = clock.now_ns().saturating_add(READY_NS);
        while !transport.is_ready(&address) {
            if !clock.can_wait() || clock.now_ns() >= until_ns || self.is_stopped() {
                return Err(Fault::new(
                    Code::Unavailable,
                    format!("there is no connection to {address} yet"),
                ));
            }
            clock.sleep(READY_PAUSE);
        }
        Ok((transport, address))
    }

    /// How another member is reached.
    pub(super) fn way_to(&self, other: TargetId) -> Result<(&dyn Transport, String), Fault> {
        let transport = self.replication.transport.get();
        let transport =
            transport.ok_or_else(|| Fault::new(Code::Unavailable, "this server reaches no other"))?;
        let unknown = || Fault::new(Code::Unavailable, format!("where {other} is, is not known yet"));
        Ok((&**transport, self.leases.address(other).ok_or_else(unknown)?))
    }

    /// Carries a change out here, as any member does.
    pub(super) fn apply(&self, change: &Change, key: Key, epoch: u64, deadline_ns: u64) -> Answer {
        let message = change.body.forwarded(self.replication.forward(key, epoch, 0, None));
        let request = Request {
            method: change.method(),
            id: 0,
            message: &message,
            attachment: &change.bytes,
            deadline_ns,
        };
        self.ask_oneself(&request)
    }

    /// The answer to a request of one's own, waited for.
    pub(super) fn ask_oneself(&self, request: &Request<'_>) -> Answer {
        let (done, outcome) = channel();
        let mut handed = Handed::to(Deferred::new(move |answer| {
            // No thread waits any more once the server stops.
            let _ = done.send(answer);
        }));
        if let Err(fault) = self.dispatch(request.call(), request, &mut handed) {
            handed.fail(&fault);
        }
        let dropped = |_| Err(Fault::new(Code::Unavailable, "the data server is stopping"));
        outcome.recv().unwrap_or_else(dropped)
    }

    /// Lets some time pass. False where none can, as in a simulation what happens by itself takes none.
    pub(super) fn pause(&self) -> bool {
        let clock = self.shell.clock();
        clock.can_wait() && {
            clock.sleep(PAUSE);
            true
        }
    }

    /// Takes what a client has brought to another member to the primary. Errors: also that another one leads by now.
    fn relay(&self, change: &Change, key: Key, view: &View, deadline_ns: u64) -> Answer {
        let is_relayed = change.address().is_some_and(|address| address.relayed);
        let primary = view
            .primary
            .filter(|primary| *primary != key.0 && !is_relayed)
            .ok_or_else(|| not_primary(key))?;
        let (transport, address) = self.ready_way_to(primary)?;
        let mut body = change.body.clone();
        if let Some(address) = body.address_mut() {
            address.target = 0;
            address.relayed = true;
        }
        let left_ns = deadline_ns.saturating_sub(self.shell.clock().now_ns());
        let until_ns = transport.clock().now_ns() + left_ns;
        let sent = transport.submit(&address, change.method(), &body.message(), &change.bytes, until_ns);
        let leads = || self.view(key).is_ok_and(|now| now.primary == Some(primary));
        let received = self.await_while(sent, leads).map_err(|fault| match fault.code.is_silence() {
            true => Fault::new(
                Code::Unavailable,
                format!("placement group {}: its primary is silent: {fault}", key.1),
            ),
            false => fault,
        })?;
        Ok((received.message, received.attachment.to_vec()))
    }
}

impl Progress {
    /// What is said when this member does not hold the leases of the others for too long.
    fn has_no_leases(&self, key: Key, view: &View, now_ns: u64) -> Option<Fault> {
        if view.may_serve {
            self.unserved_since_ns.set(None);
            return None;
        }
        let since_ns = self.unserved_since_ns.get().unwrap_or(now_ns);
        self.unserved_since_ns.set(Some(since_ns));
        let is_long = now_ns.saturating_sub(since_ns) > UNSERVED_NS;
        let why = || format!("placement group {}: {} holds no leases at the moment", key.1, key.0);
        is_long.then(|| Fault::new(Code::Unavailable, why()))
    }
}

impl super::Replication {
    /// A change of a group begins.
    fn begin(&self, key: Key, touched: Touched) -> u64 {
        let mut table = self.table.lock();
        let led = table.led.entry(key).or_default();
        led.last += 1;
        led.open.insert(led.last, touched);
        led.last
    }

    /// It has ended, and those who have it are these; `None`: members may differ after it. The caller has its blocks
    /// locked.
    fn end(&self, key: Key, number: u64, has: Option<&BTreeSet<TargetId>>) {
        let mut table = self.table.lock();
        let led = table.led.entry(key).or_default();
        let Some(touched) = led.open.remove(&number) else { return };
        match has {
            Some(has) => led.missed_by_others(&touched, |target| has.contains(&target)),
            None => _ = led.uneven.insert(number, touched),
        }
    }

    /// What goes along with a change that is sent to a member now; `number` 0: it changes nothing that is not so here.
    pub(super) fn forward(
        &self,
        key: Key,
        epoch: u64,
        number: u64,
        record: Option<proto::GroupMembers>,
    ) -> proto::Forward {
        let mut table = self.table.lock();
        let led = table.led.entry(key).or_default();
        proto::Forward { epoch, number, confirmed: led.confirmed(), stream: led.stream, record }
    }

    /// What was sent to a member has failed. It may be carried out yet, unless the member has said that it was not.
    pub(crate) fn note_failure(&self, key: Key, code: Code) {
        use Code::*;
        if !matches!(code, WrongEpoch | WrongTarget | Overloaded | Unavailable) {
            self.table.lock().led.entry(key).or_default().stream += 1;
        }
    }
}

/// The number under which a change is known: it stays while no epoch begins with no member that kept its power.
pub(crate) fn known_under(view: &View) -> u64 {
    view.losses + 1
}

/// What says that the member is there, and will not carry this out. What it cannot do at the moment, or because its
/// disk fails, is waited for until it can, or the group goes on without it.
pub(super) fn is_refusal(code: Code) -> bool {
    use Code::*;
    !matches!(
        code,
        Timeout
            | Unreachable
            | Disconnected
            | Overloaded
            | Unavailable
            | WrongEpoch
            | WrongTarget
            | Io
            | TargetFailed
            | Hung
            | Cancelled
    )
}

/// Whether a member that took a change to the primary in vain tries again. One that was passed on by another member is
/// not kept: that one passes it on anew, and kept here as well it might be made twice, the second time much later.
fn may_relay_again(change: &Change, code: Code) -> bool {
    let is_relayed = change.address().is_some_and(|address| address.relayed);
    !is_relayed && matches!(code, Code::Unavailable | Code::WrongEpoch | Code::WrongTarget)
}

fn not_primary((target, group): Key) -> Fault {
    Fault::new(Code::Unavailable, format!("placement group {group}: {target} is not its primary"))
}

fn not_all((_, group): (TargetId, GroupId)) -> Fault {
    Fault::new(Code::Unavailable, format!("placement group {group}: not all members have carried it out yet"))
}
