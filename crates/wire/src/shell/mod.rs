//! The shell of a server (middleware): what every service has around its operations, once for all of them.
//!
//! - [`Shell::serve`] hands a request to the service's dispatcher and answers what that refuses.
//! - Each request is counted once, when its answer leaves: by the event loop, or by the thread that finishes a deferred
//!   answer. An operation counts nothing of this itself.
//! - [`decode`] reads arguments, [`reply`] sends a complete answer, [`defer`] has work done that may wait for a file
//!   system.
//!
//! What an operation does, which of them wait and for what is the service's own. The contract of a service is in
//! [`crate::service`].

pub mod scrub;

use crate::lane::Lane;
use crate::operation::Method;
use crate::service::{Answer, Call, Deferred, Fault, Request, Responder};
use prost::Message;
use std::sync::Arc;
use vazao_meter::measures::Work;
use vazao_meter::{Accounts, Cause, Clock, Counter, Exposition, Histogram};
use vazao_model::Code;

/// Requests that only keep servers and clients in touch: no work was done for a user.
const KEEP_ALIVE: [Method; 3] = [Method::Ping, Method::RenewSession, Method::RegisterNode];

#[derive(Debug, Default)]
struct MethodFigures {
    failures: Counter,
    latency: Histogram,
}

/// The shell of one service: its clock, and what it counts of its requests.
#[derive(Debug)]
pub struct Shell {
    /// What the names of its metrics begin with.
    prefix: &'static str,
    clock: Arc<dyn Clock>,
    methods: Vec<MethodFigures>,
    read_bytes: Counter,
    written_bytes: Counter,
    deferred: Counter,
    accounts: Arc<Accounts>,
}

/// A request on its way to its answer.
#[derive(Clone, Copy)]
struct Counting {
    method: Method,
    started_ns: u64,
}

impl Shell {
    /// The shell of a service whose metrics are called `prefix_…`.
    pub fn new(prefix: &'static str, clock: Arc<dyn Clock>) -> Arc<Shell> {
        Arc::new(Shell {
            prefix,
            clock,
            methods: Method::ALL.iter().map(|_| MethodFigures::default()).collect(),
            read_bytes: Counter::new(),
            written_bytes: Counter::new(),
            deferred: Counter::new(),
            accounts: Arc::new(Accounts::new()),
        })
    }

    /// The service's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Where the service's time went; it charges them itself.
    pub fn accounts(&self) -> &Arc<Accounts> {
        &self.accounts
    }

    /// Bytes of a write have arrived whole.
    pub fn count_written(&self, bytes: usize) {
        self.written_bytes.add(bytes as u64);
    }

    /// Has `dispatch` answer the request, or see to it that it is answered later. Errors of `dispatch`, which has not
    /// answered then, are the answer.
    pub fn serve(
        self: &Arc<Shell>,
        request: &Request<'_>,
        responder: &mut dyn Responder,
        dispatch: impl FnOnce(&mut dyn Responder) -> Result<(), Fault>,
    ) {
        let counting = Counting { method: request.method, started_ns: self.clock.now_ns() };
        let mut counted = Counted { shell: self, counting, responder };
        if let Err(fault) = dispatch(&mut counted) {
            counted.fail(&fault);
        }
    }

    /// Counts a request that was answered, with so many bytes attached or with an error.
    fn count(&self, counting: Counting, answered: Result<usize, ()>) {
        let ns = self.clock.now_ns().saturating_sub(counting.started_ns);
        let figures = &self.methods[counting.method.index()];
        figures.latency.record(ns);
        match answered {
            Ok(0) => {}
            Ok(bytes) => self.read_bytes.add(bytes as u64),
            Err(()) => figures.failures.add(1),
        }
    }

    /// What was done: operations by duration, without those that only keep in touch, and bytes.
    pub fn work(&self) -> Work {
        let (read_bytes, written_bytes) = (self.read_bytes.get(), self.written_bytes.get());
        let mut work = Work { read_bytes, written_bytes, ..Work::default() };
        let of_users = |(method, _): &(Method, _)| !KEEP_ALIVE.contains(method);
        self.used().filter(of_users).for_each(|(_, used)| work.add_latencies(&used.latency.buckets()));
        work
    }

