#!/usr/bin/env bash
# Networks that part and clocks that jump under the real binaries: a cluster and two mounts, links that are cut and wall
# clocks of single processes that are set, under load. What was answered is there, in both mounts, and nothing hangs.
# VAZAO_PARTITION_ROUNDS (default 4) cuts and VAZAO_CLOCK_ROUNDS (default 3) jumps; VAZAO_PARTITION_SEED and
# VAZAO_CLOCK_SEED (default 1) draw others. Must run as root, with FUSE.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/counted.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "partitions must be tested as root: only root makes network namespaces" >&2
    exit 1
fi
product_build vazao-app vazao-faults
faults="$programs/vazao-faults"

counted partition "$faults" partition --rounds "${VAZAO_PARTITION_ROUNDS:-4}" --seed "${VAZAO_PARTITION_SEED:-1}"
counted clock "$faults" clock --rounds "${VAZAO_CLOCK_ROUNDS:-3}" --seed "${VAZAO_CLOCK_SEED:-1}"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
