"""Open files."""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any, Optional

from ._vazao import Attributes

# What one call copies: the interpreter sees signals in between.
_COPY_BYTES = 256 * 1024 * 1024

_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT,
}


def open_flags(mode: str) -> int:
    """The flags of open(2) for a mode of open(): "rb", "r+b", "wb", "xb", "ab" and their like."""
    kinds = [letter for letter in mode if letter in _FLAGS]
    if len(kinds) != 1 or sorted(mode.replace("b", "", 1).replace("+", "", 1)) != kinds:
        raise ValueError(f"invalid mode: {mode!r}; use one of 'rb', 'wb', 'xb' and 'ab', with '+' or without")
    if "b" not in mode:
        raise ValueError(f"mode {mode!r} has no 'b': files are binary; io.TextIOWrapper makes text of them")
    flags = _FLAGS[kinds[0]]
    return (flags & ~os.O_ACCMODE) | os.O_RDWR if "+" in mode else flags


# What was written is not to depend on whether the interpreter gets round to closing files when it ends.
_open_files: weakref.WeakSet[File] = weakref.WeakSet()


def flush_open_files() -> None:
    """Writes out what was written to files that are still open: the interpreter is about to end."""
    for file in list(_open_files):
        try:
            if file._connection.is_usable and not file.closed:
                file.flush()
        except OSError as error:
            print(f"{file!r}: what was written is lost: {error}", file=sys.stderr)