    /// Methods that were asked for.
    fn used(&self) -> impl Iterator<Item = (Method, &MethodFigures)> {
        let each = Method::ALL.iter().copied().zip(&self.methods);
        each.filter(|(_, figures)| figures.latency.count() > 0)
    }

    /// Writes out what it counts of requests, and the time spent on `causes`.
    pub fn expose(&self, causes: &[Cause], out: &mut Exposition) {
        let name = |rest: &str| format!("{}_{rest}", self.prefix);
        let requests = name("requests_total");
        for (method, figures) in self.used() {
            let count = figures.latency.count() as f64;
            out.counter(&requests, "Requests finished.", &[("method", method.name())], count);
        }
        let (failures, help) = (name("failures_total"), "Requests answered with an error.");
        for (method, figures) in self.used() {
            let count = figures.failures.get() as f64;
            out.counter(&failures, help, &[("method", method.name())], count);
        }
        let (seconds, help) = (name("request_seconds"), "From arrival to answer.");
        for (method, figures) in self.used() {
            out.histogram(&seconds, help, &[("method", method.name())], &figures.latency);
        }
        let help = "Requests answered later than they were looked at: they waited for a disk.";
        out.counter(&name("deferred_total"), help, &[], self.deferred.get() as f64);
        out.accounts(&name("time_seconds_total"), "Where the service's time went.", &self.accounts, causes);
    }

    /// Writes out the bytes of files that it moved, for a service that moves some.
    pub fn expose_bytes(&self, out: &mut Exposition) {
        let name = format!("{}_bytes_total", self.prefix);
        for (direction, bytes) in [("read", &self.read_bytes), ("write", &self.written_bytes)] {
            out.counter(&name, "Bytes of files moved.", &[("direction", direction)], bytes.get() as f64);
        }
    }
}

/// A responder that counts the answer.
struct Counted<'a> {
    shell: &'a Arc<Shell>,
    counting: Counting,
    responder: &'a mut dyn Responder,
}

impl Responder for Counted<'_> {
    fn reply(&mut self, message: &[u8]) {
        self.responder.reply(message);
        self.shell.count(self.counting, Ok(0));
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        let mut answered = Ok(length);
        let is_answered = self.responder.try_reply_with(message, length, &mut |place| {
            let filled = fill(place);
            answered = filled.as_ref().map(|_| length).map_err(|_| ());
            filled
        });
        if is_answered {
            self.shell.count(self.counting, answered);
        }
        is_answered
    }

    fn fail(&mut self, fault: &Fault) {
        self.responder.fail(fault);
        self.shell.count(self.counting, Err(()));
    }

    fn enter_disk(&mut self) {
        self.responder.enter_disk();
    }

    fn leave_disk(&mut self) {
        self.responder.leave_disk();
    }

    fn defer(&mut self) -> Deferred {
        self.shell.deferred.add(1);
        let (shell, counting, deferred) = (Arc::clone(self.shell), self.counting, self.responder.defer());
        Deferred::new(move |answer| {
            shell.count(counting, answer.as_ref().map(|(_, attachment)| attachment.len()).map_err(|_| ()));
            // Before the answer: its receiver may drop the last owner of the service.
            drop(shell);
            deferred.finish(answer);
        })
    }
}

/// The arguments of a request. Errors: `BadRequest`.
pub fn decode<M: Message + Default>(request: &Request<'_>) -> Result<M, Fault> {
    decode_message(request.method, request.message)
}

/// The arguments of `method`. Errors: `BadRequest`.
pub fn decode_message<M: Message + Default>(method: Method, message: &[u8]) -> Result<M, Fault> {
    let broken = |e| Fault::new(Code::BadRequest, format!("arguments of {}: {e}", method.name()));
    M::decode(message).map_err(broken)
}

/// Sends a complete answer.
pub fn reply(responder: &mut dyn Responder, answer: Answer) {
    match answer {
        Ok((message, attachment)) if attachment.is_empty() => responder.reply(&message),
        Ok((message, attachment)) => responder.reply_with(&message, attachment.len(), &mut |place| {
            place.copy_from_slice(&attachment);
            Ok(())
        }),
        Err(fault) => responder.fail(&fault),
    }
}

