//! A transport without sockets: a request is handled at once in the caller's thread. For tests and simulation.
//!
//! With a [`ManualClock`](vazao_meter::ManualClock) and services in their manual mode nothing in it depends on threads
//! or on real time, so one seed decides a whole run.

use crate::interrupt;
use crate::operation::Method;
use crate::service::{Answer, Deferred, Fault, Request, Responder, Service};
use crate::transport::{Buffer, Pending, Presence, Received, Transport};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vazao_meter::Clock;
use vazao_model::Code;

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is handled and answered.
    Deliver,
    /// It never arrives; the requester waits until its deadline.
    LoseRequest,
    /// It is handled, but the answer never arrives.
    LoseAnswer,
    /// The connection breaks before it arrives.
    BreakBefore,
    /// The connection breaks after it was handled.
    BreakAfter,
    /// The requester waits until its deadline; then so many other requests of that server are handled before this one,
    /// whose answer has no reader.
    Delay(u32),
    /// It is handled and answered; then so many other requests of that server are handled before a copy of it, whose
    /// answer has no reader.
    Double(u32),
}

/// Decides the fate of each request.
pub type Fates = Box<dyn FnMut(&str, Method) -> Fate + Send>;

/// Called while a requester waits for an answer that has been deferred.
pub type Idle = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Hooks {
    fates: Option<Fates>,
    idle: Option<Idle>,
    distance_ns: u64,
}

/// A request that is still on its way.
struct Late {
    address: String,
    method: Method,
    message: Vec<u8>,
    attachment: Vec<u8>,
    deadline_ns: u64,
    /// Requests that are handled before it.
    after: u32,
}

/// The transport.
pub struct InlineTransport {
    clock: Arc<dyn Clock>,
    services: Mutex<HashMap<String, Arc<dyn Service>>>,
    hooks: Mutex<Hooks>,
    late: Mutex<Vec<Late>>,
    next_id: AtomicU64,
}

/// While waiting for a deferred answer the clock moves in steps of this.
const WAIT_STEP: Duration = Duration::from_micros(100);

impl InlineTransport {
    /// A transport with no services.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<InlineTransport> {
        let next_id = AtomicU64::new(1);
        let (services, hooks, late) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(InlineTransport { clock, services, hooks, late, next_id })
    }

    /// Puts a service at `address`, in place of the one that was there.
    pub fn serve(&self, address: &str, service: Arc<dyn Service>) {
        self.services.lock().insert(address.to_owned(), service);
    }

    /// Takes the service at `address` away: requests to it are refused as unreachable, and those on their way to it are
    /// lost.
    pub fn stop(&self, address: &str) {
        self.services.lock().remove(address);
        self.late.lock().retain(|late| late.address != address);
    }

    /// Everything that is still on its way arrives.
    pub fn deliver_late(&self) {
        self.arrive(|_| true);
    }

    /// Keeps a request until so many others of its server were handled.
    fn keep(&self, after: u32, address: &str, request: Request<'_>) {
        let Request { method, deadline_ns, .. } = request;
        let (message, attachment) = (request.message.to_vec(), request.attachment.to_vec());
        let address = address.to_owned();
        self.late.lock().push(Late { address, method, message, attachment, deadline_ns, after });
    }

    /// Handles the requests that `is_due`, in the order in which they were sent.
    fn arrive(&self, is_due: impl FnMut(&mut Late) -> bool) {
        let due: Vec<Late> = self.late.lock().extract_if(.., is_due).collect();
        for Late { address, method, message, attachment, deadline_ns, .. } in due {
            let Some(service) = self.services.lock().get(&address).cloned() else { continue };
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let (message, attachment) = (&message[..], &attachment[..]);
            let request = Request { method, id, message, attachment, deadline_ns };
            self.deliver(&*service, request);
        }
    }

    /// Decides the fate of the requests from now on; `None` delivers them all.
    pub fn set_fates(&self, fates: Option<Fates>) {
        self.hooks.lock().fates = fates;
    }

    /// Called, with the clock moving, while a requester blocks on a deferred answer: the simulation's background
    /// work.
    pub fn set_idle(&self, idle: Option<Idle>) {
        self.hooks.lock().idle = idle;
    }

    /// All services are this far away from now on; 0, as at first: that is not known.
    pub fn set_distance(&self, distance_ns: u64) {
        self.hooks.lock().distance_ns = distance_ns;
    }

    fn fate(&self, address: &str, method: Method) -> Fate {
        self.hooks.lock().fates.as_mut().map_or(Fate::Deliver, |decide| decide(address, method))
    }

    fn deliver(&self, service: &dyn Service, request: Request<'_>) -> State {
        let mut responder = InlineResponder::default();
        service.handle(request, &mut responder);
        match (service.flush(), responder.state) {
            (Err(fault), _) => State::Answered(Err(Fault::new(Code::Disconnected, fault.to_string()))),
            (Ok(()), Some(state)) => state,
            (Ok(()), None) => State::Answered(Err(Fault::new(Code::Internal, "the service did not answer"))),
        }
    }
}

enum State {
    Answered(Answer),
    Deferred(Arc<Mutex<Option<Answer>>>),
    Lost,
}

#[derive(Default)]
struct InlineResponder {
    state: Option<State>,
}

