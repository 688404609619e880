#!/usr/bin/env python3
"""Reads what cargo-nextest wrote of a run (JUnit).

    test_report.py filter FILE          a filter for the tests that failed; nothing when none did, or too many for chance
    test_report.py sum REPORT STATUS    says what failed and what was flaky, then "N passed, N failed"; STATUS is how the
                                        run ended, REPORT.xml its report, REPORT.again.xml that of the failed ones' second
"""

import sys
import xml.etree.ElementTree as tree
from pathlib import Path

AGAIN_MAX = 5
"""More failures than this are not by chance: nothing is run again."""


def cases(file):
    """Each test: (program, name), whether it passed, and what it printed when it failed."""
    for suite in tree.parse(file).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            failure = case.find("failure") if case.find("failure") is not None else case.find("error")
            printed = "".join(part.text or "" for part in case if part.tag in ("system-out", "system-err"))
            if case.find("skipped") is None:
                yield (suite.get("name"), case.get("name")), failure is None, printed


def failed_of(file):
    return {test: printed for test, passed, printed in cases(file) if not passed}


def print_filter(file):
    failed = failed_of(file)
    if 0 < len(failed) <= AGAIN_MAX:
        print(" | ".join(f"(binary_id({program}) & test(={name}))" for program, name in failed))


def print_sum(report, status):
    first, again = Path(f"{report}.xml"), Path(f"{report}.again.xml")
    if not first.exists():
        print("no test was run")
        print("0 passed, 1 failed")
        return 1
    failed = failed_of(first)
    passed = sum(passed for _, passed, _ in cases(first))
    second = {test for test, passed, _ in cases(again) if passed} if again.exists() else set()
    for program, name in sorted(second & failed.keys()):
        print(f"FLAKY {program} {name}: failed, and passed when it was run again alone. The first time it printed:")
        print("\n".join("    " + line for line in failed[program, name].splitlines()[-60:]))
    lasting = sorted(failed.keys() - second)
    for program, name in lasting:
        print(f"failed: {program} {name}")
    # The run may have failed without a test that did: a program that could not even list its tests.
    failures = len(lasting) or int(status != 0 and not failed)
    print(f"{len(second & failed.keys())} flaky")
    print(f"{passed + len(second & failed.keys())} passed, {failures} failed")
    return int(failures > 0)


def main(arguments):
    match arguments:
        case ["filter", file]:
            print_filter(file)
        case ["sum", report, status]:
            return print_sum(report, int(status))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
