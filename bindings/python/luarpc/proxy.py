"""Proxies: objects whose methods are those of an interface, called on a server."""

from __future__ import annotations

import errno
import select
import socket
import struct
import threading
import time
from typing import Any, Callable, Collection, List, Optional, Tuple, Union

from . import lines, options
from .errors import NetworkError, RpcError
from .interface import InterfaceSource, Method, read_interface

#: Between attempts to connect while the machine has no free port.
PORTS_WAIT_SECONDS = 0.05
CHUNK_BYTES = 64 * 1024

#: Closing with it sends a reset, which leaves no port in TIME_WAIT on either side.
RESET = struct.pack("ii", 1, 0)

CLOSED_WHILE_CONNECTING = "the server closed the connection during option connected"


class Closed(Exception):
    """The server has closed the connection."""


class Overdue(Exception):
    """The call's time is over."""


class Connection:
    """A connection to a server, never waiting longer than a deadline of ``time.monotonic()``."""

    def __init__(self, stream: socket.socket, line_bytes: int) -> None:
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = stream
        self.reader = lines.Reader(line_bytes)
        #: Whether a byte has come since the last request.
        self.has_begun = False
        self.poll = select.poll()
        self.poll.register(stream, select.POLLIN)

    def is_usable(self) -> bool:
        """False when the server has closed it, or has sent what was not asked for."""
        return not self.poll.poll(0)

    def wait(self, events: int, deadline: float) -> None:
        """Until the stream is ready."""
        left = deadline - time.monotonic()
        self.poll.modify(self.stream, events)
        try:
            # Rounded up: a wait of 0 ms would spin.
            if left <= 0 or not self.poll.poll(int(left * 1000) + 1):
                raise Overdue
        finally:
            self.poll.modify(self.stream, select.POLLIN)

    def send(self, request: bytes, deadline: float) -> None:
        """Hands the whole request over."""
        self.has_begun = False
        left = memoryview(request)
        while left:
            try:
                left = left[self.stream.send(left) :]
            except BlockingIOError:
                self.wait(select.POLLOUT, deadline)
            except (ConnectionError, BrokenPipeError):
                raise Closed from None

    def line(self, deadline: float) -> bytes:
        """The next line."""
        while True:
            found = self.reader.line()
            if found is not None:
                return found
            left = deadline - time.monotonic()
            if left <= 0 or not self.poll.poll(int(left * 1000) + 1):
                raise Overdue
            try:
                data = self.stream.recv(CHUNK_BYTES)
            except BlockingIOError:
                continue
            except ConnectionError:
                raise Closed from None
            if not data:
                raise Closed
            self.has_begun = True
            self.reader.feed(data)

    def close(self) -> None:
        """Ends it. Nothing is lost: the answer is here, or is no longer wanted."""
        try:
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError:
            pass  # the server has reset it
        self.stream.close()


