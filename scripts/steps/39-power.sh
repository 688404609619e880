#!/usr/bin/env bash
# Losses of power under the real binaries: a cluster on disks that drop or tear what was not flushed, on ext4, XFS and
# Btrfs as far as they can be made here. What fsync had answered is there whole, names are as they were at one moment.
# VAZAO_POWER_ROUNDS (default 2) losses on each file system; VAZAO_POWER_SEED (default 1) draws others;
# VAZAO_POWER_BOUND_MS (default 30) is within how many milliseconds the changes of names may have been made that are
# lost: 10 are promised, and a busy machine wakes a writer late, which then notes its answer late.
# Must run as root, with FUSE and loop devices.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/counted.sh
source scripts/lib/packages.sh
sandbox_enter

rounds="${VAZAO_POWER_ROUNDS:-2}"
seed="${VAZAO_POWER_SEED:-1}"
bound_ms="${VAZAO_POWER_BOUND_MS:-30}"

if [[ $EUID -ne 0 ]]; then
    echo "losses of power must be tested as root: only root mounts file systems" >&2
    exit 1
fi
if ! command -v mkfs.xfs >/dev/null || ! command -v mkfs.btrfs >/dev/null; then
    # Without them the run says which file systems it has not tested.
    packages_install xfsprogs btrfs-progs >"$TMPDIR/apt.log" 2>&1 || tail -n 1 "$TMPDIR/apt.log"
fi
product_build vazao-app vazao-faults
faults="$programs/vazao-faults"

counted power "$faults" power --rounds "$rounds" --seed "$seed" --bound-ms "$bound_ms"

# A run that cannot fail shows nothing: on disks that answer flushes without doing them it has to find what is lost.
log="$TMPDIR/lying.log"
if "$faults" power --rounds 4 --seed "$seed" --bound-ms "$bound_ms" --on ext4 --only all --lying-disks >"$log" 2>&1; then
    cat "$log"
    echo "failed: disks that lie about flushes were not found out"
    failed=$((failed + 1))
elif grep -qE '^(FAILED|BROKEN OFF) on ext4, round [0-9]+' "$log" && ! grep -q '^BROKEN OFF on ext4, round 0,' "$log"; then
    # After a first loss that went unnoticed the next round may not even begin.
    passed=$((passed + 1))
else
    cat "$log"
    echo "failed: disks that lie about flushes: the run ended before a loss of power, or without a finding"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
