#!/usr/bin/env bash
# ./x bench-mount [NAME=DIR…] [-- ARGUMENTS OF vazao lab mounts]
# Builds the release binary, starts a fresh cluster (1 metadata service, 4 data servers), mounts its volume over
# /dev/fuse and, as root where the kernel offers it, over io_uring, and compares both with a local directory in small
# operations and streams, in turns. Directories named in front are measured first and are what ratios refer to. Without
# any that is `vazao lab nullfs`, the ceiling of the kernel's interface; null=DIR takes another empty file system.
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
if [[ ${#places[@]} -eq 0 ]]; then
    mkdir "$TMPDIR/null"
    "$vazao" lab nullfs "$TMPDIR/null" -o uring=off &
    # Until then it is an empty directory of this machine's disk.
    for _ in {1..100}; do
        ! mountpoint -q "$TMPDIR/null" || break
        sleep 0.1
    done
    mountpoint -q "$TMPDIR/null"
    places+=("null=$TMPDIR/null")
fi
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
    put_back() {
        echo "$before" >"$switch"
    }
    sandbox_at_end put_back
    echo Y >"$switch"
    mounted uring uring=on
    echo "$before" >"$switch"
else
    echo "not measured over io_uring: $switch is missing or cannot be written" >&2
fi
mkdir "$TMPDIR/local"
places+=("local=$TMPDIR/local")

"$vazao" lab mounts "${places[@]}" "$@"
