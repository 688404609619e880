//! Many ranges of a file at once, holes, and layouts.

use super::{bytes, bytes_mut, count, given, out, status, text};
use crate::connection::Connection;
use crate::error::CallError;
use crate::file::File;
use crate::types::{LayoutAttributes, Range, StridedRanges};
use std::ffi::{c_char, c_int, c_void};
use vazao_client::{Error, Result, Seek};
use vazao_handles::{RANGES_MAX, check_apart};
use vazao_model::Code;

/// For vazao_seek(): something that may not be zeros.
pub const VAZAO_SEEK_DATA: c_int = 1;

/// For vazao_seek(): a hole; the end of the file counts as one.
pub const VAZAO_SEEK_HOLE: c_int = 2;

/// The ranges that a pointer leads to. Errors: NULL, too many.
unsafe fn ranges<'a>(pointer: *mut Range, range_count: usize) -> Result<&'a mut [Range]> {
    match (range_count, pointer.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Error::new(Code::Invalid, "`ranges` is NULL")),
        (count, _) if count > RANGES_MAX => {
            let detail = format!("{count} ranges in one call; {RANGES_MAX} are the limit");
            Err(Error::new(Code::TooLarge, detail))
        }
        (count, _) => Ok(std::slice::from_raw_parts_mut(pointer, count)),
    }
}

/// Reads many ranges into a buffer each, with one request for each server as far as they are small. Sets `done_bytes`
/// of each, which is less than its buffer has only where the file ends, and returns their sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_read_list(
    file: *mut File,
    ranges: *mut Range,
    range_count: usize,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let ranges = self::ranges(ranges, range_count)?;
        check_apart(ranges.iter().map(|range| (range.buffer as usize, range.buffer_bytes)))?;
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges.iter() {
            parts.push((range.offset, bytes_mut(range.buffer.cast(), range.buffer_bytes, "buffer")?));
        }
        let done = file.handle.reading(|file| file.volume()?.read_list(&mut parts))?;
        ranges.iter_mut().zip(&done).for_each(|(range, done)| range.done_bytes = *done);
        Ok(done.iter().sum::<usize>() as i64)
    })
}

/// Writes many ranges from a buffer each, with one request for each server as far as they are small; where they overlap
/// in the file the later one counts. Sets `done_bytes` of each, and returns their sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_write_list(
    file: *mut File,
    ranges: *mut Range,
    range_count: usize,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let ranges = self::ranges(ranges, range_count)?;
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges.iter() {
            parts.push((
                range.offset,
                bytes(range.buffer.cast::<u8>().cast_const(), range.buffer_bytes, "buffer")?,
            ));
        }
        file.handle.writing(|file| file.volume()?.write_list(&parts))?;
        ranges.iter_mut().for_each(|range| range.done_bytes = range.buffer_bytes);
        Ok(ranges.iter().map(|range| range.done_bytes as i64).sum())
    })
}

/// Reads equal ranges at equal distances into one buffer, one behind the other: a column of a matrix. The buffer has
/// their bytes in all. Returns how many bytes there were: fewer only where the file ends, and zeros stand for the
/// others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_read_strided(
    file: *mut File,
    ranges: *const StridedRanges,
    buffer: *mut c_void,
    buffer_bytes: usize,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let ranges = strided(ranges)?;
        let buffer = bytes_mut(buffer.cast(), buffer_bytes, "buffer")?;
        file.handle.reading(|file| file.volume()?.read_strided(ranges, buffer)).map(|read| read as i64)
    })
}

/// Writes equal ranges at equal distances from one buffer, which has their bytes in all. Returns how many that are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_write_strided(
    file: *mut File,
    ranges: *const StridedRanges,
    buffer: *const c_void,
    buffer_bytes: usize,
    error: *mut *mut CallError,
) -> i64 {
    count(error, || {
        let file = given(file, "file")?;
        let ranges = strided(ranges)?;
        let buffer = bytes(buffer.cast(), buffer_bytes, "buffer")?;
        file.handle.writing(|file| file.volume()?.write_strided(ranges, buffer)).map(|()| buffer.len() as i64)
    })
}

unsafe fn strided(pointer: *const StridedRanges) -> Result<vazao_client::Strided> {
    let ranges = given(pointer, "ranges")?;
    vazao_handles::strided(ranges.offset, ranges.range_bytes, ranges.stride_bytes, ranges.range_count)
}

/// Looks for data, or for a hole, at or behind an offset: 1 and its offset, or 0 where there is none before the end.
///
/// what: VAZAO_SEEK_DATA or VAZAO_SEEK_HOLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_seek(
    file: *mut File,
    what: c_int,
    offset: u64,
    found_offset: *mut u64,
    error: *mut *mut CallError,
) -> c_int {
    count(error, || {
        let found_offset = out(found_offset, "found_offset")?;
        let what = match what {
            VAZAO_SEEK_DATA => Seek::Data,
            VAZAO_SEEK_HOLE => Seek::Hole,
            other => return Err(Error::new(Code::Invalid, format!("{other} is nothing to look for"))),
        };
        let Some(found) = given(file, "file")?.handle.on(|file| file.volume()?.seek(what, offset))? else {
            return Ok(0);
        };
        *found_offset = found;
        Ok(1)
    }) as c_int
}

/// Makes a range a hole, as far as it lies within the file: it reads as zeros and takes no space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_make_hole(
    file: *mut File,
    offset: u64,
    bytes: u64,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let too_large = || Error::new(Code::TooLarge, format!("{bytes} bytes from {offset}"));
        given(file, "file")?.handle.writing(|file| {
            let end = offset.checked_add(bytes).ok_or_else(too_large)?;
            file.volume()?.zero(offset..end)
        })
    })
}

/// How a file is striped, or how files created in a directory will be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_get_layout(
    connection: *mut Connection,
    path: *const c_char,
    layout: *mut LayoutAttributes,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let layout = out(layout, "layout")?;
        *layout = given(connection, "connection")?.shared().layout(text(path, "path")?)?.into();
        Ok(())
    })
}

/// Stripes files that are created in a directory from now on, or a file without data, in simple stripes. 0 stands for
/// what the directory above has. `vazao layout` knows other distributions, and converts files with data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vazao_set_layout(
    connection: *mut Connection,
    path: *const c_char,
    stripe_unit_bytes: u64,
    width: u32,
    error: *mut *mut CallError,
) -> c_int {
    status(error, || {
        let shared = given(connection, "connection")?.shared();
        shared.set_layout(text(path, "path")?, stripe_unit_bytes, width)
    })
}
