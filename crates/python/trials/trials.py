"""Libraries that read and write through fsspec: what each stores on the volume equals what it stores in a local
directory, byte for byte, also by four processes at once.

    trials.py DIRECTORY NAME...

DIRECTORY is empty and local; VAZAO_CLUSTER names the cluster. The last line is "N passed, N failed".
"""

import hashlib
import multiprocessing
import os
import sys
import traceback

import fsspec
import numpy as np

ROWS = 200_000
WORKERS = 4
TRIALS = {}


def trial(function):
    """One library. It stores what it makes below a URL, reads that in its own way, and returns what it has read."""
    TRIALS[function.__name__] = function
    return function


def in_processes(function, url):
    """Calls in four processes, each begun by a fork of this one, which has connections open."""
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        return pool.starmap_async(function, [(url, number) for number in range(WORKERS)]).get(timeout=120)


def table(number=0):
    import pandas

    random = np.random.default_rng(number)
    return pandas.DataFrame({
        "id": np.arange(ROWS) + number * ROWS,
        "value": random.normal(size=ROWS),
        "name": random.choice(["alpha", "beta", "gamma"], ROWS),
    })


def digest(*arrays):
    """Of values, whatever holds them."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def of_table(frame):
    frame = frame.sort_values("id")
    return digest(frame["id"].to_numpy("int64"), frame["value"].to_numpy("float64"),
                  np.array(frame["name"].tolist(), dtype="S8"))


def pandas_part(url, number):
    import pandas

    place = f"{url}/part{number}.parquet"
    table(number).to_parquet(place)
    return of_table(pandas.read_parquet(place))


@trial
def pandas(url):
    import pandas

    frame = table()
    frame.to_csv(f"{url}/table.csv", index=False)
    frame.to_json(f"{url}/table.json.gz", orient="records", lines=True, compression={"method": "gzip", "mtime": 1})
    read = [pandas.read_csv(f"{url}/table.csv"), pandas.read_json(f"{url}/table.json.gz", lines=True)]
    whole = [read[0]["id"].sum(), digest(read[0]["value"]), len(read[1])]
    return whole + in_processes(pandas_part, url)


def arrow_part(url, number):
    import pyarrow.dataset
    import pyarrow.compute as compute

    fs, path = fsspec.core.url_to_fs(f"{url}/arrow")
    part = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive", filesystem=fs)
    found = part.to_table(filter=compute.field("number") == number)
    return of_table(found.to_pandas())


@trial
def pyarrow(url):
    import pyarrow
    import pyarrow.dataset

    fs, path = fsspec.core.url_to_fs(f"{url}/arrow")
    for number in range(WORKERS):
        rows = pyarrow.Table.from_pandas(table(number).assign(number=number), preserve_index=False)
        pyarrow.dataset.write_dataset(
            rows, path, format="parquet", filesystem=fs, partitioning=["number"], partitioning_flavor="hive",
            basename_template=f"part{number}-{{i}}.parquet", existing_data_behavior="overwrite_or_ignore",
            use_threads=False)  # which may write batches in any order
    whole = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive", filesystem=fs)
    counts = [whole.count_rows(), of_table(whole.to_table(columns=["id", "value", "name"]).to_pandas())]
    return counts + in_processes(arrow_part, url)


@trial
def dask(url):
    import dask
    import dask.dataframe

    with dask.config.set(scheduler="processes", num_workers=WORKERS):
        frame = dask.dataframe.from_pandas(table(), npartitions=WORKERS)
        frame.to_parquet(f"{url}/dask")
        read = dask.dataframe.read_parquet(f"{url}/dask")
        means = read.groupby("name")["value"].mean().compute().sort_index()
        return [digest(means), of_table(read.compute())]


def zarr_part(url, number):
    import zarr

    array = zarr.open_array(f"{url}/array.zarr", mode="r+")
    array[number * 100:(number + 1) * 100] = np.full((100, 300), number + 0.5)
    return digest(array[number * 100:(number + 1) * 100])


@trial
def zarr(url):
    import zarr

    array = zarr.create_array(f"{url}/array.zarr", shape=(WORKERS * 100, 300), chunks=(50, 100), dtype="float64")
    array[:] = np.arange(WORKERS * 100 * 300, dtype="float64").reshape(-1, 300)
    before = digest(array[:])
    parts = in_processes(zarr_part, url)
    return [before, *parts, digest(zarr.open_array(f"{url}/array.zarr", mode="r")[:])]


@trial
def xarray(url):
    import xarray

    random = np.random.default_rng(7)
    data = xarray.Dataset(
        {"temperature": (("time", "x"), random.normal(size=(365, 200)))},
        coords={"time": np.arange(365), "x": np.arange(200)})
    data.to_zarr(f"{url}/climate.zarr", mode="w")
    with fsspec.open(f"{url}/climate.nc", "wb") as file:
        file.write(bytes(data.to_netcdf(engine="scipy")))
    read = xarray.open_zarr(f"{url}/climate.zarr")
    with fsspec.open(f"{url}/climate.nc") as file:
        old = xarray.open_dataset(file, engine="scipy").load()
    return [digest(read["temperature"].mean("time").to_numpy()), digest(old["temperature"].to_numpy())]


def h5py_part(url, number):
    import h5py

    with fsspec.open(f"{url}/cube.h5", "rb") as file, h5py.File(file, "r") as cube:
        return digest(cube["cube"][number::WORKERS])


@trial
def h5py(url):
    import h5py

    with fsspec.open(f"{url}/cube.h5", "wb") as file:
        with h5py.File(file, "w") as cube:
            cube.create_dataset("cube", data=np.random.default_rng(3).normal(size=(64, 64, 64)), chunks=(16, 16, 16))
    return in_processes(h5py_part, url)


@trial
def duckdb(url):
    import duckdb

    fs, path = fsspec.core.url_to_fs(url)
    table().to_parquet(f"{url}/duck.parquet")
    with duckdb.connect() as database:
        if not url.startswith("/"):
            database.register_filesystem(fs)
        place = url if not url.startswith("/") else path
        database.execute(
            f"copy (select name, sum(value) as total, count(*) as rows from read_parquet('{place}/duck.parquet') "
            f"group by name order by name) to '{place}/totals.csv'")
        rows = database.execute(f"select name, rows from read_csv('{place}/totals.csv') order by name").fetchall()
    return [str(rows)]


@trial
def torch(url):
    import torch

    with fsspec.open(f"{url}/samples", "wb") as file:
        file.write(np.arange(1_000 * 4096, dtype="int32").tobytes())
    with fsspec.open(f"{url}/model.pt", "wb") as file:
        torch.save({"weights": torch.arange(100_000, dtype=torch.float32)}, file)

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 1_000

        def __getitem__(self, index):
            with fsspec.open(f"{url}/samples", "rb") as file:
                file.seek(index * 4 * 4096)
                return torch.frombuffer(bytearray(file.read(4 * 4096)), dtype=torch.int32)

    loader = torch.utils.data.DataLoader(Samples(), batch_size=50, num_workers=WORKERS, timeout=120)
    batches = [digest(batch.numpy()) for batch in loader]
    with fsspec.open(f"{url}/model.pt", "rb") as file:
        return [*batches, digest(torch.load(file)["weights"].numpy())]


def stored(fs, root):
    """Each file below a directory, with the digest of its bytes."""
    found = {}
    for path in fs.find(root):
        found[path.split(root.strip("/"), 1)[1]] = hashlib.sha256(fs.cat_file(path)).hexdigest()
    return found


def run(name, directory):
    here, there = f"{directory}/{name}", f"vz://trials/{name}"
    os.makedirs(here)
    local, volume = fsspec.filesystem("file"), fsspec.filesystem("vz")
    volume.makedirs(f"/trials/{name}", exist_ok=True)
    expected, found = TRIALS[name](here), TRIALS[name](there)
    assert expected == found, (expected, found)
    files, copies = stored(local, here), stored(volume, f"/trials/{name}")
    assert files and files.keys() == copies.keys(), (files.keys(), copies.keys())
    other = [path for path, digest_of in files.items() if copies[path] != digest_of]
    assert not other, other


def main():
    passed = failed = 0
    for name in sys.argv[2:]:
        try:
            run(name, sys.argv[1])
            passed += 1
        except Exception:
            failed += 1
            print(f"failed: {name}", flush=True)
            traceback.print_exc()
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