class Caller:
    """What is behind a proxy: its server, its options and its connection."""

    def __init__(
        self,
        host: str,
        port: int,
        profile: str,
        timeout: float,
        line_bytes: int,
        chars: str,
        binary: bool,
        repeatable: Union[bool, Collection[str]],
        connected: Optional[Callable[[Any], object]],
    ) -> None:
        options.choice("profile", profile, "keepalive", "close")
        options.choice("chars", chars, "quoted", "bare")
        options.positive("timeout", timeout)
        options.positive("line_bytes", line_bytes)
        if connected is not None and profile == "close":
            raise ValueError('luarpc: option connected has to be absent with profile "close"')
        self.host = host
        self.port = options.port_number(port, 1)
        self.peer = options.shown_address(host, self.port)
        self.profile = profile
        self.timeout = float(timeout)
        self.line_bytes = int(line_bytes)
        self.chars = chars
        self.binary = binary
        self.repeatable = repeatable
        self.connected = connected
        self.proxy: Any = None
        self.connection: Optional[Connection] = None
        self.is_connecting = False
        # Calls of several threads take turns; `connected` calls within a call.
        self.lock = threading.RLock()

    # Connections

    def disconnect(self) -> None:
        """Closes the connection; the next call makes another."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def connect_once(self, name: str, deadline: float) -> socket.socket:
        """A stream to the first address of the host that takes it."""
        failure: Optional[OSError] = None
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            stream = socket.socket(family, kind, protocol)
            try:
                stream.settimeout(max(0.001, deadline - time.monotonic()))
                stream.connect(address)
                # Without a server a connection to a port of the dynamic range may meet itself.
                if stream.getsockname() != stream.getpeername():
                    return stream
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
            except OSError as error:
                failure = error
                stream.close()
        raise failure or OSError(f"{self.host} has no address")

    def connect(self, name: str, deadline: float) -> Connection:
        """A new connection, for which `connected` has been called."""
        if self.is_connecting:
            raise NetworkError(CLOSED_WHILE_CONNECTING, self.peer, name)
        while True:
            try:
                stream = self.connect_once(name, deadline)
                break
            except OSError as error:
                is_out_of_ports = error.errno == errno.EADDRNOTAVAIL
                if not is_out_of_ports or time.monotonic() + PORTS_WAIT_SECONDS >= deadline:
                    raise NetworkError(remedy(error), self.peer, name) from error
                time.sleep(PORTS_WAIT_SECONDS)
        connection = self.connection = Connection(stream, self.line_bytes)
        if self.connected is not None:
            self.is_connecting = True
            try:
                self.connected(self.proxy)
            except BaseException:
                self.disconnect()
                raise
            finally:
                self.is_connecting = False
            if self.connection is None:
                raise NetworkError(CLOSED_WHILE_CONNECTING, self.peer, name)
        return connection

    # Calls

    def request_of(self, method: Method, values: Tuple[Any, ...]) -> bytes:
        """The request of a call; raises TypeError or ValueError when the arguments do not fit."""
        if len(values) != len(method.inputs):
            raise TypeError(
                f"luarpc: {self.peer}, {method.name}: {len(values)} arguments given,"
                f" the interface has {len(method.inputs)} ({', '.join(method.inputs)})"
            )
        parts = [method.name.encode("ascii")]
        for position, (kind, value) in enumerate(zip(method.inputs, values), 1):
            place = f"luarpc: {self.peer}, {method.name}, argument {position}"
            try:
                line = lines.encode(kind, value, self.chars)
            except lines.TypeProblem as problem:
                raise TypeError(f"{place}: {problem}") from None
            except lines.ValueProblem as problem:
                raise ValueError(f"{place}: {problem}") from None
            if len(line) > self.line_bytes:
                raise ValueError(
                    f"{place}: {len(line)} bytes; {self.line_bytes} are the limit (option line_bytes)"
                )
            parts.append(line)
        parts.append(b"")
        return b"\n".join(parts)

    def answer(self, connection: Connection, count: int, deadline: float) -> List[bytes]:
        """The lines of an answer; one when it is an error."""
        found = [connection.line(deadline)]
        if found[0].startswith((b"___E", b'"___E')) and lines.error_of(found[0]) is not None:
            return found
        while len(found) < count:
            found.append(connection.line(deadline))
        return found

    def why_no_answer(self, failure: Exception, has_begun: bool) -> str:
        """For the caller."""
        if isinstance(failure, Overdue):
            return (
                f"no whole answer after {self.timeout:g} s (option timeout); whether the call ran is not known"
            )
        if not isinstance(failure, Closed):
            return str(failure)
        if has_begun:
            return "the server closed the connection within its answer"
        return (
            "the server closed the connection without an answer; whether the call ran is not known. Does it close"
            ' after each answer (profile="close"), or keep fewer connections than there are clients (pool)?'
        )

    def exchange(self, method: Method, request: bytes) -> List[bytes]:
        """Sends a request and returns the lines of its answer.

        It is sent again only when the server cannot have begun it, because the connection broke before its last byte
        was handed over; or when the method may run twice.
        """
        deadline = time.monotonic() + self.timeout
        may_repeat = True
        while True:
            connection = self.connection
            if connection is not None and not connection.is_usable():
                self.disconnect()
                connection = None
            may_repeat = may_repeat and connection is not None
            if connection is None:
                connection = self.connect(method.name, deadline)
            is_sent = False
            try:
                connection.send(request, deadline)
                is_sent = True
                found = self.answer(connection, 1 + len(method.outputs), deadline)
            except (Closed, Overdue, lines.LineTooLong, OSError) as failure:
                self.disconnect()
                is_safe = not is_sent or self.repeatable is True or (
                    not isinstance(self.repeatable, bool) and method.name in self.repeatable
                )
                if may_repeat and is_safe and not connection.has_begun and isinstance(failure, Closed):
                    may_repeat = False
                    continue
                message = self.why_no_answer(failure, connection.has_begun)
                raise NetworkError(message, self.peer, method.name) from None
            except BaseException:
                # An interrupted call leaves its answer on the way: the next one would take it for its own.
                self.disconnect()
                raise
            if (self.profile == "close" and not self.is_connecting) or connection.reader.has_rest():
                self.disconnect()
            return found

    def call(self, method: Method, values: Tuple[Any, ...]) -> Any:
        """Calls a method."""
        request = self.request_of(method, values)
        if not self.lock.acquire(timeout=self.timeout):
            raise NetworkError(f"other threads use the proxy for {self.timeout:g} s", self.peer, method.name)
        try:
            found = self.exchange(method, request)
            failure = lines.error_of(found[0])
            if failure is not None:
                raise RpcError(failure, self.peer, method.name)
            kinds = (method.result, *method.outputs)
            results: List[Any] = []
            for line, kind in zip(found, kinds):
                try:
                    results.append(lines.decode(kind, line, True, self.binary)[0])
                except lines.ValueProblem as problem:
                    self.disconnect()
                    message = f"line {len(results) + 1} of the answer: {problem}"
                    raise NetworkError(message, self.peer, method.name) from None
        finally:
            self.lock.release()
        return tuple(results) if method.outputs else results[0]


def remedy(error: OSError) -> str:
    """Why there is no connection, for the caller."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a server running there?"
    if isinstance(error, socket.timeout):
        return "no connection in time; is the address right, does a firewall drop packets (option timeout)?"
    return error.strerror or str(error)


