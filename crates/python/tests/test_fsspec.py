"""vz:// for fsspec: its own suite, and what the suite does not ask for."""

import asyncio
import io
import pickle

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from vazao.fsspec import VazaoFileSystem


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return fsspec.filesystem("vz")

    @pytest.fixture
    def fs_path(self, directory):
        return directory


class TestCopy(AbstractCopyTests, Fixtures):
    pass


class TestGet(AbstractGetTests, Fixtures):
    pass


class TestOpen(AbstractOpenTests, Fixtures):
    pass


class TestPipe(AbstractPipeTests, Fixtures):
    pass


class TestPut(AbstractPutTests, Fixtures):
    pass


@pytest.fixture
def fs():
    return fsspec.filesystem("vz")


def test_urls_are_paths_from_the_root_on(fs, directory):
    for url in ("vz://a/b", "vz:///a/b", "vz:/a/b", "/a/b", "a/b", "vz://a/b/"):
        assert VazaoFileSystem._strip_protocol(url) == "/a/b"
    for url in ("vz://", "vz:///", "", "/"):
        assert VazaoFileSystem._strip_protocol(url) == "/"
    assert fs.unstrip_protocol("/a/b") == "vz://a/b"
    url = "vz:/" + directory + "/sub/file.gz"
    with fsspec.open(url, "wt", compression="infer") as file:
        file.write("text\n")
    with fsspec.open(url, "rt", compression="infer") as file:
        assert file.read() == "text\n"
    assert fsspec.url_to_fs(url)[0] is fs


def test_information_is_that_of_the_file(fs, directory):
    fs.pipe_file(directory + "/file", b"12345")
    fs.symlink(directory + "/file", directory + "/link")
    fs.symlink("/nowhere", directory + "/dangling")
    assert fs.islink(directory + "/link") and not fs.islink(directory + "/file")
    by_name = {info["name"].rsplit("/", 1)[1]: info for info in fs.ls(directory)}
    assert by_name["file"] == fs.info("vz:/" + directory + "/file")
    assert (by_name["link"]["type"], by_name["link"]["size"], by_name["link"]["islink"]) == ("file", 5, True)
    assert (by_name["dangling"]["type"], by_name["dangling"]["destination"]) == ("other", "/nowhere")
    assert fs.ls(directory, detail=False) == sorted(fs.find(directory))
    assert fs.ls(directory + "/file", detail=False) == [directory + "/file"]
    assert fs.isfile(directory + "/file") and fs.isdir(directory) and not fs.exists(directory + "/x")
    assert fs.size(directory + "/file") == 5 and fs.modified(directory + "/file").tzinfo
    assert fs.du(directory) >= 10
    with pytest.raises(FileNotFoundError):
        fs.ls(directory + "/x")
    assert [sorted(names) for _, _, names in fs.walk(directory)] == [["dangling", "file", "link"]]


def test_ranges_of_many_files_are_in_their_places(fs, directory):
    data = {f"{directory}/{number}": bytes([number]) * 1000 + b"end" for number in range(5)}
    fs.pipe(data)
    paths = list(data) * 3 + [directory + "/nothing"]
    starts = [0] * 5 + [990] * 5 + [-3] * 5 + [0]
    ends = [10] * 5 + [2000] * 5 + [None] * 5 + [1]
    expected = [data[path][start:end] for path, start, end in zip(paths[:15], starts, ends)]
    found = fs.cat_ranges(paths, starts, ends)
    assert found[:15] == expected and isinstance(found[15], FileNotFoundError)
    assert fs.cat_ranges(paths[:1], 3, 5) == [data[paths[0]][3:5]]
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, starts, ends, on_error="raise")
    with pytest.raises(ValueError):
        fs.cat_ranges(paths, [1], [2])
    assert fs.cat_file(paths[0], 1000, 1 << 60) == b"end" and fs.cat_file(paths[0], 2000) == b""
    assert fs.cat_file(paths[0], -3) == b"end" and fs.cat_file(paths[0], 0, -3) == data[paths[0]][:-3]
    assert fs.cat(list(data)) == data


