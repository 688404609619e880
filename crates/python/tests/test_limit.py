"""What limited a stretch of work."""

import vazao

RESOURCES = {"disk", "network", "round_trip", "cpu", "bandwidth_limit", "lock", "no_answer", "caller", "idle", "unknown"}


def work(volume, path):
    """Work for longer than the tenth of a second that a verdict needs."""
    import time

    end = time.monotonic() + 0.15
    while time.monotonic() < end:
        volume.write_bytes(path, bytes(1_000_000))


def test_a_stretch_of_work_has_a_limit(volume, directory):
    watch = volume.watch()
    work(volume, directory + "/file")
    limit = watch.limit()
    # Which it is, if any, the machine decides.
    assert limit.resource in RESOURCES and "too short" not in limit.text, limit
    assert str(limit) == limit.text != ""
    assert limit.share is None or 0 <= limit.share
    assert 0 <= limit.score <= 1


def test_a_connection_tells_what_limited_since_its_first_file(directory):
    with vazao.connect() as volume:
        work(volume, directory + "/file")
        limit = volume.limit()
        assert limit.resource in RESOURCES and "too short" not in limit.text, limit
        assert isinstance(volume.limit(), vazao.Limit)
    with vazao.connect(is_watched=False) as volume:
        work(volume, directory + "/file")
        assert volume.limit().text.endswith("the stretch begins now")
