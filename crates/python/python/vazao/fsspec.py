"""The volume for fsspec: "vz://data/x" is /data/x, in every program that takes the paths of fsspec.

Synchronous calls go straight to the volume; asynchronous ones, and what fsspec does to many files at once, run them in
threads, during which the interpreter is free. A file system connects when it is first used, and anew in a child of
fork(); those of one cluster share a connection.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import io
import os
import stat
import uuid
from glob import has_magic
from typing import Optional

from fsspec.asyn import AsyncFileSystem, _run_coros_in_chunks, get_loop, sync
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import isfilelike, stringify_path

from .connection import Connection, shared_connection

# What one read or write of a buffered file asks for. The connection itself reads ahead and writes behind.
_BUFFER_BYTES = 256 * 1024

# What a copy from or to another file system moves at once.
_COPY_BYTES = 8 * 1024 * 1024


def _in_thread(call):
    """The asynchronous form of a method."""

    @functools.wraps(call)
    async def asynchronous(self, *args, **kwargs):
        return await asyncio.to_thread(call, self, *args, **kwargs)

    return asynchronous


class VazaoFileSystem(AsyncFileSystem):
    """The volume of a Vazão cluster.

    cluster: its client.toml, as vazao.connect() takes it, and options: those of vazao.connect().
    auto_mkdir: writing a file makes the directories above it, as stores without directories have it.
    """

    protocol = "vz"
    root_marker = "/"

    def __init__(self, cluster=None, *, auto_mkdir: bool = True, options: Optional[dict] = None, **kwargs):
        super().__init__(**kwargs)
        self.auto_mkdir = auto_mkdir
        self._cluster = None if cluster is None else os.path.abspath(os.fspath(cluster))
        self._connect_options = dict(options or {})
        self._connection: Optional[Connection] = None

    @property
    def fsid(self) -> str:
        return f"vz_{self._cluster or 'default'}"

    @property
    def connection(self) -> Connection:
        """The connection of this process: vazao.Connection."""
        connection = self._connection
        if connection is None or not connection.is_usable:
            connection = self._connection = shared_connection(self._cluster, self._connect_options)
        return connection

    @property
    def loop(self):
        # A child of fork() has no thread of its parent's loop.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, (list, tuple)):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for prefix in ("vz://", "vz:"):
            if path.startswith(prefix):
                path = path[len(prefix) :]
                break
        return "/" + path.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        return "vz:/" + self._strip_protocol(name)

    # What is there.

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        return self._shown(path, self.connection.stat(path, follow_symlinks=False))

    def _shown(self, path, attributes):
        is_link = stat.S_ISLNK(attributes.st_mode)
        destination = {}
        if is_link:
            destination["destination"] = self.connection.readlink(path)
            try:
                attributes = self.connection.stat(path)
            except OSError:
                # It leads nowhere: shown is the link itself.
                pass
        kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file"}
        return {
            "name": path,
            "size": attributes.st_size,
            "type": kinds.get(stat.S_IFMT(attributes.st_mode), "other"),
            "created": attributes.st_ctime,
            "islink": is_link,
            "mode": attributes.st_mode,
            "uid": attributes.st_uid,
            "gid": attributes.st_gid,
            "mtime": attributes.st_mtime,
            "ino": attributes.st_ino,
            "nlink": attributes.st_nlink,
            **destination,
        }

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        try:
            entries = list(self.connection.scandir(path, with_attributes=detail))
        except NotADirectoryError:
            found = self.info(path)
            return [found] if detail else [path]
        entries.sort(key=lambda entry: entry.name)
        names = [path.rstrip("/") + "/" + entry.name for entry in entries]
        return [self._shown(name, entry.attributes) for name, entry in zip(names, entries)] if detail else names

    def exists(self, path, **kwargs) -> bool:
        return self.connection.exists(self._strip_protocol(path))

    def _kind(self, path) -> int:
        try:
            return stat.S_IFMT(self.connection.stat(self._strip_protocol(path)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def isfile(self, path) -> bool:
        return self._kind(path) == stat.S_IFREG

    def isdir(self, path) -> bool:
        return self._kind(path) == stat.S_IFDIR

    def created(self, path):
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.timezone.utc)

    def modified(self, path):
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    # Bytes.

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs):
        path = self._strip_protocol(path)
        buffer_bytes = block_size if isinstance(block_size, int) and block_size > 0 else _BUFFER_BYTES
        if mode == "rb":
            return VazaoReader(self, path, buffer_bytes)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        if "+" in mode:
            return io.BufferedRandom(self.connection.open(path, mode), buffer_bytes)
        return VazaoWriter(self, path, mode, buffer_bytes, autocommit)

    async def open_async(self, path, mode="rb", **kwargs):
        """Opens a binary file whose calls are coroutines."""
        if "b" not in mode:
            raise ValueError(f"mode {mode!r} has no 'b': files of open_async() are binary")
        return VazaoAsyncFile(await asyncio.to_thread(self._open, path, mode, **kwargs))

    def cat_file(self, path, start=None, end=None, **kwargs):
        with self.connection.open(self._strip_protocol(path)) as file:
            if start is None and end is None:
                return file.readall()
            offset, size = _range(file, start, end)
            return file.pread(size, offset)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        """Ranges of one file travel in one request for each server, as far as they are small."""
        groups, found = _grouped(paths, starts, ends)
        if len(groups) > 1 and not self.asynchronous:
            return sync(self.loop, self._cat_ranges, paths, starts, ends, on_error=on_error)
        for path, ranges in groups.items():
            self._cat_group(path, ranges, found)
        return _raised_or(found, on_error)

    async def _cat_ranges(self, paths, starts, ends, max_gap=None, batch_size=None, on_error="return", **kwargs):
        groups, found = _grouped(paths, starts, ends)
        reads = [asyncio.to_thread(self._cat_group, path, ranges, found) for path, ranges in groups.items()]
        await _run_coros_in_chunks(reads, batch_size=batch_size or self.batch_size, nofiles=True)
        return _raised_or(found, on_error)

    def _cat_group(self, path, ranges, found) -> None:
        """Reads ranges of one file, and leaves their bytes, or why there are none, where they belong."""
        read: list
        try:
            with self.connection.open(self._strip_protocol(path)) as file:
                read = file.read_list([_range(file, start, end) for _, start, end in ranges])
        except Exception as error:
            read = [error] * len(ranges)
        for (index, _, _), part in zip(ranges, read):
            found[index] = part

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        with self.connection.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def cp_file(self, path1, path2, **kwargs):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            return self.makedirs(path2, exist_ok=True)
        with self.connection.open(path1) as source:
            if self.auto_mkdir:
                self.makedirs(self._parent(path2), exist_ok=True)
            with self.connection.open(path2, "wb") as target:
                target.copy_from(source)

    def get_file(self, rpath, lpath, callback=DEFAULT_CALLBACK, **kwargs):
        rpath = self._strip_protocol(rpath)
        if isfilelike(lpath):
            return self._get_open(rpath, lpath, callback)
        if self.isdir(rpath):
            return os.makedirs(lpath, exist_ok=True)
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        # Opened first: where there is nothing to read, nothing is made.
        with self.connection.open(rpath) as source, open(lpath, "wb", buffering=0) as target:
            _copy(source, target, source.stat().st_size, callback)

    def _get_open(self, rpath, target, callback) -> None:
        with self.connection.open(rpath) as source:
            _copy(source, target, source.stat().st_size, callback)

    def put_file(self, lpath, rpath, callback=DEFAULT_CALLBACK, mode="overwrite", **kwargs):
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            return self.makedirs(rpath, exist_ok=True)
        with open(lpath, "rb", buffering=0) as source:
            if self.auto_mkdir:
                self.makedirs(self._parent(rpath), exist_ok=True)
            with self.connection.open(rpath, "xb" if mode == "create" else "wb") as target:
                _copy(source, target, os.fstat(source.fileno()).st_size, callback)

    def touch(self, path, truncate=True, **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        self.connection.open(path, "wb" if truncate else "ab").close()
        if not truncate:
            self.connection.utime(path)

    # Names.

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        (self.connection.makedirs if create_parents else self.connection.mkdir)(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        # Most often it is there.
        if not (exist_ok and self.isdir(path)):
            self.connection.makedirs(path, exist_ok=exist_ok)

    def rmdir(self, path):
        self.connection.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.connection.unlink(self._strip_protocol(path))

    async def _rm(self, path, recursive=False, batch_size=None, maxdepth=None, **kwargs):
        if not recursive or maxdepth is None:
            # A tree is removed from below, and its names are those that it has by then.
            for one in await self._expand_path(path):
                await asyncio.to_thread(self._remove, one, recursive)
            return
        for one in sorted(await self._expand_path(path, recursive=True, maxdepth=maxdepth), reverse=True):
            await asyncio.to_thread(self.rmdir if self.isdir(one) else self.rm_file, one)

    def _remove(self, path, recursive) -> None:
        path = self._strip_protocol(path)
        try:
            return self.connection.unlink(path)
        except IsADirectoryError:
            if not recursive:
                raise
        for entry in list(self.connection.scandir(path)):
            self._remove(path + "/" + entry.name, recursive)
        if path != self.root_marker:
            self.connection.rmdir(path)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        """Moves a name, in one transaction: of a directory with all that is below it."""
        if not isinstance(path1, (str, os.PathLike)) or (has_magic(stringify_path(path1)) and not self.exists(path1)):
            return super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
        path1, path2 = self._strip_protocol(path1), stringify_path(path2)
        target = self._strip_protocol(path2)
        if path2.endswith("/") or self.isdir(target):
            target = target.rstrip("/") + "/" + path1.rsplit("/", 1)[1]
        if self.auto_mkdir:
            self.makedirs(self._parent(target), exist_ok=True)
        self.connection.rename(path1, target)

    def _mv_file(self, path1, path2):
        self.connection.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def chmod(self, path, mode):
        self.connection.chmod(self._strip_protocol(path), mode)

    def symlink(self, src, dst, **kwargs):
        self.connection.symlink(self._strip_protocol(src), self._strip_protocol(dst))

    def link(self, src, dst, **kwargs):
        self.connection.link(self._strip_protocol(src), self._strip_protocol(dst))

    def islink(self, path) -> bool:
        try:
            found = self.connection.stat(self._strip_protocol(path), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISLNK(found.st_mode)

    _info = _in_thread(info)
    _ls = _in_thread(ls)
    _exists = _in_thread(exists)
    _isfile = _in_thread(isfile)
    _isdir = _in_thread(isdir)
    _cat_file = _in_thread(cat_file)
    _pipe_file = _in_thread(pipe_file)
    _cp_file = _in_thread(cp_file)
    _get_file = _in_thread(get_file)
    _put_file = _in_thread(put_file)
    _rm_file = _in_thread(rm_file)
    _mkdir = _in_thread(mkdir)
    _makedirs = _in_thread(makedirs)
    _mv_file = _in_thread(_mv_file)
    _mv = _in_thread(mv)
    _touch = _in_thread(touch)


class VazaoReader(io.BufferedReader):
    """A file opened for reading. Can be pickled: it is opened again where it is unpickled."""

    def __init__(self, fs, path, buffer_bytes):
        self._file = fs.connection.open(path)
        super().__init__(self._file, buffer_bytes)
        self.fs = fs
        self.path = path
        self.buffer_bytes = buffer_bytes

    @property
    def size(self) -> int:
        return self._file.stat().st_size

    @property
    def details(self) -> dict:
        return self.fs.info(self.path)

    def __reduce__(self):
        return _reopen, (self.fs, self.path, self.buffer_bytes, self.tell())


def _reopen(fs, path, buffer_bytes, position) -> VazaoReader:
    file = VazaoReader(fs, path, buffer_bytes)
    file.seek(position)
    return file


class VazaoWriter(io.BufferedWriter):
    """A file opened for writing. In a transaction it has another name until commit()."""

    def __init__(self, fs, path, mode, buffer_bytes, autocommit):
        self.fs = fs
        self.path = path
        self.temporary = None
        if not autocommit:
            if "x" in mode and fs.exists(path):
                raise FileExistsError(path)
            self.temporary = f"{fs._parent(path).rstrip('/')}/.{uuid.uuid4().hex}.part"
        self._file = fs.connection.open(self.temporary or path, mode)
        super().__init__(self._file, buffer_bytes)

    @property
    def size(self) -> int:
        self.flush()
        return self._file.stat().st_size

    def __reduce__(self):
        raise TypeError("a file opened for writing cannot be pickled")

    def commit(self) -> None:
        """Gives the file its name."""
        if self.temporary:
            self.fs.connection.rename(self.temporary, self.path)

    def discard(self) -> None:
        """Forgets what was written."""
        if self.temporary:
            self.fs.connection.unlink(self.temporary)


class VazaoAsyncFile:
    """A file of open_async(): that of open(), with its calls as coroutines, each of which runs in a thread."""

    def __init__(self, file):
        self._file = file

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    async def read(self, length=-1) -> bytes:
        return await asyncio.to_thread(self._file.read, length)

    async def readinto(self, buffer) -> int:
        return await asyncio.to_thread(self._file.readinto, buffer)

    async def write(self, data) -> int:
        return await asyncio.to_thread(self._file.write, data)

    async def seek(self, offset, whence=os.SEEK_SET) -> int:
        return await asyncio.to_thread(self._file.seek, offset, whence)

    async def tell(self) -> int:
        return await asyncio.to_thread(self._file.tell)

    async def flush(self, force=False) -> None:
        await asyncio.to_thread(self._file.flush)

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)


def _range(file, start, end):
    """Offset and size of a range, of which negative ends are counted from the end of the file, as in slices."""
    if start is None or end is None or start < 0 or end < 0:
        start, end, _ = slice(start, end).indices(file.stat().st_size)
    if end - start > _COPY_BYTES:
        # No memory for what is beyond the end.
        end = min(end, file.stat().st_size)
    return start, max(end - start, 0)


def _grouped(paths, starts, ends):
    """The ranges by path, with their numbers, and room for as many results."""
    if not isinstance(paths, list):
        raise TypeError("paths is not a list")
    starts = list(starts) if hasattr(starts, "__iter__") else [starts] * len(paths)
    ends = list(ends) if hasattr(ends, "__iter__") else [ends] * len(paths)
    if len(starts) != len(paths) or len(ends) != len(paths):
        raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends")
    groups: dict = {}
    for index, (path, start, end) in enumerate(zip(paths, starts, ends)):
        groups.setdefault(path, []).append((index, start, end))
    return groups, [None] * len(paths)


def _raised_or(found, on_error):
    error = next((one for one in found if isinstance(one, Exception)), None)
    if error is not None and on_error != "return":
        raise error
    return found


def _copy(source, target, size, callback) -> None:
    callback.set_size(size)
    buffer = memoryview(bytearray(min(max(size, 1), _COPY_BYTES)))
    while True:
        count = source.readinto(buffer)
        if not count:
            return
        done = 0
        while done < count:
            done += target.write(buffer[done:count])
        callback.relative_update(count)
