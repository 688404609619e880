//! How long, and by how many, a node is waited for: one that does not answer must not hold up requests to the others.
//!
//! A mount has a bounded number of threads, and each request to a dead node holds one until its deadline. So a node
//! that did not answer is not asked again for a moment; and before that is known, only some of the threads wait for it:
//! the rest wait a moment for any answer of the node, and fail when none comes. A node that answers, however slowly,
//! has as many of its requests served at once as it has places, and the rest in turn.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;
use vazao_client::{Error, Result};
use vazao_meter::Clock;
use vazao_model::Code;

/// A node that did not answer is not asked again before this.
const SILENT_NS: u64 = 3_000_000_000;

/// Requests to one node at once: a third of the threads that a mount has unless told otherwise.
const NODE_REQUESTS_MAX: usize = 16;

/// A waiter for a place takes a node for silent that has answered nothing for this long while all places are taken.
const ANSWER_NS: u64 = 1_000_000_000;

/// How often a waiter for a place checks the time.
const LOOK: Duration = Duration::from_millis(50);

/// One node.
#[derive(Default)]
struct Node {
    /// Requests that it has not answered.
    asked: usize,
    /// When it answered last, or was asked while nothing was left to answer.
    alive_ns: u64,
    /// Not asked until then, and why.
    silent: Option<(u64, Error)>,
}

/// All nodes of a mount.
#[derive(Default)]
pub(super) struct CircuitBreaker {
    nodes: Mutex<HashMap<String, Node>>,
    answered: Condvar,
}

impl CircuitBreaker {
    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Node>> {
        self.nodes.lock()
    }

    /// Asks a node, unless it was silent just now or is silent already to as many as may wait for it.
    pub(super) fn ask<T>(
        &self,
        clock: &dyn Clock,
        name: &str,
        question: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.put(clock, name, question, || true)
    }

    /// The same for what the node need not have answered when it is over: `has_answered` says whether it has answered
    /// something meanwhile. That it went well says nothing of the node.
    pub(super) fn tell<T>(
        &self,
        clock: &dyn Clock,
        name: &str,
        message: impl FnOnce() -> Result<T>,
        has_answered: impl FnOnce() -> bool,
    ) -> Result<T> {
        self.put(clock, name, message, has_answered)
    }

    fn put<T>(
        &self,
        clock: &dyn Clock,
        name: &str,
        question: impl FnOnce() -> Result<T>,
        has_answered: impl FnOnce() -> bool,
    ) -> Result<T> {
        self.enter(clock, name)?;
        let answer = question();
        let is_answered = has_answered();
        let now_ns = clock.now_ns();
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get_mut(name) {
            node.asked -= 1;
            match &answer {
                Err(error) if error.code.is_silence() => {
                    node.silent = Some((now_ns + SILENT_NS, error.clone()))
                }
                _ if is_answered => (node.silent, node.alive_ns) = (None, now_ns),
                _ => {}
            }
        }
        drop(nodes);
        self.answered.notify_all();
        answer
    }

    /// Takes a place among the requests to a node.
    fn enter(&self, clock: &dyn Clock, name: &str) -> Result<()> {
        let mut nodes = self.nodes();
        let came_ns = clock.now_ns();
        loop {
            let now_ns = clock.now_ns();
            let node = nodes.entry(name.to_owned()).or_default();
            if let Some((until_ns, error)) = &node.silent
                && now_ns < *until_ns
            {
                return Err(error.clone());
            }
            if node.asked < NODE_REQUESTS_MAX {
                if node.asked == 0 {
                    node.alive_ns = now_ns;
                }
                node.asked += 1;
                return Ok(());
            }
            if now_ns.saturating_sub(node.alive_ns.max(came_ns)) >= ANSWER_NS {
                let why = format!(
                    "node {name}: {} requests wait for it, and it has answered none for a second",
                    node.asked
                );
                return Err(Error::new(Code::Timeout, why));
            }
            self.answered.wait_for(&mut nodes, LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use vazao_meter::SystemClock;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Regression: forty-eight threads waited for a dead node, and none was left for the other nodes.
    #[test]
    fn a_dead_node_holds_only_some_of_the_threads_that_ask_it() {
        let (circuit_breaker, is_over) =
            (Arc::new(CircuitBreaker::default()), Arc::new(AtomicBool::new(false)));
        let (failed, clock) = (Arc::new(AtomicUsize::new(0)), SystemClock);
        let threads: Vec<_> = (0..48)
            .map(|_| {
                let (circuit_breaker, is_over, failed) =
                    (Arc::clone(&circuit_breaker), Arc::clone(&is_over), Arc::clone(&failed));
                std::thread::spawn(move || {
                    let hang = || {
                        while !is_over.load(Ordering::SeqCst) {
                            SystemClock.sleep(Duration::from_millis(1));
                        }
                        Err::<(), _>(Error::new(Code::Timeout, "the deadline"))
                    };
                    let error = circuit_breaker.ask(&SystemClock, "dead", hang).expect_err("dead");
                    if error.detail.contains("answered none") {
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let deadline_ns = clock.now_ns() + HOUR.as_nanos() as u64 / 60;
        while failed.load(Ordering::SeqCst) < 48 - NODE_REQUESTS_MAX && clock.now_ns() < deadline_ns {
            assert_eq!(
                circuit_breaker.ask(&clock, "alive", || Ok(7)).ok(),
                Some(7),
                "another node is not held up"
            );
            clock.sleep(Duration::from_millis(5));
        }
        assert_eq!(failed.load(Ordering::SeqCst), 48 - NODE_REQUESTS_MAX);
        is_over.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
        let error = circuit_breaker.ask(&clock, "dead", || Ok(())).expect_err("not asked again at once");
        assert_eq!(error.detail, "the deadline");
    }

    #[test]
    fn a_busy_node_that_answers_refuses_nobody() {
        let (circuit_breaker, most) = (Arc::new(CircuitBreaker::default()), Arc::new(AtomicUsize::new(0)));
        let at_once = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..48)
            .map(|_| {
                let (circuit_breaker, most, at_once) =
                    (Arc::clone(&circuit_breaker), Arc::clone(&most), Arc::clone(&at_once));
                std::thread::spawn(move || {
                    for _ in 0..5 {
                        let work = || {
                            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            SystemClock.sleep(Duration::from_millis(2));
                            at_once.fetch_sub(1, Ordering::SeqCst);
                            Ok(())
                        };
                        circuit_breaker.ask(&SystemClock, "busy", work).expect("answers");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("ends"));
        assert!(most.load(Ordering::SeqCst) <= NODE_REQUESTS_MAX);
    }

    /// Forty-eight programs that wrote to one node over a slow line were told that it does not answer.
    #[test]
    fn a_node_that_answers_writes_is_not_taken_for_silent_by_who_waits_for_a_place() {
        let circuit_breaker = CircuitBreaker::default();
        let told = |_| {
            let write = || {
                SystemClock.sleep(Duration::from_millis(700));
                Ok(())
            };
            circuit_breaker.tell(&SystemClock, "slow", write, || true)
        };
        let told = &told;
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3 * NODE_REQUESTS_MAX).map(|i| scope.spawn(move || told(i))).collect();
            writers.into_iter().for_each(|writer| writer.join().expect("no panic").expect("its turn came"));
        });
    }
}
