"""A server in a thread and its clients: what is the Python library's own. The rest is in bindings/tests."""

from __future__ import annotations

import socket
import threading
import unittest
from typing import Any, Callable, Dict, List

import luarpc

INTERFACE = """interface { methods = {
  void = {},
  one = { resulttype = "void", args = { { direction = "out", type = "double" } } },
  two = { args = { { direction = "out", type = "double" }, { direction = "out", type = "string" } } },
  three = { resulttype = "char", args = { { direction = "out", type = "double" }, { direction = "inout", type = "string" } } },
  echo = { resulttype = "string", args = { { direction = "in", type = "string" } } },
} }"""

#: Of each wait.
WAIT_SECONDS = 30.0


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        self.functions: Dict[str, Callable[..., Any]] = {
            "void": lambda: None,
            "one": lambda: 1,
            "two": lambda: (1, "x"),
            "three": lambda text: ("c", 1, text),
            "echo": lambda text: text,
        }

    def serve(self, **options: Any) -> luarpc.Server:
        """A server in a thread, which ends with the test."""
        server = luarpc.Server(self.functions, INTERFACE, address="127.0.0.1", **options)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        def end() -> None:
            server.shutdown()
            thread.join(WAIT_SECONDS)
            self.assertFalse(thread.is_alive())
            server.close()

        self.addCleanup(end)
        return server

    def proxy(self, server: luarpc.Server, **options: Any) -> Any:
        """A proxy, closed with the test."""
        made = luarpc.proxy(*server.address, INTERFACE, **options)
        self.addCleanup(luarpc.close, made)
        return made

    def test_results_come_alone_or_with_the_out_arguments(self) -> None:
        proxy = self.proxy(self.serve())
        self.assertIsNone(proxy.void())
        self.assertEqual(proxy.one(), (None, 1.0))
        self.assertEqual(proxy.two(), (None, 1.0, "x"))
        self.assertEqual(proxy.three("é"), ("c", 1.0, "é"))

    def test_a_method_may_return_a_none_before_its_out_arguments(self) -> None:
        self.functions.update(one=lambda: (None, 1), two=lambda: (None, 1, "x"), void=lambda: "ignored")
        proxy = self.proxy(self.serve())
        self.assertEqual(proxy.one(), (None, 1.0))
        self.assertEqual(proxy.two(), (None, 1.0, "x"))
        self.assertIsNone(proxy.void())

    def test_methods_that_return_something_else_are_named(self) -> None:
        self.functions.update(two=lambda: 1, three=lambda text: ("c", 1), one=lambda: "x", echo=lambda text: None)
        proxy = self.proxy(self.serve())
        for call, words in (
            (proxy.two, "two returned 1 values; the interface has 2"),
            (lambda: proxy.three("x"), "three returned 2 values; the interface has 3"),
            (proxy.one, "one returned for out argument 1: str where a double is expected"),
            (lambda: proxy.echo("x"), "echo returned for its result: NoneType where a string is expected"),
        ):
            with self.assertRaisesRegex(luarpc.RpcError, words):
                call()

    def test_an_exception_of_a_method_is_told_and_the_server_goes_on(self) -> None:
        def fail() -> None:
            raise KeyError("secret\nplace")

        self.functions.update(void=fail)
        server = self.serve()
        proxy = self.proxy(server)
        with self.assertRaises(luarpc.RpcError) as caught:
            proxy.void()
        self.assertEqual(caught.exception.message, "KeyError: 'secret\\nplace'")
        self.assertEqual(caught.exception.method, "void")
        self.assertEqual(caught.exception.peer, "%s:%d" % server.address)
        self.assertEqual(proxy.echo("x"), "x")

    def test_bytes_that_are_not_utf8_come_as_bytes_or_as_surrogates(self) -> None:
        server = self.serve()
        self.assertEqual(self.proxy(server, binary=True).echo(b"\xff\0"), b"\xff\0")
        proxy = self.proxy(server)
        self.assertEqual(proxy.echo(b"\xff\0").encode("utf-8", "surrogateescape"), b"\xff\0")
        self.assertEqual(proxy.echo(proxy.echo(b"\xff")), "\udcff")

    def test_threads_may_share_a_proxy(self) -> None:
        proxy = self.proxy(self.serve())
        wrong: List[object] = []

        def call(number: int) -> None:
            for _ in range(200):
                if proxy.echo(str(number)) != str(number):
                    wrong.append(number)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_SECONDS)
            self.assertFalse(thread.is_alive())
        self.assertEqual(wrong, [])

    def test_an_interrupted_call_does_not_leave_its_answer_to_the_next(self) -> None:
        class Interrupted(BaseException):
            pass

        proxy = self.proxy(self.serve())
        self.assertEqual(proxy.echo("first"), "first")
        connection = proxy._luarpc.connection
        whole = connection.line

        def interrupted(deadline: float) -> bytes:
            raise Interrupted

        connection.line = interrupted
        with self.assertRaises(Interrupted):
            proxy.echo("lost")
        connection.line = whole
        self.assertEqual(proxy.echo("second"), "second")

    def test_a_method_may_shut_its_server_down(self) -> None:
        server = self.serve()
        self.functions.clear()
        server.functions["void"] = server.shutdown
        self.assertIsNone(self.proxy(server).void())

    def test_a_server_can_serve_again_and_closes_its_port(self) -> None:
        with luarpc.Server(self.functions, INTERFACE, address="127.0.0.1") as server:
            server.shutdown()
            server.serve_forever()
            server.shutdown()
            server.serve_forever()
            address = server.address
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(address, WAIT_SECONDS)

    def test_a_port_in_use_is_an_oserror_that_names_it(self) -> None:
        server = self.serve()
        with self.assertRaisesRegex(OSError, f"127.0.0.1:{server.address[1]}: it is in use"):
            luarpc.Server(self.functions, INTERFACE, server.address[1], address="127.0.0.1")

    def test_a_method_that_is_not_there_is_an_attribute_error(self) -> None:
        proxy = self.proxy(self.serve())
        with self.assertRaisesRegex(AttributeError, "no method eco; it has void, one, two, three, echo"):
            proxy.eco("x")


if __name__ == "__main__":
    unittest.main()
