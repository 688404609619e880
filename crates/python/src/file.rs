//! An open file: its position, and calls that read into and write from memory of Python objects.

use crate::detached::{Detached, wait, wait_to_the_end};
use crate::error::os_error;
use crate::interpreter::{Buffer, filled_bytes};
use crate::signals::LOOK;
use crate::types::Attributes;
use parking_lot::Mutex;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::fs::OFlags;
use vazao_client::{Error, Result, Seek, interrupt};
use vazao_handles::{Connection, Opened, check_apart, strided};
use vazao_model::Code;

/// An open file of the volume, or of an area of a node.
#[pyclass(frozen, module = "vazao._vazao")]
#[derive(Debug)]
pub(crate) struct File {
    handle: Detached<vazao_handles::File>,
    /// Where the next read or write without an offset begins. Held during these calls, never with Python's own lock.
    position: Mutex<u64>,
}

#[pymethods]
impl File {
    /// Not ended by Ctrl-C where something may be unwritten, which would be lost: flush() before it is.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let handle = &*self.handle;
        if handle.mode().write { wait_to_the_end(py, || handle.close()) } else { wait(py, || handle.close()) }
    }

    /// Reads at the position and moves it.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = Buffer::writable(buffer)?;
        let bytes = buffer.bytes_mut();
        wait(py, || {
            self.at_position(|file, position| {
                let read = file.reading(|open| open.read_at(bytes, *position))?;
                *position += read as u64;
                Ok(read)
            })
        })
    }

    /// Reads at an offset.
    fn preadinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut buffer = Buffer::writable(buffer)?;
        let bytes = buffer.bytes_mut();
        let handle = &*self.handle;
        wait(py, || handle.reading(|open| open.read_at(bytes, offset)))
    }

    /// Up to so many bytes at the position, which it moves.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.bytes(py, size, |file, place| {
            file.at_position(|handle, position| {
                let read = handle.reading(|open| open.read_at(place, *position))?;
                *position += read as u64;
                Ok(read)
            })
        })
    }

    /// Up to so many bytes at an offset.
    fn pread<'py>(&self, py: Python<'py>, size: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.bytes(py, size, |file, place| file.handle.reading(|open| open.read_at(place, offset)))
    }

    /// Writes all at the position and moves it.
    fn write(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::read_only(buffer)?;
        let bytes = buffer.bytes();
        wait(py, || {
            self.at_position(|file, position| {
                file.writing(|open| open.write_at(bytes, *position))?;
                *position += bytes.len() as u64;
                Ok(bytes.len())
            })
        })
    }

    /// Writes all at an offset.
    fn pwrite(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let buffer = Buffer::read_only(buffer)?;
        let bytes = buffer.bytes();
        let handle = &*self.handle;
        wait(py, || handle.writing(|open| open.write_at(bytes, offset)).map(|()| bytes.len()))
    }

    /// Writes all at the end of the file, wherever others have moved it, and returns where that was.
    fn append(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<u64> {
        let buffer = Buffer::read_only(buffer)?;
        let bytes = buffer.bytes();
        wait(py, || {
            self.at_position(|file, position| {
                let offset = file.writing(|open| open.volume()?.append(bytes))?;
                *position = offset + bytes.len() as u64;
                Ok(offset)
            })
        })
    }

    /// The position.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        wait(py, || self.at_position(|_, position| Ok(*position)))
    }

    /// Moves the position to an offset from the beginning, from itself or from the end (0, 1 and 2), or to the next
    /// data or hole from an offset on (3 and 4), as lseek(2); `None` where there is none.
    fn seek(&self, py: Python<'_>, offset: i64, whence: u32) -> PyResult<Option<u64>> {
        wait(py, || {
            self.at_position(|file, position| {
                let target = target(file, *position, offset, whence)?;
                *position = target.unwrap_or(*position);
                Ok(target)
            })
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.on(Opened::flush))
    }

    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.on(Opened::sync))
    }

    fn truncate(&self, py: Python<'_>, size_bytes: u64) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || handle.writing(|open| open.set_length(size_bytes)))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Attributes> {
        let handle = &*self.handle;
        Ok((&wait(py, || handle.attributes())?).into())
    }

    fn make_hole(&self, py: Python<'_>, offset: u64, size_bytes: u64) -> PyResult<()> {
        let handle = &*self.handle;
        wait(py, || {
            let too_large = || Error::new(Code::TooLarge, format!("{size_bytes} bytes from {offset}"));
            let end = offset.checked_add(size_bytes).ok_or_else(too_large)?;
            handle.writing(|open| open.volume()?.zero(offset..end))
        })
    }

    /// Copies bytes of another file here, and returns how many; 0 at its end.
    fn copy_from(
        &self,
        py: Python<'_>,
        source: &File,
        source_offset: u64,
        offset: u64,
        size_bytes: u64,
    ) -> PyResult<u64> {
        let (target, source) = (&*self.handle, &*source.handle);
        wait(py, || target.copy_from(source, source_offset, offset, size_bytes))
    }

    /// New `bytes` of each range: shorter where the file ends.
    fn read_list<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(u64, usize)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let lengths: Vec<usize> = ranges.iter().map(|(_, size)| *size).collect();
        let handle = &*self.handle;
        let (mut objects, done) = filled_bytes(py, &lengths, |places| {
            wait(py, || {
                let offsets = ranges.iter().map(|(offset, _)| *offset);
                let mut parts: Vec<(u64, &mut [u8])> = offsets.zip(places).collect();
                handle.reading(|open| open.volume()?.read_list(&mut parts))
            })
        })?;
        for (object, done) in objects.iter_mut().zip(done) {
            shorten(py, object, done);
        }
        Ok(objects)
    }

    /// Fills the buffer of each range, and returns how many bytes of each there were.
    fn readinto_list(&self, py: Python<'_>, ranges: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<Vec<usize>> {
        let mut buffers =
            ranges.iter().map(|(_, object)| Buffer::writable(object)).collect::<PyResult<Vec<_>>>()?;
        let places = buffers.iter().map(|buffer| (buffer.address(), buffer.len()));
        check_apart(places).map_err(|error| os_error(&error))?;
        let offsets = ranges.iter().map(|(offset, _)| *offset);
        let mut parts: Vec<(u64, &mut [u8])> =
            offsets.zip(buffers.iter_mut().map(Buffer::bytes_mut)).collect();
        let handle = &*self.handle;
        wait(py, || handle.reading(|open| open.volume()?.read_list(&mut parts)))
    }

    /// Writes the buffer of each range; where they overlap in the file the later one counts.
    fn write_list(&self, py: Python<'_>, ranges: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<usize> {
        let buffers =
            ranges.iter().map(|(_, object)| Buffer::read_only(object)).collect::<PyResult<Vec<_>>>()?;
        let offsets = ranges.iter().map(|(offset, _)| *offset);
        let parts: Vec<(u64, &[u8])> = offsets.zip(buffers.iter().map(Buffer::bytes)).collect();
        let handle = &*self.handle;
        wait(py, || handle.writing(|open| open.volume()?.write_list(&parts)))?;
        Ok(parts.iter().map(|(_, bytes)| bytes.len()).sum())
    }

    /// Fills a buffer with equal ranges at equal distances, one behind the other.
    fn readinto_strided(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        range_bytes: usize,
        stride_bytes: u64,
    ) -> PyResult<usize> {
        let mut buffer = Buffer::writable(buffer)?;
        let count = range_count(buffer.len(), range_bytes)?;
        let bytes = buffer.bytes_mut();
        let handle = &*self.handle;
        wait(py, || {
            let ranges = strided(offset, range_bytes, stride_bytes, count)?;
            handle.reading(|open| open.volume()?.read_strided(ranges, bytes))
        })
    }

    /// Writes a buffer to equal ranges at equal distances.
    fn write_strided(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        range_bytes: usize,
        stride_bytes: u64,
    ) -> PyResult<usize> {
        let buffer = Buffer::read_only(buffer)?;
        let count = range_count(buffer.len(), range_bytes)?;
        let bytes = buffer.bytes();
        let handle = &*self.handle;
        wait(py, || {
            let ranges = strided(offset, range_bytes, stride_bytes, count)?;
            handle.writing(|open| open.volume()?.write_strided(ranges, bytes)).map(|()| bytes.len())
        })
    }
}

