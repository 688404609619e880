"""A stretch of work, and what limited it."""

from __future__ import annotations

from typing import NamedTuple, Optional


class Limit(NamedTuple):
    """What limited a stretch of work. As text: one line for people."""

    resource: str
    """"disk", "network", "round_trip", "cpu", "bandwidth_limit", "lock", "no_answer", "caller" (the program itself),
    "idle" or "unknown"."""
    place: str
    """The node where it is."""
    share: Optional[float]
    """The share of its ceiling, 0 to 1; None where the ceiling is not known."""
    score: float
    """How sure that is, 0 to 1."""
    text: str
    """One line for people."""

    def __str__(self) -> str:
        return self.text


class Watch:
    """A stretch of work on a connection, from Connection.watch() on. It costs a request to each node at both ends."""

    def __init__(self, handle):
        self._handle = handle

    def limit(self) -> Limit:
        """What limited until now. The watch goes on."""
        return Limit(*self._handle.limit())
