//! Requests to placement groups of several members.
//!
//! A change goes to the primary; a member that is not the primary passes it on, so that after silence the same request
//! goes to the next one. A read goes to any member. Where that one is late, another is asked as well and the first
//! answer counts; where it is silent, refuses or is damaged, another one is asked instead, within the call.

use super::choose::{best, is_read, to_change, to_read};
use super::spread::{ReadOf, Reader};
use super::{DataCall, DataServers};
use crate::Result;
use crate::meta::{attempt_deadline_ns, decode};
use crate::servers::{CopyRead, Member, Server, is_silence};
use crate::statistics::InFlightCall;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::operation::Operation;
use vazao_wire::service::Fault;
use vazao_wire::transport::Pending;
use vazao_wire::{Method, interrupt};

/// One that could not answer, as it held no leases at that moment, is asked again after this time.
pub(super) const AGAIN_NS: u64 = 100_000_000;

/// A member is late after this many times its usual time, and after this time at least.
const LATE: u64 = 4;
const LATE_NS_MIN: u64 = 20_000_000;
/// One whose usual time is not known.
const LATE_NS_UNKNOWN: u64 = 100_000_000;

/// A member that is later than usual by as much is taken for silent after this time: another one is asked however many
/// reads were asked twice.
const SILENT_NS_MIN: u64 = 400_000_000;

/// One read of so many is asked twice because the first member is late.
const HEDGED_OF: u64 = 20;

/// Reads that count towards those that may be asked twice.
const HEDGES_MAX: u64 = 10 * HEDGED_OF;

/// A connection that a read needs first is given this long, where another member may have one.
const CONNECT_NS_MAX: u64 = 500_000_000;

/// The first attempt of a change at a member that is there: it goes on without a silent one within 3 s, and the others
/// go on without its own disk within 4 s. Each round takes twice as long. One that is silent is left sooner
/// ([`super::silence`]).
pub(super) const CHANGE_NS: u64 = 4_000_000_000;

/// A change that cannot be sent within this time goes to another member: its server takes nothing. To the only one that
/// is known it may take [`CHANGE_NS`]. Each round takes twice as long, for links that carry little.
const SENT_NS: u64 = 1_500_000_000;
const SENT_ROUNDS_MAX: u32 = 2;

/// How long each of several requests is waited for in turn; longer the longer it takes.
const TURN_NS: u64 = 1_000_000;
const TURN_NS_MAX: u64 = 10_000_000;

/// How many reads may be asked twice.
#[derive(Debug, Default)]
pub(super) struct Hedges(AtomicU64);

impl Hedges {
    /// A read is sent.
    fn earn(&self) {
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < HEDGES_MAX).then_some(n + 1));
    }

    /// True when one may be asked twice.
    fn spend(&self) -> bool {
        let spent = |n: u64| n.checked_sub(HEDGED_OF);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_ok()
    }
}

/// A request to another member than the one that the call waits for.
struct Rival {
    target: TargetId,
    server: Arc<Server>,
    pending: Box<dyn Pending>,
    in_flight: Option<InFlightCall>,
    read: Option<CopyRead>,
}

/// What a call knows of the members of its group.
pub(super) struct Copies {
    /// It only reads; else it changes or syncs.
    is_read: bool,
    /// The member that a read prefers among those that are as good.
    preferred: Option<TargetId>,
    /// Where the latest request went, and whether no other member was known then.
    target: TargetId,
    is_alone: bool,
    read: Option<CopyRead>,
    /// The only member that is asked.
    only: Option<TargetId>,
    /// Members that failed and may do better in the next round.
    failed: Vec<TargetId>,
    /// When the latest of them did.
    failed_ns: u64,
    /// What the last of them said.
    fault: Option<Fault>,
    /// Members whose answer was final, or no good.
    pub(super) unfit: Vec<TargetId>,
    rounds: u32,
    rivals: Vec<Rival>,
    /// For the latest request: whether it was looked at whether it may be asked twice, and is waited for.
    is_weighed: bool,
    is_waited_for: bool,
}

