"""Many ranges in one call: list and strided I/O."""

import numpy
import pytest

ROWS, COLUMNS = 200, 500


@pytest.fixture
def matrix(volume, directory):
    """A file with a matrix of 64-bit numbers, and the matrix."""
    numbers = numpy.arange(ROWS * COLUMNS, dtype=numpy.int64).reshape(ROWS, COLUMNS)
    volume.write_bytes(directory + "/matrix", numbers)
    return directory + "/matrix", numbers


def test_list_reads_return_the_bytes_of_each_range(volume, matrix):
    path, numbers = matrix
    data = numbers.tobytes()
    with volume.open(path) as file:
        ranges = [(offset, size) for offset, size in zip(range(0, 700_000, 7001), [0, 1, 100, 5000] * 25)]
        assert file.read_list(ranges) == [data[offset : offset + size] for offset, size in ranges]
        assert file.read_list([(len(data) - 3, 10), (len(data) + 5, 10)]) == [data[-3:], b""]
        assert file.read_list([]) == []
        offsets = numpy.array([8, 16])
        assert file.read_list(zip(offsets, numpy.array([4, 4]))) == [data[8:12], data[16:20]]


def test_list_reads_fill_arrays(volume, matrix):
    path, numbers = matrix
    with volume.open(path) as file:
        rows = numpy.zeros((3, COLUMNS), numpy.int64)
        done = file.readinto_list((row * COLUMNS * 8, rows[place]) for place, row in enumerate((5, 100, 7)))
        assert done == [COLUMNS * 8] * 3
        assert (rows == numbers[[5, 100, 7]]).all()


def test_list_reads_refuse_buffers_that_overlap(volume, matrix):
    with volume.open(matrix[0]) as file:
        buffer = bytearray(100)
        view = memoryview(buffer)
        with pytest.raises(OSError, match="overlap"):
            file.readinto_list([(0, view[:60]), (1000, view[50:])])
        assert file.readinto_list([(0, view[:50]), (1000, view[50:])]) == [50, 50]
        for wrong in ([(0, b"constant")], [(0, 5)], [(-1, buffer)], [0], [(0, numpy.zeros((4, 4))[:, 0])]):
            with pytest.raises((TypeError, BufferError, OverflowError, ValueError)):
                file.readinto_list(wrong)
        del view
        buffer.extend(b"no view of it is left")


def test_list_writes_are_read_back(volume, directory):
    path = directory + "/list"
    with volume.open(path, "w+b") as file:
        assert file.write_list([(10, b"abc"), (100_000, numpy.arange(4, dtype="u1")), (11, b"X")]) == 8
        assert file.pread(3, 10) == b"aXc" and file.pread(4, 100_000) == bytes(range(4))


def test_columns_of_a_matrix_are_read_in_one_call(volume, matrix):
    path, numbers = matrix
    with volume.open(path) as file:
        column = file.read_strided(17 * 8, 8, COLUMNS * 8, ROWS, dtype=numpy.int64)
        assert column.shape == (ROWS, 1) and (column[:, 0] == numbers[:, 17]).all()
        block = numpy.zeros((ROWS, 5), numpy.int64)
        assert file.readinto_strided(block, 10 * 8, 5 * 8, COLUMNS * 8) == block.nbytes
        assert (block == numbers[:, 10:15]).all()
        raw = file.read_strided(17 * 8, 8, COLUMNS * 8, ROWS)
        assert isinstance(raw, bytearray) and raw == column.tobytes()


def test_columns_are_written_in_one_call(volume, matrix):
    path, numbers = matrix
    with volume.open(path, "r+b") as file:
        column = numpy.full(ROWS, -1, numpy.int64)
        assert file.write_strided(column, 3 * 8, 8, COLUMNS * 8) == column.nbytes
        changed = numbers.copy()
        changed[:, 3] = -1
        assert file.read() == changed.tobytes()


def test_strided_calls_refuse_what_does_not_fit(volume, matrix):
    with volume.open(matrix[0]) as file:
        with pytest.raises(ValueError, match="no multiple"):
            file.readinto_strided(bytearray(10), 0, 3, 100)
        with pytest.raises(ValueError):
            file.readinto_strided(bytearray(10), 0, 0, 100)
        with pytest.raises(ValueError, match="no multiple"):
            file.read_strided(0, 10, 100, 2, dtype=numpy.int64)
        with pytest.raises(OSError, match="are the limit"):
            file.read_strided(0, 1, 1, (1 << 20) + 1)
        with pytest.raises(ValueError, match="contiguous"):
            file.readinto_strided(numpy.zeros((4, 4), order="F"), 0, 8, 100)
