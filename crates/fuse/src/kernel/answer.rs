//! One request from its bytes to its answer, whichever way it came: decoded, answered, what failed made an errno.

use super::abi;
use super::outcome::Failure;
use super::reply::Reply;
use super::request::{self, Body, Header, Malformed, Request};
use super::serve::Server;
use crate::filesystem::failures::is_trouble;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Answers one request into `reply`; false when it must not be answered. `begin` is called before anything that may
/// block, and may pass the request on to another thread: then it is true.
pub(crate) fn answer(
    server: &Server,
    header: &Header,
    body: Body<'_>,
    reply: &mut Reply,
    begin: impl FnOnce(&Request<'_>) -> bool,
) -> bool {
    reply.start(header.unique);
    let work = match request::decode(header.operation, body) {
        Ok(Request::Forget(forgotten)) => {
            server.forget(header, &forgotten);
            return false;
        }
        Err(Malformed) if abi::needs_no_answer(header.operation) => return false,
        Ok(Request::Interrupt { unique }) => {
            server.interrupts.raise(unique);
            return false;
        }
        decoded => AssertUnwindSafe(|| match decoded {
            Ok(request) => match server.answer_quickly(header, &request, reply) {
                Some(outcome) => Some(outcome),
                None if begin(&request) => None,
                None => Some(server.answer(header, request, reply)),
            },
            Err(Malformed) => Some(Err(Failure::Errno(abi::errno::INVALID))),
        }),
    };
    let outcome = match catch_unwind(work) {
        Ok(None) => return false,
        Ok(Some(outcome)) => Ok(outcome),
        Err(panic) => Err(panic),
    };
    conclude(server, header, outcome, reply);
    true
}

/// Makes an error of what failed. A defect in one request must not take the thread, and in the end the mount, with it.
pub(super) fn conclude(
    server: &Server,
    header: &Header,
    outcome: std::thread::Result<Result<(), Failure>>,
    reply: &mut Reply,
) {
    let outcome = outcome.unwrap_or_else(|_| {
        tracing::error!("a defect in {}, see the panic above", abi::operation_name(header.operation));
        Err(Failure::Errno(abi::errno::IO))
    });
    if let Err(failure) = outcome {
        log(header, &failure);
        server.failed(header, &failure);
        server.take_back(reply);
        reply.fail(failure.errno());
    }
}

/// Ordinary outcomes are for who debugs an application; trouble is for who runs the mount.
fn log(header: &Header, failure: &Failure) {
    let operation = abi::operation_name(header.operation);
    // Two numbers: the kernel's for what it asked, ours for the request to a server that failed, 0 for none.
    let (kernel, node) = (header.unique, header.node);
    match failure {
        Failure::Client(error) if is_trouble(error) => {
            tracing::warn!(kernel, request = %error.request, node, "{operation}: {error}");
        }
        Failure::Client(error) => {
            tracing::debug!(kernel, request = %error.request, node, "{operation}: {error}");
        }
        Failure::LockTaken => tracing::debug!(kernel, node, "{operation}: the lock has another owner"),
        Failure::Errno(errno) => tracing::debug!(kernel, node, errno, "{operation}: not served"),
    }
}
