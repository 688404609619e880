"""The libraries for C and Python compared with that for Rust: runs their programs in turns, prints ratios.

    bench_library.py DIRECTORY ROUNDS MIB RUST C PYTHON

RUST, C and PYTHON are command lines that read the file of the volume behind them. It holds its own offsets, and lies
in the servers' page caches since it was written. Each round measures the three one after another, in an order that
changes, and gives a ratio; told are their median, smallest and largest. Never fails on speed, only on errors and wrong
bytes.
"""

import array
import random
import shlex
import signal
import statistics
import subprocess
import sys

RANGE_BYTES = 4096
RANGES = 10_000
SAMPLE_BYTES = 128 * 1024
WORKERS = 4
# A request that takes longer hangs: reading a GiB takes seconds.
ANSWER_SECONDS_MAX = 300


class Program:
    """A program that was started and has connected."""

    def __init__(self, command):
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench-library: {shlex.join(self.process.args)} ended, see its message above")
        return line.strip()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def write_offsets(name, count, step, limit):
    """A file of random offsets, multiples of a step below a limit: the same in every run."""
    chosen = random.Random(count)
    places = array.array("Q", (chosen.randrange(limit // step) * step for _ in range(count)))
    with open(name, "wb") as file:
        places.tofile(file)


def timed(programs, lines):
    """Seconds until the slowest of programs that work side by side has answered."""
    signal.alarm(ANSWER_SECONDS_MAX)
    for program, line in zip(programs, lines):
        program.ask(line)
    slowest_ns = max(int(program.answer()) for program in programs)
    signal.alarm(0)
    return slowest_ns / 1e9


def hung(signal_number, frame):
    """Ends the run when a program does not answer."""
    raise SystemExit(f"bench-library: a program has not answered for {ANSWER_SECONDS_MAX} s: is the cluster alive?")


def measured(title, goal_percent, commands, lines, rounds):
    """One row: each kind's programs with the same requests."""
    kinds = {kind: [Program(command) for _ in lines] for kind, command in commands.items()}
    try:
        for programs in kinds.values():
            signal.alarm(ANSWER_SECONDS_MAX)
            for program in programs:
                program.answer()
            timed(programs, lines)  # what is done once: connections, the cache of names
        seconds = {kind: [] for kind in kinds}
        for number in range(rounds):
            order = list(kinds)[number % 3 :] + list(kinds)[: number % 3]
            for kind in order:
                seconds[kind].append(timed(kinds[kind], lines))
    finally:
        for programs in kinds.values():
            for program in programs:
                program.end()
    print(f"{title}: Rust {statistics.median(seconds['Rust']):.3f} s", flush=True)
    for kind in ("C", "Python"):
        ratios = [100 * rust / other for rust, other in zip(seconds["Rust"], seconds[kind])]
        middle = statistics.median(ratios)
        verdict = "reached" if middle >= goal_percent else "missed"
        print(f"  {kind:<7} {middle:5.1f}% of Rust's rate ({min(ratios):.1f} to {max(ratios):.1f}), "
              f"goal {goal_percent}%: {verdict}", flush=True)


def main():
    signal.signal(signal.SIGALRM, hung)
    directory, rounds, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    commands = dict(zip(("Rust", "C", "Python"), sys.argv[4:7]))
    size = mib << 20
    ranges, samples = f"{directory}/ranges", f"{directory}/samples"
    write_offsets(ranges, RANGES, 8, size - RANGE_BYTES)
    write_offsets(samples, size // SAMPLE_BYTES, SAMPLE_BYTES, size)
    measured(f"{mib} MiB, 1 thread, calls of 1 MiB", 97, commands, [f"stream {1 << 20}"], rounds)
    measured(f"{RANGES} random ranges of 4 KiB, in one call", 70, commands, [f"list {RANGE_BYTES} {ranges}"], rounds)
    each = [f"each {SAMPLE_BYTES} {samples} {worker} {WORKERS}" for worker in range(WORKERS)]
    measured(f"{mib} MiB in samples of 128 KiB, {WORKERS} processes", 90, commands, each, rounds)


main()
