//! The functions of the library, and all that is unsafe in it: pointers that C gives and takes.
//!
//! Comments here become those of `vazao.h`, which is read by people who write C.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "pointers come from C, and what its caller has to keep stands once in the header, in front of all functions"
)]

pub mod connections;
pub mod copies;
pub mod files;
pub mod limits;
pub mod listings;
pub mod locks;
pub mod names;
pub mod ranges;
pub mod xattrs;

use crate::error::CallError;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use vazao_client::{Error, Result};
use vazao_model::Code;

/// Runs a call: its number, or a negative errno and what there is to say about it. No panic gets out.
unsafe fn count(error: *mut *mut CallError, call: impl FnOnce() -> Result<i64>) -> i64 {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(defect(&*panic)));
    let failure = outcome.as_ref().err().map(CallError::new);
    let number = failure.as_ref().map_or(0, CallError::number);
    if !error.is_null() {
        *error = failure.map_or(std::ptr::null_mut(), |failure| Box::into_raw(Box::new(failure)));
    }
    outcome.unwrap_or(-i64::from(number))
}

/// The same of a call that answers nothing.
unsafe fn status(error: *mut *mut CallError, call: impl FnOnce() -> Result<()>) -> c_int {
    count(error, || call().map(|()| 0)) as c_int
}

/// The same of a call that makes something: `place` is NULL where it fails.
unsafe fn made<T>(
    place: *mut *mut T,
    name: &str,
    error: *mut *mut CallError,
    call: impl FnOnce() -> Result<T>,
) -> c_int {
    status(error, || {
        *out(place, name)? = std::ptr::null_mut();
        *place = Box::into_raw(Box::new(call()?));
        Ok(())
    })
}

fn defect(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
    Error::new(Code::Internal, format!("a defect of the library itself ({text}); please report it"))
}

fn is_null(name: &str) -> Error {
    Error::new(Code::Invalid, format!("`{name}` is NULL"))
}

/// What a pointer leads to. Errors: NULL.
unsafe fn given<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    pointer.as_ref().ok_or_else(|| is_null(name))
}

/// Where an answer goes. Errors: NULL.
unsafe fn out<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T> {
    pointer.as_mut().ok_or_else(|| is_null(name))
}

/// Text that ends with a NUL. Errors: NULL.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a [u8]> {
    if pointer.is_null() { Err(is_null(name)) } else { Ok(CStr::from_ptr(pointer).to_bytes()) }
}

/// What no object can be longer than.
fn check_length(bytes: usize, name: &str) -> Result<()> {
    if isize::try_from(bytes).is_ok() {
        return Ok(());
    }
    Err(Error::new(Code::Invalid, format!("{bytes} bytes at `{name}`; is the number a negative one?")))
}

/// What an array has. Errors: NULL, or more than there can be.
unsafe fn list<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    check_length(count.saturating_mul(size_of::<T>()), name)?;
    match (count, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(is_null(name)),
        _ => Ok(std::slice::from_raw_parts(pointer, count)),
    }
}

/// Bytes to be read. Errors: NULL, or more than there can be.
unsafe fn bytes<'a>(pointer: *const u8, length: usize, name: &str) -> Result<&'a [u8]> {
    list(pointer, length, name)
}

/// Bytes to be written. Errors: as [`bytes`].
unsafe fn bytes_mut<'a>(pointer: *mut u8, length: usize, name: &str) -> Result<&'a mut [u8]> {
    check_length(length, name)?;
    match (length, pointer.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(is_null(name)),
        _ => Ok(std::slice::from_raw_parts_mut(pointer, length)),
    }
}

/// An answer that a buffer has no room for.
fn too_small(buffer_bytes: usize, needed: &str) -> Error {
    Error::new(Code::Range, format!("the buffer has {buffer_bytes} bytes, and {needed}"))
}

/// Flags of which only `known` may be set.
fn known_flags(given: u32, known: u32) -> Result<u32> {
    match given & !known {
        0 => Ok(given),
        unknown => Err(Error::new(Code::Invalid, format!("unknown flags {unknown:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_call() {
        let mut error = std::ptr::null_mut();
        let result = unsafe { count(&mut error, || panic!("index {}", 7)) };
        let said =
            unsafe { given(error, "error") }.map(|error| error.message().to_string_lossy().into_owned());
        unsafe { connections::vazao_error_free(error) };
        assert_eq!(result, -5);
        assert!(
            said.is_ok_and(|said| said.contains("(index 7)") && said.ends_with("; please report it")),
            "{result}"
        );
        let mut error = std::ptr::dangling_mut();
        assert_eq!(unsafe { count(&mut error, || Ok(3)) }, 3);
        assert!(error.is_null());
    }
}
