#!/usr/bin/env bash
# Remote calls by the LuaRPC protocol: each version of Lua and each library by itself, then every client against every
# server in both profiles, those in Rust too, peers of other dialects, and peers that mean harm.
set -euo pipefail

source scripts/lib/sandbox.sh
sandbox_enter

passed=0
failed=0

# run WHAT COMMAND...: runs one suite and adds what it counted.
run() {
    local what="$1" log="$TMPDIR/$1.log" status=0 counts
    shift
    timeout --kill-after=10s 5m "$@" >"$log" 2>&1 || status=$?
    # Its own last line is one of the numbers counted here.
    sed '/^[0-9]* passed, [0-9]* failed$/d' "$log"
    counts="$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 || true)"
    if [[ -n "$counts" ]]; then
        passed=$((passed + $(cut -d' ' -f1 <<<"$counts")))
        failed=$((failed + $(cut -d' ' -f3 <<<"$counts")))
    fi
    if [[ $status -ne 0 && "${counts##*, }" != [1-9]* ]]; then
        echo "failed: $what ended with status $status"
        failed=$((failed + 1))
    fi
}

for lua in lua5.1 lua5.2 lua5.3 lua5.4 luajit; do
    run "$lua" "$lua" bindings/lua/tests/run.lua
done
run python python3 -W error bindings/python/tests/run.py
run suite python3 bindings/tests/run.py
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
