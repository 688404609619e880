"""Copies that nodes do."""

import errno

import pytest
import vazao


@pytest.fixture
def area(volume, area_reference):
    node, name = area_reference.split(":/")
    return volume.area(node, name)


def test_a_tree_is_copied_into_the_volume_and_back(volume, directory, area):
    area.mkdir("tree")
    for name in ("a", "b"):
        with area.open(f"tree/{name}", "wb") as file:
            file.write(name.encode() * 100_000)
    seen = []
    job = volume.copy(area.reference("tree"), directory + "/copy", recursive=True)
    status = job.wait(seen.append, timeout=60)
    assert (status.state, status.files_done, status.bytes_done) == ("done", 2, 200_000)
    assert seen[-1] == status and status.is_over and volume.job(job.id).status() == status
    assert volume.read_bytes(directory + "/copy/a") == b"a" * 100_000
    volume.copy(directory + "/copy/b", area.reference("back"), checksum=True).wait(timeout=60)
    with area.open("back") as file:
        assert file.readall() == b"b" * 100_000
    for name in ("tree/a", "tree/b", "back"):
        area.unlink(name)
    area.rmdir("tree")


def test_what_went_wrong_is_said(volume, directory, area):
    with pytest.raises(OSError, match="nothing"):
        volume.copy(area.reference("nothing"), directory + "/x").wait(timeout=60)
    with pytest.raises(OSError, match="no node has a part") as refused:
        volume.copy(directory, directory + "/x")
    assert refused.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="no job's ID"):
        volume.job("nonsense")
    with pytest.raises(OSError):
        volume.copy(area.reference("x"), directory, method="no such method").wait(timeout=60)


def test_a_copy_is_cancelled(volume, directory, area):
    with area.open("large", "wb") as file:
        file.write(bytes(16 << 20))
    job = volume.copy(area.reference("large"), directory + "/large", rate_bytes=1 << 20)
    with pytest.raises(TimeoutError, match="goes on"):
        job.wait(timeout=0)
    job.cancel()
    with pytest.raises(OSError, match="cancelled") as cancelled:
        job.wait(timeout=60)
    assert cancelled.value.errno == errno.ECANCELED
    area.unlink("large")
