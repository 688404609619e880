"""A server or a client of the measurement of remote calls, in Python; calls/load.rs has the words of all."""

from __future__ import annotations

import math
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, List, Optional

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
INTERFACE = str(HERE / "interface.lua")
CALL_SECONDS = 5.0
LATENCIES_MAX = 1_000_000
#: A request and an answer of boo, as bytes for gRPC.
REQUEST = b"1\n"
ANSWER = b"nil\n1\n"
GRPC_OPTIONS = [("grpc.enable_http_proxy", 0)]


class Minha:
    """What is served."""

    def boo(self, number: float) -> Any:
        return None, number

    def foo(self, one: float, other: float) -> Any:
        return one + other, "text"


def serve_luarpc(address: str, profile: str) -> None:
    import luarpc

    with luarpc.Server(Minha(), INTERFACE, address=address, profile=profile) as server:
        print(server.address[1], flush=True)
        server.serve_forever()


def serve_grpc(address: str) -> None:
    from concurrent import futures

    import grpc

    boo = grpc.unary_unary_rpc_method_handler(lambda request, context: ANSWER)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=GRPC_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("minha", {"boo": boo}),))
    port = server.add_insecure_port(f"{address}:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def caller_luarpc(host: str, port: int, profile: str, method: str) -> Callable[[], None]:
    import luarpc

    function = getattr(luarpc.proxy(host, port, INTERFACE, profile=profile, timeout=CALL_SECONDS), method)
    arguments, expected = ((1,), (None, 1)) if method == "boo" else ((1, 2), (3, "text"))

    def once() -> None:
        answer = function(*arguments)
        if answer != expected:
            raise ValueError(f"{method} answered {answer!r}")

    return once


def caller_grpc(host: str, port: int, profile: str) -> Callable[[], None]:
    import grpc

    def check(answer: bytes) -> None:
        if answer != ANSWER:
            raise ValueError(f"boo answered {answer!r}")

    def connect() -> Any:
        return grpc.insecure_channel(f"{host}:{port}", options=GRPC_OPTIONS)

    def once_closing() -> None:
        with connect() as channel:
            check(channel.unary_unary("/minha/boo")(REQUEST, timeout=CALL_SECONDS, wait_for_ready=True))

    if profile == "close":
        return once_closing
    boo = connect().unary_unary("/minha/boo")
    return lambda: check(boo(REQUEST, timeout=CALL_SECONDS, wait_for_ready=True))


def failure(once: Callable[[], None]) -> Optional[str]:
    """What a call ended with, if it failed: any failure counts."""
    try:
        once()
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    return None


def percentile(latencies: List[float], share: float) -> float:
    """Milliseconds that `share` of the calls took at most."""
    return latencies[max(0, math.ceil(len(latencies) * share) - 1)] * 1000 if latencies else 0.0


def call(once: Callable[[], None], seconds: float, is_timed: bool) -> None:
    calls, errors, said = 0, 0, ""
    latencies: List[float] = []
    failure(once)  # connects
    processor, begun = time.process_time(), time.monotonic()
    now = begun
    while now - begun < seconds:
        before = now
        failed = failure(once)
        now = time.monotonic()
        if failed is None:
            calls += 1
            if is_timed and calls <= LATENCIES_MAX:
                latencies.append(now - before)
        else:
            errors, said = errors + 1, failed
    processor = time.process_time() - processor
    latencies.sort()
    shares = " ".join(f"{percentile(latencies, share):.6f}" for share in (0.50, 0.95, 0.99))
    print(f"{calls} {errors} {now - begun:.6f} {processor:.6f} {shares} {said}")


def main() -> None:
    role, protocol, *words = sys.argv[1:]
    if role == "server":
        address, profile, seconds = words
        signal.alarm(int(float(seconds)) + 1)
        return serve_grpc(address) if protocol == "grpc" else serve_luarpc(address, profile)
    host, port, profile, method, seconds, timed = words
    if protocol == "grpc":
        once = caller_grpc(host, int(port), profile)
    else:
        once = caller_luarpc(host, int(port), profile, method)
    return call(once, float(seconds), timed == "timed")


if __name__ == "__main__":
    main()
