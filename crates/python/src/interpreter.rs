//! What the bindings have no safe form of: memory of Python objects that calls read and fill without a copy, which are
//! buffers that the caller gives and new `bytes`; and a look for Ctrl-C.
//!
//! The buffer protocol is part of the stable interface since Python 3.11 only, so the bindings for older versions do
//! not declare it. Its functions and the layout of `Py_buffer` are the same in all versions from 3.0 on, which is why
//! 3.11 could freeze them as they were (PEP 3118, and the documentation of `Py_buffer`).
#![allow(unsafe_code, reason = "Python's objects are reached by pointers")]

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::{c_char, c_int, c_void};

/// `Py_buffer`.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

/// Contiguous bytes; an object that has others refuses.
const SIMPLE: c_int = 0;

/// The same, to be written to.
const WRITABLE: c_int = 1;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// The memory of an object that has the buffer protocol. The object cannot free or move it meanwhile.
///
/// Other threads of Python can change what is in it, as with every `readinto`: a program that lets two calls fill one
/// buffer at the same time finds bytes of both there.
pub(crate) struct Buffer<'py> {
    py: Python<'py>,
    /// Never moved: `shape` may point into it.
    view: Box<View>,
}

impl<'py> Buffer<'py> {
    /// Memory to be read. Errors: `TypeError`, `BufferError`.
    pub(crate) fn read_only(object: &Bound<'py, PyAny>) -> PyResult<Buffer<'py>> {
        Buffer::new(object, SIMPLE)
    }

    /// Memory to be filled. Errors: the same, also where it can only be read.
    pub(crate) fn writable(object: &Bound<'py, PyAny>) -> PyResult<Buffer<'py>> {
        Buffer::new(object, WRITABLE)
    }

    fn new(object: &Bound<'py, PyAny>, flags: c_int) -> PyResult<Buffer<'py>> {
        let mut view = Box::new(View {
            buf: std::ptr::null_mut(),
            obj: std::ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: std::ptr::null_mut(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        });
        // SAFETY: the object lives, the thread is attached, and `view` has the layout of `Py_buffer`.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *view, flags) } {
            0 => Ok(Buffer { py: object.py(), view }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.view.len).unwrap_or_default()
    }

    /// The address of its first byte.
    pub(crate) fn address(&self) -> usize {
        self.view.buf as usize
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.len() {
            0 => &[],
            // SAFETY: the object keeps `len` contiguous bytes there until the buffer is released.
            length => unsafe { std::slice::from_raw_parts(self.view.buf.cast(), length) },
        }
    }

    /// Its bytes, to be filled. Only for one that is writable.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self.len() {
            0 => &mut [],
            // SAFETY: as above, and the object was asked for memory that can be written.
            length => unsafe { std::slice::from_raw_parts_mut(self.view.buf.cast(), length) },
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // `py` shows that the thread is attached.
        let _ = self.py;
        // SAFETY: the view was filled by PyObject_GetBuffer, and is released once.
        unsafe { PyBuffer_Release(&mut *self.view) }
    }
}

/// True when SIGINT has arrived and Python has not handled it yet. Runs no handler and no other code of Python, and
/// leaves the signal for Python.
pub(crate) fn is_interrupted(_: Python<'_>) -> bool {
    // SAFETY: the thread is attached. The first call forgets the signal, and the second one has it arrive again.
    unsafe {
        let is_interrupted = ffi::PyOS_InterruptOccurred() != 0;
        if is_interrupted {
            ffi::PyErr_SetInterrupt();
        }
        is_interrupted
    }
}

/// Makes `bytes` of these lengths and has `fill` write to each from its beginning on; what it does not write is what
/// the interpreter has left there, and must not be shown. Their memory is first touched by it, which takes a while
/// where it is much, and other threads can run meanwhile.
pub(crate) fn filled_bytes<'py, T>(
    py: Python<'py>,
    lengths: &[usize],
    fill: impl FnOnce(Vec<&mut [u8]>) -> PyResult<T>,
) -> PyResult<(Vec<Bound<'py, PyBytes>>, T)> {
    let mut objects: Vec<Bound<'py, PyBytes>> = Vec::with_capacity(lengths.len());
    let mut places: Vec<&mut [u8]> = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let size =
            isize::try_from(length).map_err(|_| PyValueError::new_err("a negative number of bytes"))?;
        // SAFETY: the thread is attached; NULL is an exception that `from_owned_ptr_or_err` fetches. The object is of
        // the type `bytes`, and known to this function alone until it is returned; one of no bytes is shared, and
        // nothing of it is written. Its memory comes from a function of another language that the compiler does not
        // see into, so to Rust it holds bytes, if unknown ones. To zero it first takes a tenth of a read's time.
        unsafe {
            let pointer = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
            let object = Bound::from_owned_ptr_or_err(py, pointer)?;
            let start = ffi::PyBytes_AsString(pointer).cast::<u8>();
            objects.push(object.cast_into_unchecked());
            places.push(std::slice::from_raw_parts_mut(start, length));
        }
    }
    let outcome = fill(places)?;
    Ok((objects, outcome))
}