def test_many_small_ranges_are_few_requests(fs, directory):
    fs.pipe_file(directory + "/file", bytes(4_000_000))

    class Counting:
        calls = 0

        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            Counting.calls += name.startswith(("read", "pread"))
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

    connection = fs.connection
    opened = connection.open
    connection.open = lambda *arguments: Counting(opened(*arguments))
    try:
        offsets = list(range(0, 3_900_000, 3900))
        found = fs.cat_ranges([directory + "/file"] * len(offsets), offsets, [offset + 100 for offset in offsets])
    finally:
        del connection.open
    assert found == [bytes(100)] * 1000 and Counting.calls == 1


def test_files_are_buffered_and_know_themselves(fs, directory):
    path = directory + "/file"
    with fs.open(path, "wb") as file:
        for number in range(1000):
            file.write(b"%04d\n" % number)
        assert file.size == 5000
    with fs.open(path) as file:
        assert isinstance(file, io.BufferedReader)
        assert (file.path, file.size, file.details["size"]) == (path, 5000, 5000)
        assert file.readline() == b"0000\n" and file.tell() == 5
        again = pickle.loads(pickle.dumps(file))
        assert again.read(5) == b"0001\n"
    with fs.open(path, "r+b") as file:
        file.seek(5)
        file.write(b"abcd")
    with fs.open(path, "ab") as file:
        file.write(b"end")
    assert fs.cat_file(path, 0, 10) == b"0000\nabcd\n" and fs.tail(path, 3) == b"end"


def test_moves_are_renames(fs, directory):
    fs.pipe_file(directory + "/a/b/file", b"x")
    inode = fs.info(directory + "/a/b/file")["ino"]
    fs.mv(directory + "/a", directory + "/new/c")
    assert fs.info(directory + "/new/c/b/file")["ino"] == inode
    fs.mv(directory + "/new/c/b/file", directory + "/new")
    assert fs.cat_file(directory + "/new/file") == b"x" and not fs.exists(directory + "/a")
    fs.mkdir(directory + "/many")
    fs.pipe({directory + "/f1": b"1", directory + "/f2": b"2"})
    fs.mv(directory + "/f*", directory + "/many")
    assert fs.find(directory + "/many") == [directory + "/many/f1", directory + "/many/f2"]
    assert not fs.exists(directory + "/f1")


def test_removals(fs, directory):
    fs.pipe({directory + "/a/1": b"", directory + "/a/b/2": b"", directory + "/c1": b"", directory + "/c2": b""})
    with pytest.raises(IsADirectoryError):
        fs.rm(directory + "/a")
    fs.rm(directory + "/c*")
    fs.symlink(directory + "/a", directory + "/link")
    fs.rm(directory + "/link", recursive=True)
    assert fs.find(directory) == [directory + "/a/1", directory + "/a/b/2"], "the link alone is removed"
    fs.rm(directory + "/a", recursive=True)
    assert fs.ls(directory) == []
    with pytest.raises(FileNotFoundError):
        fs.rm(directory + "/a", recursive=True)


def test_touch_keeps_or_empties(fs, directory):
    fs.pipe_file(directory + "/file", b"x")
    fs.touch(directory + "/file", truncate=False)
    assert fs.cat_file(directory + "/file") == b"x"
    fs.touch(directory + "/file")
    assert fs.cat_file(directory + "/file") == b""


def test_without_auto_mkdir_directories_have_to_be_there(directory):
    fs = fsspec.filesystem("vz", auto_mkdir=False)
    with pytest.raises(FileNotFoundError):
        fs.pipe_file(directory + "/a/file", b"x")


def test_transactions_name_files_at_their_end(fs, directory):
    path = directory + "/file"
    with fs.transaction:
        with fs.open(path, "wb") as file:
            file.write(b"whole")
        assert not fs.exists(path)
    assert fs.ls(directory, detail=False) == [path] and fs.cat_file(path) == b"whole"
    with pytest.raises(RuntimeError):
        with fs.transaction:
            with fs.open(directory + "/other", "wb") as file:
                file.write(b"half")
            raise RuntimeError
    assert fs.ls(directory, detail=False) == [path]


