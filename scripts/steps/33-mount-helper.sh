#!/usr/bin/env bash
# mount -t vazao, lines of /etc/fstab, remount and plain umount, through the helper that mount(8) looks for in /sbin.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/volume.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "the mount helper must be tested as root: mount(8) lets nobody else mount" >&2
    exit 1
fi

mountpoint="$TMPDIR/helper-mount"
second="$TMPDIR/helper-second"
passed=0
failed=0

# expect NAME COMMAND...: counts whether the command succeeds.
expect() {
    local name="$1"
    shift
    if "$@" >"$TMPDIR/said" 2>&1; then
        passed=$((passed + 1))
    else
        cat "$TMPDIR/said"
        echo "failed: $name"
        failed=$((failed + 1))
    fi
}

# refuses STATUS TEXT COMMAND...: it must end with this status and say this.
refuses() {
    local status="$1" text="$2" found=0
    shift 2
    "$@" >"$TMPDIR/refusal" 2>&1 || found=$?
    cat "$TMPDIR/refusal"
    [[ "$found" -eq "$status" ]] && grep -q -- "$text" "$TMPDIR/refusal"
}

# is_mounted DIRECTORY OPTION: the kernel has it mounted so.
is_mounted() {
    findmnt --noheadings --output OPTIONS --mountpoint "$1" | tr ',' '\n' | grep -qx -- "$2"
}

volume_start "$mountpoint" rw
mkdir "$second"

# What is installed on this machine comes back at the end.
mkdir "$TMPDIR/installed"
for link in /sbin/mount.vazao /sbin/mount.fuse.vazao; do
    [[ ! -L "$link" ]] || cp --no-dereference "$link" "$TMPDIR/installed/"
done
restore() {
    "$vazao" mount-helper --remove
    rm -f "/var/log/vazao/mount${second//[^a-zA-Z0-9]/-}.log"
    cp --no-dereference "$TMPDIR"/installed/* /sbin/ 2>/dev/null || true
}
# The sandbox tidies up after this.
trap 'status=$?; restore || true; set +e; (exit "$status"); sandbox_leave' EXIT

"$vazao" mount-helper --install >"$TMPDIR/links"
source="$VAZAO_CLUSTER:vz:/"
unset VAZAO_CLUSTER

expect "mount" mount -t vazao "$source" "$second" -o allow_other,noatime,noexec,_netdev,nofail,x-mount.test=1
expect "options reach the kernel" is_mounted "$second" noexec
expect "noatime reaches the kernel" is_mounted "$second" noatime
expect "write" sh -c "echo hello >'$second/f'"
expect "the same volume is seen through another mount" grep -qx hello "$mountpoint/f"
expect "remount read-only" mount -o remount,ro "$second"
expect "read-only reaches the kernel" is_mounted "$second" ro
expect "a read-only mount refuses" refuses 2 'Read-only' sh -c "echo x >'$second/f'"
expect "remount writable" mount -o remount,rw "$second"
expect "write again" sh -c "echo more >>'$second/f'"
expect "umount" umount "$second"
expect "an unknown option is named" refuses 1 'cache=none: unknown' mount -t vazao "$source" "$second" -o cache=none
expect "a missing cluster is named" refuses 32 '/no/such.toml' \
    mount -t vazao vz:/ "$second" -o cluster=/no/such.toml
expect "what is no volume is named" refuses 1 'not a volume' mount -t vazao /dev/null "$second"
printf '%s %s vazao allow_other,_netdev,nofail 0 0\n' "$source" "$second" >"$TMPDIR/fstab"
expect "a line of fstab" mount -T "$TMPDIR/fstab" "$second"
expect "mount -a finds it mounted" mount -a -T "$TMPDIR/fstab"
expect "the file is there" grep -qx more "$second/f"
expect "umount by its directory" umount "$second"

volume_stop "$mountpoint"
echo "$passed passed, $failed failed"
[[ "$failed" -eq 0 ]]
