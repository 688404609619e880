#!/usr/bin/env bash
# Networks that part and clocks that jump under the real binaries: a cluster and two mounts, links that are cut and wall
# clocks of single processes that are set, under load. What was answered is there, in both mounts, and nothing hangs.
# VAZAO_PARTITION_ROUNDS (default 4) cuts and VAZAO_CLOCK_ROUNDS (default 3) jumps; VAZAO_PARTITION_SEED and
# VAZAO_CLOCK_SEED (default 1) draw others. Must run as root, with FUSE.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "partitions must be tested as root: only root makes network namespaces" >&2
    exit 1
fi
product_build vazao-app vazao-faults
faults="$programs/vazao-faults"

passed=0
failed=0

# run WHAT ARGUMENT...: runs the tool and adds what it counted.
run() {
    local what="$1" log="$TMPDIR/$1.log" status=0 counts
    "$faults" "$@" >"$log" 2>&1 || status=$?
    # Its own last line is one of the numbers counted here.
    sed '/^[0-9]* passed, [0-9]* failed$/d' "$log"
    counts="$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 || true)"
    if [[ -n "$counts" ]]; then
        passed=$((passed + $(cut -d' ' -f1 <<<"$counts")))
        failed=$((failed + $(cut -d' ' -f3 <<<"$counts")))
    fi
    if [[ $status -ne 0 && "${counts##*, }" != [1-9]* ]]; then
        echo "failed: $what ended with status $status"
        failed=$((failed + 1))
    fi
}

run partition --rounds "${VAZAO_PARTITION_ROUNDS:-4}" --seed "${VAZAO_PARTITION_SEED:-1}"
run clock --rounds "${VAZAO_CLOCK_ROUNDS:-3}" --seed "${VAZAO_CLOCK_SEED:-1}"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
