"""Areas of nodes."""

import pickle
import stat

import pytest
import vazao


@pytest.fixture
def area(volume, area_reference):
    node, name = area_reference.split(":/")
    return volume.area(node, name)


def test_areas_are_listed(volume, area):
    assert vazao.AreaInfo(area.name, False, "") in volume.areas(area.node)


def test_names_and_files_of_an_area(volume, area):
    area.mkdir("d")
    with area.open("/d/file", "xb") as file:
        assert file.write(b"0123456789") == 10
        file.fsync()
        with pytest.raises(OSError, match="files of the volume"):
            file.append(b"x")
    assert area.reference("d/file") == f"{area.node}:/{area.name}/d/file"
    with volume.open(area.reference("d/file")) as file:
        assert file.read(4) == b"0123" and file.read() == b"456789" and file.stat().st_size == 10
    area.chmod("d/file", 0o600)
    area.utime("d/file", modified_ns=5_000_000_000)
    area.truncate("d/file", 5)
    found = area.stat("d/file")
    assert (stat.S_IMODE(found.st_mode), found.st_mtime > 5, found.st_size) == (0o600, True, 5)
    area.rename("d/file", "d/other")
    (entry,) = pickle.loads(pickle.dumps(area)).scandir("d", with_attributes=True)
    assert entry.name == "other" and entry.is_file() and entry.attributes.st_size == 5
    area.unlink("d/other")
    area.rmdir("d")
    assert "d" not in area.listdir()
    capacity, available = area.space()
    assert capacity >= available > 0


def test_errors_name_the_file_of_the_area(volume, area):
    with pytest.raises(FileNotFoundError, match=f"{area.node}:/{area.name}/nothing"):
        area.stat("nothing")
    with pytest.raises(FileNotFoundError):
        area.scandir("nothing")
    with pytest.raises(OSError):
        volume.area(area.node, "nowhere").listdir()
    with pytest.raises(OSError):
        volume.area("no-node", "files").listdir()


def test_an_area_is_refused_in_a_child(area, in_child):
    said = in_child(lambda: area.stat(""))
    assert "connect again in the child" in said
