"""The Python library as a process that the suite drives: see implementations.py beside, which has the words of both sides."""

from __future__ import annotations

import functools
import sys
from typing import Any, Dict, List

sys.path.insert(0, "bindings/python")

import luarpc  # noqa: E402

INTERFACE = "bindings/tests/suite.lua"
LOGIN: Dict[str, Any] = {"boo": 1, "fail": "not let in"}
NAMES = {"seconds": "timeout", "idle_seconds": "idle_timeout"}


def log_in(method: str, proxy: Any) -> None:
    """What the option connected does: it calls the method that it names."""
    getattr(proxy, method)(LOGIN[method])


def log_in_somehow(method: str, proxy: Any) -> None:
    """As one that does not care whether it worked."""
    try:
        log_in(method, proxy)
    except (luarpc.RpcError, luarpc.NetworkError):
        pass


def options_of(words: List[str]) -> Dict[str, Any]:
    """Options as the library names them."""
    options: Dict[str, Any] = {}
    for word in words:
        key, text = word.split("=", 1)
        value: Any = text
        if key in ("seconds", "idle_seconds"):
            value = float(text)
        elif key in ("line_bytes", "pool", "port"):
            value = int(text)
        elif key == "repeatable":
            value = True
        elif key == "connected":
            value = functools.partial(log_in, text)
        elif key == "swallowing":
            key, value = "connected", functools.partial(log_in_somehow, text)
        options[NAMES.get(key, key)] = value
    return options


class Suite:
    """The object of the server."""

    def __init__(self) -> None:
        self.boo_count = 0

    def boo(self, number: float) -> float:
        self.boo_count += 1
        return number

    def add(self, one: float, other: float) -> float:
        return one + other

    def echo(self, text: str) -> str:
        return text

    def nothing(self) -> None:
        pass

    def char(self, char: str) -> str:
        return char

    def letter(self) -> str:
        return "x"

    def all(self, char: str, text: str, void: None, number: float) -> Any:
        assert void is None
        return number + 1, char, text + char, number * 2, None, text

    def booCount(self) -> int:
        return self.boo_count

    def fail(self, message: str) -> float:
        raise luarpc.RpcError(message)

    def returnsText(self) -> Any:
        return "text"

    def returnsTooFew(self) -> Any:
        return 1

    def returnsInfinity(self) -> float:
        return float("inf")

    def returnsAnError(self) -> str:
        return "___ERRORPC: not one"

    def long(self, count: float) -> str:
        return "x" * int(count)


def serve(options: Dict[str, Any]) -> None:
    """A server."""
    try:
        server = luarpc.Server(Suite(), INTERFACE, **options)
    except OSError as error:
        print(f"error {error}", flush=True)
        return
    print(server.address[1], flush=True)
    server.serve_forever()


def value_of(word: str) -> Any:
    """A word as a value."""
    if word[0] == "d":
        return float(word[1:])
    if word[0] == "r":
        return "x" * int(word[1:])
    return bytes.fromhex(word[1:]) if word[0] == "s" else None


def word_of(value: Any) -> str:
    """A value as a word."""
    if value is None:
        return "n"
    return f"d{value!r}" if isinstance(value, float) else "s" + value.encode("utf-8", "surrogateescape").hex()


def command(words: List[str], proxies: Dict[str, luarpc.Proxy]) -> str:
    """One line of the suite."""
    if words[0] == "open":
        proxies[words[1]] = luarpc.proxy(words[2], int(words[3]), INTERFACE, **options_of(words[4:]))
        return "ok"
    if words[0] == "close":
        luarpc.close(proxies[words[1]])
        return "ok"
    answer = getattr(proxies[words[1]], words[2])(*map(value_of, words[3:]))
    return " ".join(["ok", *map(word_of, answer if isinstance(answer, tuple) else (answer,))])


def main() -> None:
    """A server or a client."""
    if sys.argv[1] == "server":
        return serve(options_of(sys.argv[2:]))
    proxies: Dict[str, luarpc.Proxy] = {}
    for line in sys.stdin:
        prefix = ""
        try:
            print(command(line.split(), proxies), flush=True)
            continue
        except luarpc.RpcError as error:
            prefix, message = "___ERRORPC: ", str(error)
        except luarpc.NetworkError as error:
            prefix, message = "___ERRONET: ", str(error)
        except (TypeError, ValueError, AttributeError) as error:
            message = str(error)
        print("error " + (prefix + message).encode().hex(), flush=True)
    return None


if __name__ == "__main__":
    main()