class Proxy:
    """An object with the methods of an interface. It connects at the first call; threads may share it."""

    __slots__ = ("_luarpc", "__dict__")
    _luarpc: Caller

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(
            f"luarpc: the interface has no method {name}; it has {', '.join(self.__dict__)}"
        )

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        close(self)


def proxy(
    host: str,
    port: int,
    interface: InterfaceSource,
    *,
    profile: str = "keepalive",
    timeout: float = options.SECONDS,
    line_bytes: int = options.LINE_BYTES,
    chars: str = "quoted",
    binary: bool = False,
    repeatable: Union[bool, Collection[str]] = (),
    connected: Optional[Callable[[Any], object]] = None,
) -> Proxy:
    """A proxy for a server.

    ``interface`` is a file, or a text: a str with a ``{``. A call returns the result, or a tuple of the result and the
    ``out`` and ``inout`` arguments where there are any; it raises RpcError, NetworkError, TypeError or ValueError.
    ``timeout`` is for a whole call, in seconds. With ``binary`` strings come as bytes, otherwise as str with
    surrogates for bytes that are not UTF-8. ``repeatable`` names methods that may run twice. ``connected`` is
    called with the proxy after each connecting.
    """
    read = read_interface(interface)
    caller = Caller(host, port, profile, timeout, line_bytes, chars, binary, repeatable, connected)
    made = Proxy()
    made._luarpc = caller
    caller.proxy = made
    for name, method in read.methods.items():
        made.__dict__[name] = bound(caller, method)
    return made


def bound(caller: Caller, method: Method) -> Callable[..., Any]:
    """The function that calls a method."""

    def call(*values: Any) -> Any:
        return caller.call(method, values)

    call.__name__ = call.__qualname__ = method.name
    call.__doc__ = f"{method.name}({', '.join(method.inputs)}) on {caller.peer}"
    return call


def close(made: Proxy) -> None:
    """Closes the connection of a proxy; its next call makes another."""
    caller = made._luarpc
    with caller.lock:
        caller.disconnect()
