"""A session with a volume."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from typing import NamedTuple, Optional

from . import _vazao
from .areas import Area, AreaInfo
from .files import File, flush_open_files
from .jobs import Job
from .limits import Limit, Watch


class Space(NamedTuple):
    """Space of the volume, over all targets that serve."""

    capacity_bytes: int
    available_bytes: int
    used_bytes: int
    inodes: int


class Layout(NamedTuple):
    """How a file is striped, or how files created in a directory will be."""

    stripe_unit_bytes: int
    """Bytes that go to one target before the next one's turn; 0 where that is not what the distribution is about."""
    width: int
    """Number of targets; 0 while the contents of a small file are with its metadata."""
    distribution: str
    """"stripe", "strips", "groups" or "local"."""


def connect(cluster=None, *, is_watched: bool = True, **options) -> Connection:
    """Connects to a cluster.

    cluster: its client.toml; None for the one that the command `vazao` takes, which is $VAZAO_CLUSTER, or else
    ~/.config/vazao/client.toml, or else /etc/vazao/client.toml.
    options: deadline_ms, connections_max, dirty_bytes_max, read_ahead_bytes_max, zone, the one that this machine is in,
    and name, by which `vazao top` and the logs call this program. What is not given is as configured.
    is_watched: limit() has its first answer, from the first open() on. It costs a request to each node and a thread.

    Fails within 5 seconds where there is no cluster.
    """
    connection = Connection(cluster, **options)
    connection._is_to_be_watched = is_watched
    return connection


