# Runs named steps one after the other or in lanes side by side, goes on after a failure, and sums up. To be sourced.

# Where a run leaves what it found: `last` (commit, seconds, counts), and reports of tests as JUnit.
report_directory="$(realpath -m "${CARGO_TARGET_DIR:-target}")/test-report"

passed=0
failed=0
flaky=0
failed_steps=()
flaky_lines=""

# step NAME COMMAND...: runs the command and adds what it counted. Counts are read from the lines of `cargo test`
# ("test result: ok. 3 passed; 0 failed; …") and of our own scripts ("3 passed, 0 failed").
step() {
    local name="$1" log status=0 started=$SECONDS
    shift
    log="$(mktemp)"
    printf '\n==> %s\n' "$name"
    # Not through a pipe: a daemon that a test left behind would hold it open, and the step would never end.
    "$@" >"$log" 2>&1 &
    local process=$!
    tail -n +1 -f -s 0.2 --pid="$process" "$log" &
    local shown=$!
    wait "$process" || status=$?
    wait "$shown" || true
    step_count "$name" "$log" "$status"
    rm -f "$log"
    step_ended "$name" "$status" $((SECONDS - started))
}

# bounded LIMIT COMMAND...: ends one that hangs, so that it is named and the rest runs.
bounded() {
    timeout --verbose --kill-after=30s "$@"
}

# Locked while a run on this machine measures, or changes what is the machine's own: a directory that every machine has.
machine_lock="${VAZAO_TEST_LOCK:-/run}"

# alone SCRIPT: runs a script that measures, or that changes what is the machine's own. Two runs on one machine take
# turns: each would put back what it found of the other's.
alone() {
    local status=0
    flock --close --timeout 900 --conflict-exit-code 75 "$machine_lock" \
        timeout --verbose --kill-after=30s 15m bash "$1" || status=$?
    [[ $status -ne 75 ]] ||
        echo "$1: another test run on this machine has held $machine_lock for 15 minutes: wait for it, or end it" >&2
    return "$status"
}

# lane SCRIPT...: runs scripts of steps one after the other, beside other lanes and whatever comes next, each with a
# place of its own for its files. What one said is shown when it has ended. `lanes_end` waits for all lanes and counts.
lanes=()
lane_steps=()
lane() {
    [[ -n "${lane_results:-}" ]] || lane_results="$(mktemp -d)"
    lane_steps+=("$@")
    lane_run "$@" &
    lanes+=($!)
}

lane_run() {
    local script name started status
    for script in "$@"; do
        name="$(basename "$script" .sh)" started=$SECONDS status=0
        # A short name: addresses of Unix sockets have room for 107 bytes only.
        mkdir "$TMPDIR/${name%%-*}"
        TMPDIR="$TMPDIR/${name%%-*}" bounded 15m bash "$script" >"$lane_results/$name.log" 2>&1 || status=$?
        (
            flock 9
            printf '\n==> %s\n' "$name"
            cat "$lane_results/$name.log"
            step_ended "$name" "$status" $((SECONDS - started))
        ) 9>"$lane_results/lock"
        echo "$status" >"$lane_results/$name.status"
    done
}

lanes_end() {
    local process script name
    for process in "${lanes[@]}"; do
        wait "$process" || true
    done
    for script in "${lane_steps[@]}"; do
        name="$(basename "$script" .sh)"
        # A lane that ended early leaves steps without an answer: they failed.
        touch "$lane_results/$name.log"
        step_count "$name" "$lane_results/$name.log" "$(cat "$lane_results/$name.status" 2>/dev/null || echo 1)"
    done
    rm -rf "$lane_results"
    lanes=() lane_steps=() lane_results=""
}

# step_ended NAME STATUS SECONDS: says so.
step_ended() {
    if [[ $2 -eq 0 ]]; then
        printf '==> %s: done in %d s\n' "$1" "$3"
    else
        printf '==> %s: FAILED after %d s\n' "$1" "$3"
    fi
}

# Logs that a full disk cut off have lost what failed, and what passed.
steps_room_kib_min=16384

# steps_room: the KiB that are left for files of tests, and for what they say.
steps_room() {
    df --output=avail -k "$TMPDIR" | tail -n 1 | tr -d ' '
}

# step_count NAME LOG STATUS: adds what a step counted.
step_count() {
    local name="$1" log="$2" status="$3" step_passed step_failed step_flaky room
    room="$(steps_room)"
    if [[ "$room" -lt "$steps_room_kib_min" ]]; then
        echo "==> $name: FAILED: the disk of $TMPDIR is full ($room KiB left), what was said is cut off; make room there"
        [[ "$status" -ne 0 ]] || status=1
    fi
    step_passed="$(step_sum "$log" passed)"
    step_failed="$(step_sum "$log" failed)"
    step_flaky="$({ grep -oE '^[0-9]+ flaky$' "$log" || true; } | awk '{ sum += $1 } END { print sum + 0 }')"
    passed=$((passed + step_passed))
    failed=$((failed + step_failed))
    flaky=$((flaky + step_flaky))
    if [[ $step_flaky -gt 0 ]]; then
        flaky_lines+="$(sed -n '/^FLAKY /,/^[0-9]* flaky$/p' "$log" | grep -vE '^[0-9]+ flaky$')"$'\n'
    fi
    if [[ $status -ne 0 ]]; then
        failed_steps+=("$name")
        # A step that failed without counting, as a compiler does, counts once.
        [[ $step_failed -gt 0 ]] || failed=$((failed + 1))
    fi
}

step_sum() {
    { grep -E '^(test result: |[0-9]+ passed, [0-9]+ failed$)' "$1" || true; } |
        { grep -oE "[0-9]+ $2" || true; } | awk '{ sum += $1 } END { print sum + 0 }'
}

# Prints the flaky tests, the failed steps and the closing line, and leaves the same in target/test-report/last; its
# status is that of the whole run.
steps_end() {
    printf '\n%s' "$flaky_lines"
    local name
    for name in "${failed_steps[@]}"; do
        printf 'failed: %s\n' "$name"
    done
    mkdir -p "$report_directory"
    {
        echo "commit: $(git rev-parse HEAD 2>/dev/null || echo unknown)"
        echo "tree: $([[ -z "$(git status --porcelain 2>/dev/null)" ]] && echo clean || echo changed)"
        echo "seconds: $SECONDS"
        echo "passed: $passed"
        echo "failed: $failed"
        echo "flaky: $flaky"
    } >"$report_directory/last"
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [[ ${#failed_steps[@]} -eq 0 && $failed -eq 0 ]]
}
