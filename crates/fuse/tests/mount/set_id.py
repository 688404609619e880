"""Changes the contents of files with set-id bits in every way there is, as several users, and compares the bits that
are left with those that a local file system leaves (Linux 6.2 and later). Takes the directory; prints differences."""

import ctypes, errno, mmap, os, sys

KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
GROUP, NOBODY = 1234, 65534
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(flags, offset, length):
    def change(path):
        fd = os.open(path, os.O_RDWR)
        if libc.fallocate(fd, flags, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")
        os.close(fd)

    return change


def writing(flags, offset=None):
    def change(path):
        fd = os.open(path, os.O_WRONLY | flags)
        os.write(fd, b"abc") if offset is None else os.pwrite(fd, b"abc", offset)
        os.close(fd)

    return change


def read_write(path):
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"abc", 5)
    os.close(fd)


def truncate_open(path):
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, 7)
    os.close(fd)


def splice(path):
    out, into = os.pipe()
    os.write(into, b"abc")
    fd = os.open(path, os.O_WRONLY)
    os.splice(out, fd, 3)
    os.close(fd)


def copy(path):
    source, fd = os.open("source", os.O_RDONLY), os.open(path, os.O_RDWR)
    os.copy_file_range(source, fd, 4096, 0, 0)
    os.close(fd)


def store(path):
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 16) as mapped:
        mapped[3] = 7
        mapped.flush()
    os.close(fd)


CHANGES = {
    "write": writing(0),
    "write beyond the end": writing(0, 200_000),
    "append": writing(os.O_APPEND),
    "read and write": read_write,
    "truncate": lambda path: os.truncate(path, 3),
    "make longer": lambda path: os.truncate(path, 300_000),
    "ftruncate": truncate_open,
    "O_TRUNC": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "O_CREAT and O_TRUNC": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
    "splice": splice,
    "copy_file_range": copy,
    "fallocate": fallocate(0, 0, 400_000),
    "fallocate within": fallocate(0, 0, 4),
    "fallocate behind the end": fallocate(KEEP_SIZE, 0, 400_000),
    "punch a hole": fallocate(PUNCH_HOLE | KEEP_SIZE, 0, 8),
    "zero a range": fallocate(ZERO_RANGE, 0, 8),
    "store through a mapping": store,
}
# By user, whether in the file's group and whether with the capability to keep the bits.
USERS = {"root": (0, [], True), "nobody": (NOBODY, [], False), "member": (NOBODY, [GROUP], False)}


def carry_out(trials, uid, groups):
    """Makes the changes as this user; the errors of those that failed."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups(groups)
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        for _, name, _, path in trials:
            try:
                CHANGES[name](path)
            except OSError as error:
                os.write(into, f"{path} {errno.errorcode[error.errno]}\n".encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as failures:
        failed = dict(line.split() for line in failures)
    os.waitpid(child, 0)
    return failed


def left(name, mode, groups, keeps):
    if keeps or name == "store through a mapping":
        return mode
    keeps_group = GROUP in groups and mode & 0o010 == 0
    return mode & ~(0o4000 if keeps_group else 0o6000)


os.chdir(sys.argv[1])
with open("source", "wb") as source:
    source.write(b"source" * 20_000)
os.chmod("source", 0o644)
tried = 0
for user, (uid, groups, keeps) in USERS.items():
    trials = [
        (size, name, mode, f"{user}{size}{name}{mode}".replace(" ", "-"))
        for size in (100, 100_000)
        for name in CHANGES
        for mode in (0o6777, 0o6767, 0o2767, 0o4777)
    ]
    for size, name, mode, path in trials:
        with open(path, "wb") as file:
            file.write(b"x" * size)
        os.chown(path, 4321, GROUP)
        os.chmod(path, mode)
    failed = carry_out(trials, uid, groups)
    for size, name, mode, path in trials:
        got, want = os.stat(path).st_mode & 0o7777, left(name, mode, groups, keeps)
        if path in failed or got != want:
            print(f"{name} of {size} bytes by {user}: {mode:o} became {got:o}, not {want:o} {failed.get(path, '')}")
        os.unlink(path)
    tried += len(trials)
print(tried, "tried")
