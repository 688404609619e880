"""Areas of nodes: directories of a node's own disks, served in place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple, Optional

from . import _vazao
from .files import File


class AreaInfo(NamedTuple):
    """What a node says of one of its areas."""

    name: str
    is_read_only: bool
    trouble: str
    """Why it cannot be used at present; empty otherwise."""


class Area:
    """An area of a node. Paths begin at its root: "a/b" or "/a/b"."""

    def __init__(self, connection, node: str, name: str):
        self.connection = connection
        self.node = node
        self.name = name
        self._handle = connection._handle.area(node, name)

    def __repr__(self) -> str:
        return f"<vazao.Area {self.node}:/{self.name}>"

    def __reduce__(self):
        return Area, (self.connection, self.node, self.name)

    def reference(self, path="") -> str:
        """How a path of it is written everywhere else: "n1:/area/path"."""
        return os.fsdecode(self._handle.reference(os.fsencode(path)))

    def open(self, path, mode: str = "rb", *, permissions: int = 0o644) -> File:
        """Opens a file: its node reads and writes it on its own disk."""
        return self.connection.open(self.reference(path), mode, permissions=permissions)

    def stat(self, path="", *, follow_symlinks: bool = True) -> _vazao.Attributes:
        """What is at a path."""
        return self._handle.stat(os.fsencode(path), follow_symlinks)

    def scandir(self, path="", *, with_attributes: bool = False) -> Iterator[_vazao.Entry]:
        """An iterator of the entries of a directory, in no particular order."""
        return self._handle.scandir(os.fsencode(path), with_attributes)

    def listdir(self, path="") -> list[str]:
        """The names in a directory."""
        return [entry.name for entry in self.scandir(path)]

    def mkdir(self, path, mode: int = 0o777) -> None:
        """Makes a directory; the node's own umask applies."""
        self._handle.mkdir(os.fsencode(path), mode)

    def rmdir(self, path) -> None:
        """Removes an empty directory."""
        self._handle.rmdir(os.fsencode(path))

    def unlink(self, path) -> None:
        """Removes a name that is not a directory's."""
        self._handle.unlink(os.fsencode(path))

    def rename(self, path, new_path) -> None:
        """Moves a name within the area, over one that is there already."""
        self._handle.rename(os.fsencode(path), os.fsencode(new_path))

    def chmod(self, path, mode: int) -> None:
        """Sets permission bits."""
        self._handle.change(os.fsencode(path), mode=mode)

    def truncate(self, path, size_bytes: int) -> None:
        """Cuts a file, or extends it with zeros."""
        self._handle.change(os.fsencode(path), size_bytes=size_bytes)

    def utime(self, path, *, accessed_ns: Optional[int] = None, modified_ns: Optional[int] = None) -> None:
        """Sets times in nanoseconds; None leaves one as it is."""
        self._handle.change(os.fsencode(path), accessed_ns=accessed_ns, modified_ns=modified_ns)

    def space(self) -> tuple[int, int]:
        """Bytes of the file system that it lies on: its size, and what may still be written."""
        return self._handle.space()