impl Copies {
    fn new(is_read: bool, preferred: Option<TargetId>) -> Copies {
        Copies {
            is_read,
            preferred,
            target: TargetId::default(),
            is_alone: false,
            read: None,
            only: None,
            failed: Vec::new(),
            failed_ns: 0,
            fault: None,
            unfit: Vec::new(),
            rounds: 0,
            rivals: Vec::new(),
            is_weighed: false,
            is_waited_for: false,
        }
    }

    fn is_excluded(&self, target: TargetId) -> bool {
        let is_other = self.only.is_some_and(|only| only != target);
        is_other || self.failed.contains(&target) || self.unfit.contains(&target)
    }

    /// True for one that could not answer, and may do better, while another one is waited for.
    fn may_again(&self, target: TargetId) -> bool {
        let is_other = self.only.is_some_and(|only| only != target);
        self.failed.contains(&target) && !self.unfit.contains(&target) && !is_other && !self.is_asked(target)
    }

    fn is_asked(&self, target: TargetId) -> bool {
        target == self.target || self.rivals.iter().any(|rival| rival.target == target)
    }

    /// Whether the one that was asked last is one of these.
    fn is_asked_of(&self, members: &[Member]) -> bool {
        let target = self.rivals.last().map_or(self.target, |rival| rival.target);
        members.iter().any(|member| member.target == target)
    }

    /// The member that the latest request went to, and whether no other one was known then.
    pub(super) fn latest(&self) -> (TargetId, bool) {
        (self.target, self.is_alone)
    }

    /// True when waiting for one of its other requests will not block.
    pub(super) fn is_done(&self) -> bool {
        self.rivals.iter().any(|rival| rival.pending.is_done())
    }

    /// True for a change or sync that another member passes on where one is silent.
    pub(super) fn may_go_elsewhere(&self) -> bool {
        !self.is_read && self.only.is_none()
    }

    /// A change that its member cannot carry out for now: the group will go on without that member. Of the only one the
    /// map says so soon.
    pub(super) fn is_passing(&self, code: Code) -> bool {
        self.may_go_elsewhere() && matches!(code, Code::TargetFailed | Code::Hung)
    }
}

/// What a fault of one member means for the others.
enum Elsewhere {
    /// They would say the same.
    No,
    /// One of them may answer, and this one later.
    Now,
    /// One of them may answer, and this one will not.
    Instead,
}

fn elsewhere(is_read: bool, code: Code) -> Elsewhere {
    match code {
        Code::Timeout | Code::Unreachable | Code::Disconnected => Elsewhere::Now,
        Code::Unavailable | Code::Overloaded | Code::WrongTarget | Code::WrongEpoch => Elsewhere::Now,
        // Another program at the address of a server that is down.
        Code::Unauthenticated | Code::VersionMismatch => Elsewhere::Now,
        Code::TargetFailed | Code::Hung if !is_read => Elsewhere::Now,
        // An Io of a sync says that what was written is lost: that of a read is one disk's.
        Code::TargetFailed | Code::Hung | Code::Corrupt | Code::Io | Code::NotFound if is_read => {
            Elsewhere::Instead
        }
        _ => Elsewhere::No,
    }
}

impl DataCall {
    /// The member of a group of several that was asked last.
    pub(crate) fn member(&self) -> Option<TargetId> {
        self.copies.as_ref().map(|copies| copies.target)
    }

    /// The members that were of no use, for [`crate::servers::Servers::outage`].
    pub(super) fn unfit(&self) -> &[TargetId] {
        self.copies.as_ref().map_or(&[], |copies| &copies.unfit)
    }

    /// True for a request that any member of its group can answer.
    pub(super) fn is_read_of_copies(&self) -> bool {
        self.copies.as_ref().is_some_and(|copies| copies.is_read)
    }

    /// Until when an attempt that may take until `until_ns` is to be on its way.
    pub(super) fn sent_by_ns(&self, now_ns: u64, until_ns: u64) -> u64 {
        match self.copies.as_ref().filter(|copies| copies.may_go_elsewhere()) {
            Some(copies) => {
                let within_ns = if copies.is_alone { CHANGE_NS } else { SENT_NS };
                until_ns.min(now_ns.saturating_add(within_ns << copies.rounds.min(SENT_ROUNDS_MAX)))
            }
            None => until_ns,
        }
    }