impl File {
    pub(crate) fn open(connection: &Connection, path: &[u8], flags: u32, mode: u32) -> Result<File> {
        let flags = OFlags::from_bits_retain(flags);
        let handle = vazao_handles::File::open(connection, path, flags, mode)?;
        Ok(File { handle: Detached::new(handle), position: Mutex::new(0) })
    }

    /// A call that uses or moves the position. In a child of the process that connected its lock may be held for ever.
    fn at_position<T>(&self, call: impl FnOnce(&vazao_handles::File, &mut u64) -> Result<T>) -> Result<T> {
        self.handle.connection().check_process()?;
        loop {
            if let Some(mut position) = self.position.try_lock_for(LOOK) {
                return call(&self.handle, &mut position);
            }
            // Another thread reads or writes, and may wait for a server.
            if interrupt::is_raised() {
                return Err(Code::Interrupted.into());
            }
        }
    }

    /// New `bytes` that a call fills, and says how many there were.
    fn bytes<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        fill: impl FnOnce(&File, &mut [u8]) -> Result<usize> + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (mut objects, done) = filled_bytes(py, &[size], |places| {
            let place = places.into_iter().next().unwrap_or_default();
            wait(py, || fill(self, place))
        })?;
        let mut object = objects.pop().ok_or_else(|| PyBufferError::new_err("no bytes"))?;
        shorten(py, &mut object, done);
        Ok(object)
    }
}

/// Where a seek leads; `None`: to no data, or no hole.
fn target(file: &vazao_handles::File, position: u64, offset: i64, whence: u32) -> Result<Option<u64>> {
    let refused = || Error::new(Code::Invalid, format!("offset {offset}, and {whence} to seek from"));
    let from = |base: u64| {
        let target = base.checked_add_signed(offset).filter(|target| i64::try_from(*target).is_ok());
        target.ok_or_else(refused).map(Some)
    };
    let start = || u64::try_from(offset).map_err(|_| refused());
    match whence {
        0 => from(0),
        1 => from(position),
        2 => from(file.attributes()?.size),
        3 => file.on(|open| open.volume()?.seek(Seek::Data, start()?)),
        4 => file.on(|open| open.volume()?.seek(Seek::Hole, start()?)),
        _ => Err(refused()),
    }
}

/// How many ranges a buffer has room for. Errors: a part of one.
fn range_count(buffer_bytes: usize, range_bytes: usize) -> PyResult<usize> {
    match range_bytes {
        0 => Err(PyValueError::new_err("ranges of 0 bytes")),
        _ if !buffer_bytes.is_multiple_of(range_bytes) => Err(PyValueError::new_err(format!(
            "the buffer has {buffer_bytes} bytes, which is no multiple of the {range_bytes} of a range"
        ))),
        _ => Ok(buffer_bytes / range_bytes),
    }
}

/// Where a file ends within a range, what of it there is.
fn shorten<'py>(py: Python<'py>, object: &mut Bound<'py, PyBytes>, done: usize) {
    if let Some(part) = object.as_bytes().get(..done).filter(|part| part.len() < object.as_bytes().len()) {
        *object = PyBytes::new(py, part);
    }
}
