# Runs named steps one after the other, goes on after a failure, and sums up. To be sourced.

passed=0
failed=0
failed_steps=()

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
    local step_passed step_failed
    step_passed="$(step_sum "$log" passed)"
    step_failed="$(step_sum "$log" failed)"
    rm -f "$log"
    passed=$((passed + step_passed))
    failed=$((failed + step_failed))
    if [[ $status -ne 0 ]]; then
        failed_steps+=("$name")
        # A step that failed without counting, as a compiler does, counts once.
        [[ $step_failed -gt 0 ]] || failed=$((failed + 1))
        printf '==> %s: FAILED after %d s\n' "$name" $((SECONDS - started))
    else
        printf '==> %s: done in %d s\n' "$name" $((SECONDS - started))
    fi
}

# bounded LIMIT COMMAND...: ends one that hangs, so that it is named (a test by "has been running for over 60 seconds")
# and the rest runs.
bounded() {
    timeout --verbose --kill-after=30s "$@"
}

step_sum() {
    { grep -E '^(test result: |[0-9]+ passed, [0-9]+ failed$)' "$1" || true; } |
        { grep -oE "[0-9]+ $2" || true; } | awk '{ sum += $1 } END { print sum + 0 }'
}

# Prints the failed steps and the closing line; its status is that of the whole run.
steps_end() {
    printf '\n'
    local name
    for name in "${failed_steps[@]}"; do
        printf 'failed: %s\n' "$name"
    done
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [[ ${#failed_steps[@]} -eq 0 && $failed -eq 0 ]]
}
