"""Reads of a file by the library for Python, timed. `./x bench-library` starts it; crates/client/examples/reads.rs says
its requests and its answers. Ranges in one call are read by fsspec's cat_ranges."""

import array
import sys
import time

from vazao.fsspec import VazaoFileSystem


def check(read, offset):
    numbers = memoryview(read).cast("Q")
    if numbers[0] != offset or numbers[-1] != offset + len(read) - 8:
        raise SystemExit(f"wrong bytes at offset {offset}: is the file that of ./x bench-library?")


def offsets(name):
    numbers = array.array("Q")
    with open(name, "rb") as file:
        numbers.frombytes(file.read())
    return list(numbers)


def stream(fs, path, size):
    buffer = memoryview(bytearray(size))
    offset = 0
    with fs.connection.open(path) as file:
        while count := file.readinto(buffer):
            check(buffer[:count], offset)
            offset += count


def ranges(fs, path, size, places):
    read = fs.cat_ranges([path] * len(places), places, [place + size for place in places], on_error="raise")
    for one, place in zip(read, places):
        check(one, place)


def each(fs, path, size, places):
    with fs.connection.open(path) as file:
        for place in places:
            check(file.pread(size, place), place)


def answer(fs, path, kind, size, name=None, first="0", step="1"):
    places = offsets(name)[int(first) :: int(step)] if name else []
    started_ns = time.monotonic_ns()
    if kind == "stream":
        stream(fs, path, int(size))
    else:
        {"list": ranges, "each": each}[kind](fs, path, int(size), places)
    return time.monotonic_ns() - started_ns


def main():
    fs = VazaoFileSystem()
    # Connects.
    fs.exists(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        print(answer(fs, sys.argv[1], *line.split()), flush=True)


main()
