"""Opens and looks at a file that others replace without pause. Takes the directory, the number of those who replace it and
how often it is opened. Prints what failed."""

import errno, os, signal, sys

os.chdir(sys.argv[1])
WRITERS, OPENS = int(sys.argv[2]), int(sys.argv[3])


def replace(number):
    round = 0
    while True:
        round += 1
        with open(f"new{number}", "w") as new:
            new.write(f"{number} {round}\n")
        os.rename(f"new{number}", "file")


with open("file", "w") as first:
    first.write("0 0\n")
writers = []
for number in range(WRITERS):
    child = os.fork()
    if child == 0:
        replace(number)
    writers.append(child)
failed = {}


def attempt(name, work):
    try:
        if work():
            return
        failed[name, "wrong"] = failed.get((name, "wrong"), 0) + 1
    except OSError as error:
        key = name, errno.errorcode[error.errno]
        failed[key] = failed.get(key, 0) + 1


def read():
    with open("file") as file:
        return len(file.read().split()) == 2


def write():
    os.close(os.open("file", os.O_RDWR | os.O_CREAT))
    return True


for _ in range(OPENS):
    attempt("open", read)
    attempt("open for writing", write)
    attempt("stat", lambda: os.stat("file").st_size > 3)
    attempt("access", lambda: os.access("file", os.R_OK))
for writer in writers:
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
print(" ".join(f"{name}: {what} {count}" for (name, what), count in failed.items()) or "none failed")
