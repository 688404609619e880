"""Checks of what proxies and servers are given."""

from __future__ import annotations

import math
from typing import Any

SECONDS = 30.0
IDLE_SECONDS = 300.0
LINE_BYTES = 1024 * 1024
#: Connections that a server keeps after their first answer, as the libraries of the study have it.
POOL = 3
#: As the Lua library has it, whose select() knows 1,024 descriptors.
POOL_MAX = 512


def choice(name: str, value: Any, *allowed: str) -> None:
    """An option that is one of few words."""
    if value not in allowed:
        raise ValueError(f"luarpc: option {name} is {value!r}; it has to be {' or '.join(map(repr, allowed))}")


def positive(name: str, value: Any) -> None:
    """An option that is a number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"luarpc: option {name} is {value!r}; it has to be a number above 0")


def pool_size(value: Any) -> None:
    """The option ``pool``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= POOL_MAX:
        raise ValueError(f"luarpc: option pool is {value!r}; it has to be a number from 1 to {POOL_MAX}")


def port_number(port: Any, least: int) -> int:
    """A port of at least ``least``."""
    number = int(port) if isinstance(port, str) and port.isascii() and port.isdigit() else port
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= 65535:
        raise ValueError(f"luarpc: port {port} is no number from {least} to 65535")
    return number


def shown_address(host: str, port: int) -> str:
    """``host:port``, as messages have it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
