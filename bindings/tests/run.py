"""Runs the suite of bindings/tests; the last line is "N passed, N failed". Arguments name modules or tests.

Here is what all implementations have in common: every client with every server, peers of other dialects, peers that
mean harm, the programs of the documentation. What one language has alone is beside it: bindings/lua/tests,
bindings/python/tests, and in crates/luarpc what only Rust promises (that no call runs twice, bounds of the memory of
all connections together, calls that other threads carry out, interface files).
"""

from __future__ import annotations

import sys
import time
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "python"))

from implementations import missing  # noqa: E402


class Counting(unittest.TextTestResult):
    """Counts tests, and parts of tests, that failed."""

    passed = 0
    started = 0.0

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.started = time.monotonic()

    def addSuccess(self, test: Any) -> None:
        self.stream.write(f"{time.monotonic() - self.started:.1f} s ")
        super().addSuccess(test)
        self.passed += 1

    def getDescription(self, test: Any) -> str:
        return str(test.id()) + " " if isinstance(test, unittest.TestCase) else str(test)


def main() -> int:
    """Runs everything, or what the arguments name."""
    absent = missing()
    if absent:
        print(f"missing: {', '.join(absent)}; ./x setup installs interpreters, ./x test builds programs")
        return 1
    loader = unittest.defaultTestLoader
    if len(sys.argv) > 1:
        suite = loader.loadTestsFromNames(sys.argv[1:])
    else:
        suite = loader.discover(str(HERE), pattern="test_*.py")
    runner = unittest.TextTestRunner(stream=sys.stdout, resultclass=Counting, verbosity=2)
    result: Any = runner.run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.passed} passed, {failed} failed")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
