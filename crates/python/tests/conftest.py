"""What all tests use: the cluster that $VAZAO_CLUSTER names, and a directory of its own for each test."""

import itertools
import os
import subprocess
import sys

import pytest
import vazao

_numbers = itertools.count()


@pytest.fixture(scope="session")
def volume():
    with vazao.connect() as volume:
        yield volume


@pytest.fixture
def directory(volume):
    path = f"/test-{os.getpid()}-{next(_numbers)}"
    volume.mkdir(path)
    return path


@pytest.fixture(scope="session")
def no_cluster():
    """The client.toml of a cluster that is not there: nothing listens at its address."""
    return os.environ["NO_CLUSTER"]


@pytest.fixture(scope="session")
def area_reference():
    """An area of a node, as "n1:/area"."""
    return os.environ["AREA"]


@pytest.fixture
def run():
    """Runs a program in an interpreter of its own, and returns what it says."""

    def run(program, *arguments):
        # In the mode for developers it tells of errors when it closes files.
        options = ["-X", "dev", "-W", "error", "-W", "ignore::DeprecationWarning"]
        command = [sys.executable, *options, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def in_child():
    """Runs a function in a child of fork(2), and returns what it returned there, as text."""

    def in_child(function):
        receiving, sending = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                said = str(function())
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(sending, said.encode())
            os._exit(0)
        os.close(sending)
        with open(receiving) as pipe:
            said = pipe.read()
        assert os.waitpid(process, 0)[1] == 0
        return said

    return in_child
