"""Open files: reading, writing, positions, and what is refused."""

import array
import errno
import io
import os

import pytest
import vazao

DATA = bytes(range(256)) * 1000


@pytest.fixture
def path(volume, directory):
    volume.write_bytes(directory + "/file", DATA)
    return directory + "/file"


def test_a_file_is_an_io_object(volume, path):
    with volume.open(path) as file:
        assert isinstance(file, io.RawIOBase)
        assert (file.readable(), file.writable(), file.seekable(), file.closed) == (True, False, True, False)
        assert file.read(10) == DATA[:10] and file.tell() == 10
        assert file.seek(-10, os.SEEK_END) == len(DATA) - 10
        assert file.read() == DATA[-10:] and file.read() == b"" and file.read(5) == b""
        assert file.seek(5) == 5 and file.seek(5, os.SEEK_CUR) == 10
        assert file.stat().st_size == len(DATA)
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
    assert file.closed


def test_buffered_and_text_files_go_over_it(volume, directory):
    path = directory + "/text"
    with io.TextIOWrapper(io.BufferedWriter(volume.open(path, "wb")), encoding="utf-8") as text:
        text.writelines(f"line {number} ä\n" for number in range(1000))
    with io.TextIOWrapper(io.BufferedReader(volume.open(path)), encoding="utf-8") as text:
        assert [line for line in text][999] == "line 999 ä\n"


def test_readinto_fills_every_kind_of_writable_buffer(volume, path):
    with volume.open(path) as file:
        for buffer in (bytearray(100), memoryview(bytearray(100)), array.array("I", [0] * 25)):
            assert file.preadinto(buffer, 7) == 100
            assert bytes(buffer) == DATA[7:107]
        assert file.readinto(memoryview(bytearray(100))[10:20]) == 10 and file.tell() == 10
        assert file.readinto(bytearray()) == 0
        tail = bytearray(100)
        assert file.preadinto(tail, len(DATA) - 30) == 30 and tail[:30] == DATA[-30:] and tail[30:] == bytes(70)


def test_buffers_that_cannot_be_filled_are_refused(volume, path):
    with volume.open(path) as file:
        for buffer in (b"constant", memoryview(b"constant"), memoryview(bytearray(10))[::2], "text", 7, None):
            with pytest.raises((TypeError, BufferError)):
                file.readinto(buffer)
        assert file.tell() == 0
        with pytest.raises((OverflowError, ValueError)):
            file.pread(10, -1)
        with pytest.raises((OverflowError, ValueError, MemoryError)):
            file.pread(1 << 63, 0)
        with pytest.raises(MemoryError):
            file.pread((1 << 63) - 100, 0)
        with pytest.raises(OSError) as refused:
            file.seek(-1)
        assert refused.value.errno == errno.EINVAL


def test_a_buffer_in_use_is_let_go_afterwards(volume, path):
    buffer = bytearray(100)
    with volume.open(path) as file:
        file.readinto(buffer)
        # Would be BufferError as long as a view of it is held.
        buffer.extend(b"more")
        with pytest.raises(OSError):
            volume.open(path, "ab").preadinto(buffer, 0)
        buffer.extend(b"more")


def test_writes_are_at_the_position_an_offset_or_the_end(volume, directory):
    path = directory + "/file"
    with volume.open(path, "xb") as file:
        assert file.write(b"0123456789") == 10
        assert file.pwrite(memoryview(b"ab"), 2) == 2 and file.tell() == 10
        assert file.write(array.array("B", [65, 66])) == 2
        assert file.append(b"end") == 12
        with pytest.raises(io.UnsupportedOperation):
            file.read()
    assert volume.read_bytes(path) == b"01ab456789ABend"
    with volume.open(path, "ab") as file:
        assert file.tell() == 15
        file.seek(0)
        assert file.write(b"!") == 1 and file.tell() == 16
    with volume.open(path, "r+b") as file:
        file.truncate(4)
        file.write(b"X")
        assert file.read() == b"1ab"
        file.fsync()
    assert volume.read_bytes(path) == b"X1ab"
    with pytest.raises(FileExistsError):
        volume.open(path, "xb")
    with volume.open(path, "wb"):
        pass
    assert volume.stat(path).st_size == 0