/// Has `work`, which holds `bytes` while it waits, done by the threads of a file system, and its answer delivered.
/// Without a lane (a simulation) it is done at once by the caller's thread. Errors: [`Lane::defer`].
pub fn defer(
    lane: Option<&Lane>,
    call: Call,
    bytes: usize,
    responder: &mut dyn Responder,
    work: impl FnOnce() -> Answer + Send + 'static,
) -> Result<(), Fault> {
    match lane {
        Some(lane) => lane.defer(call.method.name(), bytes, call.deadline_ns, responder, work),
        None => {
            reply(responder, work());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vazao_meter::ManualClock;

    /// Keeps what it was answered.
    #[derive(Default)]
    struct Requester(Option<Answer>);

    impl Responder for Requester {
        fn reply(&mut self, message: &[u8]) {
            self.0 = Some(Ok((message.to_vec(), Vec::new())));
        }
        fn try_reply_with(
            &mut self,
            message: &[u8],
            length: usize,
            fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
        ) -> bool {
            let mut attachment = vec![0; length];
            match fill(&mut attachment) {
                Ok(false) => return false,
                Ok(true) => self.0 = Some(Ok((message.to_vec(), attachment))),
                Err(fault) => self.0 = Some(Err(fault)),
            }
            true
        }
        fn fail(&mut self, fault: &Fault) {
            self.0 = Some(Err(fault.clone()));
        }
        fn defer(&mut self) -> Deferred {
            Deferred::new(|_| ())
        }
    }

    fn shell() -> (Arc<ManualClock>, Arc<Shell>) {
        let clock = Arc::new(ManualClock::default());
        (Arc::clone(&clock), Shell::new("vazao_test", clock))
    }

    fn request(method: Method) -> Request<'static> {
        Request { method, id: 1, message: &[], attachment: &[], deadline_ns: u64::MAX }
    }

    fn page(shell: &Shell) -> String {
        let mut out = Exposition::new();
        shell.expose(&[], &mut out);
        shell.expose_bytes(&mut out);
        out.finish()
    }

    #[test]
    fn each_request_is_counted_once_however_it_is_answered() {
        let (_, shell) = shell();
        let serve = |dispatch: &dyn Fn(&mut dyn Responder) -> Result<(), Fault>| {
            shell.serve(&request(Method::Read), &mut Requester::default(), dispatch);
        };
        serve(&|responder| {
            responder.reply(b"1");
            Ok(())
        });
        serve(&|responder| {
            assert!(!responder.try_reply_with(b"2", 4, &mut |_| Ok(false)), "it declines first");
            reply(responder, Ok((Vec::new(), vec![1; 4])));
            Ok(())
        });
        serve(&|_| Err(Code::NotFound.into()));
        serve(&|responder| {
            responder.reply_with(b"4", 4, &mut |_| Err(Code::Io.into()));
            Ok(())
        });
        let page = page(&shell);
        for line in [
            "vazao_test_requests_total{method=\"Read\"} 4\n",
            "vazao_test_failures_total{method=\"Read\"} 2\n",
            "vazao_test_bytes_total{direction=\"read\"} 4\n",
            "vazao_test_deferred_total 0\n",
        ] {
            assert!(page.contains(line), "{line}{page}");
        }
    }

    #[test]
    fn a_deferred_answer_is_counted_when_it_leaves_and_also_when_it_is_dropped() {
        let (clock, shell) = shell();
        let mut deferred = Vec::new();
        for _ in 0..2 {
            shell.serve(&request(Method::Write), &mut Requester::default(), |responder| {
                deferred.push(responder.defer());
                Ok(())
            });
        }
        assert_eq!(shell.work().operations, 0);
        clock.advance(std::time::Duration::from_secs(1));
        deferred.pop().expect("two").finish(Ok((Vec::new(), Vec::new())));
        drop(deferred);
        assert_eq!(shell.work().operations, 2);
        let page = page(&shell);
        assert!(page.contains("vazao_test_failures_total{method=\"Write\"} 1\n"), "{page}");
        assert!(page.contains("vazao_test_deferred_total 2\n"), "{page}");
        assert!(page.contains("vazao_test_request_seconds_sum{method=\"Write\"} 2\n"), "{page}");
    }

    #[test]
    fn what_keeps_in_touch_is_no_work() {
        let (_, shell) = shell();
        for method in [Method::Ping, Method::RenewSession, Method::Read] {
            shell.serve(&request(method), &mut Requester::default(), |responder| {
                responder.reply(b"");
                Ok(())
            });
        }
        assert_eq!(shell.work().operations, 1);
    }
}