    /// Waits for the request to another member from now on, and for the present one beside it.
    fn change_over(&mut self, index: usize) {
        let Some(copies) = &mut self.copies else { return };
        let Some(rival) = copies.rivals.get_mut(index) else { return };
        if let (Some(pending), Some(server)) = (self.pending.take(), self.server.take()) {
            (self.pending, self.server) = (
                Some(std::mem::replace(&mut rival.pending, pending)),
                Some(std::mem::replace(&mut rival.server, server)),
            );
            std::mem::swap(&mut self.in_flight, &mut rival.in_flight);
            std::mem::swap(&mut copies.target, &mut rival.target);
            std::mem::swap(&mut copies.read, &mut rival.read);
        } else {
            let rival = copies.rivals.remove(index);
            (self.pending, self.server, self.in_flight) =
                (Some(rival.pending), Some(rival.server), rival.in_flight);
            (copies.target, copies.read) = (rival.target, rival.read);
        }
    }
}

impl DataServers {
    /// Chooses where the next attempt goes; the first one of a read by what it reads. A target alone is asked as it is.
    pub(super) fn find_server(&self, call: &mut DataCall, read: Option<&ReadOf<'_>>) {
        let (server, members) = self.servers.route(call.group);
        call.server = server;
        let Some(members) = members else {
            call.copies = None;
            return;
        };
        if is_read(call.method) {
            members.iter().for_each(|member| self.note_distance(&member.server));
        }
        let copies = call.copies.get_or_insert_with(|| {
            let preferred = read.and_then(|read| self.preferred(read, &members));
            Box::new(Copies::new(is_read(call.method), preferred))
        });
        let member = self.choose(copies, &members, |target| copies.is_excluded(target));
        // Also where no answer was any good: members may have changed.
        let any = || self.choose(copies, &members, |target| copies.only.is_some_and(|only| only != target));
        let member = member.or_else(any);
        call.server = member.map(|member| Arc::clone(&member.server));
        copies.target = member.map_or_else(TargetId::default, |member| member.target);
        copies.is_alone = members.len() == 1;
        (copies.is_weighed, copies.is_waited_for) = (false, false);
        copies.read = None;
        if let Some(server) = call.server.as_ref().filter(|_| copies.is_read) {
            copies.read = Some(CopyRead::begin(&server.pace));
            self.hedges.earn();
        }
    }

