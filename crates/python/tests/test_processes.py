"""Threads, children of fork(2), pickled handles, and interpreters that end with files open."""

import errno
import os
import pickle
import socket
import threading
import time

import pytest
import vazao

DATA = bytes(range(251)) * 4000


@pytest.fixture
def path(volume, directory):
    volume.write_bytes(directory + "/file", DATA)
    return directory + "/file"


def test_threads_share_a_file(volume, path):
    wrong = []
    with volume.open(path) as file:

        def read(start):
            buffer = bytearray(50_000)
            for offset in range(start, len(DATA) - len(buffer), 200_000):
                if file.preadinto(buffer, offset) != len(buffer) or buffer != DATA[offset : offset + len(buffer)]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 200_000, 25_000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        parts = []
        threads = [threading.Thread(target=lambda: parts.append(file.read(1000))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert sorted(parts) == sorted(DATA[start : start + 1000] for start in range(0, 20_000, 1000))


def test_others_run_during_a_call(tmp_path):
    ended = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        cluster = tmp_path / "client.toml"
        cluster.write_text(f'meta = ["127.0.0.1:{server.getsockname()[1]}"]\ninsecure = true\n')

        def connect():
            try:
                vazao.connect(cluster, deadline_ms=2000)
            except OSError as error:
                ended.append(error)

        thread = threading.Thread(target=connect)
        thread.start()
        # The call waits for an answer that never comes, and is not over: this thread has the interpreter meanwhile.
        with server.accept()[0]:
            assert not ended
            thread.join()
    assert len(ended) == 1


def test_a_close_waits_for_calls_of_others(volume, path):
    for _ in range(5):
        file = volume.open(path)
        said = []
        begun = threading.Event()

        def read():
            try:
                while True:
                    said.append(file.pread(100_000, 0) == DATA[:100_000])
                    begun.set()
            except (OSError, ValueError) as error:
                said.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        begun.wait()
        file.close()
        thread.join()
        assert all(one is True for one in said[:-1])
        assert isinstance(said[-1], ValueError) or said[-1].errno == errno.EBADF


def test_handles_of_the_parent_are_refused_in_a_child(volume, path, in_child):
    file = volume.open(path, "r+b")
    file.write(b"0")
    watch, listing = volume.watch(), volume.scandir("/")
    calls = {
        "read": lambda: file.read(1),
        "tell": file.tell,
        "write": lambda: file.write(b"x"),
        "close": file.close,
        "stat": lambda: volume.stat("/"),
        "disconnect": volume.close,
        "list": lambda: next(listing),
        "limit": watch.limit,
        "open": lambda: volume.open(path),
    }
    for name, call in calls.items():
        said = in_child(call)
        assert said.startswith("OSError: [Errno 9]") and "connect again in the child" in said, (name, said)
    file.close()
    assert volume.read_bytes(path) == b"0" + DATA[1:]


def test_a_child_connects_for_itself_while_threads_read(volume, path, in_child):
    ends = threading.Event()
    file = volume.open(path)

    def read():
        while not ends.is_set():
            file.seek(0)
            file.read(200_000)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()

    def child():
        nonlocal file
        # The parent's handles are let go of.
        file = None
        with vazao.connect() as own:
            return own.read_bytes(path) == DATA

    try:
        for _ in range(3):
            assert in_child(child) == "True"
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    file.seek(0)
    assert file.read() == DATA


def test_a_child_that_ends_as_python_does_leaves_the_parents_files(run, volume, directory):
    said = run(
        """
import os, sys, vazao
volume = vazao.connect()
file = volume.open(sys.argv[1], "wb")
file.write(b"of the parent")
process = os.fork()
if process:
    assert os.waitpid(process, 0)[1] == 0
    file.write(b", and more")
""",
        directory + "/file",
    )
    assert said == ""
    assert volume.read_bytes(directory + "/file") == b"of the parent, and more"


def test_a_connection_and_files_are_pickled(volume, path, run):
    file = volume.open(path)
    file.seek(100)
    again = pickle.loads(pickle.dumps(file))
    assert again.read(10) == DATA[100:110] and file.tell() == 100
    other, another = pickle.loads(pickle.dumps((volume, volume)))
    assert other is another and other is pickle.loads(pickle.dumps(volume)) and other is not volume
    assert other.read_bytes(path) == DATA
    for mode in ("ab", "r+b"):
        with volume.open(path, mode) as writing, pytest.raises(TypeError, match="only files opened for reading"):
            pickle.dumps(writing)
    program = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).read(5).hex())"
    assert run(program, pickle.dumps(file).hex()).strip() == DATA[100:105].hex()


def test_an_interpreter_ends_with_files_open(run, volume, directory):
    said = run(
        """
import io, sys, vazao
volume = vazao.connect()
raw = volume.open(sys.argv[1] + "/raw", "wb")
raw.write(b"x" * 100_000)
buffered = io.BufferedWriter(volume.open(sys.argv[1] + "/buffered", "wb"))
buffered.write(b"y" * 1000)
circle = [volume.open(sys.argv[1] + "/circle", "wb")]
circle.append(circle)
circle[0].write(b"z" * 10)
reading = volume.open(sys.argv[1] + "/raw")
listing, watch = volume.scandir("/"), volume.watch()
""",
        directory,
    )
    assert said == ""
    assert volume.read_bytes(directory + "/raw") == b"x" * 100_000
    assert volume.read_bytes(directory + "/buffered") == b"y" * 1000
    assert volume.read_bytes(directory + "/circle") == b"z" * 10


def test_an_interpreter_ends_while_threads_read(run, path):
    said = run(
        """
import sys, threading, vazao
volume = vazao.connect()
begun = threading.Event()
def read():
    file = volume.open(sys.argv[1])
    while True:
        file.pread(1_000_000, 0)
        begun.set()
for _ in range(3):
    threading.Thread(target=read, daemon=True).start()
begun.wait()
""",
        path,
    )
    assert said == ""


def test_connections_and_files_leave_nothing_behind(path):
    def count():
        return len(os.listdir("/proc/self/fd")) + len(os.listdir("/proc/self/task"))

    def use():
        with vazao.connect() as own, own.open(path) as file:
            assert file.read(10) == DATA[:10]
        assert vazao.connect().open(path).read(10) == DATA[:10]

    before = count()
    for _ in range(10):
        use()
    # Threads of a connection end a moment after it; those of others that are open come and go.
    end = time.monotonic() + 30
    while count() > before + 8 and time.monotonic() < end:
        time.sleep(0.05)
    assert count() <= before + 8
