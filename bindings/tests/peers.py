"""Peers written by hand: a server that answers with given bytes, and a client that sends them."""

from __future__ import annotations

import socket
import threading
from typing import Callable, List, Optional

#: Of each wait of a peer; what takes longer has hung.
PEER_SECONDS = 60.0


def connect(port: int) -> socket.socket:
    """A connection to a server of this machine."""
    stream = socket.create_connection(("127.0.0.1", port), PEER_SECONDS)
    stream.settimeout(PEER_SECONDS)
    return stream


def read_lines(stream: socket.socket, count: int) -> bytes:
    """So many lines, or what came before the end."""
    data = bytearray()
    while count > 0:
        more = stream.recv(65536)
        if not more:
            break
        count -= more.count(b"\n")
        data += more
    return bytes(data)


def read_all(stream: socket.socket) -> bytes:
    """Everything until the end; a reset is an end, too."""
    data = bytearray()
    try:
        while True:
            more = stream.recv(65536)
            if not more:
                break
            data += more
    except ConnectionResetError:
        pass
    return bytes(data)


def exchange(port: int, request: bytes, lines: int) -> bytes:
    """Sends a request over a connection of its own and returns so many lines."""
    with connect(port) as stream:
        stream.sendall(request)
        return read_lines(stream, lines)


class ForeignServer:
    """Runs `serve(stream, number)` for each connection, one after the other; `number` counts from 0."""

    def __init__(self, serve: Callable[[socket.socket, int], None]) -> None:
        self.serve = serve
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PEER_SECONDS)
        self.port: int = self.listener.getsockname()[1]
        self.connections = 0
        self.failure: Optional[BaseException] = None
        self.stream: Optional[socket.socket] = None
        self.closed = threading.Semaphore(0)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        """The thread."""
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            with stream:
                stream.settimeout(PEER_SECONDS)
                self.stream = stream
                number, self.connections = self.connections, self.connections + 1
                try:
                    self.serve(stream, number)
                except (ConnectionError, BrokenPipeError):
                    pass
                except BaseException as error:  # shown by the test
                    self.failure = error
            self.closed.release()

    def wait_closed(self) -> None:
        """Until one more connection has been closed by this server."""
        assert self.closed.acquire(timeout=PEER_SECONDS)

    def __enter__(self) -> "ForeignServer":
        return self

    def __exit__(self, *_: object) -> None:
        for waited_for in (self.listener, self.stream):
            try:
                if waited_for is not None:
                    waited_for.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended
        self.listener.close()
        self.thread.join(PEER_SECONDS)
        if self.failure is not None:
            raise self.failure


def answering(*answers: bytes, request_lines: int, keeps: bool = False) -> ForeignServer:
    """A server that gives each answer to a request of so many lines, and closes after it unless it `keeps`."""
    left: List[bytes] = list(answers)

    def serve(stream: socket.socket, _number: int) -> None:
        while left:
            request = read_lines(stream, request_lines)
            if request.count(b"\n") < request_lines:
                return
            stream.sendall(left.pop(0))
            if not keeps:
                return
        read_all(stream)

    return ForeignServer(serve)
