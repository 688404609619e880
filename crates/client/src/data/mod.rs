//! Requests to data servers: many in flight, each repeated at its target's present server until it is answered.
//!
//! Carrying one out twice has the same effect, so a lost answer is no reason to stop. A change has a number
//! ([`DataServers::numbered`]), so that a form of it that is late undoes nothing newer: an earlier one, or one of a
//! change that was given up.

mod assignment;
mod budget;
mod changes;
mod choose;
mod copies;
mod in_flight;
mod local;
mod silence;
mod spread;

pub(crate) use budget::{Pool, PooledBuffer, ReadAheadBudget, ReadAheadShare};
pub(crate) use in_flight::{InFlight, Waitable, overlap};
pub(crate) use local::LocalFile;
pub use local::SendBuffer;
pub(crate) use spread::{ReadOf, Spread};

use crate::core::Context;
use crate::meta::{
    Attempts, MetaService, PAUSE_MS_MAX, attempt_deadline_ns, final_error, is_tried_again, log_failure,
};
use crate::servers::{Server, Servers, is_silence};
use crate::statistics::InFlightCall;
use crate::{Error, Result};
use changes::{Changes, attempt, changed, is_change};
use copies::{AGAIN_NS, Copies, Hedges};
use local::{Lending, LocalFiles};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vazao_meter::Cause;
use vazao_model::{Action, Code, GroupId, InodeId, Layout};
use vazao_wire::interrupt;
use vazao_wire::service::{Fault, RequestId};
use vazao_wire::transport::{Pending, Received};
use vazao_wire::{Method, proto};

/// Servers that are connected to at the same time: of a wide file those that its next megabytes are on.
const AHEAD_MAX: usize = 16;

/// The placement group that an address names.
pub(crate) fn addressed(object: &proto::ObjectAddress) -> GroupId {
    if object.group == 0 { GroupId(object.target) } else { GroupId(object.group) }
}

/// A request in flight to a data server.
pub(crate) struct DataCall {
    group: GroupId,
    method: Method,
    message: Vec<u8>,
    server: Option<Arc<Server>>,
    pending: Option<Box<dyn Pending>>,
    in_flight: Option<InFlightCall>,
    /// How often it was sent.
    attempts: u32,
    /// An attempt of it may be carried out yet: nothing, or nothing final, was heard of it.
    is_at_large: bool,
    /// Its latest attempt.
    request: RequestId,
    submitted_ns: u64,
    /// How many locks of this client were lost by then.
    lock_losses: u64,
    /// What there is to choose from, where the group has several members.
    copies: Option<Box<Copies>>,
}

impl DataCall {
    /// True when waiting for it will not block.
    pub(crate) fn is_done(&self) -> bool {
        let is_other_done = || self.copies.as_ref().is_some_and(|copies| copies.is_done());
        self.pending.as_ref().is_some_and(|pending| pending.is_done() || is_other_done())
    }

    /// The server it went to last, for messages.
    pub(crate) fn server_name(&self) -> String {
        self.server.as_ref().map_or_else(|| format!("placement group {}", self.group), ToString::to_string)
    }
}

/// The data servers as a client calls them.
pub(crate) struct DataServers {
    context: Arc<Context>,
    servers: Arc<Servers>,
    meta: Arc<MetaService>,
    local: LocalFiles,
    lending: Lending,
    /// Objects on this machine are read without their server.
    pub(crate) short_circuit: AtomicBool,
    /// The largest of what any server wants under way, see [`crate::servers`]: mostly too little to matter.
    pub(crate) pace_bytes_max: AtomicU64,
    changes: Changes,
    hedges: Hedges,
}

impl DataServers {
    pub(crate) fn new(context: Arc<Context>, servers: Arc<Servers>, meta: Arc<MetaService>) -> DataServers {
        let short_circuit = AtomicBool::new(context.options.short_circuit);
        let (local, lending) = (LocalFiles::default(), Lending::default());
        let changes = Changes::new(context.first_change());
        DataServers {
            context,
            servers,
            meta,
            local,
            lending,
            short_circuit,
            pace_bytes_max: AtomicU64::new(0),
            changes,
            hedges: Hedges::default(),
        }
    }

    /// The object of a change that is about to be sent, with the change's number and those of earlier changes of the
    /// object that were given up.
    pub(crate) fn numbered(&self, object: proto::ObjectAddress) -> proto::ObjectAddress {
        self.changes.numbered(object, self.context.clock.now_ns())
    }

