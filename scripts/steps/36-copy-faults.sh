#!/usr/bin/env bash
# Copies into a destination whose disk is full, by large and small files: each failure is named, what fits arrives, and
# once there is room the same command copies the rest. Must run as root, to mount a small file system.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/volume.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "the full disk needs root: a small file system is mounted" >&2
    exit 1
fi

passed=0 failed=0

# expect WHAT COMMAND...: counts whether it succeeds.
expect() {
    local what="$1"
    shift
    if "$@" >"$TMPDIR/said" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        sed 's/^/    /' "$TMPDIR/said"
    fi
}

# refuses TEXT COMMAND...: it must fail and say this.
refuses() {
    local text="$1"
    shift
    if "$@" >"$TMPDIR/refusal" 2>&1; then
        echo "it succeeded"
        return 1
    fi
    cat "$TMPDIR/refusal"
    grep -q -- "$text" "$TMPDIR/refusal"
}

mountpoint="$TMPDIR/volume" small="$TMPDIR/small" out="$TMPDIR/out"
volume_start "$mountpoint" rw
mkdir -p "$small" "$out/set"
mount -t tmpfs -o size=8m vazao-full "$small"
"$vazao" area add out "$out" --dir "$volume_directory" --node data1
"$vazao" area add in "$small" --dir "$volume_directory" --node data2

head -c 16777216 /dev/urandom >"$out/large"
for number in $(seq 1 600); do
    head -c 16384 /dev/urandom >"$out/set/$number"
done
head -c 6291456 /dev/urandom >"$small/ballast"

expect "a large file that does not fit is named" \
    refuses 'No space\|no space\|full' "$vazao" cp data1:/out/large data2:/in/
expect "it left no name behind" test ! -e "$small/large"
rm -f "$small"/.large.*.part
expect "small files that do not fit are named" \
    refuses 'No space\|no space\|full' "$vazao" cp -r data1:/out/set data2:/in/
some() { [[ "$(find "$small/set" -type f | wc -l)" -gt 0 ]]; }
expect "some of them arrived" some
whole() {
    local name
    for name in "$small"/set/*; do
        cmp "$name" "$out/set/${name##*/}" || return 1
    done
}
expect "those that arrived are whole" whole
parts() { [[ -z "$(find "$small/set" -name '*.part')" ]]; }
expect "no part is left of those that did not" parts
rm "$small/ballast"
mount -o remount,size=32m "$small"
expect "with room the rest is copied" "$vazao" cp -r --resume data1:/out/set data2:/in/
all() { [[ "$(find "$small/set" -type f | wc -l)" -eq 600 ]] && whole; }
expect "all are there" all
expect "with room the large one is copied" "$vazao" cp data1:/out/large data2:/in/
expect "and equal" cmp "$out/large" "$small/large"

volume_stop "$mountpoint"
echo "$passed passed, $failed failed"
[[ "$failed" -eq 0 ]]
