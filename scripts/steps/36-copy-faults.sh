#!/usr/bin/env bash
# Copies into a destination whose disk is full, an area and the volume, by large and small files: each failure is named,
# what fits arrives, and once there is room the same command copies the rest. Must run as root, to mount small file
# systems.
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
umount "$small"

# The same into a volume on small disks, which beside 64 MiB of reserve have room for 32 MiB together.
tight="$TMPDIR/tight"
"$vazao" up --dir "$tight" --data-servers 2 --detach
"$vazao" down --dir "$tight"
for node in data1 data2; do
    target="$tight/nodes/$node/target1"
    mv "$target" "$TMPDIR/$node-target"
    mkdir "$target"
    mount -t tmpfs -o size=80m "vazao-full-$node" "$target"
    cp -a "$TMPDIR/$node-target/." "$target"
done
"$vazao" up --dir "$tight" --detach
export VAZAO_CLUSTER="$tight/client.toml"
"$vazao" area add out "$out" --dir "$tight" --node data1
mkdir "$out/third"
for number in $(seq 1 160); do
    head -c 262144 /dev/urandom >"$out/third/$number"
done
# More than both disks hold, their reserve included: bytes that fill holes may go into that.
head -c 201326592 /dev/urandom >"$out/large"
expect "a large file that does not fit into the volume is named" \
    refuses 'No space\|no space\|full' "$vazao" cp data1:/out/large vz:/
without_large() { ! "$vazao" stat vz:/large; }
expect "it left no name behind in the volume" without_large
# A copy that was refused before its first byte leaves no part.
{ "$vazao" ls -a vz:/ | grep 'large.*part' || true; } | while read -r part; do "$vazao" rm "vz:/$part"; done
has_room() {
    local try
    # The servers look at their disks from time to time.
    for try in $(seq 60); do
        "$vazao" status | grep -q "is full" || return 0
        sleep 0.5
    done
    "$vazao" status
    return 1
}
# Objects go after their names: a copy that begins before finds the disks as full as they were.
is_given_back() {
    local try
    for try in $(seq 60); do
        [[ "$(df --output=used --block-size=1M "$tight"/nodes/*/target1 | tail -n +2 | sort -n | tail -1)" -lt 10 ]] && return 0
        sleep 0.5
    done
    df "$tight"/nodes/*/target1
    return 1
}
expect "the room of the part is given back" is_given_back
expect "without the part there is room again" has_room
expect "files that do not fit into the volume are named" \
    refuses 'No space\|no space\|full' "$vazao" cp -r data1:/out/third vz:/
names() { "$vazao" ls -a vz:/third; }
some_arrived() { names | grep -c '^[0-9]*$' | grep -qv '^0$'; }
expect "some of them arrived in the volume" some_arrived
whole_arrived() {
    local name
    for name in $(names | grep '^[0-9]*$'); do
        "$vazao" cat "vz:/third/$name" | cmp - "$out/third/$name" || return 1
    done
}
expect "those that arrived in the volume are whole" whole_arrived
no_parts() { ! names | grep part; }
expect "no part is left in the volume of those that did not" no_parts
for node in data1 data2; do
    mount -o remount,size=256m "$tight/nodes/$node/target1"
done
expect "larger disks are seen" has_room
expect "with room the rest is copied into the volume" "$vazao" cp -r --resume data1:/out/third vz:/
all_arrived() { [[ "$(names | grep -c '^[0-9]*$')" -eq 160 ]] && whole_arrived; }
expect "all are there in the volume" all_arrived
expect "with room the large one is copied into the volume" "$vazao" cp data1:/out/large vz:/
large_is_equal() { "$vazao" cat vz:/large | cmp - "$out/large"; }
expect "and equal in the volume" large_is_equal
"$vazao" down --dir "$tight"
umount "$tight"/nodes/*/target1

echo "$passed passed, $failed failed"
[[ "$failed" -eq 0 ]]
