"""Implementations of LuaRPC as processes: one driver a language, which the suite makes a server or a client.

A server prints its port, or `error TEXT`. A client reads lines `open NAME HOST PORT OPTION=VALUE...`, `call NAME METHOD VALUE...` and
`close NAME`, and answers each with `ok VALUE...` or `error TEXT`. A value is `d1.5`, `s` and hexadecimal bytes, `r` and
a count of letters x (to a client only), or `n`; a text is hexadecimal bytes. Another language joins the suite with such a driver and a row in COMMANDS.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterable, Iterator, List, Optional, Union

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = "bindings/tests/drivers/"

#: Programs in Rust, which `./x test` builds before it runs the suite; VAZAO_PROFILE=debug takes those of a plain build.
PROGRAMS = (
    Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    / os.environ.get("VAZAO_PROFILE", "release")
    / "examples"
)

#: Longer than anything takes on a busy machine; what takes longer has hung.
ANSWER_SECONDS = 60.0

COMMANDS = {
    "lua5.1": ["lua5.1", DRIVERS + "driver.lua"],
    "lua5.2": ["lua5.2", DRIVERS + "driver.lua"],
    "lua5.3": ["lua5.3", DRIVERS + "driver.lua"],
    "lua5.4": ["lua5.4", DRIVERS + "driver.lua"],
    "luajit": ["luajit", DRIVERS + "driver.lua"],
    "python": [sys.executable, DRIVERS + "driver.py"],
    "rust": [str(PROGRAMS / "suite-driver")],
}

#: Those whose clients have the options repeatable and connected.
SCRIPTED = [name for name in COMMANDS if name != "rust"]

#: One of each code base, for what takes time: where only waiting is tested, the version makes no difference.
CODE_BASES = [name for name in ("lua5.4", "python", "rust") if name in COMMANDS]

Value = Union[float, bytes, None]


def missing() -> List[str]:
    """What is not there: interpreters that are not installed, the driver in Rust when it is not built."""
    return [command[0] for command in COMMANDS.values() if not shutil.which(command[0])]


class Process:
    """A driver, and the end of it."""

    def __init__(self, name: str, arguments: Iterable[str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            COMMANDS[name] + list(arguments), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.unread = b""

    def line(self) -> str:
        """The next line of its output, within ANSWER_SECONDS."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self.unread:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"{self.name} said nothing for {ANSWER_SECONDS:g} s")
            data = os.read(descriptor, 65536)
            if not data:
                raise AssertionError(f"{self.name} ended with status {self.process.wait(ANSWER_SECONDS)}")
            self.unread += data
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode()

    def rss_bytes(self) -> int:
        """The memory it occupies now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")

    def status(self) -> List[str]:
        """The kernel's account of it, from its state on (proc(5), /proc/pid/stat)."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()

    def cpu_seconds(self) -> float:
        """Processor time it has used."""
        fields = self.status()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait_idle(self) -> None:
        """Until it seems to have nothing to do. A test is weaker when that is wrong, and does not fail."""
        seen = [self.cpu_seconds()]
        while len(seen) < 100 and (len(seen) < 4 or seen[-1] > seen[-4]):
            time.sleep(0.05)
            seen.append(self.cpu_seconds())

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stands still meanwhile, so that what is sent to it comes at once."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            deadline = time.monotonic() + ANSWER_SECONDS
            while self.status()[0] != "T":
                assert time.monotonic() < deadline, "it does not stop"
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait(ANSWER_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


class Server(Process):
    """A server of an implementation, listening on `port`; `address` says why when it is 0."""

    def __init__(self, name: str, **options: object) -> None:
        words = [f"{key}={value}" for key, value in options.items()]
        super().__init__(name, ["server"] + words)
        self.address = self.line()
        self.port = int(self.address) if self.address.isdigit() else 0


class CallError(Exception):
    """What a client said went wrong."""


class Client(Process):
    """A client of an implementation."""

    def __init__(self, name: str) -> None:
        super().__init__(name, ["client"])
        self.opened = 0

    def command(self, *words: str) -> List[Value]:
        """Has it do something."""
        assert self.process.stdin is not None
        self.process.stdin.write((" ".join(words) + "\n").encode())
        self.process.stdin.flush()
        kind, *values = self.line().split(" ")
        if kind == "error":
            raise CallError(bytes.fromhex(values[0] if values else "").decode("utf-8", "replace"))
        return [decode(value) for value in values]

    def open(self, port: int, **options: object) -> "Proxy":
        """A proxy of it."""
        self.opened += 1
        name = f"p{self.opened}"
        self.command("open", name, "127.0.0.1", str(port), *(f"{key}={value}" for key, value in options.items()))
        return Proxy(self, name)


class Proxy:
    """A proxy within a client."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def call(self, method: str, *values: Value) -> List[Value]:
        """The result and the out arguments."""
        return self.client.command("call", self.name, method, *(encode(value) for value in values))

    def failure(self, method: str, *values: Value) -> str:
        """The error of a call that has to fail."""
        try:
            answer = self.call(method, *values)
        except CallError as error:
            return str(error)
        raise AssertionError(f"{self.client.name}: {method} answered {answer!r}")

    def close(self) -> None:
        """Closes its connection."""
        self.client.command("close", self.name)


def encode(value: Value) -> str:
    """A value as a word."""
    if value is None:
        return "n"
    if isinstance(value, bytes):
        if len(value) > 65536 and value == b"x" * len(value):
            return f"r{len(value)}"
        return "s" + value.hex()
    return "d" + repr(value)


def decode(word: str) -> Value:
    """A word as a value."""
    if word[0] == "d":
        return float(word[1:])
    return bytes.fromhex(word[1:]) if word[0] == "s" else None
