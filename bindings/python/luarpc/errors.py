"""What goes wrong in remote calls, by what its reader has to do."""

from __future__ import annotations

from typing import Optional


class InterfaceError(ValueError):
    """An interface file that is none; the message has its place and line."""


class RpcError(Exception):
    """The server refused the call, or its method failed. A method that raises one sends its message as it is."""

    def __init__(self, message: str, peer: Optional[str] = None, method: Optional[str] = None) -> None:
        super().__init__(message if peer is None else f"{peer}, {method}: {message}")
        #: What the server said.
        self.message = message
        #: The server, as ``host:port``.
        self.peer = peer
        #: The method that was called.
        self.method = method


class NetworkError(OSError):
    """The server was not reached, closed, was silent for too long, or its answer does not fit the interface."""

    def __init__(self, message: str, peer: Optional[str] = None, method: Optional[str] = None) -> None:
        super().__init__(message if peer is None else f"{peer}, {method}: {message}")
        #: The server, as ``host:port``.
        self.peer = peer
        #: The method that was called.
        self.method = method
