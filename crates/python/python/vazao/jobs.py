"""Copies that nodes do: between areas of nodes, and between areas and the volume."""

from __future__ import annotations

import errno
import time
from typing import Callable, NamedTuple, Optional

# The first looks at a job come soon, for small ones are over by then; later ones less often.
_LOOK_SECONDS_MIN = 0.02
_LOOK_SECONDS_MAX = 0.25

# By the number that the protocol has for them.
_STATES = ("unknown", "queued", "planning", "running", "paused", "done", "failed", "cancelled")


class JobStatus(NamedTuple):
    """How far a copy is."""

    state: str
    """"queued", "planning", "running", "paused", "done", "failed" or "cancelled"."""
    method: str
    """At present."""
    limit: str
    """What limits it at present."""
    trouble: str
    """What it waits for, or why it failed."""
    files: int
    files_done: int
    files_failed: int
    files_skipped: int
    bytes: int
    bytes_done: int
    bytes_per_second: int

    @property
    def is_over(self) -> bool:
        """True where nothing will change any more."""
        return self.state in ("done", "failed", "cancelled")


class Job:
    """A copy that a node does. It goes on when this program ends."""

    def __init__(self, handle):
        self._handle = handle

    def __repr__(self) -> str:
        return f"<vazao.Job {self.id}>"

    @property
    def id(self) -> str:
        """Its name, as `vazao jobs` shows it: "n1-17"."""
        return self._handle.id

    def status(self) -> JobStatus:
        """How far it is."""
        (state, *words), files, sizes = self._handle.status()
        return JobStatus(_STATES[state] if state < len(_STATES) else "unknown", *words, *files, *sizes)

    def failures(self) -> list[str]:
        """Why single files failed, as far as they fit one answer."""
        return self._handle.failures()

    def cancel(self) -> None:
        """Has it end; what is under way ends soon. What has arrived stays."""
        self._handle.cancel()

    def wait(
        self, progress: Optional[Callable[[JobStatus], object]] = None, timeout: Optional[float] = None
    ) -> JobStatus:
        """Waits for its end, and calls `progress` with how far it is, several times a second and at the end.

        Fails with OSError where it failed or was cancelled, and with TimeoutError after `timeout` seconds: it goes on.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = _LOOK_SECONDS_MIN
        while True:
            status = self.status()
            if progress is not None:
                progress(status)
            if status.is_over:
                return self._done(status)
            left = pause if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, f"job {self.id} is not over after {timeout} s, and goes on")
            time.sleep(min(pause, left))
            pause = min(pause * 17 / 16, _LOOK_SECONDS_MAX)

    def _done(self, status: JobStatus) -> JobStatus:
        if status.state == "done":
            return status
        if status.state == "cancelled":
            raise OSError(errno.ECANCELED, f"job {self.id} was cancelled")
        reasons = self.failures() if status.files_failed else []
        raise OSError(errno.EIO, f"job {self.id} failed: " + "; ".join(reasons or [status.trouble]))