class File(io.RawIOBase):
    """An open file of the volume, or of an area of a node: unbuffered, with many ranges in one call besides.

    Any thread may call anything. Writes are copied and sent later; what then fails is told by the next write, flush(),
    fsync() or close(). A file that was opened for reading can be pickled: it is opened again where it is unpickled.
    """

    # Of a file that could not be opened.
    _handle: Any = None
    _is_writable = False

    def __init__(self, connection, path, mode: str, permissions: int):
        flags = open_flags(mode)
        self._connection = connection
        self._is_readable = flags & os.O_ACCMODE != os.O_WRONLY
        self._appends = "a" in mode
        self.name = path
        self.mode = mode
        self._handle = connection._handle.open(os.fsencode(path), flags, permissions)
        self._is_writable = flags & os.O_ACCMODE != os.O_RDONLY
        _open_files.add(self)
        if self._appends:
            self.seek(0, os.SEEK_END)

    def __repr__(self) -> str:
        return f"<vazao.File {os.fsdecode(self.name)!r} mode={self.mode!r}{' closed' if self.closed else ''}>"

    def __reduce__(self):
        if self._is_writable:
            raise TypeError(f"{self!r} cannot be pickled: only files opened for reading can")
        return _reopen, (self._connection, self.name, self.mode, self.tell())

    def close(self) -> None:
        """Writes out what is written, tells other clients of it, and closes. Fails where something written earlier
        could not be stored; closed it is in any case. After Ctrl-C a thread closes it, for which the interpreter waits
        when it ends."""
        if self.closed:
            return
        # The files of a connection that was closed are closed, and told of by that.
        is_open = self._handle is not None and not self._connection.closed
        end = self._handle.close if is_open else None
        try:
            super().close()
        except KeyboardInterrupt:
            end = threading.Thread(target=self._close_behind).start if is_open else None
            raise
        finally:
            if end:
                end()

    def _close_behind(self) -> None:
        try:
            self._handle.close()
        except OSError as error:
            print(f"{self!r}: what was written is lost: {error}", file=sys.stderr)

    def __del__(self) -> None:
        # A child of fork() lets go of its parent's files, and changes nothing of them.
        if self._handle is not None and not self._connection._handle.is_foreign:
            super().__del__()

    def _usable(self):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._handle

    def _for_reading(self):
        if not self._is_readable:
            raise io.UnsupportedOperation("not open for reading")
        return self._usable()

    def _for_writing(self):
        if not self._is_writable:
            raise io.UnsupportedOperation("not open for writing")
        return self._usable()

    def readable(self) -> bool:
        self._usable()
        return self._is_readable

    def writable(self) -> bool:
        self._usable()
        return self._is_writable

    def seekable(self) -> bool:
        self._usable()
        return True

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file of Vazão has no descriptor")

    # What io.RawIOBase has.

    def readinto(self, buffer) -> int:
        """Fills a buffer from the position on, without a copy; less only where the file ends."""
        return self._for_reading().readinto(buffer)

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes from the position on; all that are left by default."""
        if size is None or size < 0:
            return self.readall()
        return self._for_reading().read(size)

    def readall(self) -> bytes:
        """All bytes from the position on."""
        parts = []
        while True:
            left = self._for_reading().stat().st_size - self.tell()
            part = self._handle.read(max(left, 1))
            if part:
                parts.append(part)
            # A file that grows meanwhile is read to its new end.
            if len(part) < max(left, 1) or not part:
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, buffer) -> int:
        """Writes all of a buffer at the position, in a mode with "a" at the end of the file."""
        handle = self._for_writing()
        if self._appends:
            self.append(buffer)
            return memoryview(buffer).nbytes
        return handle.write(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position. With os.SEEK_DATA and os.SEEK_HOLE: to the next data or hole from an offset on."""
        target = self._usable().seek(offset, whence)
        if target is None:
            raise OSError(errno.ENXIO, f"{os.fsdecode(self.name)}: no data from offset {offset} on")
        return target

    def tell(self) -> int:
        return self._usable().tell()

    def truncate(self, size=None) -> int:
        """Cuts the file, or extends it with zeros that take no space. The position stays."""
        size = self.tell() if size is None else size
        self._for_writing().truncate(size)
        return size

    def flush(self) -> None:
        """Writes out what is written: clients that open the file afterwards see it."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._is_writable and not self._connection.closed:
            self._handle.flush()

    # What it has besides.

    def fsync(self) -> None:
        """The same as flush(), and all of it survives the loss of power of all servers."""
        self._usable().fsync()

    def stat(self) -> Attributes:
        """What the file is, with what this connection has written."""
        return self._usable().stat()

    def pread(self, size: int, offset: int) -> bytes:
        """Up to so many bytes at an offset."""
        return self._for_reading().pread(size, offset)

    def preadinto(self, buffer, offset: int) -> int:
        """Fills a buffer from an offset on, without a copy; less only where the file ends."""
        return self._for_reading().preadinto(buffer, offset)

    def pwrite(self, buffer, offset: int) -> int:
        """Writes all of a buffer at an offset."""
        return self._for_writing().pwrite(buffer, offset)

    def append(self, buffer) -> int:
        """Writes all of a buffer at the end of the file, wherever others have moved it, and returns the offset that
        this was. Programs that append to one file lose nothing of each other."""
        return self._for_writing().append(buffer)

    def make_hole(self, offset: int, size_bytes: int) -> None:
        """Makes a range a hole, as far as it lies within the file: it reads as zeros and takes no space."""
        self._for_writing().make_hole(offset, size_bytes)

    def copy_from(
        self, source: File, *, offset: int = 0, source_offset: int = 0, size_bytes: Optional[int] = None
    ) -> int:
        """Copies bytes of another file of the connection to an offset of this one, up to its end by default, and
        returns how many. Data that lies on one server is copied there."""
        handle, origin, done = self._for_writing(), source._for_reading(), 0
        while size_bytes is None or done < size_bytes:
            wanted = _COPY_BYTES if size_bytes is None else min(size_bytes - done, _COPY_BYTES)
            count = handle.copy_from(origin, source_offset + done, offset + done, wanted)
            if count == 0:
                break
            done += count
        return done

    # Many ranges in one call (list I/O): one request for each server, as far as they are small.

    def read_list(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Reads ranges, pairs of an offset and a size; shorter only where the file ends."""
        return self._for_reading().read_list(list(ranges))

    def readinto_list(self, ranges: Iterable[tuple[int, Any]]) -> list[int]:
        """Fills buffers, given as pairs of an offset and a buffer, and returns how many bytes each one received: less
        only where the file ends."""
        return self._for_reading().readinto_list(list(ranges))

    def write_list(self, ranges: Iterable[tuple[int, Any]]) -> int:
        """Writes pairs of an offset and a buffer, and returns how many bytes that were. Where they overlap in the file
        the later one counts."""
        return self._for_writing().write_list(list(ranges))

    def read_strided(self, offset: int, range_bytes: int, stride_bytes: int, range_count: int, *, dtype=None):
        """Reads equal ranges at equal distances: columns of a matrix. Zeros stand for what is beyond the end.

        Returns a bytearray of the ranges, one behind the other; with a dtype a numpy array with a row for each range.
        """
        ranges: Any
        if dtype is None:
            ranges = bytearray(range_bytes * range_count)
        else:
            import numpy

            item_bytes = numpy.dtype(dtype).itemsize
            if item_bytes == 0 or range_bytes % item_bytes:
                raise ValueError(f"ranges of {range_bytes} bytes are no multiple of the {item_bytes} of {dtype}")
            ranges = numpy.zeros((range_count, range_bytes // item_bytes), dtype)
        self.readinto_strided(ranges, offset, range_bytes, stride_bytes)
        return ranges

    def readinto_strided(self, buffer, offset: int, range_bytes: int, stride_bytes: int) -> int:
        """The same into a buffer, which decides how many ranges these are. Returns how many bytes there were: fewer
        only where the file ends."""
        return self._for_reading().readinto_strided(buffer, offset, range_bytes, stride_bytes)

    def write_strided(self, buffer, offset: int, range_bytes: int, stride_bytes: int) -> int:
        """Writes a buffer to equal ranges at equal distances."""
        return self._for_writing().write_strided(buffer, offset, range_bytes, stride_bytes)


def _reopen(connection: Any, path, mode: str, position: int) -> File:
    file = connection.open(path, mode)
    file.seek(position)
    return file
