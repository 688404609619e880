#!/usr/bin/env bash
# Remote calls by the LuaRPC protocol: each version of Lua and each library by itself, then every client against every
# server in both profiles, those in Rust too, peers of other dialects, and peers that mean harm.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/counted.sh
sandbox_enter

limited=(timeout --kill-after=10s 5m)

for lua in lua5.1 lua5.2 lua5.3 lua5.4 luajit; do
    counted "$lua" "${limited[@]}" "$lua" bindings/lua/tests/run.lua
done
counted python "${limited[@]}" python3 -W error bindings/python/tests/run.py
counted suite "${limited[@]}" python3 bindings/tests/run.py
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
