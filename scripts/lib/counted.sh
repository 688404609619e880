# Runs that count for themselves: their last line says how many passed and failed. Sourced by steps.

passed=0
failed=0

# counted NAME COMMAND...: runs the command, shows what it said and adds what it counted. One that ended badly and named
# no failure is one itself.
counted() {
    local name="$1" log="$TMPDIR/$1.log" status=0 counts
    shift
    "$@" >"$log" 2>&1 || status=$?
    # Its own last line is one of the numbers counted here.
    sed '/^[0-9]* passed, [0-9]* failed$/d' "$log"
    counts="$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 || true)"
    if [[ -n "$counts" ]]; then
        passed=$((passed + $(cut -d' ' -f1 <<<"$counts")))
        failed=$((failed + $(cut -d' ' -f3 <<<"$counts")))
    fi
    if [[ $status -ne 0 && "${counts##*, }" != [1-9]* ]]; then
        echo "failed: $name ended with status $status"
        failed=$((failed + 1))
    fi
}
