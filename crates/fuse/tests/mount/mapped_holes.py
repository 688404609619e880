"""Stores into holes through a shared mapping and has programs copy the file before anything is synced. Prints what they
lost. Takes the directory and the size of the file."""

import ctypes, mmap, os, subprocess, sys

os.chdir(sys.argv[1])
size = int(sys.argv[2])
WORD = b"needle"
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

fd = os.open("file", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
os.ftruncate(fd, size)
place = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
os.close(fd)


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, timeout=60).stdout


def data():
    """Offsets in all runs of data."""
    found, position = [], 0
    reader = os.open("file", os.O_RDONLY)
    while True:
        try:
            start = os.lseek(reader, position, os.SEEK_DATA)
        except OSError:
            break
        position = os.lseek(reader, start, os.SEEK_HOLE)
        found.append(range(start, position))
    os.close(reader)
    return found


for at in (size // 2, size // 4, size - len(WORD)):
    ctypes.memmove(place + at, WORD, len(WORD))
    if not any(at in run for run in data()):
        print(f"SEEK_DATA does not see {at} in {size} bytes: {data()}")
    ctypes.memmove(place + at + 1, WORD[1:], len(WORD) - 1)
    run("cp", "--sparse=auto", "--reflink=never", "file", "copy")
    with open("copy", "rb") as copy:
        if copy.read()[at : at + len(WORD)] != WORD:
            print(f"cp lost {at} in {size} bytes")
at = size // 8
ctypes.memmove(place + at, WORD, len(WORD))
if run("grep", "-c", "-a", WORD.decode(), "file").strip() == b"0":
    print(f"grep found nothing in {size} bytes")
ctypes.memmove(place + at, WORD, len(WORD))
packed = run("tar", "-S", "-cf", "-", "file")
unpacked = subprocess.run(["tar", "-xOf", "-", "file"], input=packed, stdout=subprocess.PIPE, timeout=60).stdout
if unpacked[at : at + len(WORD)] != WORD:
    print(f"tar lost {at} in {size} bytes")
if size > 1 << 20 and sum(map(len, data())) > size // 2:
    print(f"holes are lost: {data()}")
print("done")
