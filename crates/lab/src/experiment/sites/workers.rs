//! Processes that work on the clients' hosts at the same time, and the orders to them.

use super::worker::{Answer, Order, Taken};
use crate::Error;
use crate::experiment::Lab;
use crate::hosts::Host;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A file over a line of 2 Mb/s takes minutes; what takes longer does not come any more.
const ANSWER_WITHIN: Duration = Duration::from_secs(30 * 60);
/// How often one looks whether to stop.
const POLL: Duration = Duration::from_millis(100);

/// A process that carries out orders on a host; killed when dropped.
pub(super) struct Worker<'a> {
    lab: &'a Lab,
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl<'a> Worker<'a> {
    pub(super) fn start(lab: &'a Lab, host: &Host) -> Result<Worker<'a>, Error> {
        let name = host.name().to_owned();
        let mut command = host.command(&lab.program);
        command.args(["lab", "sites-worker"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Error::at(lab.program.display()))?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed(format!("{name}: a process without its pipes")));
        };
        let (said, answers) = channel();
        // Ends with the process: its pipe is closed then.
        let listening = std::thread::Builder::new().name("answers".to_owned()).spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    break;
                }
            }
        });
        let worker = Worker { lab, name, child, orders, answers };
        listening.map_err(Error::at("a thread for answers"))?;
        Ok(worker)
    }

    /// Sends an order; [`Worker::answer`] waits for what comes of it.
    pub(super) fn order(&mut self, order: &Order) -> Result<(), Error> {
        let line = serde_json::to_string(order).map_err(|error| Error::Failed(error.to_string()))?;
        let sent = writeln!(self.orders, "{line}").and_then(|()| self.orders.flush());
        sent.map_err(Error::at(&self.name))
    }

    /// Whether an answer has come, without waiting for it.
    pub(super) fn poll(&mut self) -> Result<Option<Answer>, Error> {
        self.receive(Duration::ZERO)
    }

    /// Waits for the answer to the last order. A failure of the order is an error.
    pub(super) fn answer(&mut self) -> Result<Answer, Error> {
        let deadline_ns = self.lab.clock.now_ns() + ANSWER_WITHIN.as_nanos() as u64;
        loop {
            if let Some(answer) = self.receive(POLL)? {
                return Ok(answer);
            }
            if self.lab.clock.now_ns() > deadline_ns {
                let (name, minutes) = (&self.name, ANSWER_WITHIN.as_secs() / 60);
                return Err(Error::Failed(format!(
                    "{name}: an operation has not ended within {minutes} min"
                )));
            }
        }
    }

    fn receive(&mut self, within: Duration) -> Result<Option<Answer>, Error> {
        self.lab.check()?;
        let line = match self.answers.recv_timeout(within) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Failed(format!("{}: the process that works has ended", self.name)));
            }
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(reason)) => Err(Error::Failed(format!("{}: {reason}", self.name))),
            Ok(answer) => Ok(Some(answer)),
            Err(error) => Err(Error::Failed(format!("{}: it answers {line:?}: {error}", self.name))),
        }
    }

    /// Sends an order and waits for its answer.
    pub(super) fn carry_out(&mut self, order: &Order) -> Result<Answer, Error> {
        self.order(order)?;
        self.answer()
    }
}

impl Drop for Worker<'_> {
    #[allow(clippy::disallowed_methods, reason = "it was killed just before")]
    fn drop(&mut self) {
        // One that has ended already is no trouble.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has every worker carry out its order at the same time.
pub(super) fn together(workers: &mut [Worker<'_>], orders: &[Order]) -> Result<Vec<Answer>, Error> {
    for (worker, order) in workers.iter_mut().zip(orders) {
        worker.order(order)?;
    }
    // All are waited for, also after a failure: an answer that stays would be taken for that of the next order.
    let answers: Vec<Result<Answer, Error>> = workers.iter_mut().map(Worker::answer).collect();
    answers.into_iter().collect()
}

/// The times in answers to orders that have times.
pub(super) fn times(answers: Vec<Answer>) -> Result<Vec<Taken>, Error> {
    let time = |answer: Answer| match answer {
        Answer::Taken(taken) => Ok(taken),
        other => Err(Error::Failed(format!("an answer without times: {other:?}"))),
    };
    answers.into_iter().map(time).collect()
}
