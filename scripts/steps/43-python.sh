#!/usr/bin/env bash
# The library for Python: the wheel in an environment of its own, fsspec's own suite, and files, forks, pickles, threads
# and all that is wrong to give it, against a cluster.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/packages.sh
source scripts/lib/wheel.sh
sandbox_enter

passed=0
failed=0

# check WHAT COMMAND...: counts whether a command succeeds, and shows what it said where it does not.
check() {
    local what="$1" log="$TMPDIR/log"
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $what"
        cat "$log"
    fi
}

# suite ARGUMENT...: runs python with pytest, and adds what its last line counts. One that was skipped has not passed.
suite() {
    local log="$TMPDIR/suite.log" status=0 last count what
    timeout --kill-after=10s 10m "$python" "$@" >"$log" 2>&1 || status=$?
    last="$(grep -E '^[0-9]+ [a-z]+(, [0-9]+ [a-z]+)* in [0-9.]+s' "$log" | tail -n 1 || true)"
    while read -r count what; do
        if [[ "$what" == passed ]]; then
            passed=$((passed + count))
        else
            failed=$((failed + count))
        fi
    done < <(grep -oE '[0-9]+ [a-z]+' <<<"${last%% in *}" || true)
    if [[ $status -ne 0 || -z "$last" ]]; then
        cat "$log"
        [[ $failed -gt 0 ]] || failed=1
    fi
}

python3 -m pip --version >"$TMPDIR/log" 2>&1 || packages_install python3-pip
product_build vazao-app vazao-python
wheel_build "$TMPDIR/wheels" "${product_command[@]}"
# With the pip that is there: to give each environment one costs more than all that it would do.
python3 -m venv --without-pip "$TMPDIR/venv"
python="$TMPDIR/venv/bin/python"
export PYTHONDONTWRITEBYTECODE=1
check "pip install" python3 -m pip --python "$python" --disable-pip-version-check --quiet install --no-compile \
    "$wheel" --requirement crates/python/tests/requirements.txt

"$programs/vazao" up --dir "$TMPDIR/cluster" --data-servers 2 --zones rio,bra --detach >"$TMPDIR/up.log"
export VAZAO_CLUSTER="$TMPDIR/cluster/client.toml"

# Programs of the page, in their order; the first one says what it shall.
awk -v place="$TMPDIR/page" '/^```python$/ { file = place (++count) ".py"; next } /^```/ { file = "" } file { print >file }' \
    docs/library-python.md
check "first program" bash -c "'$python' '$TMPDIR/page1.py' >'$TMPDIR/said'"
check "what it says" diff "$TMPDIR/said" <(printf 'hello\nhello 5\n')
for program in "$TMPDIR"/page[2-9].py; do
    check "program ${program##*/page} of the page" "$python" "$program"
done

mkdir "$TMPDIR/area"
"$programs/vazao" area add files "$TMPDIR/area" --dir "$TMPDIR/cluster" --node data1 >"$TMPDIR/area.log"
export AREA=data1:/files
# Nothing listens there.
printf 'meta = ["127.0.0.1:1"]\ninsecure = true\n' >"$TMPDIR/no-cluster.toml"
export NO_CLUSTER="$TMPDIR/no-cluster.toml"
tests=crates/python/tests
suite -m pytest --quiet -p no:cacheprovider "$tests/test_fsspec.py"
# In the mode for developers the interpreter notices writes beyond its objects, and errors of files that it closes.
suite -X dev -m pytest --quiet -p no:cacheprovider "$tests" --ignore "$tests/test_fsspec.py"

# near ZONE: writes a file near its writer, who is in that zone; whether it lies there, and nowhere else.
near() {
    "$python" -c 'import sys, vazao
with vazao.connect(zone=sys.argv[1]) as volume: volume.write_bytes("/near/" + sys.argv[1], bytes(100_000))' "$1"
    "$programs/vazao" layout "vz:/near/$1" --json >"$TMPDIR/layout"
    diff <(grep -o '"zone":"[a-z]*"' "$TMPDIR/layout" | sort -u) <(echo "\"zone\":\"$1\"")
}
"$programs/vazao" mkdir vz:/near
"$programs/vazao" layout vz:/near --place near-writer >"$TMPDIR/log"
check "a file near a writer in rio" near rio
check "a file near a writer in bra" near bra
"$programs/vazao" down --dir "$TMPDIR/cluster" >"$TMPDIR/down.log"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