class Connection:
    """A session with the volume of one cluster. Any thread may call anything.

    It can be pickled: where it is unpickled it connects anew, once in a process for each cluster.
    """

    def __init__(self, cluster=None, **options):
        self._cluster = None if cluster is None else os.path.abspath(os.fspath(cluster))
        self._options = options
        self._watch: Optional[Watch] = None
        self._is_to_be_watched = False
        self._handle = _vazao.Connection(self._cluster, **options)

    def __repr__(self) -> str:
        return f"<vazao.Connection {self._cluster or 'default'}{' closed' if self.closed else ''}>"

    def __reduce__(self):
        return shared_connection, (self._cluster, self._options)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """True once it was closed."""
        return self._handle.is_closed

    @property
    def is_usable(self) -> bool:
        """False once it was closed, and in children of the process that connected."""
        return not (self._handle.is_closed or self._handle.is_foreign)

    def close(self) -> None:
        """Ends the session: writes out what is written to its files, and closes them. Fails where something could not
        be written; closed it is in any case."""
        if not self.closed:
            self._handle.close()

    def hang_up(self) -> None:
        """Ends all waits for servers, from any thread: calls under way fail with ECANCELED, and so do later ones. What
        servers have not acknowledged is lost."""
        self._handle.hang_up()

    def sync(self) -> None:
        """Makes durable all changes of names and attributes that were answered before."""
        self._handle.sync()

    def space(self) -> Space:
        """The space of the volume."""
        return Space(*self._handle.space())

    # Files.

    def open(self, path, mode: str = "rb", *, permissions: int = 0o644) -> File:
        """Opens a file of the volume, or of an area ("n1:/area/path"), unbuffered.

        mode: "rb", "wb", "xb" or "ab", with "+" or without. permissions: of a new file; the umask does not apply.
        """
        if self._is_to_be_watched:
            self._is_to_be_watched = False
            self._watch = self.watch()
        return File(self, path, mode, permissions)

    def read_bytes(self, path) -> bytes:
        """All bytes of a file."""
        with self.open(path) as file:
            return file.readall()

    def write_bytes(self, path, data) -> int:
        """Writes a new file, or one in place of the contents that are there."""
        with self.open(path, "wb") as file:
            return file.write(data)

    def truncate(self, path, size_bytes: int) -> None:
        """Cuts a file, or extends it with zeros that take no space."""
        self._handle.truncate(os.fsencode(path), size_bytes)

    # Names.

    def stat(self, path, *, follow_symlinks: bool = True) -> _vazao.Attributes:
        """What a path leads to."""
        return self._handle.stat(os.fsencode(path), follow_symlinks)

    def exists(self, path) -> bool:
        """Whether a path leads to something."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def scandir(self, path="/", *, with_attributes: bool = False) -> Iterator[_vazao.Entry]:
        """An iterator of the entries of a directory, in no particular order and without "." and ".."; with their
        attributes at little more cost."""
        return self._handle.scandir(os.fsencode(path), with_attributes)

    def listdir(self, path="/") -> list[str]:
        """The names in a directory."""
        return [entry.name for entry in self.scandir(path)]

    def mkdir(self, path, mode: int = 0o755) -> None:
        """Makes a directory; the umask does not apply."""
        self._handle.mkdir(os.fsencode(path), mode)

    def makedirs(self, path, mode: int = 0o755, *, exist_ok: bool = False) -> None:
        """Makes a directory and those above it that are missing."""
        try:
            self.mkdir(path, mode)
        except FileNotFoundError:
            self.makedirs(os.path.dirname(os.fspath(path).rstrip("/")), mode, exist_ok=True)
            self.makedirs(path, mode, exist_ok=exist_ok)
        except FileExistsError:
            import stat

            if not exist_ok or not stat.S_ISDIR(self.stat(path).st_mode):
                raise

    def rmdir(self, path) -> None:
        """Removes an empty directory."""
        self._handle.rmdir(os.fsencode(path))

    def unlink(self, path) -> None:
        """Removes a name that is not a directory's. A file that is open somewhere lives on until its last close."""
        self._handle.unlink(os.fsencode(path))

    def rename(self, path, new_path, *, replace: bool = True) -> None:
        """Moves a name, in one transaction. Without `replace` a new name that is taken is FileExistsError."""
        self._handle.rename(os.fsencode(path), os.fsencode(new_path), replace)

    def link(self, path, new_path) -> None:
        """Gives a file a further name."""
        self._handle.link(os.fsencode(path), os.fsencode(new_path))

    def symlink(self, target, path) -> None:
        """Makes a symbolic link at `path` that leads to `target`."""
        self._handle.symlink(os.fsencode(target), os.fsencode(path))

    def readlink(self, path) -> str:
        """Where a symbolic link leads."""
        return os.fsdecode(self._handle.readlink(os.fsencode(path)))

    def chmod(self, path, mode: int) -> None:
        """Sets permission bits."""
        self._handle.chmod(os.fsencode(path), mode)

    def chown(self, path, uid: Optional[int] = None, gid: Optional[int] = None) -> None:
        """Sets owner and group; None leaves one as it is."""
        self._handle.chown(os.fsencode(path), uid, gid)

    def utime(self, path, *, accessed_ns: Optional[int] = None, modified_ns: Optional[int] = None) -> None:
        """Sets the times of the last read and of the last change of contents, in nanoseconds; None: now."""
        self._handle.utime(os.fsencode(path), accessed_ns, modified_ns)

    def layout(self, path) -> Layout:
        """How a file is striped, or how files created in a directory will be."""
        return Layout(*self._handle.layout(os.fsencode(path)))

    def set_layout(self, path, *, stripe_unit_bytes: int = 0, width: int = 0) -> None:
        """Stripes files that are created in a directory from now on, or a file without data, in simple stripes. 0
        stands for what the directory above has."""
        self._handle.set_layout(os.fsencode(path), stripe_unit_bytes, width)

    # Nodes and their areas.

    def nodes(self) -> list[str]:
        """The names of the cluster's nodes."""
        return self._handle.nodes()

    def areas(self, node: str) -> list[AreaInfo]:
        """What a node exports."""
        return [AreaInfo(*area) for area in self._handle.areas(node)]

    def area(self, node: str, name: str) -> Area:
        """An area of a node. Sends no request: one that is not there fails when it is used."""
        return Area(self, node, name)

    # Copies that nodes do.

    def copy(
        self,
        source,
        destination,
        *,
        recursive: bool = False,
        preserve: bool = False,
        resume: bool = False,
        checksum: bool = False,
        method: str = "auto",
        rate_bytes: int = 0,
    ) -> Job:
        """Has a node copy files, as `vazao cp` does: one side at least is in an area, "n1:/area/path". Returns at once;
        Job.wait() waits for the end.

        recursive: directories with all that is below them. preserve: files in the volume belong to whom their sources
        belong to. resume: what an earlier copy has brought is not sent again. checksum: each file is read again at its
        end and compared. method: as `vazao cp --method`. rate_bytes: at most so many a second; 0 for no limit.
        """
        handle = self._handle.copy(
            os.fsencode(source),
            os.fsencode(destination),
            recursive=recursive,
            preserve=preserve,
            resume=resume,
            checksum=checksum,
            method=method,
            rate_bytes=rate_bytes,
        )
        return Job(handle)

    def job(self, id: str) -> Job:
        """A copy that was begun before, by its ID."""
        return Job(self._handle.job(id))

    # What limits.

    def watch(self) -> Watch:
        """Begins a stretch of work whose limit is asked for."""
        return Watch(self._handle.watch())

    def limit(self) -> Limit:
        """What limited this program's work on the connection since the last call of limit(), or since the first file
        was opened: a disk, a link, round trips, a processor, or the program itself."""
        watch, self._watch = self._watch, None
        limit = watch.limit() if watch else None
        self._watch = self.watch()
        return limit or Limit("unknown", "", None, 0.0, "limit: nothing was watched yet; the stretch begins now")


# Connections of unpickled files and of fsspec, so that many of them to one cluster are one.
_connections: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_connections_lock = threading.Lock()


def shared_connection(cluster, options) -> Connection:
    """The connection of this process to a cluster that all who ask here share."""
    key = (cluster, tuple(sorted(options.items())))
    with _connections_lock:
        connection = _connections.get(key)
        if connection is None or not connection.is_usable:
            connection = _connections[key] = Connection(cluster, **options)
        return connection


def _after_fork() -> None:
    global _connections_lock
    # Another thread of the parent may have held it.
    _connections_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(flush_open_files)
