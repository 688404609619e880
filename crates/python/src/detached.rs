//! Calls that wait, during which other threads of Python run.

use crate::error::os_error;
use crate::signals::{interruptible, is_ended_by_signals};
use pyo3::{PyResult, Python};
use vazao_client::Result;

/// Makes a call while other threads of Python run. Errors: also `KeyboardInterrupt`.
pub(crate) fn wait<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let is_ended = is_ended_by_signals(py);
    let outcome = py.detach(|| interruptible(is_ended, call));
    if outcome.is_err() {
        py.check_signals()?;
    }
    outcome.map_err(|error| os_error(&error))
}

/// The same, and not ended by Ctrl-C: what is given up would be lost.
pub(crate) fn wait_to_the_end<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(call).map_err(|error| os_error(&error))
}

/// A handle that may wait for servers when it is dropped; other threads of Python run meanwhile.
#[derive(Debug)]
pub(crate) struct Detached<T: Send> {
    /// `None` only while it is dropped.
    handle: Option<T>,
}

impl<T: Send> Detached<T> {
    pub(crate) fn new(handle: T) -> Detached<T> {
        Detached { handle: Some(handle) }
    }
}

impl<T: Send> std::ops::Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.handle.as_ref().expect("taken only when it is dropped")
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let mut handle = self.handle.take();
        // Without an interpreter, at the very end of the process, there is no other thread to be let run.
        Python::try_attach(|py| {
            let handle = handle.take();
            py.detach(|| drop(handle));
        });
    }
}
