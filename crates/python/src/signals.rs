//! Ctrl-C during a call: what waits for servers is given up, and Python raises `KeyboardInterrupt`.
//!
//! Python runs handlers of signals in its main thread alone, and that is the thread that waits. So it looks for a
//! signal while it waits. It may hold locks of the client then: no code of Python runs there, and what raises the
//! exception runs once the call is over.

use crate::interpreter::is_interrupted;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vazao_client::Result;
use vazao_client::interrupt::{self, Interrupt};

/// How often a call that waits looks for a signal. It needs the interpreter for that, which other threads use.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

thread_local! {
    static INTERRUPT: Arc<Interrupt> = Arc::new(Interrupt::polling(is_pending));
    static LOOK_AGAIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Makes a call that Ctrl-C ends. Where the program has a handler of its own for it, that runs when the call returns.
pub(crate) fn interruptible<T>(is_ended_by_signals: bool, call: impl FnOnce() -> Result<T>) -> Result<T> {
    if !is_ended_by_signals {
        return call();
    }
    let interrupt = INTERRUPT.with(Arc::clone);
    interrupt.clear();
    LOOK_AGAIN.set(None);
    interrupt::interruptible(&interrupt, call)
}

/// True in the thread that sees signals, while SIGINT raises `KeyboardInterrupt`.
pub(crate) fn is_ended_by_signals(py: Python<'_>) -> bool {
    let is_main = rustix::thread::gettid() == rustix::process::getpid();
    is_main && raises_keyboard_interrupt(py).unwrap_or(false)
}

fn raises_keyboard_interrupt(py: Python<'_>) -> PyResult<bool> {
    static FUNCTIONS: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    let (handler_of, default) = FUNCTIONS.get_or_try_init(py, || -> PyResult<_> {
        // `signal` takes 1.4 µs more for it, to make names of numbers.
        let module = py.import("_signal")?;
        Ok((module.getattr("getsignal")?.unbind(), module.getattr("default_int_handler")?.unbind()))
    })?;
    Ok(handler_of.bind(py).call1((rustix::process::Signal::INT.as_raw(),))?.is(default))
}

/// Looks for SIGINT, and leaves it for Python to raise the exception.
fn is_pending() -> bool {
    #[allow(clippy::disallowed_methods, reason = "how often to look decides no outcome")]
    let now = Instant::now();
    match LOOK_AGAIN.get() {
        Some(at) if now < at => return false,
        before => {
            LOOK_AGAIN.set(Some(now + LOOK));
            // A call that is answered soon pays for nothing.
            if before.is_none() {
                return false;
            }
        }
    }
    Python::try_attach(is_interrupted).unwrap_or(false)
}
