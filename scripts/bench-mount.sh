#!/usr/bin/env bash
# ./x bench-mount [NAME=DIR…] [-- ARGUMENTS OF vazao lab mounts]
# Builds the release binary, starts a fresh cluster (1 metadata service, 4 data servers), mounts its volume over
# /dev/fuse and, as root where the kernel offers it, over io_uring, and compares both with a local directory in small
# operations and streams, in turns. Directories named in front are measured first and are what ratios refer to: mount an
# empty FUSE file system there to see the share of the kernel interface's ceiling.
# VAZAO_BENCH_OPTIONS="threads=8 threads=96" measures a mount for each of these options beside the plain one.
set -euo pipefail

source scripts/lib/sandbox.sh
sandbox_enter

places=()
while [[ $# -gt 0 && "$1" != -- ]]; do
    places+=("$1")
    shift
done
[[ $# -eq 0 ]] || shift

cargo build --release --locked --package vazao-app
vazao="$(realpath "${CARGO_TARGET_DIR:-target}/release/vazao")"
"$vazao" up --dir "$TMPDIR/cluster" --data-servers 4 --detach >/dev/null
export VAZAO_CLUSTER="$TMPDIR/cluster/client.toml"

# mounted NAME OPTIONS: one more mount of the volume.
mounted() {
    local at="$TMPDIR/$1"
    mkdir "$at"
    "$vazao" mount vz:/ "$at" -o "$2" --log-file "$TMPDIR/$1.log"
    places+=("$1=$at")
}

mounted classic uring=off
for option in ${VAZAO_BENCH_OPTIONS:-}; do
    mounted "${option//[^a-zA-Z0-9]/-}" "uring=off,$option"
done

switch=/sys/module/fuse/parameters/enable_uring
if [[ -w "$switch" ]]; then
    before="$(cat "$switch")"
    # The status goes along: an echo that worked must not turn a failed run into a good one.
    trap 'status=$?; echo "$before" >"$switch"; sandbox_leave "$status"' EXIT
    echo Y >"$switch"
    mounted uring uring=on
    echo "$before" >"$switch"
else
    echo "not measured over io_uring: $switch is missing or cannot be written" >&2
fi
mkdir "$TMPDIR/local"
places+=("local=$TMPDIR/local")

"$vazao" lab mounts "${places[@]}" "$@"
