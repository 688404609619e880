"""Each client calls each server, in both profiles."""

from __future__ import annotations

import unittest
from typing import Dict

from implementations import COMMANDS, Client, Proxy, Server

EVERY_BYTE = bytes(range(256))


class Matrix(unittest.TestCase):
    """All clients and servers of one profile are begun once."""

    def every_pair(self, profile: str) -> None:
        """Runs the same calls over each pair."""
        servers: Dict[str, Server] = {}
        clients: Dict[str, Client] = {}
        try:
            # Several proxies of one client stay open at the same time.
            for name in COMMANDS:
                servers[name] = Server(name, profile=profile, pool=len(COMMANDS) + 1)
                clients[name] = Client(name)
            for client_name, client in clients.items():
                for server_name, server in servers.items():
                    with self.subTest(profile=profile, client=client_name, server=server_name):
                        for chars in ("quoted", "bare"):
                            self.every_call(client.open(server.port, profile=profile, chars=chars))
        finally:
            for process in [*servers.values(), *clients.values()]:
                process.end()

    def every_call(self, proxy: Proxy) -> None:
        """Each type in each direction, all bytes, and errors."""
        self.assertEqual(proxy.call("boo", 1.0), [None, 1.0])
        self.assertEqual(proxy.call("nothing"), [None])
        for number in (0.0, -1.5, 0.1, 1e300, 5e-324, 2.0**53, -(2.0**63), 1 / 3):
            self.assertEqual(proxy.call("add", number, 0.0), [number])
        for text in (b"", EVERY_BYTE, b'\\n\\"\\\\"', b"nil", "vazão".encode(), b"x" * 100_000):
            self.assertEqual(proxy.call("echo", text), [text])
        for char in (b"a", b"\0", b"\n", b"\r", b'"', b"\\", b"\xff"):
            self.assertEqual(proxy.call("char", char), [char])
        self.assertEqual(proxy.call("letter"), [b"x"])
        self.assertEqual(
            proxy.call("all", b"\n", b"\0t", None, 2.0), [3.0, b"\n", b"\0t\n", 4.0, None, b"\0t"]
        )
        self.assertIn("___ERRORPC: ", proxy.failure("fail", b"went wrong"))
        self.assertIn("went wrong", proxy.failure("fail", b"went wrong"))
        self.assertEqual(proxy.call("boo", -3.0), [None, -3.0])
        proxy.close()

    def test_each_client_calls_each_server_over_connections_that_stay(self) -> None:
        self.every_pair("keepalive")

    def test_each_client_calls_each_server_over_a_connection_a_call(self) -> None:
        self.every_pair("close")

    def test_clients_and_servers_of_different_profiles_work_together(self) -> None:
        for name in COMMANDS:
            with self.subTest(name):
                servers = [Server(name, profile=profile) for profile in ("keepalive", "close")]
                client = Client(name)
                try:
                    closing = client.open(servers[0].port, profile="close")
                    for number in range(20):
                        self.assertEqual(closing.call("add", float(number), 1.0), [number + 1.0])
                    keeping = client.open(servers[1].port, profile="keepalive", repeatable=True)
                    for number in range(20):
                        self.assertEqual(keeping.call("add", float(number), 1.0), [number + 1.0])
                finally:
                    for process in [*servers, client]:
                        process.end()


if __name__ == "__main__":
    unittest.main()
