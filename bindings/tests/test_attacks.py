"""Peers that mean harm or are broken: lines without end, silence, half requests, too many connections."""

from __future__ import annotations

import select
import socket
import time
import unittest
from typing import List

from implementations import CODE_BASES, COMMANDS, SCRIPTED, Server
from peers import ForeignServer, answering, connect, exchange, read_all, read_lines
from test_dialects import Case

MIB = 1024 * 1024

#: A line of 1 MiB, its copies on the way, and what an allocator keeps. Without a limit it would be 64 MiB and more.
GROWTH_BYTES_MAX = 16 * MIB


#: Of a call that has half a second.
LATE = r"no whole answer after 0\.5 s|(answer|be sent) within 500 ms"


def send_until_refused(stream: socket.socket, data: bytes, times: int) -> None:
    """Sends data over and over; the peer may stop taking it."""
    try:
        for _ in range(times):
            stream.sendall(data)
    except (ConnectionError, BrokenPipeError):
        pass


class Servers(Case):
    """What a server bears."""

    def test_a_line_without_end_is_refused_and_takes_no_memory(self) -> None:
        for name in COMMANDS:
            for start in (b"", b"boo\n", b'echo\n"') if name in CODE_BASES else (b"boo\n",):
                with self.subTest(name, start=start):
                    server = self.server(name)
                    before = server.rss_bytes()
                    with connect(server.port) as stream:
                        stream.sendall(start)
                        send_until_refused(stream, b"1" * MIB, 64)
                        self.assertIn(read_all(stream)[:12], (b"", b"___ERRORPC: "))
                    self.assertLess(server.rss_bytes() - before, GROWTH_BYTES_MAX)
                    self.assertEqual(exchange(server.port, b"boo\n1\n", 2), b"nil\n1\n")

    def test_a_line_that_is_too_long_by_one_byte_is_refused_in_clear_words(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                server = self.server(name, line_bytes=100)
                text = b'"' + b"x" * 98 + b'"\n'
                self.assertEqual(exchange(server.port, b"echo\n" + text, 1), text)
                with connect(server.port) as stream:
                    stream.sendall(b"echo\nx" + text)
                    answer = read_all(stream)
                    self.assertRegex(answer, rb"^___ERRORPC: a line (is longer|has more) than 100 bytes")
                # So is a result, which costs no connection.
                with connect(server.port) as stream:
                    stream.sendall(b"long\n99\n")
                    self.assertRegex(read_lines(stream, 1), rb"101 bytes(; 100 are the limit|, more than 100)")
                    stream.sendall(b"boo\n1\n")
                    self.assertEqual(read_lines(stream, 2), b"nil\n1\n")

    def test_bytes_that_mean_nothing_are_refused(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                server = self.server(name)
                for junk in (b"\0\n", b"\n", b"\xff\xfe\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000 + b"\n", b"\x16\3\1\n"):
                    with connect(server.port) as stream:
                        stream.sendall(junk)
                        self.assertRegex(read_all(stream), rb"^___ERRORPC: (there is|the interface .* has) no method", junk)
                self.assertEqual(exchange(server.port, b"boo\n1\n", 2), b"nil\n1\n")

    def test_half_a_request_ends_after_its_time_and_silence_too(self) -> None:
        for name in CODE_BASES:
            with self.subTest(name):
                server = self.server(name, seconds=0.3)
                for start in (b"", b"bo", b"boo\n", b"boo\n1"):
                    with connect(server.port) as stream:
                        stream.sendall(start)
                        answer = read_all(stream)
                        if start:
                            self.assertRegex(answer, rb"^___ERRORPC: .*(not whole after 0\.3 s|within 300 ms)")
                        else:
                            self.assertEqual(answer, b"")

    def test_a_connection_that_was_answered_stays_for_its_own_time(self) -> None:
        for name in CODE_BASES:
            with self.subTest(name):
                port = self.server(name, seconds=60, idle_seconds=0.3).port
                with connect(port) as stream:
                    stream.sendall(b"boo\n1\n")
                    self.assertEqual(read_all(stream), b"nil\n1\n")

    def test_a_client_that_takes_no_answers_keeps_no_other_waiting(self) -> None:
        for name in CODE_BASES:
            with self.subTest(name):
                server = self.server(name, seconds=0.5)
                with connect(server.port) as greedy:
                    greedy.setblocking(False)
                    for _ in range(50):
                        try:
                            greedy.send(b"long\n900000\n")
                        except ConnectionError:
                            break  # its time is over
                        self.assertEqual(exchange(server.port, b"boo\n1\n", 2), b"nil\n1\n")
                    # It is closed without having read anything; its unread requests make that a reset.
                    closed = select.poll()
                    closed.register(greedy, 0)
                    self.assertTrue(closed.poll(60_000))
                    self.assertLess(server.rss_bytes(), 100 * MIB)

    def test_a_refusal_arrives_at_a_peer_that_is_still_writing(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                server = self.server(name, line_bytes=100)
                for start, words in ((b"echo\n", rb"a line (is longer|has more)"), (b"booo\n", rb".* no method .?booo")):
                    with connect(server.port) as stream:
                        # More than the kernel's buffers hold; a reset would end the sending.
                        stream.sendall(start + b"x" * (8 * MIB))
                        self.assertRegex(read_all(stream), b"^___ERRORPC: " + words)

    def test_a_client_that_reads_late_gets_all_its_answers(self) -> None:
        for name in CODE_BASES:
            with self.subTest(name):
                with socket.socket() as stream:
                    stream.settimeout(30)
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    server = self.server(name)
                    stream.connect(("127.0.0.1", server.port))
                    # More than the kernel's buffers hold, so that the server has to wait with an answer.
                    stream.sendall(b"long\n900000\n" * 15 + b"boo\n1\n")
                    server.wait_idle()
                    answers = read_lines(stream, 17)
                    self.assertEqual(len(answers), 15 * 900003 + 6)
                    self.assertTrue(answers.endswith(b'x"\nnil\n1\n'))

    def test_a_request_that_came_with_the_first_of_another_client_is_answered(self) -> None:
        # The server in Rust counts all connections, not only those that were answered: a new one takes the place.
        for name in SCRIPTED:
            with self.subTest(name):
                server = self.server(name, pool=1)
                for number in range(10):
                    with connect(server.port) as old, connect(server.port) as new:
                        for _ in range(2):  # after the second answer the new connection has been accepted
                            old.sendall(b"boo\n1\n")
                            self.assertEqual(read_lines(old, 2), b"nil\n1\n")
                        with server.stopped():
                            # Servers hear clients in the order of their bytes, or in any.
                            for stream in (new, old) if number % 2 else (old, new):
                                stream.sendall(b"boo\n2\n")
                        self.assertEqual(read_lines(old, 2), b"nil\n2\n")
                        self.assertEqual(read_lines(new, 2), b"nil\n2\n")

    def test_the_oldest_connection_goes_when_another_comes(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                port = self.server(name, pool=3).port
                streams: List[socket.socket] = []
                try:
                    for number in range(4):
                        stream = connect(port)
                        streams.append(stream)
                        stream.sendall(b"boo\n1\n")
                        self.assertEqual(read_lines(stream, 2), b"nil\n1\n")
                    self.assertEqual(read_all(streams[0]), b"")
                    for stream in streams[1:]:
                        stream.sendall(b"boo\n1\n")
                        self.assertEqual(read_lines(stream, 2), b"nil\n1\n")
                finally:
                    for stream in streams:
                        stream.close()

    def test_a_request_that_has_come_is_answered_before_its_connection_makes_room(self) -> None:
        # The server in Rust counts all connections, not only those that were answered: a new one takes the place.
        for name in SCRIPTED:
            with self.subTest(name):
                port = self.server(name, pool=1).port
                for _ in range(20):
                    with connect(port) as old, connect(port) as new:
                        old.sendall(b"boo\n1\n")
                        new.sendall(b"boo\n2\n")
                        self.assertEqual(read_lines(old, 2), b"nil\n1\n")
                        self.assertEqual(read_lines(new, 2), b"nil\n2\n")

    def test_many_silent_connections_keep_no_caller_out(self) -> None:
        for name in CODE_BASES:
            for profile in ("keepalive", "close"):
                with self.subTest(name, profile=profile):
                    server = self.server(name, profile=profile)
                    before = server.rss_bytes()
                    streams = [socket.socket() for _ in range(200)]
                    try:
                        for stream in streams:
                            stream.setblocking(False)
                            stream.connect_ex(("127.0.0.1", server.port))
                        self.assertEqual(self.patient_exchange(server), b"nil\n1\n")
                        self.assertLess(server.rss_bytes() - before, GROWTH_BYTES_MAX)
                    finally:
                        for stream in streams:
                            stream.close()

    def patient_exchange(self, server: Server) -> bytes:
        """An answer from a server under attack; each attempt has a new connection."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                answer = exchange(server.port, b"boo\n1\n", 2)
                if answer:
                    return answer
            except OSError:
                pass
        return b""


class Clients(Case):
    """What a client bears."""

    def test_an_answer_without_end_is_refused_and_takes_no_memory(self) -> None:
        def serve(stream: socket.socket, _number: int) -> None:
            read_lines(stream, 2)
            send_until_refused(stream, b"1" * MIB, 64)

        for name in COMMANDS:
            with self.subTest(name), ForeignServer(serve) as peer:
                client = self.client(name)
                proxy = client.open(peer.port, line_bytes=MIB)
                before = client.rss_bytes()
                failure = proxy.failure("boo", 1.0)
                self.assertRegex(failure, rf"127.0.0.1:{peer.port}, boo: a line (is longer|has more) than 1048576 bytes")
                self.assertLess(client.rss_bytes() - before, GROWTH_BYTES_MAX)

    def test_a_server_that_says_nothing_or_half_ends_the_call_in_time(self) -> None:
        for name in CODE_BASES:
            for answer in (b"", b"ni", b"nil\n", b"nil\n1"):
                with self.subTest(name, answer=answer):
                    with answering(answer, request_lines=2, keeps=True) as peer:
                        started = time.monotonic()
                        failure = self.client(name).open(peer.port, seconds=0.3).failure("boo", 1.0)
                        self.assertRegex(failure, r"no whole answer after 0\.3 s \(option |answer within 300 ms")
                        self.assertLess(time.monotonic() - started, 20)

    def test_a_server_that_drips_gets_no_more_time(self) -> None:
        def serve(stream: socket.socket, _number: int) -> None:
            read_lines(stream, 2)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                stream.sendall(b"1")
                time.sleep(0.05)  # a drop

        for name in CODE_BASES:
            with self.subTest(name), ForeignServer(serve) as peer:
                started = time.monotonic()
                failure = self.client(name).open(peer.port, seconds=0.5).failure("boo", 1.0)
                self.assertRegex(failure, LATE)
                self.assertLess(time.monotonic() - started, 40)

    def test_a_server_that_takes_no_request_or_sips_it_ends_the_call_in_time(self) -> None:
        def serve(stream: socket.socket, number: int) -> None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.1)  # between sips
                if number % 2 and not stream.recv(32768):
                    return
                # The first state of the kernel's tcp_info is that of a connection that stands.
                if stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\1":
                    return

        for name in CODE_BASES:
            with self.subTest(name), ForeignServer(serve) as peer:
                proxy = self.client(name).open(peer.port, seconds=0.5, line_bytes=64 * MIB)
                for way in ("takes nothing", "sips"):
                    started = time.monotonic()
                    self.assertRegex(proxy.failure("echo", b"x" * (8 * MIB)), LATE, way)
                    self.assertLess(time.monotonic() - started, 40, way)


class Ports(Case):
    """Ports that cannot be had."""

    def test_a_port_in_use_is_named(self) -> None:
        # Servers in Rust are given a socket that listens.
        for name in SCRIPTED:
            with self.subTest(name):
                taken = self.server(name)
                message = self.server(name, port=taken.port).address
                self.assertIn(f"cannot listen on *:{taken.port}: it is in use by another program", message)


if __name__ == "__main__":
    unittest.main()