def test_holes_are_made_and_found(volume, directory):
    with volume.open(directory + "/sparse", "w+b") as file:
        file.pwrite(b"x" * 65536, 0)
        file.truncate(1 << 30)
        file.pwrite(b"x", 1 << 29)
        assert file.seek(0, os.SEEK_HOLE) >= 65536
        assert 65536 < file.seek(65536 * 2, os.SEEK_DATA) <= 1 << 29
        file.make_hole(0, 65536)
        assert file.pread(10, 0) == bytes(10)
        with pytest.raises(OSError) as nothing:
            file.seek((1 << 29) + 65536, os.SEEK_DATA)
        assert nothing.value.errno == errno.ENXIO


def test_copies_stay_within_the_volume(volume, path, directory):
    with volume.open(path) as source, volume.open(directory + "/copy", "w+b") as target:
        assert target.copy_from(source) == len(DATA)
        assert target.copy_from(source, offset=10, source_offset=100, size_bytes=50) == 50
        assert target.read() == DATA[:10] + DATA[100:150] + DATA[60:]
        assert target.copy_from(target, offset=len(DATA), source_offset=0, size_bytes=5) == 5


def test_a_file_that_cannot_be_opened_leaves_nothing_to_close(volume, directory, run):
    said = run(
        """
import sys, vazao
with vazao.connect() as volume:
    for path, mode in (("/nothing", "rb"), ("/nothing", "q"), (7, "rb"), (sys.argv[1], "wb")):
        try:
            volume.open(path, mode)
        except (OSError, ValueError, TypeError) as error:
            print(type(error).__name__)
""",
        directory,
    )
    assert said.split() == ["FileNotFoundError", "ValueError", "TypeError", "IsADirectoryError"]


def test_modes_that_make_no_sense_are_refused(volume, path):
    for mode in ("r", "b", "", "rwb", "rb+b", "q", "rbb", "br+x"):
        with pytest.raises(ValueError):
            volume.open(path, mode)
    assert volume.open(path, "br+").mode == "br+"


def test_a_closed_file_says_so(volume, path):
    file = volume.open(path)
    file.close()
    file.close()
    for call in (file.read, file.tell, file.stat, file.readable, file.flush, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed file"):
            call()
    with pytest.raises(ValueError, match="closed file"):
        file.readinto(bytearray(1))


def test_a_closed_connection_closes_its_files(path):
    volume = vazao.connect(is_watched=False)
    reading, writing = volume.open(path), volume.open(path + ".2", "wb")
    writing.write(b"kept")
    listing = volume.scandir("/")
    volume.close()
    volume.close()
    assert volume.closed
    for call in (lambda: reading.read(1), lambda: volume.stat("/"), lambda: next(listing), lambda: writing.write(b"")):
        with pytest.raises(OSError, match="the connection is closed") as refused:
            call()
        assert refused.value.errno == errno.EBADF
    reading.close()
    writing.close()
    with vazao.connect() as other:
        assert other.read_bytes(path + ".2") == b"kept"


def test_a_cluster_that_is_not_there_is_told_of(no_cluster):
    with pytest.raises(OSError, match="127.0.0.1:1.*vazao status"):
        vazao.connect(no_cluster)
    with pytest.raises(FileNotFoundError, match="client.toml"):
        vazao.connect("/nowhere/client.toml")
    with pytest.raises(TypeError):
        vazao.connect(dead_line=3)


def test_a_connection_that_hung_up_ends_calls(path):
    volume = vazao.connect()
    file = volume.open(path, "r+b")
    volume.hang_up()
    with pytest.raises(OSError) as cancelled:
        volume.stat(path)
    assert cancelled.value.errno == errno.ECANCELED
    with pytest.raises(OSError):
        file.pwrite(b"x", 100_000_000) and file.fsync()
    with pytest.raises(OSError):
        file.close()
    assert file.closed
