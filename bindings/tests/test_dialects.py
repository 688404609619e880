"""Peers that speak differently, each written by hand: other ways to write a char, an error and a line's end."""

from __future__ import annotations

import socket
import time
import unittest
from typing import List

from implementations import COMMANDS, SCRIPTED, Client, Process, Server
from peers import ForeignServer, answering, connect, exchange, read_all, read_lines


#: Languages say the same things in words of their own.
IN_DOUBT = r"whether the call ran is not known|the server may have carried it out"


class Case(unittest.TestCase):
    """Ends what a test began."""

    def setUp(self) -> None:
        self.processes: List[Process] = []

    def tearDown(self) -> None:
        for process in self.processes:
            process.end()

    def server(self, name: str, **options: object) -> Server:
        """A server for this test."""
        server = Server(name, **options)
        self.processes.append(server)
        return server

    def client(self, name: str) -> Client:
        """A client for this test."""
        client = Client(name)
        self.processes.append(client)
        return client


class Servers(Case):
    """What a server makes of foreign clients."""

    def test_a_char_is_answered_in_the_way_it_was_sent(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                port = self.server(name).port
                with connect(port) as stream:
                    for request, answer in (
                        (b"char\na\n", b"a\n"),
                        (b"letter\n", b"x\n"),
                        (b'char\n"a"\n', b'"a"\n'),
                        (b"letter\n", b'"x"\n'),
                        (b'char\n"\\n"\n', b'"\\n"\n'),
                        (b'char\n"\\"\n', b'"\\\\"\n'),
                        (b"char\r\nb\r\n", b"b\n"),
                        (b"char\n\\\n", b"\\\n"),
                    ):
                        stream.sendall(request)
                        self.assertEqual(read_lines(stream, 1), answer, request)

    def test_lines_may_end_with_a_carriage_return_and_strings_keep_theirs(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                port = self.server(name).port
                self.assertEqual(exchange(port, b"boo\r\n1\r\n", 2), b"nil\n1\n")
                self.assertEqual(exchange(port, b'echo\r\n"a\rb\r"\r\n', 1), b'"a\rb\r"\n')

    def test_numbers_are_read_as_other_versions_of_lua_print_them(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                port = self.server(name).port
                for text, answer in ((b"1.0", b"1"), (b"1e+20", b"1e+20"), (b"-.5", b"-0.5"), (b"3.1415", b"3.1415")):
                    found = exchange(port, b"boo\n" + text + b"\n", 2)
                    self.assertEqual(found[:4], b"nil\n")
                    self.assertEqual(float(found[4:]), float(answer))

    def test_arguments_that_do_not_fit_are_named_and_the_connection_goes_on(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                with connect(self.server(name).port) as stream:
                    for request, words in (
                        (b"boo\nx\n", (b"boo", b"argument 1", b"decimal")),
                        (b"boo\n1e999\n", (b"boo", b"argument 1", b"range")),
                        (b"boo\nnan\n", (b"argument 1", b"decimal")),
                        (b"boo\nnil\n", (b"argument 1", b"decimal")),
                        (b'add\n1\n"1"\n', (b"argument 2", b"decimal")),
                        (b"echo\nx\n", (b"argument 1", b"quotes")),
                        (b"char\nxy\n", (b"argument 1", b"one byte")),
                        (b'fail\n"two\\nlines"\n', (b"two lines",)),
                        (b"returnsText\n", (b"returnsText", b"double")),
                        (b"returnsTooFew\n", (b"returnsTooFew", b"2")),
                        (b"returnsAnError\n", (b"returnsAnError", b"error")),
                        (b"returnsInfinity\n", (b"returnsInfinity", b"not finite")),
                    ):
                        stream.sendall(request)
                        answer = read_lines(stream, 1)
                        self.assertTrue(answer.startswith(b"___ERRORPC: "), answer)
                        for word in words:
                            self.assertIn(word, answer)
                    stream.sendall(b"boo\n7\n")
                    self.assertEqual(read_lines(stream, 2), b"nil\n7\n")

    def test_an_unknown_method_is_named_and_ends_the_connection(self) -> None:
        # Its arguments cannot be told from further requests.
        for name in COMMANDS:
            with self.subTest(name):
                with connect(self.server(name).port) as stream:
                    stream.sendall(b"booo\x1b\n1\nboo\n2\n" * 1000)
                    answer = read_all(stream)
                    self.assertTrue(answer.startswith(b"___ERRORPC: "), answer)
                    self.assertRegex(answer, rb"booo(\?|\\x1b)")
                    self.assertIn(b"boo, add", answer)
                    self.assertEqual(answer.count(b"\n"), 1)

    def test_requests_may_follow_without_waiting_for_their_answers(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                port = self.server(name).port
                requests = b"".join(b"boo\n%d\n" % number for number in range(5000))
                answers = b"".join(b"nil\n%d\n" % number for number in range(5000))
                self.assertEqual(exchange(port, requests, 10000), answers)

    def test_a_client_that_ends_its_half_gets_its_answer(self) -> None:
        for name in COMMANDS:
            for profile in ("close", "keepalive"):
                with self.subTest(name, profile=profile):
                    with connect(self.server(name, profile=profile).port) as stream:
                        stream.sendall(b"boo\n1\n")
                        stream.shutdown(socket.SHUT_WR)
                        self.assertEqual(read_all(stream), b"nil\n1\n")

    def test_the_profile_close_answers_one_request_a_connection(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                with connect(self.server(name, profile="close").port) as stream:
                    stream.sendall(b"boo\n1\nboo\n2\n")
                    self.assertEqual(read_all(stream), b"nil\n1\n")

    def test_a_client_that_closes_at_any_byte_changes_nothing(self) -> None:
        request = b'all\nc\n"text"\nnil\n1\nboo\n1\n'
        whole = request.index(b"boo")
        for name in COMMANDS:
            with self.subTest(name):
                server = self.server(name)
                for end in range(len(request)):
                    with connect(server.port) as stream:
                        stream.sendall(request[:end])
                        # Half of the clients close, the others break.
                        if end % 2:
                            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                        if end >= whole:
                            self.assertEqual(read_lines(stream, 6).count(b"\n"), 6)
                self.assertEqual(exchange(server.port, b"booCount\n", 1), b"0\n")
                self.assertEqual(exchange(server.port, b"boo\n1\n", 2), b"nil\n1\n")


class Clients(Case):
    """What a client makes of foreign servers."""

    def test_chars_errors_and_line_ends_are_read_in_every_way(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                client = self.client(name)
                for answer, value in (
                    (b"b\n", b"b"),
                    (b'"b"\n', b"b"),
                    (b"b\r\n", b"b"),
                    (b'"b"\r\n', b"b"),
                    (b'"\\""\n', b'"'),
                    (b'"""\n', b'"'),
                    (b'"\\\\"\n', b"\\"),
                    (b'"\\"\n', b"\\"),
                    (b"\r\n", b"\r"),
                    (b"nil\n", None),
                ):
                    with answering(answer, request_lines=2) as peer:
                        self.assertEqual(client.open(peer.port).call("char", b"a"), [value], answer)

    def test_errors_are_read_bare_and_quoted(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                client = self.client(name)
                for answer in (
                    b"___ERRORPC: no such thing\n",
                    b"___ERRORPC: no such thing\r\n",
                    b'"___ERRORPC: no such thing"\n',
                    b'"___ERRORPC: no such thing"\r\n',
                ):
                    with answering(answer, b"nil\n1\n", request_lines=2, keeps=True) as peer:
                        proxy = client.open(peer.port)
                        expected = f"___ERRORPC: 127.0.0.1:{peer.port}, boo: no such thing"
                        self.assertEqual(proxy.failure("boo", 1.0), expected)
                        # Nothing follows an error: the connection is good for the next call.
                        self.assertEqual(proxy.call("boo", 1.0), [None, 1.0])
                        self.assertEqual(peer.connections, 1)

    def test_missing_results_are_nil(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                client = self.client(name)
                with answering(b"nil\nnil\nnil\nnil\nnil\nnil\n", request_lines=5) as peer:
                    values = client.open(peer.port).call("all", b"c", b"t", None, 1.0)
                    self.assertEqual(values, [None] * 6)

    def test_answers_that_do_not_fit_are_named(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                client = self.client(name)
                for answer, words in (
                    (b"nil\nx\n", ("line 2", "decimal")),
                    (b"nil\n1e999\n", ("line 2", "range")),
                    (b"nil\ninf\n", ("line 2", "decimal")),
                    (b'nil\n"1"\n', ("line 2", "decimal")),
                ):
                    with answering(answer, request_lines=2) as peer:
                        failure = client.open(peer.port).failure("boo", 1.0)
                        self.assertTrue(failure.startswith(f"___ERRONET: 127.0.0.1:{peer.port}, boo: "), failure)
                        for word in words:
                            self.assertIn(word, failure)

    def test_a_server_that_closes_at_any_byte_is_a_clear_error(self) -> None:
        answer = b"nil\n1.5\n"
        for name in COMMANDS:
            with self.subTest(name):
                client = self.client(name)
                for end in range(len(answer)):
                    with answering(answer[:end], request_lines=2) as peer:
                        failure = client.open(peer.port).failure("boo", 1.0)
                        self.assertTrue(failure.startswith("___ERRONET: "), failure)
                        self.assertIn("within its answer" if end else "without an answer", failure)
                        self.assertEqual(peer.connections, 1, "sent again")

    def test_a_server_that_answers_byte_by_byte_is_understood(self) -> None:
        def serve(stream: socket.socket, _number: int) -> None:
            read_lines(stream, 2)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"nil\r\n1.5\r\n":
                stream.sendall(bytes([byte]))
                time.sleep(0.002)  # so that they come apart, mostly

        for name in COMMANDS:
            with self.subTest(name), ForeignServer(serve) as peer:
                self.assertEqual(self.client(name).open(peer.port).call("boo", 1.0), [None, 1.5])

    def test_a_connection_that_was_closed_is_noticed_before_the_next_call(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                with answering(b"nil\n1\n", b"nil\n2\n", request_lines=2) as peer:
                    proxy = self.client(name).open(peer.port)
                    self.assertEqual(proxy.call("boo", 1.0), [None, 1.0])
                    peer.wait_closed()
                    self.assertEqual(proxy.call("boo", 2.0), [None, 2.0])

    def test_what_comes_unasked_is_no_answer(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                with answering(b"nil\n1\nnil\n9\n", b"nil\n2\n", request_lines=2, keeps=True) as peer:
                    proxy = self.client(name).open(peer.port)
                    self.assertEqual(proxy.call("boo", 1.0), [None, 1.0])
                    self.assertEqual(proxy.call("boo", 2.0), [None, 2.0])
                    self.assertEqual(peer.connections, 2)

    def test_a_call_is_sent_again_only_where_that_may_be(self) -> None:
        """A server that takes a second request and closes without an answer may have run it."""

        def serve(stream: socket.socket, number: int) -> None:
            read_lines(stream, 2)
            stream.sendall(b"nil\n%d\n" % number)
            if number == 0:
                read_lines(stream, 2)
            else:
                read_all(stream)

        for name in COMMANDS:
            with self.subTest(name):
                client = self.client(name)
                with ForeignServer(serve) as peer:
                    proxy = client.open(peer.port)
                    self.assertEqual(proxy.call("boo", 1.0), [None, 0.0])
                    self.assertRegex(proxy.failure("boo", 1.0), IN_DOUBT)
                    self.assertEqual(peer.connections, 1)
                if name not in SCRIPTED:
                    continue
                with ForeignServer(serve) as peer:
                    proxy = client.open(peer.port, repeatable=True)
                    self.assertEqual(proxy.call("boo", 1.0), [None, 0.0])
                    self.assertEqual(proxy.call("boo", 1.0), [None, 1.0])
                    proxy.close()

    def test_a_method_may_be_called_after_each_connecting(self) -> None:
        for name in SCRIPTED:
            with self.subTest(name):
                port = self.server(name).port
                client = self.client(name)
                proxy = client.open(port, connected="boo")
                self.assertEqual(proxy.call("booCount"), [1.0])
                self.assertEqual(proxy.call("booCount"), [1.0])
                proxy.close()
                self.assertEqual(proxy.call("booCount"), [2.0])
                self.assertIn("not let in", client.open(port, connected="fail").failure("boo", 1.0))
                self.assertEqual(proxy.call("booCount"), [2.0])

    def test_a_server_that_closes_during_the_first_call_of_a_connection_ends_it(self) -> None:
        def serve(stream: socket.socket, _number: int) -> None:
            read_lines(stream, 2)

        for name in SCRIPTED:
            with self.subTest(name), ForeignServer(serve) as peer:
                client = self.client(name)
                failure = client.open(peer.port, connected="boo").failure("booCount")
                self.assertIn("___ERRONET: ", failure)
                self.assertEqual(peer.connections, 1)
                failure = client.open(peer.port, swallowing="boo").failure("booCount")
                self.assertIn("the server closed the connection during option connected", failure)
                self.assertEqual(peer.connections, 2)

    def test_wrong_arguments_are_named_before_anything_is_sent(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                # Nothing listens there: what would be sent would be a network error.
                proxy = self.client(name).open(1)
                self.assertRegex(proxy.failure("add", 1.0), r"\b1 (arguments|were) given|takes 2 arguments, and 1 ")
                self.assertIn("double", proxy.failure("add", 1.0))
                self.assertRegex(proxy.failure("add", 1.0, 1.0, 1.0), r"\b3 (arguments|were) given")
                self.assertIn("argument 2", proxy.failure("add", 1.0, b"1"))
                self.assertIn("argument 1", proxy.failure("echo", 1.0))
                self.assertIn("argument 1", proxy.failure("echo", None))
                self.assertIn("argument 1", proxy.failure("char", b"ab"))
                self.assertIn("not finite", proxy.failure("boo", float("inf")))
                self.assertIn("booo", proxy.failure("booo"))
                failure = proxy.failure("boo", 1.0)
                self.assertTrue(failure.startswith("___ERRONET: 127.0.0.1:1, boo: connection refused"), failure)


if __name__ == "__main__":
    unittest.main()
