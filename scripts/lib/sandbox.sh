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
    # Where it is whatever directory the cleaning begins in.
    sandbox_program="$(realpath -m "${CARGO_TARGET_DIR:-target}")/release/vazao"
    # Not exported: a step within a run uses the run's place, and must not take it away when it ends.
    sandbox_owner=$$
    sandbox_traps
}

sandbox_traps() {
    trap sandbox_leave EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# sandbox_at_end COMMAND: runs it when this script ends, also when the run is interrupted: what puts back what is the
# machine's own, as a switch of the kernel.
sandbox_at_end() {
    sandbox_last="$1"
    sandbox_traps
}

# Processes of this run except this shell and those it is running now to find out. They are found by two programs,
# however many there are: a look at each by programs of its own takes half a second.
sandbox_processes() {
    local -a all=(/proc/[0-9]*)
    local self="$BASHPID"
    {
        grep -lzFx "VAZAO_TEST_RUN=$VAZAO_TEST_RUN" "${all[@]/%//environ}"
        grep -lx "PPid:[[:space:]]*$$" "${all[@]/%//status}"
    } 2>/dev/null | cut -d/ -f3 | sort -u | grep -vx -e "$$" -e "$self"
}

# sandbox_signal SIGNAL PROCESS...
sandbox_signal() {
    local process
    for process in "${@:2}"; do
        kill "-$1" "$process" 2>/dev/null || true
    done
}

# Those of the processes that are no shells.
sandbox_programs() {
    local process
    for process in "$@"; do
        [[ "$(cat "/proc/$process/comm" 2>/dev/null)" == bash ]] || echo "$process"
    done
}

# Ends all processes. Programs have two seconds to end by themselves, and shells five more: those of steps put back what
# is the machine's own once what they wait for has ended.
sandbox_kill() {
    local tries
    local -a left
    for tries in {0..90}; do
        mapfile -t left < <(sandbox_processes)
        [[ ${#left[@]} -gt 0 ]] || break
        case "$tries" in
        0) sandbox_signal TERM "${left[@]}" ;;
        # With each look: what was being started meanwhile is found by the next one.
        [2-6]?) sandbox_signal KILL $(sandbox_programs "${left[@]}") ;;
        [7-9]?) sandbox_signal KILL "${left[@]}" ;;
        esac
        sleep 0.1
    done
}

# Breaks the connections of FUSE mounts. A process that waits for the answer of one cannot be killed, and umount would
# wait for a daemon that hangs as well.
sandbox_abort() {
    local device mount_point
    awk '/ - fuse(blk|\.[^ ]*)? / { print $3, $5 }' /proc/self/mountinfo | while read -r device mount_point; do
        mount_point="$(printf '%b' "$mount_point")"
        if [[ "$mount_point" == "$TMPDIR"/* ]]; then
            echo 1 2>/dev/null >"/sys/fs/fuse/connections/${device#*:}/abort" || true
        fi
    done 2>/dev/null
}

sandbox_unmount() {
    local mount_point
    # The kernel writes blanks in mount points as \040; the last mount has to go first. Not by tac, which writes to a
    # disk that may be full.
    awk '{ at[NR] = $2 } END { for (i = NR; i > 0; i--) print at[i] }' /proc/mounts | while read -r mount_point; do
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

# Hosts, slow disks and limits of the laboratory are the machine's own, too, and lie outside of TMPDIR. What dead
# processes made is removed by what they wrote down of it; what belongs to other runs stays.
sandbox_sweep() {
    local said
    compgen -G "/run/vazao-lab/*" >/dev/null && [[ $EUID -eq 0 ]] || return 0
    if [[ ! -x "$sandbox_program" ]]; then
        echo "cleanup: what killed runs left in /run/vazao-lab stays: build vazao, then \`vazao lab sweep\`" >&2
        return 0
    fi
    said="$(timeout --kill-after=5s 60s "$sandbox_program" lab sweep 2>&1)" || said+=" (vazao lab sweep failed)"
    [[ -z "$said" ]] || echo "cleanup: $said" >&2
}

# What a script does last: it puts back what is the machine's own, and where it made the place, it removes everything.
sandbox_leave() {
    local status=$? run="$VAZAO_TEST_RUN"
    # A second signal, of what runs this script or of a person who waits, would end it in the middle. The reader of the
    # output may be gone as well (`| head`).
    trap '' INT TERM HUP PIPE
    set +e
    # What it starts now is no part of what an interrupted run ends.
    unset VAZAO_TEST_RUN
    ${sandbox_last:-}
    [[ "${sandbox_owner:-}" == "$$" ]] || exit "$status"
    export VAZAO_TEST_RUN="$run"
    sandbox_abort
    sandbox_unmount
    sandbox_kill
    sandbox_unmount
    # Before the files behind its disks are gone.
    sandbox_sweep
    sandbox_detach
    rm -rf --one-file-system "$TMPDIR"
    exit "$status"
}
