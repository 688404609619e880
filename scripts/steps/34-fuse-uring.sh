#!/usr/bin/env bash
# The tests of mounts once more with the kernel's requests over io_uring. The kernel module's switch is set for as long
# as this runs, and put back to what it was.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/steps.sh
source scripts/lib/runner.sh
sandbox_enter

switch=/sys/module/fuse/parameters/enable_uring
if [[ ! -e "$switch" ]]; then
    echo "NOT TESTED: this kernel ($(uname -r)) has no FUSE over io_uring; Linux 6.14 or later has"
    echo "0 passed, 0 failed"
    exit 0
fi
if [[ ! -w "$switch" ]]; then
    echo "$switch cannot be written: run the tests as root, with /sys writable" >&2
    exit 1
fi
before="$(cat "$switch")"
put_back() {
    echo "$before" >"$switch"
}
sandbox_at_end put_back
echo Y >"$switch"

# Those that depend on how requests come: the rest is decided behind the door, whichever it came through. All of them:
# `VAZAO_URING_FILTER="all()"`.
filter="${VAZAO_URING_FILTER:-test(/^(asynchronous|faults|consistency|locks|contents|shared_files|appends|mountpoints)::/)}"
filter="(package(vazao-fuse) & binary(mount) & ($filter)) | (package(vazao-app) & test(/^mount(_life)?::/))"
export VAZAO_TEST_URING=on
runner_tests "$report_directory/uring" "$filter" --package vazao-fuse --test mount
