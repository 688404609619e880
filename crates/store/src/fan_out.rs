//! One request for objects of several targets: each target's threads do their part, and the last part answers.
//!
//! A part whose disk hangs is answered for it as any other request is, so that its place on the connection is
//! free again.

use crate::object::Stop;
use crate::object::attempts::{Passed, Terms};
use crate::service::{DataService, fault};
use crate::targets::Target;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use vazao_model::ObjectId;
use vazao_wire::proto;
use vazao_wire::service::{Answer, Call, Deferred, Fault, Responder};

/// An object of a request, and what the primary of its placement group says with it.
pub(crate) type Asked = (ObjectId, Option<Passed>);

/// What is done with the objects of one target.
pub(crate) type Work = fn(&Target, &[Asked]) -> Result<u64, Stop>;

/// Work under way on several targets, with one answer.
struct Join {
    finish: fn(u64) -> Vec<u8>,
    progress: Mutex<Progress>,
}

struct Progress {
    left: usize,
    sum: u64,
    fault: Option<Fault>,
    deferred: Option<Deferred>,
}

/// Hands a deferred answer on: where a part of a request is done by a lane of its own.
pub(crate) struct Handed(Option<Deferred>);

impl Handed {
    /// Its answer goes where that of `deferred` would.
    pub(crate) fn to(deferred: Deferred) -> Handed {
        Handed(Some(deferred))
    }

    fn finish(&mut self, answer: Answer) {
        if let Some(deferred) = self.0.take() {
            deferred.finish(answer);
        }
    }
}

impl Responder for Handed {
    fn reply(&mut self, message: &[u8]) {
        self.finish(Ok((message.to_vec(), Vec::new())));
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
            Ok(true) => self.finish(Ok((message.to_vec(), attachment))),
            Err(fault) => self.finish(Err(fault)),
        }
        true
    }

    fn fail(&mut self, fault: &Fault) {
        self.finish(Err(fault.clone()));
    }

    fn defer(&mut self) -> Deferred {
        self.0.take().unwrap_or_else(|| Deferred::new(|_| ()))
    }
}

/// What goes on with the answer to a first part.
type Next = Box<dyn FnOnce(Answer, Deferred) + Send>;

/// Takes the answer of a first part, done by one lane, to what comes next.
pub(crate) struct Then<'a> {
    responder: &'a mut dyn Responder,
    next: Option<Next>,
}

impl<'a> Then<'a> {
    /// `next` gets what the lane answers, and the place where the whole answer goes.
    pub(crate) fn new(
        responder: &'a mut dyn Responder,
        next: impl FnOnce(Answer, Deferred) + Send + 'static,
    ) -> Then<'a> {
        Then { responder, next: Some(Box::new(next)) }
    }
}

impl Responder for Then<'_> {
    fn reply(&mut self, message: &[u8]) {
        self.responder.reply(message);
    }

    fn try_reply_with(
        &mut self,
        message: &[u8],
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<bool, Fault>,
    ) -> bool {
        self.responder.try_reply_with(message, length, fill)
    }

    fn fail(&mut self, fault: &Fault) {
        self.responder.fail(fault);
    }

    fn defer(&mut self) -> Deferred {
        let whole = self.responder.defer();
        match self.next.take() {
            Some(next) => Deferred::new(move |answer| next(answer, whole)),
            None => whole,
        }
    }
}

impl Join {
    /// One target is done; the last one answers.
    fn arrive(&self, done: Result<u64, Fault>) {
        let mut progress = self.progress.lock();
        progress.left = progress.left.saturating_sub(1);
        match done {
            Ok(count) => progress.sum += count,
            Err(fault) => progress.fault = Some(fault),
        }
        if progress.left > 0 {
            return;
        }
        let answer = match progress.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(((self.finish)(progress.sum), Vec::new())),
        };
        if let Some(deferred) = progress.deferred.take() {
            deferred.finish(answer);
        }
    }
}

impl DataService {
    /// Has `work` done for the objects of each target, at the same time, and answers with the sum of what it returned.
    pub(crate) fn fan_out(
        &self,
        call: Call,
        objects: &[proto::ObjectAddress],
        responder: &mut dyn Responder,
        work: Work,
        finish: fn(u64) -> Vec<u8>,
    ) -> Result<(), Fault> {
        let mut parts: BTreeMap<u32, (&Arc<Target>, Vec<Asked>)> = BTreeMap::new();
        for address in objects {
            let (target, id) = self.target_of(Some(address))?;
            let passed = Terms::of(Some(address), false).passed;
            parts.entry(target.id().0).or_insert_with(|| (target, Vec::new())).1.push((id, passed));
        }
        if self.options.inline || parts.is_empty() {
            let run = |(target, objects): &(&Arc<Target>, Vec<Asked>)| work(target, objects);
            let sum = parts.values().map(run).try_fold(0, |sum, part| Ok(sum + part?));
            responder.reply(&finish(sum.map_err(fault)?));
            return Ok(());
        }
        let left = parts.len();
        let join = Arc::new(Join {
            finish,
            progress: Mutex::new(Progress { left, sum: 0, fault: None, deferred: Some(responder.defer()) }),
        });
        for (target, objects) in parts.into_values() {
            self.begin_part(call, target, objects, work, &join);
        }
        Ok(())
    }

    fn begin_part(
        &self,
        call: Call,
        target: &Arc<Target>,
        objects: Vec<Asked>,
        work: Work,
        join: &Arc<Join>,
    ) {
        let (part, held) = (Arc::clone(join), Arc::clone(target));
        // The sum of a part comes as its message.
        let arrive = move |answer: Answer| part.arrive(answer.map(|(sum, _)| decode_sum(&sum)));
        let mut handed = Handed::to(Deferred::new(arrive));
        let do_part = move || {
            let sum = work(&held, &objects).map_err(fault)?;
            Ok((sum.to_le_bytes().to_vec(), Vec::new()))
        };
        let taken = match target.waits.lane() {
            Some(lane) => lane.defer(call.method.name(), 0, call.deadline_ns, &mut handed, do_part),
            None => Err(fault(Stop::Wait)),
        };
        if let Err(refused) = taken {
            handed.fail(&refused);
        }
    }
}

fn decode_sum(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}
