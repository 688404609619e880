# A place of its own for a test run, and the certainty that nothing of it stays behind. To be sourced.
#
# Every process started from here inherits VAZAO_TEST_RUN, also a daemon that detached itself: that is how they are
# found again; and children that write over their own environment, as sshd does for its title, by being children. Every
# temporary file and mount point lies under TMPDIR.

sandbox_enter() {
    [[ -z "${VAZAO_TEST_RUN:-}" ]] || return 0
    # /tmp, and a short name: addresses of Unix sockets have room for 107 bytes only.
    TMPDIR="$(mktemp -d /tmp/vazao-XXXXXX)"
    # Tests also act as other users, who have to get through to the mount points.
    chmod 711 "$TMPDIR"
    VAZAO_TEST_RUN="run-$$-${TMPDIR##*-}"
    export TMPDIR VAZAO_TEST_RUN
    # Not exported: a step within a run uses the run's place, and must not take it away when it ends.
    sandbox_owner=$$
    trap sandbox_leave EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# Processes of this run except this shell and those it is running now to find out.
sandbox_processes() {
    local directory process
    for directory in /proc/[0-9]*; do
        process="${directory#/proc/}"
        [[ "$process" != "$$" && "$process" != "$BASHPID" ]] || continue
        if tr '\0' '\n' 2>/dev/null <"$directory/environ" | grep -qx "VAZAO_TEST_RUN=$VAZAO_TEST_RUN" ||
            grep -qx "PPid:[[:space:]]*$$" "$directory/status" 2>/dev/null; then
            echo "$process"
        fi
    done 2>/dev/null
}

sandbox_signal() {
    local process
    for process in $(sandbox_processes); do
        kill "-$1" "$process" 2>/dev/null || true
    done
}

sandbox_unmount() {
    local mount_point
    # The kernel writes blanks in mount points as \040; the last mount has to go first.
    awk '{ print $2 }' /proc/mounts | tac | while read -r mount_point; do
        mount_point="$(printf '%b' "$mount_point")"
        if [[ "$mount_point" == "$TMPDIR"/* ]]; then
            echo "cleanup: unmounting $mount_point" >&2
            umount "$mount_point" 2>/dev/null || umount -l "$mount_point" 2>/dev/null ||
                fusermount3 -uz "$mount_point" || true
        fi
    done
}

# Loop devices are the machine's own: neither a mount namespace nor the end of a process takes them away.
sandbox_detach() {
    local device
    command -v losetup >/dev/null || return 0
    losetup --list --noheadings --output NAME,BACK-FILE 2>/dev/null | grep -F " $TMPDIR/" |
        while read -r device _; do
            echo "cleanup: detaching $device" >&2
            losetup --detach "$device" || true
        done
}

# sandbox_leave [STATUS]: removes everything, where this script made it, and exits.
sandbox_leave() {
    local status="${1:-$?}"
    trap - EXIT
    [[ "${sandbox_owner:-}" == "$$" ]] || exit "$status"
    # The reader of the output may be gone (`| head`): a SIGPIPE must not end the cleaning.
    trap '' PIPE
    set +e
    trap '' INT TERM HUP
    sandbox_unmount
    sandbox_signal TERM
    local tries
    for tries in 1 2 3 4 5 6 7 8 9 10; do
        [[ -n "$(sandbox_processes)" ]] || break
        sleep 0.2
    done
    sandbox_signal KILL
    sandbox_unmount
    sandbox_detach
    rm -rf --one-file-system "$TMPDIR" || true
    exit "$status"
}
