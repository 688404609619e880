"""The volume of a Vazão cluster, without a mount.

    import vazao

    with vazao.connect() as volume:
        with volume.open("/hello", "wb") as file:
            file.write(b"hello")

Paths begin at the root of the volume: "/a/b" or "vz:/a/b"; open() takes files of the areas of nodes too:
"n1:/area/path". Errors are OSError and its subclasses, and say what to do. Handles belong to the process that made
them: a child of fork() connects for itself.

With fsspec the volume is "vz://": see vazao.fsspec.
"""

from ._vazao import Attributes, Entry
from .areas import Area, AreaInfo
from .connection import Connection, Layout, Space, connect
from .files import File
from .jobs import Job, JobStatus
from .limits import Limit, Watch

__all__ = [
    "Area",
    "AreaInfo",
    "Attributes",
    "Connection",
    "Entry",
    "File",
    "Job",
    "JobStatus",
    "Layout",
    "Limit",
    "Space",
    "Watch",
    "connect",
]