    fn choose<'a>(
        &self,
        copies: &Copies,
        members: &'a [Member],
        is_asked: impl Fn(TargetId) -> bool,
    ) -> Option<&'a Member> {
        let now_ns = self.context.clock.now_ns();
        match copies.is_read {
            true => to_read(members, copies.preferred, now_ns, |server| self.is_here(server), is_asked),
            false => to_change(members, now_ns, is_asked),
        }
    }

    fn note_distance(&self, server: &Server) {
        server.pace.note_distance(self.context.transport.distance_ns(&server.address));
    }

    fn is_here(&self, server: &Server) -> bool {
        server.door.is_here(&self.context, &server.address)
    }

    /// The member of the group of a slot that a read of it is to go to, with regard to the other slots of the file.
    fn preferred(&self, read: &ReadOf<'_>, members: &[Member]) -> Option<TargetId> {
        let now_ns = self.context.clock.now_ns();
        let is_here = |server: &Server| self.is_here(server);
        let all = || {
            let routes = self.servers.routes();
            let readers = |group: &GroupId| -> Vec<Reader> {
                let members = routes.members(*group).map_or(&[][..], |members| members);
                best(members, now_ns, is_here).map(Reader::of).collect()
            };
            read.layout.groups.iter().map(readers).collect()
        };
        read.spread.member(read, best(members, now_ns, is_here), all)
    }

    /// Until when an attempt at the member that was chosen is worth it.
    pub(super) fn copy_until_ns(&self, call: &DataCall, until_ns: u64) -> u64 {
        let (Some(copies), Some(server)) = (&call.copies, &call.server) else {
            return self.servers.attempt_until_ns(call.group, until_ns);
        };
        let (target, now_ns) = (copies.target, self.context.clock.now_ns());
        let until_ns = self.servers.attempt_at_until_ns(|_| Some(target), until_ns);
        let within_ns = match copies.is_read {
            _ if copies.is_alone => return until_ns,
            true if self.context.transport.is_connected(&server.address) => return until_ns,
            true => CONNECT_NS_MAX,
            false => CHANGE_NS,
        };
        until_ns.min(now_ns.saturating_add(within_ns << copies.rounds.min(8)))
    }

    /// Blocks until one of the requests of a read is worth waiting for; asks another member where that takes long.
    pub(super) fn race(&self, call: &mut DataCall, deadline_ns: u64) {
        if !call.is_read_of_copies() || call.pending.is_none() {
            return;
        }
        let started_ns = self.context.clock.now_ns();
        loop {
            let now_ns = self.context.clock.now_ns();
            let Some(copies) = &mut call.copies else { return };
            let is_done = call.pending.as_ref().is_some_and(|pending| pending.is_done());
            // A signal is seen by waits that are longer than those here.
            if is_done || interrupt::is_due(started_ns, now_ns) {
                return;
            }
            if let Some(index) = copies.rivals.iter().position(|rival| rival.pending.is_done()) {
                copies.is_waited_for = true;
                return call.change_over(index);
            }
            let look_ns = self.look_ns(call, now_ns);
            if look_ns.is_some_and(|look_ns| look_ns <= now_ns) {
                self.weigh(call, deadline_ns);
                continue;
            }
            if look_ns.is_none() && self.is_map_wanted(call, now_ns) {
                self.meta.look_for_members(deadline_ns);
                if self.look_ns(call, now_ns).is_some() {
                    continue;
                }
            }
            let turn_ns = ((now_ns - started_ns) / 16).clamp(TURN_NS, TURN_NS_MAX);
            let Some(copies) = &mut call.copies else { return };
            copies.is_waited_for = true;
            // Where none is left another map may name one.
            let again_ns = self.context.clock.now_ns().saturating_add(AGAIN_NS);
            let turn_until_ns = if copies.rivals.is_empty() { u64::MAX } else { now_ns + turn_ns };
            let until_ns = look_ns.unwrap_or(again_ns).min(turn_until_ns);
            if call.pending.as_ref().is_none_or(|pending| pending.settle_by(until_ns)) {
                return;
            }
            let until_ns = self.context.clock.now_ns() + turn_ns;
            if let Some(index) = copies.rivals.iter().position(|rival| rival.pending.settle_by(until_ns)) {
                return call.change_over(index);
            }
        }
    }

    /// All members that this client knows of were asked, for so long that there may be others by now.
    fn is_map_wanted(&self, call: &DataCall, now_ns: u64) -> bool {
        let goes_elsewhere = call.copies.as_ref().is_some_and(|copies| copies.only.is_none());
        let asked_ns = call.in_flight.as_ref().map_or(now_ns, InFlightCall::started_ns);
        goes_elsewhere && now_ns.saturating_sub(asked_ns) >= SILENT_NS_MIN
    }

    /// When to think of asking one more member; `None`: there is none.
    fn look_ns(&self, call: &DataCall, now_ns: u64) -> Option<u64> {
        let copies = call.copies.as_ref()?;
        let members = self.servers.members(call.group)?;
        let is_left = |member: &Member| !copies.is_excluded(member.target) && !copies.is_asked(member.target);
        if !members.iter().any(is_left) {
            let may_again = |member: &Member| copies.may_again(member.target);
            return members.iter().any(may_again).then(|| copies.failed_ns.saturating_add(AGAIN_NS));
        }
        if !copies.is_asked_of(&members) {
            // The group goes on without it.
            return Some(now_ns);
        }
        let latest = copies.rivals.last();
        let server = latest.map(|rival| &rival.server).or(call.server.as_ref())?;
        let in_flight = latest.map_or(call.in_flight.as_ref(), |rival| rival.in_flight.as_ref());
        let asked_ns = in_flight.map_or(now_ns, InFlightCall::started_ns);
        let usual_ns = server.pace.copies.usual_ns();
        let late_ns = if usual_ns == 0 { LATE_NS_UNKNOWN } else { usual_ns.saturating_mul(LATE) };
        let least_ns = if copies.is_weighed { SILENT_NS_MIN } else { LATE_NS_MIN };
        Some(asked_ns.saturating_add(late_ns.max(least_ns)))
    }

    /// A member is late: asks another one, where that is not done too often, or it is taken for silent.
    fn weigh(&self, call: &mut DataCall, deadline_ns: u64) {
        let now_ns = self.context.clock.now_ns();
        let (Some(copies), Some(members)) = (&mut call.copies, self.servers.members(call.group)) else {
            return;
        };
        let is_left = |member: &Member| !copies.is_excluded(member.target) && !copies.is_asked(member.target);
        if !members.iter().any(is_left) {
            // What none of them could answer at that moment one may by now.
            copies.failed.clear();
            copies.is_weighed = true;
        }
        // Nor does the group wait for one that it goes on without.
        copies.is_weighed |= !copies.is_asked_of(&members);
        let is_silent = std::mem::replace(&mut copies.is_weighed, true);
        let latest = copies.rivals.last().map(|rival| &rival.server).or(call.server.as_ref());
        if let Some(server) = latest.filter(|_| is_silent) {
            server.pace.copies.avoid(now_ns);
        }
        if !is_silent && !self.hedges.spend() {
            return;
        }
        let is_asked = |target| copies.is_excluded(target) || copies.is_asked(target);
        let Some(member) = self.choose(copies, &members, is_asked) else { return };
        let (target, server) = (member.target, Arc::clone(&member.server));
        server.counters.requests.add(1);
        if is_silent {
            server.counters.other_copy.add(1)
        } else {
            server.counters.hedged.add(1)
        }
        let in_flight = InFlightCall::begin(&server.counters, &self.context.clock);
        let until_ns = attempt_deadline_ns(now_ns, deadline_ns);
        let until_ns = match self.context.transport.is_connected(&server.address) {
            true => until_ns,
            false => until_ns.min(now_ns.saturating_add(CONNECT_NS_MAX)),
        };
        let pending =
            self.context.transport.submit(&server.address, call.method, &call.message, &[], until_ns);
        let read = Some(CopyRead::begin(&server.pace));
        copies.rivals.push(Rival { target, server, pending, in_flight: Some(in_flight), read });
        copies.is_weighed = false;
    }

    /// A member has answered after `elapsed_ns`; the requests to others are dropped.
    pub(super) fn end_race(&self, call: &mut DataCall, elapsed_ns: u64) {
        let Some(copies) = &mut call.copies else { return };
        copies.read = None;
        (copies.failed, copies.fault) = (Vec::new(), None);
        let Some(server) = call.server.as_ref().filter(|_| copies.is_read) else { return };
        server.counters.copy_reads.add(1);
        let now_ns = self.context.clock.now_ns();
        if copies.is_waited_for {
            server.pace.copies.note(elapsed_ns, now_ns);
        }
        for rival in copies.rivals.drain(..) {
            let asked_ns = rival.in_flight.as_ref().map_or(now_ns, InFlightCall::started_ns);
            let elapsed_ns = now_ns.saturating_sub(asked_ns);
            // Silence says nothing of how long answers take.
            if elapsed_ns < SILENT_NS_MIN {
                rival.server.pace.copies.note_at_least(elapsed_ns, now_ns);
            }
        }
    }

    /// After `fault` of one member, asks another one at once; `None`: that is under way. Else the fault that counts.
    pub(super) fn ask_another(
        &self,
        call: &mut DataCall,
        fault: Fault,
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Result<Option<Fault>> {
        let Some(copies) = &mut call.copies else { return Ok(Some(fault)) };
        copies.read = None;
        let is_read = copies.is_read;
        match elsewhere(is_read, fault.code) {
            Elsewhere::No => return Ok(Some(fault)),
            Elsewhere::Instead => copies.unfit.push(copies.target),
            Elsewhere::Now => {
                copies.failed.push(copies.target);
                copies.failed_ns = self.context.clock.now_ns();
            }
        }
        let now_ns = self.context.clock.now_ns();
        let is_known = is_read && !matches!(fault.code, Code::Corrupt | Code::Io);
        if let Some(server) = call.server.as_ref().filter(|_| is_known || fault.code.is_silence()) {
            server.pace.copies.avoid(now_ns);
            if fault.code.is_silence() {
                server.pace.copies.note_silence(now_ns);
            }
        }
        if !matches!(elsewhere(is_read, fault.code), Elsewhere::Instead) {
            copies.fault = Some(fault.clone());
        }
        if let Some(last) = copies.rivals.len().checked_sub(1) {
            call.change_over(last);
            return Ok(None);
        }
        let has_time = self.context.clock.now_ns() < deadline_ns;
        if has_time && self.has_other(copies, call.group) {
            if let Some(server) = &call.server {
                self.servers.trying_again(&server.address, &fault, call.submitted_ns);
                server.counters.retries.add(1);
            }
            self.send_under_locks(call, attachment, deadline_ns)?;
            count_other(call);
            return Ok(None);
        }
        copies.rounds += 1;
        copies.failed.clear();
        // One that may answer yet is waited for.
        Ok(Some(copies.fault.take().unwrap_or(fault)))
    }

    fn has_other(&self, copies: &Copies, group: GroupId) -> bool {
        let members = self.servers.members(group);
        members.is_some_and(|members| members.iter().any(|member| !copies.is_excluded(member.target)))
    }

    /// What a member answered is no good: asks another one. False where there is none.
    pub(crate) fn ask_other_copy(&self, call: &mut DataCall, deadline_ns: u64) -> bool {
        let Some(copies) = &mut call.copies else { return false };
        copies.unfit.push(copies.target);
        if !self.has_other(copies, call.group) {
            return false;
        }
        self.send(call, &[], deadline_ns);
        count_other(call);
        true
    }

    /// [`DataServers::finish_data`] of something that only reads. Where a member does not have what `exists` looks for,
    /// the others are asked as well: one of several may have lost it.
    pub(crate) fn finish_found<O: Operation>(
        &self,
        call: &mut DataCall,
        exists: impl Fn(&O::Response) -> bool,
        deadline_ns: u64,
    ) -> Result<O::Response> {
        loop {
            let received = self.finish_data(call, &[], deadline_ns)?;
            let answer = decode::<O>(&received)?;
            if exists(&answer) || !self.ask_other_copy(call, deadline_ns) {
                return Ok(answer);
            }
        }
    }

    /// Sends a request to one member of a group; to the group's only one without `member`.
    pub(crate) fn submit_to_member(
        &self,
        group: GroupId,
        member: Option<TargetId>,
        method: Method,
        message: Vec<u8>,
        deadline_ns: u64,
    ) -> DataCall {
        let mut call = self.new_call(group, method, message);
        if member.is_some() {
            let copies = Copies { only: member, ..Copies::new(is_read(method), None) };
            call.copies = Some(Box::new(copies));
        }
        self.begin(&mut call, None, &[], deadline_ns);
        call
    }

    /// After a whole round in vain: whether the group is known to be out.
    pub(super) fn known_outage_of(&self, call: &DataCall, fault: &Fault, deadline_ns: u64) -> Option<Fault> {
        let is_passing = call.copies.as_ref().is_some_and(|copies| copies.is_passing(fault.code));
        let asks =
            is_silence(fault) || is_passing || (call.copies.is_some() && fault.code == Code::Unavailable);
        if asks { self.meta.known_outage(call.group, call.unfit(), deadline_ns) } else { None }
    }
}

/// The read that was just sent goes to another copy than the one that was chosen first.
fn count_other(call: &DataCall) {
    if let Some(server) = call.server.as_ref().filter(|_| call.is_read_of_copies()) {
        server.counters.other_copy.add(1);
    }
}
