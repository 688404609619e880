"""Servers: objects whose methods other programs call.

One loop, and no threads. A connection reads requests, or writes an answer, or is being refused: then what comes is read
and forgotten for DRAIN_SECONDS, because closing at once would take the refusal away from a peer that is still writing.
Methods run one at a time, and nothing else is served meanwhile.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import lines, options
from .errors import InterfaceError, NetworkError, RpcError
from .interface import Interface, InterfaceSource, Method, read_interface

BACKLOG = 128
CHUNK_BYTES = 64 * 1024
#: Of an error's text on the wire.
ERROR_BYTES_MAX = 1024
#: Connections without an answer yet; pools are of those that have had one.
FRESH_MAX = 64
#: So long a new one is not closed for another.
GRACE_SECONDS = 0.1
#: A peer that is being refused gets so long to read why.
DRAIN_SECONDS = 1.0
#: How often deadlines are looked at, and the pause after a failed accept.
TICK_SECONDS = 0.25

LOG = logging.getLogger("luarpc")

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Connection:
    """A client."""

    def __init__(self, stream: socket.socket, server: "Server") -> None:
        now = time.monotonic()
        self.stream = stream
        self.reader = lines.Reader(server.line_bytes)
        self.chars = server.chars
        self.protected_until = now + GRACE_SECONDS
        #: When it is closed if nothing has happened.
        self.until = now + server.timeout
        self.method: Optional[Method] = None
        self.values: List[Any] = []
        self.wrong: Optional[str] = None
        #: What of an answer the peer has not taken.
        self.out = memoryview(b"")
        self.is_half = False
        self.is_kept = False
        self.is_refused = False
        self.is_gone = False


class Server:
    """Offers the methods of an object that an interface names.

    ``target`` is an object, or a mapping of names to functions. ``port`` 0 is any free one. ``address`` "" or "*" is
    all addresses, "127.0.0.1" this machine alone. ``timeout`` seconds are for a request that has begun, a new
    connection that is silent and an answer that is not taken, ``idle_timeout`` for silence after an answer. ``pool`` is
    how many connections are kept after their first answer (profile "keepalive"). With ``binary`` methods are given bytes
    for strings.
    """

    def __init__(
        self,
        target: Any,
        interface: InterfaceSource,
        port: int = 0,
        *,
        address: str = "",
        profile: str = "keepalive",
        timeout: float = options.SECONDS,
        idle_timeout: float = options.IDLE_SECONDS,
        line_bytes: int = options.LINE_BYTES,
        chars: str = "quoted",
        pool: int = options.POOL,
        binary: bool = False,
    ) -> None:
        options.choice("profile", profile, "keepalive", "close")
        options.choice("chars", chars, "quoted", "bare")
        options.positive("timeout", timeout)
        options.positive("idle_timeout", idle_timeout)
        options.positive("line_bytes", line_bytes)
        options.pool_size(pool)
        self.interface: Interface = read_interface(interface)
        self.functions = functions_of(target, self.interface)
        self.profile = profile
        self.timeout = float(timeout)
        self.idle_timeout = float(idle_timeout)
        self.line_bytes = int(line_bytes)
        self.chars = chars
        self.pool_size = pool
        self.binary = binary
        self.fresh: List[Connection] = []
        self.kept: List[Connection] = []
        self.paused_until: Optional[float] = None
        self.is_stopping = False
        self.is_closed = False
        self.listener = listen(address, options.port_number(port, 0))
        #: Where it listens: host and port.
        self.address: Tuple[str, int] = self.listener.getsockname()[:2]
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.wake_writer.setblocking(False)
        self.wake_reader.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, READ, self.accept)
        self.selector.register(self.wake_reader, READ, self.woken)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The loop

    def serve_forever(self) -> None:
        """Serves until :meth:`shutdown`. May be called again after it."""
        next_tick = time.monotonic() + TICK_SECONDS
        while not self.is_stopping:
            for key, events in self.selector.select(self.until_pause_ends()):
                if self.is_stopping:
                    break
                if isinstance(key.data, Connection):
                    self.ready(key.data, events)
                else:
                    key.data()
            now = time.monotonic()
            if now >= next_tick:
                self.end_overdue(now)
                next_tick = now + TICK_SECONDS
        self.is_stopping = False

    def shutdown(self) -> None:
        """Ends :meth:`serve_forever`, from another thread, a method or a signal handler."""
        self.is_stopping = True
        try:
            self.wake_writer.send(b"x")
        except (BlockingIOError, OSError):
            pass  # it is being woken, or is closed

    def close(self) -> None:
        """Stops listening and closes all connections."""
        self.is_closed = True
        self.shutdown()
        for connection in [*self.fresh, *self.kept]:
            self.drop(connection)
        self.selector.close()
        for stream in (self.listener, self.wake_reader, self.wake_writer):
            stream.close()

    def woken(self) -> None:
        """For the wake-up socket."""
        self.wake_reader.recv(CHUNK_BYTES)

    def until_pause_ends(self) -> float:
        """Seconds to wait for events; listens again when a pause is over."""
        if self.paused_until is None:
            return TICK_SECONDS
        left = self.paused_until - time.monotonic()
        if left > 0:
            return min(left, TICK_SECONDS)
        self.listen_again()
        return TICK_SECONDS

    def pause(self, until: float) -> None:
        """Accepts no connection for a while."""
        self.paused_until = until
        self.selector.unregister(self.listener)

    def listen_again(self) -> None:
        """Ends a pause."""
        if self.paused_until is not None and not self.is_closed:
            self.paused_until = None
            self.selector.register(self.listener, READ, self.accept)

    def end_overdue(self, now: float) -> None:
        """Closes the connections whose time is over."""
        for connection in [*self.fresh, *self.kept]:
            if now < connection.until or connection.is_gone:
                continue
            is_half = connection.method is not None or connection.reader.has_rest()
            if is_half and not connection.out and not connection.is_refused:
                self.refuse(connection, f"the request is not whole after {self.timeout:g} s")
            else:
                self.drop(connection)

    # Connections

    def make_room(self) -> bool:
        """Makes room for one more connection that has not been answered; false while all of them are new."""
        if len(self.fresh) < FRESH_MAX:
            return True
        oldest = self.fresh[0]
        if time.monotonic() < oldest.protected_until:
            return False
        # Its request may have come and not been read.
        if not oldest.is_refused and not oldest.out:
            self.receive(oldest)
        if not oldest.is_kept:
            self.drop(oldest)
        return True

    def accept(self) -> None:
        """For the listener."""
        if not self.make_room():
            return self.pause(self.fresh[0].protected_until)
        if self.is_closed:  # by a method that was run to make room
            return None
        try:
            stream, _ = self.listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError:
            # No descriptors, as a rule. The listener stays readable, and the loop would spin.
            return self.pause(time.monotonic() + TICK_SECONDS)
        stream.setblocking(False)
        if self.profile == "keepalive":
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(stream, self)
        self.fresh.append(connection)
        self.selector.register(stream, READ, connection)
        # The request has often come with the connection.
        return self.receive(connection)

    def drop(self, connection: Connection) -> None:
        """Closes a connection."""
        if connection.is_gone:
            return
        connection.is_gone = True
        self.selector.unregister(connection.stream)
        connection.stream.close()
        (self.kept if connection.is_kept else self.fresh).remove(connection)
        self.listen_again()

    def keep(self, connection: Connection) -> None:
        """Takes a connection that has its first answer into the pool, from which the oldest goes for it."""
        connection.is_kept = True
        self.fresh.remove(connection)
        self.kept.append(connection)
        self.listen_again()
        if len(self.kept) > self.pool_size:
            oldest = self.kept[0]
            # Its next request may have come and not been read; the server that closes now has not begun it.
            if not oldest.is_refused and not oldest.out:
                self.receive(oldest)
            self.drop(oldest)

    def ready(self, connection: Connection, events: int) -> None:
        """For the socket of a connection."""
        if connection.is_gone:
            return
        if events & WRITE:
            self.flush(connection)
            self.serve(connection)
        elif events & READ:
            self.receive(connection)

    def receive(self, connection: Connection) -> None:
        """Reads what has come."""
        try:
            data = connection.stream.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            return self.drop(connection)
        if not data:
            return self.drop(connection)
        if not connection.is_refused:
            connection.reader.feed(data)
            self.serve(connection)

    def answer(self, connection: Connection, text: bytes) -> None:
        """Begins to send an answer."""
        if connection.is_gone:
            return
        connection.out = memoryview(text)
        connection.method = None
        self.flush(connection)

    def flush(self, connection: Connection) -> None:
        """Hands over what of the answer the peer takes now."""
        try:
            sent = connection.stream.send(connection.out)
        except BlockingIOError:
            sent = 0
        except OSError:
            return self.drop(connection)
        was_blocked = self.selector.get_key(connection.stream).events == WRITE
        connection.out = connection.out[sent:]
        if connection.out:
            if not was_blocked:
                # A peer that does not take its answers is not listened to.
                connection.until = time.monotonic() + self.timeout
                self.selector.modify(connection.stream, WRITE, connection)
            return None
        if was_blocked:
            self.selector.modify(connection.stream, READ, connection)
        return self.answered(connection)

    def answered(self, connection: Connection) -> None:
        """What comes after an answer: the next request, or the end."""
        if connection.is_refused:
            try:
                connection.stream.shutdown(socket.SHUT_WR)
            except OSError:
                return self.drop(connection)
            connection.until = time.monotonic() + DRAIN_SECONDS
        elif self.profile == "close":
            self.drop(connection)
        else:
            connection.until = time.monotonic() + self.idle_timeout
            if not connection.is_kept:
                self.keep(connection)
        return None

    def refuse(self, connection: Connection, message: str) -> None:
        """Answers with an error after which the next line cannot be told: the connection ends."""
        connection.is_refused = True
        self.answer(connection, error_line(message))

    # Requests

    def serve(self, connection: Connection) -> None:
        """Serves the requests that have come whole, as long as their answers are taken."""
        while not (connection.is_gone or connection.is_refused or connection.out):
            try:
                line = connection.reader.line()
            except lines.LineTooLong as problem:
                return self.refuse(connection, str(problem))
            if line is None:
                # Half a name is a request that has begun.
                if connection.method is None and connection.reader.has_rest() and not connection.is_half:
                    connection.is_half = True
                    connection.until = time.monotonic() + self.timeout
                return None
            if connection.method is None:
                connection.is_half = False
                self.begin(connection, lines.stripped(line))
            else:
                self.take_argument(connection, connection.method, line)
        return None

    def begin(self, connection: Connection, name: bytes) -> None:
        """The first line of a request."""
        method = self.interface.methods.get(name.decode("latin-1"))
        if method is None:
            short = lines.NOT_PRINTABLE.sub(b"?", name[:64]).decode("ascii")
            known = ", ".join(self.interface.methods)
            return self.refuse(connection, f"there is no method {short}; there are {known}")
        connection.method = method
        connection.values = []
        connection.until = time.monotonic() + self.timeout
        return None if method.inputs else self.run(connection, method)

    def take_argument(self, connection: Connection, method: Method, line: bytes) -> None:
        """A further line of a request."""
        position = len(connection.values)
        value = None
        try:
            value, chars = lines.decode(method.inputs[position], line, False, self.binary)
            connection.chars = chars or connection.chars
        except lines.ValueProblem as problem:
            connection.wrong = connection.wrong or f"{method.name}, argument {position + 1}: {problem}"
        connection.values.append(value)
        if len(connection.values) < len(method.inputs):
            return None
        wrong, connection.wrong = connection.wrong, None
        if wrong is not None:
            return self.answer(connection, error_line(wrong))
        return self.run(connection, method)

    def run(self, connection: Connection, method: Method) -> None:
        """Runs a method, whose arguments have come."""
        try:
            returned = self.functions[method.name](*connection.values)
            text = self.answer_of(method, returned, connection.chars)
        except RpcError as error:
            text = error_line(error.message)
        except (lines.TypeProblem, lines.ValueProblem) as problem:
            text = error_line(str(problem))
        except Exception as error:
            # The client is told; here only who looks for it wants to know.
            LOG.debug("method %s failed", method.name, exc_info=True)
            text = error_line(f"{type(error).__name__}: {error}")
        self.answer(connection, text)

    def answer_of(self, method: Method, returned: Any, chars: str) -> bytes:
        """The lines of an answer."""
        found: List[bytes] = []
        kinds = (method.result, *method.outputs)
        for position, (kind, value) in enumerate(zip(kinds, values_of(method, returned))):
            try:
                line = lines.encode(kind, value, chars)
                if len(line) > self.line_bytes:
                    raise lines.ValueProblem(
                        f"{len(line)} bytes; {self.line_bytes} are the limit (option line_bytes)"
                    )
                if position == 0 and lines.error_of(line) is not None:
                    raise lines.ValueProblem("a result may not begin as an error does")
            except (lines.TypeProblem, lines.ValueProblem) as problem:
                what = f"out argument {position}" if position else "its result"
                raise lines.ValueProblem(f"{method.name} returned for {what}: {problem}") from None
            found.append(line)
        found.append(b"")
        return b"\n".join(found)


def error_line(message: str) -> bytes:
    """An error as it travels."""
    text = " ".join(message.splitlines()).encode("utf-8", "replace")
    return lines.RPC_ERROR + text[:ERROR_BYTES_MAX] + b"\n"


def values_of(method: Method, returned: Any) -> Tuple[Any, ...]:
    """The values of an answer in order, the result first."""
    outputs = len(method.outputs)
    values = returned if isinstance(returned, tuple) else (returned,)
    if method.result != "void":
        wanted = 1 + outputs
        if outputs == 0:
            return (returned,)
    else:
        wanted = outputs
        if outputs == 0:
            return (None,)
        # A method without a result returns its out arguments, with or without a None before them.
        if len(values) == outputs:
            return (None, *values)
        if len(values) == 1 + outputs and values[0] is None:
            return values
    if len(values) != wanted or method.result == "void":
        raise lines.ValueProblem(f"{method.name} returned {len(values)} values; the interface has {wanted}")
    return values


def functions_of(target: Any, interface: Interface) -> Dict[str, Callable[..., Any]]:
    """The functions that an interface names; nothing else of the object can be reached."""
    functions: Dict[str, Callable[..., Any]] = {}
    for name in interface.methods:
        found = target.get(name) if isinstance(target, Mapping) else getattr(target, name, None)
        if not callable(found):
            raise InterfaceError(f"luarpc: the object has no function {name}, which its interface has")
        functions[name] = found
    return functions


def listen(address: str, port: int) -> socket.socket:
    """A listening socket."""
    host = "" if address == "*" else address
    listener: Optional[socket.socket] = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0] if host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        remedies = {
            errno.EADDRINUSE: "it is in use by another program; choose another, or 0 for a free one",
            errno.EACCES: "ports below 1024 are for root; choose a higher one",
        }
        why = remedies.get(error.errno or 0, error.strerror or str(error))
        shown = options.shown_address(address or "*", port)
        raise NetworkError(f"luarpc: cannot listen on {shown}: {why}") from error
    listener.setblocking(False)
    return listener
