#!/usr/bin/env bash
# fsx: random reads, writes, mappings, cuts and holes in one file, each read compared with what must be there; with the
# kernel's pages dropped now and then (fadvise, invalidating msync), so that reads ask the servers again, and without.
# VAZAO_FSX_FULL=1 is the long run: 20 seeds of 100,000 operations. VAZAO_FSX_SEEDS (default 3) and
# VAZAO_FSX_OPERATIONS (default 4000) set the two one by one.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/volume.sh
sandbox_enter

if [[ "${VAZAO_FSX_FULL:-}" == 1 ]]; then
    seeds="${VAZAO_FSX_SEEDS:-20}"
    operations="${VAZAO_FSX_OPERATIONS:-100000}"
else
    seeds="${VAZAO_FSX_SEEDS:-3}"
    operations="${VAZAO_FSX_OPERATIONS:-4000}"
fi
mountpoint="$TMPDIR/fsx-mount"
fsx="$(tool fsx 0.3.2)"
volume_start "$mountpoint" rw

# configuration LENGTH OPERATION_LENGTH DROPS: a file's largest length, that of one read or write, and how often pages
# are dropped. An operation has at least one byte: fsx would draw allocations of none as well, which no file system
# takes, and end there.
configuration() {
    cat <<END
flen = $1
[opsize]
min = 1
max = $2
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = $3
truncate = 5
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 2
punch_hole = 3
sendfile = 3
posix_fadvise = $(($3 * 4))
copy_file_range = 3
END
}

# Around the limit of what lies in the inode record; and over stripe units and servers.
configuration 40000 20000 1 >"$TMPDIR/small.toml"
configuration 3000000 300000 1 >"$TMPDIR/striped.toml"
configuration 40000 20000 0 >"$TMPDIR/small-cached.toml"
configuration 3000000 300000 0 >"$TMPDIR/striped-cached.toml"

passed=0
failed=0
for ((seed = 1; seed <= seeds; seed++)); do
    for kind in small striped small-cached striped-cached; do
        log="$TMPDIR/fsx-$kind-$seed.log"
        if "$fsx" -q -f "$TMPDIR/$kind.toml" -S "$seed" -N "$operations" -P "$TMPDIR" \
            "$mountpoint/$kind-$seed" >"$log" 2>&1; then
            passed=$((passed + 1))
        else
            cat "$log"
            echo "failed: fsx, $kind file, seed $seed"
            failed=$((failed + 1))
        fi
    done
done
volume_stop "$mountpoint"
echo "$passed passed, $failed failed"
[[ "$failed" -eq 0 ]]
