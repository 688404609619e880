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

# lacks DIRECTORY OPTION: the kernel has it mounted, and not so.
lacks() {
    findmnt --mountpoint "$1" >/dev/null && ! is_mounted "$@"
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
sandbox_at_end restore

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

# A handle of a file outlives what the kernel remembers of it: ESTALE was all that was left then.
# by_handle BEFORE: takes handles of a file and its directory, runs BEFORE, has the kernel forget, and opens them.
by_handle() {
    python3 - "$second/handles/deep" "$1" <<'END'
import ctypes, errno, os, subprocess, sys
path, before = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def take(name):
    handle, mount_id = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, name.encode(), ctypes.byref(handle), ctypes.byref(mount_id), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle
handles = take(path + "/f"), take(path)
mount = os.open(os.path.dirname(os.path.dirname(path)), os.O_RDONLY)
subprocess.run(["sh", "-c", before], check=True)
with open("/proc/sys/vm/drop_caches", "w") as drop:
    drop.write("2")
def opened(handle):
    descriptor = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return descriptor
try:
    assert os.read(opened(handles[0]), 100) == b"here\n"
    assert "f" in os.listdir(opened(handles[1]))
except OSError as error:
    print(errno.errorcode[error.errno])
    sys.exit(error.errno)
END
}
expect "mount for handles" mount -t vazao "$source" "$second"
mkdir -p "$second/handles/deep" "$second/handles/elsewhere"
echo here >"$second/handles/deep/f"
expect "a handle opens what the kernel has forgotten" by_handle true
expect "also from another directory" by_handle "mv '$second/handles/deep' '$second/handles/moved' &&
    mkdir '$second/handles/deep' && mv '$second/handles/moved' '$second/handles/elsewhere/deep'"
rm -r "$second/handles/deep" && mv "$second/handles/elsewhere/deep" "$second/handles/deep"
expect "a removed file's handle is stale" refuses 116 ESTALE by_handle "rm '$second/handles/deep/f'"
expect "umount after handles" umount "$second"

# mount(8) does not pass the defaults suid and dev on: set-user-id programs and devices never took effect.
expect "mount with suid and dev" mount -t vazao "$source" "$second" -o suid,dev,allow_other
install -m 4755 /usr/bin/id "$second/id"
mknod -m 666 "$second/null" c 1 3
as_nobody() {
    setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
}
# runs_as USER: the set-user-id program has this effective user.
runs_as() {
    [[ "$(as_nobody "$second/id" -u)" == "$1" ]]
}
expect "nosuid is not set" lacks "$second" nosuid
expect "nodev is not set" lacks "$second" nodev
expect "a set-user-id program has its owner's rights" runs_as 0
expect "a device is one" as_nobody sh -c "echo x >'$second/null'"
expect "remount without them" mount -o remount,nosuid,nodev "$second"
expect "nosuid is set" is_mounted "$second" nosuid
expect "the program has its caller's rights" runs_as 65534
expect "the device is none" refuses 2 'ermission denied' sh -c "echo x >'$second/null'"
expect "remount with them" mount -o remount,suid,dev "$second"
expect "the program has its owner's rights again" runs_as 0
expect "umount after that" umount "$second"
expect "mount without them" mount -t vazao "$source" "$second" -o nosuid,nodev,allow_other
expect "nosuid is set again" is_mounted "$second" nosuid
expect "nodev is set again" is_mounted "$second" nodev
expect "umount at last" umount "$second"

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
