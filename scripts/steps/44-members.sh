#!/usr/bin/env bash
# Data servers that are killed, frozen or lose their disk under load, where files have copies: one of two copies, two of
# three. No call fails, what was answered is there, and then all copies are, equal byte for byte.
# VAZAO_MEMBER_ROUNDS (default 3) rounds with two copies and VAZAO_MEMBER_PAIR_ROUNDS (default 0) with three, beside the
# one whose copies are changed at the end; VAZAO_MEMBER_SEED (default 1) draws others. Must run as root, with FUSE.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/counted.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "servers that fail must be tested as root: only root makes a place that nothing gets out of" >&2
    exit 1
fi
product_build vazao-app vazao-faults
faults="$programs/vazao-faults"
seed="${VAZAO_MEMBER_SEED:-1}"

rounds() {
    counted "$1-copies" "$faults" members --copies "$1" --rounds "$2" --seed "$seed"
}
rounds 2 "${VAZAO_MEMBER_ROUNDS:-3}"
pairs="${VAZAO_MEMBER_PAIR_ROUNDS:-0}"
if [[ $pairs -gt 0 ]]; then
    rounds 3 "$pairs"
fi

# A run that cannot fail shows nothing: where a byte of one copy was changed, the comparison has to find it, and nothing
# else is found.
log="$TMPDIR/spoiled.log"
if "$faults" members --copies 3 --rounds 1 --seed "$seed" --only kill --spoil >"$log" 2>&1; then
    cat "$log"
    echo "failed: a copy that was changed was not found out"
    failed=$((failed + 1))
elif grep -q '^FAILED in round 0,.* 1 findings:$' "$log" && grep -q 'scrub --compare. found .*damaged: 1,' "$log"; then
    grep '^0: ' "$log"
    passed=$((passed + 1))
else
    cat "$log"
    echo "failed: a changed copy: the run ended before the comparison, or with another finding"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