    /// A request to the object of `slot` is about to be sent, and others after it as a rule. Where that needs a
    /// connection, those to the servers of the slots that follow are made at the same time.
    pub(crate) fn connect_ahead(&self, layout: &Layout, slot: u32, deadline_ns: u64) {
        let Some(first) = layout.groups.get(slot as usize).and_then(|group| self.servers.server(*group))
        else {
            return;
        };
        if layout.groups.len() < 2 || self.context.transport.is_connected(&first.address) {
            return;
        }
        let following = layout.groups.iter().cycle().skip(slot as usize + 1);
        let following =
            following.take(layout.groups.len() - 1).filter_map(|group| self.servers.server(*group));
        let mut servers: Vec<Arc<Server>> = Vec::new();
        for server in following {
            let is_known = server.node == first.node || servers.iter().any(|known| known.node == server.node);
            if !is_known && servers.len() < AHEAD_MAX {
                servers.push(server);
            }
        }
        let addresses: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
        let until_ns = attempt_deadline_ns(self.context.clock.now_ns(), deadline_ns);
        self.context.transport.connect_ahead(&addresses, until_ns);
    }

    /// Sends a request to the server that holds `group`, without waiting. What goes wrong comes out of
    /// [`Core::finish_data`], which also sends what was given up before it was sent.
    pub(crate) fn submit_data(
        &self,
        group: GroupId,
        method: Method,
        message: Vec<u8>,
        attachment: &[u8],
        deadline_ns: u64,
    ) -> DataCall {
        let mut call = self.new_call(group, method, message);
        self.begin(&mut call, None, attachment, deadline_ns);
        call
    }

    /// [`DataServers::submit_data`] of something that any copy of an object can answer. Of several one is asked with
    /// regard to the file's other slots.
    pub(crate) fn submit_read(
        &self,
        read: &ReadOf<'_>,
        method: Method,
        message: Vec<u8>,
        deadline_ns: u64,
    ) -> DataCall {
        let group = read.layout.groups.get(read.slot as usize).copied().unwrap_or_default();
        let mut call = self.new_call(group, method, message);
        self.begin(&mut call, Some(read), &[], deadline_ns);
        call
    }

    fn new_call(&self, group: GroupId, method: Method, message: Vec<u8>) -> DataCall {
        DataCall {
            group,
            method,
            message,
            server: None,
            pending: None,
            in_flight: None,
            attempts: 0,
            is_at_large: false,
            request: RequestId::default(),
            submitted_ns: self.context.clock.now_ns(),
            lock_losses: self.meta.lock_losses(),
            copies: None,
        }
    }

    fn begin(&self, call: &mut DataCall, read: Option<&ReadOf<'_>>, attachment: &[u8], deadline_ns: u64) {
        // A request that would fail at once is left to its waiter, and so is one that may not be sent yet.
        match interrupt::is_killed() || self.servers.was_out(call.group) || self.must_confirm_locks(call) {
            true => call.server = self.servers.server(call.group),
            false => {
                self.find_server(call, read);
                self.send_there(call, attachment, deadline_ns);
            }
        }
    }

    fn must_confirm_locks(&self, call: &DataCall) -> bool {
        is_change(call.method) && !self.meta.are_locks_certain()
    }

    /// [`DataServers::send`], in the thread that waits for the answer: only while the locks on the file are held.
    fn send_under_locks(&self, call: &mut DataCall, attachment: &[u8], deadline_ns: u64) -> Result<()> {
        if self.must_confirm_locks(call)
            && let Some(object) = changed(call.method, &call.message)
        {
            self.meta.confirm_locks(InodeId(object.inode), call.lock_losses, deadline_ns)?;
        }
        self.send(call, attachment, deadline_ns);
        Ok(())
    }

    fn send(&self, call: &mut DataCall, attachment: &[u8], deadline_ns: u64) {
        self.find_server(call, None);
        self.send_there(call, attachment, deadline_ns);
    }

    /// Sends a request where it was last found to go.
    fn send_there(&self, call: &mut DataCall, attachment: &[u8], deadline_ns: u64) {
        let Some(server) = &call.server else { return };
        let started_ns = self.context.clock.now_ns();
        let until_ns = attempt_deadline_ns(started_ns, deadline_ns);
        let until_ns = self.copy_until_ns(call, until_ns);
        let sent_by_ns = call.sent_by_ns(started_ns, until_ns);
        server.counters.requests.add(1);
        call.in_flight = Some(InFlightCall::begin(&server.counters, &self.context.clock));
        server.counters.credit.enter(started_ns);
        if call.attempts > 0 {
            call.message.extend(attempt(call.method, call.attempts));
        }
        // Once: if that was in vain, it is sent along.
        let may_lend = call.method == Method::Write && call.attempts == 0;
        call.attempts += 1;
        let lent = if may_lend { self.lend(server, &call.message, attachment) } else { None };
        let (message, attachment) = match &lent {
            Some(message) => (message, &[][..]),
            None => (&call.message, attachment),
        };
        let (transport, address) = (&self.context.transport, &server.address);
        let pending =
            transport.submit_sent_by(address, call.method, message, attachment, sent_by_ns, until_ns);
        let sent_ns = self.context.clock.now_ns();
        server.counters.credit.leave(sent_ns);
        let spent_ns = sent_ns.saturating_sub(started_ns);
        server.counters.credit_ns.add(spent_ns);
        self.context.counters.accounts.charge(Cause::Credit, spent_ns);
        call.pending = Some(pending);
    }

