//! Members that say nothing while a change waits for their answer.
//!
//! A change may take its member long: a disk is slow, or another member is silent and the group has yet to go on
//! without it. So how long it takes says nothing, and a member that is there is waited for, as its answer would be lost
//! and its work done twice. But one that has answered nothing at all for a while is asked whether it is there, which
//! needs no disk. Where it does not answer that either, the change goes to another member.

use super::DataCall;
use crate::core::Context;
use crate::servers::Server;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::service::Fault;
use vazao_wire::transport::Pending;

/// A server that has answered nothing for so long is asked whether it is there.
const QUIET_NS: u64 = 400_000_000;

/// One that does not answer that within this time is silent. A server whose processors are all busy takes a while.
const THERE_NS: u64 = 600_000_000;

/// How long the change is waited for before it is looked whether the server is there.
const TURN_NS: u64 = 5_000_000;

/// Of a change or sync of a group with several members: blocks until to wait for the answer will not block. Some:
/// its member is silent.
pub(super) fn attend(context: &Context, call: &DataCall) -> Option<Fault> {
    call.copies.as_ref().filter(|copies| copies.may_go_elsewhere())?;
    let (pending, server) = (&**call.pending.as_ref()?, call.server.as_ref()?);
    let asked_ns = call.in_flight.as_ref()?.started_ns();
    let attend = || attend_to(context, pending, server, asked_ns);
    context.counters.during_wait(&server.counters, &*context.clock, attend)
}

fn attend_to(context: &Context, pending: &dyn Pending, server: &Server, asked_ns: u64) -> Option<Fault> {
    let clock = &context.clock;
    loop {
        let heard_ns = server.pace.copies.heard_ns().max(asked_ns);
        if pending.settle_by(heard_ns.saturating_add(QUIET_NS)) {
            return None;
        }
        if server.pace.copies.heard_ns() > heard_ns {
            continue;
        }
        let deadline_ns = clock.now_ns().saturating_add(THERE_NS);
        let asked = context.transport.submit(&server.address, Method::Ping, &[], &[], deadline_ns);
        while !asked.is_done() && clock.now_ns() < deadline_ns {
            if pending.settle_by(clock.now_ns().saturating_add(TURN_NS)) {
                return None;
            }
        }
        let now_ns = clock.now_ns();
        match asked.wait() {
            Err(fault) if fault.code.is_silence() && server.pace.copies.heard_ns() <= heard_ns => {
                let why = format!("{} does not say that it is there: {fault}", server.address);
                return Some(Fault::new(Code::Timeout, why));
            }
            Err(fault) if fault.code.is_silence() => {}
            // Whatever it says.
            _ => server.pace.copies.heard(now_ns),
        }
    }
}
