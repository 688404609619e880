//! A failed call as C sees it: a number and a message.

use std::ffi::{CStr, CString, c_int};
use vazao_client::Error;

/// Why a call has failed. Freed by `vazao_error_free`.
pub struct CallError {
    number: c_int,
    message: CString,
}

impl CallError {
    /// The same for C: the message with its remedy.
    pub(crate) fn new(error: &Error) -> CallError {
        // Names of files have no NUL; where a peer's text has one, what is before it says most.
        let text = error.with_remedy();
        let text = text.split('\0').next().unwrap_or_default();
        CallError { number: error.errno(), message: CString::new(text).unwrap_or_default() }
    }

    /// Positive, as in `<errno.h>`.
    pub(crate) fn number(&self) -> c_int {
        self.number
    }

    /// What happened to what, why, and what to do about it.
    pub(crate) fn message(&self) -> &CStr {
        &self.message
    }
}
