//! Failed calls as Python sees them: `OSError`, of the subclass that its errno has there.

use pyo3::PyErr;
use pyo3::exceptions::PyOSError;
use vazao_client::Error;

/// The exception of an error: its errno, and the message with its remedy.
pub(crate) fn os_error(error: &Error) -> PyErr {
    PyOSError::new_err((error.errno(), error.with_remedy()))
}