impl Responder for InlineResponder {
    fn reply(&mut self, message: &[u8]) {
        self.state = Some(State::Answered(Ok((message.to_vec(), Vec::new()))));
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        let mut attachment = vec![0xA5; length];
        match fill(&mut attachment) {
            Ok(true) => self.state = Some(State::Answered(Ok((message.to_vec(), attachment)))),
            Ok(false) => return false,
            Err(fault) => self.fail(&fault),
        }
        true
    }

    fn fail(&mut self, fault: &Fault) {
        self.state = Some(State::Answered(Err(fault.clone())));
    }

    fn defer(&mut self) -> Deferred {
        let place = Arc::new(Mutex::new(None));
        self.state = Some(State::Deferred(Arc::clone(&place)));
        Deferred::new(move |answer| *place.lock() = Some(answer))
    }
}

struct InlinePending {
    state: State,
    deadline_ns: u64,
    address: String,
    clock: Arc<dyn Clock>,
    idle: Option<Idle>,
}

impl InlinePending {
    /// Lets the time pass in which an answer would count.
    fn time_out(&self) -> Answer {
        let started_ns = self.clock.now_ns();
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= self.deadline_ns {
                return Err(Fault::new(Code::Timeout, format!("{} has not answered", self.address)));
            }
            if interrupt::is_due(started_ns, now_ns) {
                return Err(Code::Interrupted.into());
            }
            let left_ns = interrupt::look_by_ns(now_ns, self.deadline_ns) - now_ns;
            self.clock.sleep(Duration::from_nanos(left_ns));
        }
    }

    fn wait_deferred(&self, place: &Mutex<Option<Answer>>) -> Answer {
        let started_ns = self.clock.now_ns();
        loop {
            if let Some(answer) = place.lock().take() {
                return answer;
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= self.deadline_ns {
                return self.time_out();
            }
            if interrupt::is_due(started_ns, now_ns) {
                return Err(Code::Interrupted.into());
            }
            self.clock.sleep(WAIT_STEP);
            if let Some(idle) = &self.idle {
                idle();
            }
        }
    }
}

impl Pending for InlinePending {
    fn wait(mut self: Box<Self>) -> Result<Received, Fault> {
        let answer = match std::mem::replace(&mut self.state, State::Lost) {
            State::Answered(answer) => answer,
            State::Deferred(place) => self.wait_deferred(&place),
            State::Lost => self.time_out(),
        };
        let (message, attachment) = answer?;
        let length = attachment.len();
        Ok(Received { message, attachment: Buffer::new(attachment, length, None), service_us: 0 })
    }

    fn is_done(&self) -> bool {
        match &self.state {
            State::Answered(_) => true,
            State::Deferred(place) => place.lock().is_some(),
            State::Lost => self.clock.now_ns() >= self.deadline_ns,
        }
    }

    fn settle_by(&self, until_ns: u64) -> bool {
        let started_ns = self.clock.now_ns();
        loop {
            let now_ns = self.clock.now_ns();
            if self.is_done() || now_ns >= self.deadline_ns || interrupt::is_due(started_ns, now_ns) {
                return true;
            }
            if now_ns >= until_ns {
                return false;
            }
            let look_ns = interrupt::look_by_ns(now_ns, until_ns.min(self.deadline_ns));
            let left = Duration::from_nanos(look_ns - now_ns);
            // For what is lost nothing has to be looked at meanwhile.
            let is_lost = matches!(self.state, State::Lost);
            self.clock.sleep(if is_lost { left } else { WAIT_STEP.min(left) });
            if let Some(idle) = &self.idle {
                idle();
            }
        }
    }
}

impl Transport for InlineTransport {
    fn submit(
        &self,
        address: &str,
        method: Method,
        message: &[u8],
        attachment: &[u8],
        deadline_ns: u64,
    ) -> Box<dyn Pending> {
        let broken = || {
            State::Answered(Err(Fault::new(Code::Disconnected, format!("{address} broke the connection"))))
        };
        let service = self.services.lock().get(address).cloned();
        let fate = self.fate(address, method);
        let state = match (service, fate) {
            (None, _) => {
                State::Answered(Err(Fault::new(Code::Unreachable, format!("no server at {address}"))))
            }
            (_, Fate::LoseRequest) => State::Lost,
            (_, Fate::BreakBefore) => broken(),
            (_, Fate::Delay(after)) => {
                self.keep(after, address, Request { method, id: 0, message, attachment, deadline_ns });
                State::Lost
            }
            (Some(service), fate) => {
                let id = self.next_id.fetch_add(1, Ordering::Relaxed);
                let state = self.deliver(&*service, Request { method, id, message, attachment, deadline_ns });
                self.arrive(|late| {
                    let is_there = late.address == address;
                    late.after = late.after.saturating_sub(u32::from(is_there));
                    is_there && late.after == 0
                });
                if let Fate::Double(after) = fate {
                    self.keep(after, address, Request { method, id: 0, message, attachment, deadline_ns });
                }
                match fate {
                    Fate::LoseAnswer => State::Lost,
                    Fate::BreakAfter => broken(),
                    _ => state,
                }
            }
        };
        let idle = self.hooks.lock().idle.clone();
        let clock = Arc::clone(&self.clock);
        Box::new(InlinePending { state, deadline_ns, address: address.to_owned(), clock, idle })
    }

    fn distance_ns(&self, _address: &str) -> u64 {
        self.hooks.lock().distance_ns
    }

    fn presence(&self, address: &str, _deadline_ns: u64) -> Presence {
        if self.services.lock().contains_key(address) { Presence::Somebody } else { Presence::Nobody }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }
}
