//! Members that say nothing while a change waits for their answer.
//!
//! A change may take its member long: a disk is slow, or another member is silent and the group has yet to go on
//! without it. So how long it takes says nothing, and a member that is there is waited for, as its answer would be lost
//! and its work done twice. But one that has answered nothing at all for a while is asked whether it is there, which
//! needs no disk. Where it does not answer that either, the change goes to another member. Where none is known the map
//! is asked for: a member that has just caught up may not have been in the one that is there.

use super::copies::{AGAIN_NS, CHANGE_NS};
use super::{DataCall, DataServers};
use crate::servers::Server;
use vazao_model::{Code, GroupId, TargetId};
use vazao_wire::service::Fault;
use vazao_wire::transport::Pending;
use vazao_wire::{Method, interrupt};

/// A server that has answered nothing for so long is asked whether it is there.
const QUIET_NS: u64 = 400_000_000;

/// One that does not answer that within this time is silent. A server whose processors are all busy takes a while.
const THERE_NS: u64 = 600_000_000;

/// How long the change is waited for before it is looked whether the server is there.
const TURN_NS: u64 = 5_000_000;

/// Of a change or sync of a group with several members: blocks until to wait for the answer will not block. Some: its
/// member is silent, and there is another one.
pub(super) fn attend(data: &DataServers, call: &DataCall, deadline_ns: u64) -> Option<Fault> {
    let copies = call.copies.as_ref().filter(|copies| copies.may_go_elsewhere())?;
    let (pending, server) = (&**call.pending.as_ref()?, call.server.as_ref()?);
    let asked_ns = call.in_flight.as_ref()?.started_ns();
    let (group, (target, is_alone)) = (call.group, copies.latest());
    let wait = Wait { data, group, target, server, pending, asked_ns, is_alone, deadline_ns };
    data.context.counters.during_wait(&server.counters, &*data.context.clock, || wait.attend())
}

/// A change that waits for a member.
struct Wait<'a> {
    data: &'a DataServers,
    group: GroupId,
    target: TargetId,
    server: &'a Server,
    pending: &'a dyn Pending,
    asked_ns: u64,
    /// No other member was known when it was asked.
    is_alone: bool,
    deadline_ns: u64,
}

impl Wait<'_> {
    fn attend(&self) -> Option<Fault> {
        let (clock, copies) = (&self.data.context.clock, &self.server.pace.copies);
        let began_ns = clock.now_ns();
        loop {
            let now_ns = clock.now_ns();
            // A signal is seen by waits that are longer than those here.
            if interrupt::is_due(began_ns, now_ns) {
                return None;
            }
            // Where others were known the attempt itself ends by then.
            if self.is_alone && now_ns >= self.asked_ns.saturating_add(CHANGE_NS) && self.has_another() {
                return Some(Fault::new(Code::Timeout, format!("{} takes too long", self.server.address)));
            }
            let heard_ns = copies.heard_ns().max(self.asked_ns);
            if self.pending.settle_by(heard_ns.saturating_add(QUIET_NS)) {
                return None;
            }
            if copies.heard_ns() > heard_ns {
                continue;
            }
            if !self.has_another() {
                self.data.meta.look_for_members(self.deadline_ns);
                if !self.has_another() && self.pending.settle_by(clock.now_ns().saturating_add(AGAIN_NS)) {
                    return None;
                }
                continue;
            }
            match self.is_there(heard_ns) {
                None => return None,
                Some(Ok(())) => {}
                Some(Err(fault)) => return Some(fault),
            }
        }
    }

    /// Asks the server whether it is there. `None`: to wait for the change will not block meanwhile.
    fn is_there(&self, heard_ns: u64) -> Option<Result<(), Fault>> {
        let (context, copies) = (&self.data.context, &self.server.pace.copies);
        let (clock, address) = (&context.clock, &self.server.address);
        let deadline_ns = clock.now_ns().saturating_add(THERE_NS);
        let asked = context.transport.submit(address, Method::Ping, &[], &[], deadline_ns);
        while !asked.is_done() && clock.now_ns() < deadline_ns {
            if self.pending.settle_by(clock.now_ns().saturating_add(TURN_NS)) {
                return None;
            }
        }
        let now_ns = clock.now_ns();
        match asked.wait() {
            Err(fault) if fault.code.is_silence() && copies.heard_ns() <= heard_ns => {
                let why = format!("{address} does not say that it is there: {fault}");
                return Some(Err(Fault::new(Code::Timeout, why)));
            }
            Err(fault) if fault.code.is_silence() => {}
            // Whatever it says.
            _ => copies.heard(now_ns),
        }
        Some(Ok(()))
    }

    /// Whether this client knows of a member beside the one that is waited for.
    fn has_another(&self) -> bool {
        let members = self.data.servers.members(self.group);
        members.is_some_and(|members| members.iter().any(|member| member.target != self.target))
    }
}