def test_a_get_of_nothing_makes_nothing(fs, directory, tmp_path):
    with pytest.raises(FileNotFoundError):
        fs.get_file(directory + "/nothing", str(tmp_path / "nothing"))
    assert list(tmp_path.iterdir()) == []
    fs.pipe_file(directory + "/file", b"12345")
    target = io.BytesIO()
    fs.get_file(directory + "/file", target)
    assert target.getvalue() == b"12345"


def test_asynchronous_calls(directory):
    async def work():
        fs = fsspec.filesystem("vz", asynchronous=True)
        await fs._pipe({f"{directory}/{number}": b"%d" % number for number in range(20)})
        names = await fs._ls(directory, detail=False)
        assert len(names) == 20
        assert await fs._cat_ranges(names, 0, 1) == [b"%c" % name.rsplit("/", 1)[1][0].encode() for name in names]
        assert (await fs._cat(names))[f"{directory}/7"] == b"7"
        assert (await fs._info(names[0]))["type"] == "file"
        await fs._mv_file(names[0], directory + "/moved")
        assert await fs._exists(directory + "/moved")
        await fs._rm(directory, recursive=True)
        assert not await fs._exists(directory)
        fs.connection.mkdir(directory)

    asyncio.run(work())


def test_files_of_open_async(directory):
    path = directory + "/deep/file"
    data = bytes(range(251)) * 10_000

    async def copy(fs, name):
        target = f"{directory}/copy-{name}"
        async with await fs.open_async(path) as source, await fs.open_async(target, "wb") as copied:
            while part := await source.read(100_000):
                assert await copied.write(part) == len(part)
        return target

    async def work():
        fs = fsspec.filesystem("vz", asynchronous=True)
        async with await fs.open_async(path, "wb") as file:
            assert await file.write(data) == len(data)
            await file.flush()
            assert (await fs._info(path))["size"] == len(data) and not file.closed
        assert file.closed
        for target in await asyncio.gather(*(copy(fs, name) for name in range(5))):
            assert await fs._cat_file(target) == data
        async with await fs.open_async(path, "r+b") as file:
            assert await file.seek(-3, 2) == len(data) - 3 and await file.read() == data[-3:]
            await file.seek(0)
            buffer = bytearray(5)
            assert await file.readinto(buffer) == 5 and buffer == data[:5] and await file.tell() == 5
        with pytest.raises(ValueError, match="closed"):
            await file.read()
        with pytest.raises(FileNotFoundError):
            await fs.open_async(directory + "/nothing")
        with pytest.raises(ValueError, match="binary"):
            await fs.open_async(path, "r")

    asyncio.run(work())


def test_a_file_system_is_pickled(fs, directory, run):
    fs.pipe_file(directory + "/file", b"12345")
    assert pickle.loads(pickle.dumps(fs)) is fs
    program = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).cat_file(sys.argv[2]).decode())"
    assert run(program, pickle.dumps(fs).hex(), directory + "/file") == "12345\n"


def test_a_child_of_fork_connects_anew(fs, directory, in_child):
    fs.pipe({directory + "/1": b"1", directory + "/2": b"2"})
    assert in_child(lambda: fs.cat_file(directory + "/1")) == "b'1'"
    assert in_child(lambda: len(fs.cat([directory + "/1", directory + "/2"]))) == "2"
    assert in_child(lambda: fsspec.filesystem("vz").cat_file(directory + "/2")) == "b'2'"
    assert fs.cat_file(directory + "/1") == b"1"


def test_a_cluster_that_is_not_there_fails_when_it_is_used(no_cluster):
    fs = fsspec.filesystem("vz", cluster=no_cluster)
    with pytest.raises(OSError, match="127.0.0.1:1"):
        fs.ls("/")
