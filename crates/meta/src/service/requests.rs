//! Requests as they come: carried out at once, or by a thread that may wait while the engine is behind.

use super::MetaService;
use super::answer::{Settled, deliver};
use super::backpressure::unless_behind;
use super::dispatch;
use super::transactions::ANSWERED;
use crate::engine::EngineError;
use crate::ops;
use std::sync::Weak;
use vazao_meter::Cause;
use vazao_model::Code;
use vazao_wire::Method;
use vazao_wire::service::{Answer, Fault, Request, RequestId, Responder, Service};

impl Service for MetaService {
    fn handle(&self, request: Request<'_>, responder: &mut dyn Responder) {
        let started_ns = self.clock.now_ns();
        if request.method == Method::WatchChanges && !self.history.is_behind() {
            return ops::watch::run(self, request.message, responder);
        }
        if request.method == Method::ReportMembers {
            return self.shell.serve(&request, responder, |responder| {
                ops::members::report(self, request.message, responder)
            });
        }
        self.shell.serve(&request, responder, |responder| {
            let Some(settled) = unless_behind(|| self.settle(&request)) else {
                return self.settle_later(&request, responder);
            };
            deliver(&*self.engine, settled, responder);
            Ok(())
        });
        let spent_ns = self.clock.now_ns().saturating_sub(started_ns);
        self.shell.accounts().charge(Cause::Compute, spent_ns);
    }

    /// While the log cannot be written, changes are refused and other answers may leave. Only those of this thread
    /// that rest on commits which are not written have to be withheld. The same after a failure, so that its cause gets
    /// out: whatever changes something is refused then, and what changes nothing, as an open, goes on.
    fn flush(&self) -> Result<(), Fault> {
        let answered = ANSWERED.take();
        match self.engine.flush() {
            Err(EngineError::Failed(_)) if answered <= self.engine.written() => Ok(()),
            Err(EngineError::Io { .. } | EngineError::Full(_))
                if self.engine.writable().is_err() && answered <= self.engine.written() =>
            {
                Ok(())
            }
            flushed => Ok(flushed?),
        }
    }
}

impl MetaService {
    /// Carries a request out.
    fn settle(&self, request: &Request<'_>) -> Settled {
        let checked = self.history.check(request.method);
        let settled = checked.and_then(|()| dispatch::run(self, request.method, request.message));
        let settled = settled.unwrap_or_else(|fault| Settled { answer: Err(fault), durable_at: None });
        let _ = settled.answer.as_ref().inspect_err(|fault| log_failure(request, fault));
        settled
    }

    /// Has a request carried out by a thread that may wait until the engine has caught up. Errors: too many wait.
    fn settle_later(&self, request: &Request<'_>, responder: &mut dyn Responder) -> Result<(), Fault> {
        let stopped = || Fault::new(Code::Unavailable, "the metadata service is stopping");
        let service = self.this.get().and_then(Weak::upgrade).ok_or_else(stopped)?;
        let (call, id, message) = (request.call(), request.id, request.message.to_vec());
        self.waiters.defer(call, message.len(), responder, move || {
            let (method, deadline_ns) = (call.method, call.deadline_ns);
            service.settle_now(&Request { method, id, message: &message, attachment: &[], deadline_ns })
        })
    }

    /// Carries a request out and waits for whatever it takes.
    fn settle_now(&self, request: &Request<'_>) -> Answer {
        let settled = loop {
            self.engine.catch_up()?;
            if let Some(settled) = unless_behind(|| self.settle(request)) {
                break settled;
            }
        };
        // What was committed may be lost, and is not refused: the client asks again, and gets the remembered answer.
        let unsure = |fault: Fault| Fault::new(Code::Unavailable, fault.to_string());
        self.flush().map_err(unsure)?;
        if settled.durable_at.is_some() {
            self.engine.sync().map_err(|error| unsure(error.into()))?;
        }
        settled.answer.map(|message| (message, Vec::new()))
    }
}

/// Logs what no client is the cause of.
fn log_failure(request: &Request<'_>, fault: &Fault) {
    if matches!(fault.code, Code::Corrupt | Code::Io | Code::Internal) {
        let id = RequestId(request.id);
        tracing::error!(request = %id, method = request.method.name(), error = %fault, "failed");
    }
}