    /// Waits for the answer, repeating the request as long as that can help and `deadline_ns` has not passed.
    /// `attachment` is what was submitted. After an error a change is given up: it is not carried out any more once the
    /// next change of its object was. But a write that was `Interrupted` can be waited for again.
    pub(crate) fn finish_data(
        &self,
        call: &mut DataCall,
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Result<Received> {
        let outcome = self.finish(call, attachment, deadline_ns);
        if let Err(error) = &outcome
            && (call.is_at_large || call.pending.is_some())
            && !(call.method == Method::Write && error.code == Code::Interrupted)
        {
            self.changes.give_up(call.method, &call.message, self.context.clock.now_ns());
        }
        outcome
    }

    fn finish(&self, call: &mut DataCall, attachment: &[u8], deadline_ns: u64) -> Result<Received> {
        let mut attempts = Attempts::until(&self.context, deadline_ns);
        let mut map_trouble: Option<Error> = None;
        // Since when another program answers where the map says the server is.
        let mut refused_ns: Option<u64> = None;
        if call.pending.is_none() && call.server.is_some() {
            if self.servers.was_out(call.group)
                && let Some(fault) = self.meta.known_outage(call.group, &[], deadline_ns)
            {
                return Err(Error::from(fault));
            }
            self.send_under_locks(call, attachment, deadline_ns)?;
        }
        loop {
            let fault = match self.await_answer(call, attachment.len(), deadline_ns) {
                Ok(received) => return Ok(received),
                Err(fault) if attempts.is_given_up(&self.context, &fault) => Code::Interrupted.into(),
                Err(fault)
                    if fault.code == Code::Interrupted
                        && !interrupt::is_raised()
                        && self.context.clock.now_ns() < deadline_ns =>
                {
                    // Given up before it was sent, and not by the present waiter.
                    self.send_under_locks(call, attachment, deadline_ns)?;
                    continue;
                }
                Err(fault) => match self.ask_another(call, fault, attachment, deadline_ns)? {
                    Some(fault) => fault,
                    None => continue,
                },
            };
            let failed_ns = self.context.clock.now_ns();
            let is_other = is_of_another_program(&fault);
            let is_outdated = is_other || fault.code.action() == Action::Refresh;
            let is_map_old = is_outdated && self.is_map_older(&fault);
            refused_ns = refused_ns.filter(|_| is_other).or(is_other.then_some(failed_ns));
            if let Some(known) = self.known_outage_of(call, &fault, deadline_ns) {
                return Err(Error::from(known).of(call.request));
            }
            let again = self.pause_for(call, &mut attempts, &fault, refused_ns);
            if !again {
                let error = final_error(fault, &call.server_name(), attempts.elapsed_ms(&self.context));
                let error = match map_trouble.filter(|_| is_map_old) {
                    Some(trouble) => error.because(&trouble.about("there is no newer map")),
                    None => error,
                };
                return Err(error.of(call.request));
            }
            if let Some(server) = &call.server {
                self.servers.trying_again(&server.address, &fault, call.submitted_ns);
            }
            if is_map_old {
                map_trouble = self.meta.look_for_newer_map(failed_ns, deadline_ns);
            }
            if is_outdated && let Some(known) = self.meta.known_outage(call.group, call.unfit(), deadline_ns)
            {
                return Err(Error::from(known).of(call.request));
            }
            if let Some(server) = &call.server {
                server.counters.retries.add(1);
            }
            self.send_under_locks(call, attachment, deadline_ns)?;
        }
    }

    /// True where the server may know of a newer map than this client. One that was told of the same membership is
    /// waited for instead: what it has yet to be told, or its target, comes with its next report.
    fn is_map_older(&self, fault: &Fault) -> bool {
        fault.epoch == 0 || fault.epoch > self.servers.routes().map.epoch.0
    }

    /// Waits before the next attempt, which the caller does for the server: it is counted as waiting for an answer is.
    fn pause_for(
        &self,
        call: &DataCall,
        attempts: &mut Attempts,
        fault: &Fault,
        refused_ns: Option<u64>,
    ) -> bool {
        let Some(server) = &call.server else { return attempts.pause(&self.context, fault) };
        let is_restarting = refused_ns.is_some_and(|ns| !self.servers.was_heard_since(server, ns));
        let is_passing = call.copies.as_ref().is_some_and(|copies| copies.is_passing(fault.code));
        // What one member of several cannot do now another one, or itself, can within moments.
        let is_one_of_several = self.servers.members(call.group).is_some_and(|members| members.len() > 1);
        let ms_max = if is_one_of_several { AGAIN_NS / 1_000_000 } else { PAUSE_MS_MAX };
        let pause = || match is_restarting || is_passing {
            true => attempts.pause_at_most(&self.context, fault.code, ms_max),
            false => is_tried_again(fault.code) && attempts.pause_at_most(&self.context, fault.code, ms_max),
        };
        self.context.counters.during_wait(&server.counters, &*self.context.clock, pause)
    }

    fn await_answer(
        &self,
        call: &mut DataCall,
        sent_bytes: usize,
        deadline_ns: u64,
    ) -> std::result::Result<Received, Fault> {
        if call.is_read_of_copies()
            && let Some(asked) = call.server.clone()
        {
            let race = || self.race(call, deadline_ns);
            self.context.counters.during_wait(&asked.counters, &*self.context.clock, race);
        }
        let started_ns = self.context.clock.now_ns();
        let silence = silence::attend(self, call, deadline_ns);
        let (Some(pending), Some(server)) = (call.pending.take(), &call.server) else {
            return Err(Fault::new(Code::WrongTarget, format!("no node is known to hold {}", call.group)));
        };
        call.request = pending.id();
        let wait = || match silence {
            Some(fault) => Ok(Err(fault)),
            None if pending.settle() => Ok(pending.wait()),
            None => Err(pending),
        };
        let answer = self.context.counters.during_wait(&server.counters, &*self.context.clock, wait);
        let ended_ns = self.context.clock.now_ns();
        let waited_ns = ended_ns.saturating_sub(started_ns);
        let answer = match answer {
            Ok(answer) => answer,
            Err(pending) => {
                server.counters.waited_ns.add(waited_ns);
                self.context.counters.accounts.charge(Cause::Network, waited_ns);
                call.pending = Some(pending);
                return Err(Code::Interrupted.into());
            }
        };
        let mut elapsed_ns = 0;
        if let Some(in_flight) = call.in_flight.take() {
            elapsed_ns = ended_ns.saturating_sub(in_flight.started_ns());
            self.context.counters.latency.record(elapsed_ns);
            if let Ok(received) = &answer {
                let bytes = received.attachment.len().max(sent_bytes) as u64;
                server.pace.note(bytes, elapsed_ns, ended_ns);
                self.pace_bytes_max.fetch_max(server.pace.wanted_bytes(), Ordering::Relaxed);
            }
        }
        server.counters.waited_ns.add(waited_ns);
        self.context.counters.accounts.charge(Cause::Network, waited_ns);
        if !answer.as_ref().is_err_and(is_silence) {
            server.pace.copies.heard(ended_ns);
        }
        match &answer {
            Ok(received) => {
                self.servers.answered(&server.address);
                self.servers.is_back(call.group);
                server.counters.service_ns.add(u64::from(received.service_us) * 1000);
                server.counters.bytes_read.add(received.attachment.len() as u64);
                self.end_race(call, elapsed_ns);
            }
            Err(fault) => {
                // A disk that hangs may still have it.
                call.is_at_large |= is_silence(fault) || fault.code == Code::Hung;
                log_failure(call.request, call.method, server, fault);
                self.servers.attempt_failed(&server.address, fault);
            }
        }
        answer
    }

    /// Notes bytes that a data server has acknowledged.
    pub(crate) fn count_written(&self, call: &DataCall, bytes: usize) {
        if let Some(server) = &call.server {
            server.counters.bytes_written.add(bytes as u64);
        }
    }
}

/// True for what a program says that is not the server which was meant: one of another cluster has taken the port of a
/// server that was down, and the map still says that this is the address. It is final only once the metadata service
/// has heard of the server there since.
fn is_of_another_program(fault: &Fault) -> bool {
    matches!(fault.code, Code::Unauthenticated | Code::VersionMismatch)
}

/// An answer that breaks the protocol.
pub(crate) fn malformed(call: &DataCall, what: &str) -> Error {
    Error::new(Code::BadRequest, format!("{}: answer to {}: {what}", call.server_name(), call.method.name()))
}
