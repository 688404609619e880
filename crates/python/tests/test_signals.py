"""Ctrl-C while a call waits for servers that do not answer: they are stopped, and go on afterwards."""

import contextlib
import glob
import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest

DATA = bytes(range(251)) * 40_000
WAIT_SECONDS_MAX = 60

# Calls may wait for longer than the tests do, so that no deadline ends them. "go" is said once the servers are stopped.
BEGINNING = """
import os, signal, sys, threading, vazao
path, data = sys.argv[1], bytes(range(251)) * 40_000
volume = vazao.connect(deadline_ms=600_000, is_watched=False)
assert volume.read_bytes(path + "-before") == data

def say(*words):
    print(*words, flush=True)

def wait_for(word):
    assert sys.stdin.readline().strip() == word

def interrupted(call, *arguments):
    say("ready")
    wait_for("go")
    say("calling")
    try:
        call(*arguments)
    except KeyboardInterrupt:
        say("interrupted")
        wait_for("go on")
    else:
        say("not interrupted")
"""


def state_of(place):
    with open(f"{place}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def wait_until_stopped(process):
    """A thread that runs when its process is told to stop does so a moment later: it may answer one more request."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while any(state_of(thread) != "T" for thread in glob.glob(f"/proc/{process}/task/*")):
        assert time.monotonic() < end, f"process {process} does not stop"
        time.sleep(0.001)


@contextlib.contextmanager
def stopped():
    """All servers of the cluster are stopped."""
    places = glob.glob(os.path.dirname(os.environ["VAZAO_CLUSTER"]) + "/**/running.json", recursive=True)
    processes = []
    for place in places:
        with open(place) as notice:
            processes.append(json.load(notice)["pid"])
    assert len(processes) >= 3, places
    try:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        for process in processes:
            wait_until_stopped(process)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


class Program:
    """A program in an interpreter of its own, whose main thread is sent SIGINT."""

    def __init__(self, text, path):
        command = [sys.executable, "-X", "dev", "-c", BEGINNING + text, path]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
        self.end = time.monotonic() + WAIT_SECONDS_MAX
        self.said = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def hear(self):
        """Its next line."""
        while b"\n" not in self.said:
            left = self.end - time.monotonic()
            assert left > 0 and select.select([self.process.stdout], [], [], left)[0], "it says nothing more"
            part = os.read(self.process.stdout.fileno(), 4096)
            assert part, self.said
            self.said += part
        line, self.said = self.said.split(b"\n", 1)
        return line.decode()

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def waits(self):
        """Returns once its main thread sleeps."""
        while state_of(f"/proc/{self.process.pid}/task/{self.process.pid}") != "S":
            assert time.monotonic() < self.end, "it does not wait"

    def interrupt(self):
        os.kill(self.process.pid, signal.SIGINT)

    def ends(self):
        said = self.said + self.process.communicate(timeout=max(self.end - time.monotonic(), 1))[0]
        assert self.process.returncode == 0, said
        return said.decode()


def interrupt_while_stopped(program, *words):
    assert program.hear() == "ready"
    with stopped():
        program.tell("go")
        for word in words or ["calling"]:
            assert program.hear() == word
        program.waits()
        program.interrupt()
        assert program.hear() == "interrupted"
    program.tell("go on")


@pytest.fixture
def path(volume, directory):
    for name in ("/file", "/file-before"):
        volume.write_bytes(directory + name, DATA)
    return directory + "/file"


READS = {
    "readinto": "interrupted(file.readinto, bytearray(1_000_000))",
    "read": "interrupted(file.read, 1_000_000)",
    "readall": "interrupted(file.readall)",
    "pread": "interrupted(file.pread, 1_000_000, 0)",
    "list": "interrupted(file.read_list, [(0, 10_000), (500_000, 10_000)])",
    "strided": "interrupted(file.read_strided, 0, 8, 1000, 1000)",
}


@pytest.mark.parametrize("call", READS.values(), ids=READS)
def test_a_read_ends_and_the_file_is_where_it_was(path, call):
    text = f"file = volume.open(path)\n{call}\nassert file.tell() == 0 and file.read(len(data)) == data\nsay('whole')"
    with Program(text, path) as program:
        interrupt_while_stopped(program)
        assert program.ends() == "whole\n"


def test_a_read_of_what_the_program_has_just_written_ends(path):
    # Little enough for the write not to wait, to where the file has its place already.
    text = """
file = volume.open(path, "w+b")
part = data[:1_000_000]
file.write(part)
file.flush()
def read():
    file.pwrite(part[::-1], 0)
    say("written")
    file.pread(1000, 999_000)
interrupted(read)
file.flush()
assert file.pread(len(data), 0) == part[::-1]
say("whole")
"""
    with Program(text, path) as program:
        interrupt_while_stopped(program, "calling", "written")
        assert program.ends() == "whole\n"


CONNECTIONS = {
    "volume": "interrupted(vazao.connect)",
    "data": "other = vazao.connect(deadline_ms=600_000)\ninterrupted(other.read_bytes, path)",
}


@pytest.mark.parametrize("call", CONNECTIONS.values(), ids=CONNECTIONS)
def test_a_connection_that_is_being_made_ends(path, call):
    with Program(call + "\nassert volume.read_bytes(path) == data\nsay('whole')", path) as program:
        interrupt_while_stopped(program)
        assert program.ends() == "whole\n"


def test_a_read_that_waits_for_another_threads_ends(path):
    text = """
file = volume.open(path)
def read():
    threading.Thread(target=file.read, args=(1000,)).start()
    file.read(1000)
interrupted(read)
"""
    with Program(text, path) as program:
        interrupt_while_stopped(program)
        assert program.ends() == ""


NAMES = {
    "stat": "interrupted(volume.stat, path)",
    "open": "interrupted(volume.open, path)",
    "scandir": "interrupted(lambda: list(volume.scandir(os.path.dirname(path))))",
    "mkdir": "interrupted(volume.mkdir, path + '-directory')",
}


@pytest.mark.parametrize("call", NAMES.values(), ids=NAMES)
def test_calls_on_names_end(path, call):
    with Program(call + "\nassert volume.read_bytes(path) == data\nsay('whole')", path) as program:
        interrupt_while_stopped(program)
        assert program.ends() == "whole\n"


WRITES = {
    "write": "interrupted(lambda: [file.write(data) for _ in range(20)])",
    "flush": "file.write(data)\ninterrupted(file.flush)",
    "fsync": "file.write(data)\ninterrupted(file.fsync)",
    "append": "file = volume.open(path, 'ab')\nfile.truncate(0)\ninterrupted(file.append, data)",
    "copy": "file.write(data)\nfile.flush()\nsource = file\nfile = volume.open(path + '-copy', 'w+b')\n"
    "interrupted(file.copy_from, source)\nfile.seek(0)\nfile.truncate()",
}


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
def test_what_a_call_has_written_is_there(path, call):
    text = f"""
file = volume.open(path, "w+b")
{call}
size = file.tell()
file.close()
assert volume.read_bytes(file.name) == (data * 20)[:size], size
say("whole")
"""
    with Program(text, path) as program:
        interrupt_while_stopped(program)
        assert program.ends() == "whole\n"


def test_a_close_goes_on_in_a_thread(volume, path):
    with Program("file = volume.open(path, 'wb')\nfile.write(data[::-1])\ninterrupted(file.close)", path) as program:
        interrupt_while_stopped(program)
        assert program.ends() == ""
    assert volume.read_bytes(path) == DATA[::-1]


def test_a_handler_of_the_programs_own_runs_when_the_call_returns(path):
    text = """
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
file = volume.open(path)
say("ready")
wait_for("go")
say("calling")
whole = file.read(len(data)) == data
say(whole, len(seen))
"""
    with Program(text, path) as program:
        assert program.hear() == "ready"
        with stopped():
            program.tell("go")
            assert program.hear() == "calling"
            program.waits()
            program.interrupt()
        assert program.ends() == "True 1\n"
