"""Calls on names of the volume."""

import errno
import os
import stat

import pytest
import vazao


def test_attributes_are_those_of_stat(volume, directory):
    path = directory + "/file"
    volume.write_bytes(path, b"12345")
    volume.chmod(path, 0o640)
    volume.chown(path, 7, 8)
    volume.utime(path, accessed_ns=1_500_000_000, modified_ns=-500_000_000)
    found = volume.stat(path)
    assert stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o640
    assert (found.st_size, found.st_uid, found.st_gid, found.st_nlink) == (5, 7, 8, 1)
    assert (found.st_atime, found.st_mtime) == (1.5, -0.5)
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_500_000_000, -500_000_000)
    assert stat.S_ISDIR(volume.stat(os.fsencode(directory)).st_mode), "paths may be bytes"


def test_a_zone_without_a_proper_name_is_refused():
    for name in ["a b", "", "z" * 33]:
        with pytest.raises(OSError, match="zone name") as refused:
            vazao.connect(zone=name)
        assert refused.value.errno == errno.EINVAL


def test_a_time_that_no_file_can_have_is_refused(volume, directory):
    with pytest.raises(ValueError, match="no time"):
        volume.utime(directory, accessed_ns=1 << 100)


def test_directories_are_listed_with_and_without_attributes(volume, directory):
    volume.mkdir(directory + "/d")
    volume.write_bytes(directory + "/f", b"123")
    volume.symlink("f", directory + "/l")
    kinds = {entry.name: (entry.is_dir(), entry.is_file(), entry.is_symlink()) for entry in volume.scandir(directory)}
    assert kinds == {"d": (True, False, False), "f": (False, True, False), "l": (False, False, True)}
    sizes = {entry.name: entry.attributes.st_size for entry in volume.scandir(directory, with_attributes=True)}
    assert sizes["f"] == 3
    assert sorted(volume.listdir(directory)) == ["d", "f", "l"]
    with pytest.raises(NotADirectoryError):
        volume.scandir(directory + "/f")


def test_more_names_than_a_page_come_once(volume, directory):
    names = {f"name-{number}" for number in range(1100)}
    for name in names:
        volume.symlink("x", f"{directory}/{name}")
    listed = volume.listdir(directory)
    assert len(listed) == len(names) and set(listed) == names


def test_names_that_are_no_text_come_back(volume, directory):
    path = os.fsencode(directory) + b"/\xff\xfe"
    volume.write_bytes(path, b"x")
    (name,) = volume.listdir(directory)
    assert os.fsencode(name) == b"\xff\xfe"
    assert volume.read_bytes(f"{directory}/{name}") == b"x"


def test_links_lead_where_they_say(volume, directory):
    volume.write_bytes(directory + "/file", b"x")
    volume.link(directory + "/file", directory + "/second")
    volume.symlink("file", directory + "/symbolic")
    assert volume.readlink(directory + "/symbolic") == "file"
    assert volume.stat(directory + "/symbolic").st_nlink == 2
    assert stat.S_ISLNK(volume.stat(directory + "/symbolic", follow_symlinks=False).st_mode)


def test_renames_replace_or_refuse(volume, directory):
    volume.write_bytes(directory + "/a", b"a")
    volume.write_bytes(directory + "/b", b"b")
    with pytest.raises(FileExistsError):
        volume.rename(directory + "/a", directory + "/b", replace=False)
    volume.rename(directory + "/a", directory + "/b")
    assert volume.read_bytes(directory + "/b") == b"a" and not volume.exists(directory + "/a")


def test_directories_are_made_with_those_above(volume, directory):
    volume.makedirs(directory + "/a/b/c")
    volume.makedirs(directory + "/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        volume.makedirs(directory + "/a/b/c")
    with pytest.raises(OSError) as failed:
        volume.rmdir(directory + "/a")
    assert failed.value.errno == errno.ENOTEMPTY
    volume.rmdir(directory + "/a/b/c")
    with pytest.raises(IsADirectoryError):
        volume.unlink(directory + "/a/b")


def test_errors_are_of_their_class_and_name_the_thing(volume, directory):
    with pytest.raises(FileNotFoundError, match=f"vz:{directory}/nothing: no such file or directory"):
        volume.stat(directory + "/nothing")
    with pytest.raises(OSError, match="write it from the root on") as refused:
        volume.stat("relative")
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(TypeError):
        volume.stat(3)
    with pytest.raises(TypeError):
        volume.mkdir(directory + "/d", "0755")


def test_layouts_are_shown_and_set(volume, directory):
    volume.set_layout(directory, stripe_unit_bytes=128 * 1024, width=1)
    assert volume.layout(directory) == vazao.Layout(128 * 1024, 1, "stripe")
    volume.write_bytes(directory + "/file", bytes(100_000))
    assert volume.layout(directory + "/file") == vazao.Layout(128 * 1024, 1, "stripe")


def test_the_volume_has_space_and_nodes(volume):
    volume.sync()
    space = volume.space()
    assert space.capacity_bytes >= space.available_bytes > 0 and space.inodes > 0
    assert "data1" in volume.nodes()
