#!/usr/bin/env bash
# The library for Python below others: pandas, pyarrow, dask, zarr, xarray, h5py, DuckDB and PyTorch store on a volume
# what they store in a local directory, also by four processes. Needs the package index, and some 2 GB in TMPDIR.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/packages.sh
source scripts/lib/wheel.sh
sandbox_enter

# libraries_install DIR PYTHON OPTION... -- WHAT...: an environment of one interpreter with what pip brings.
libraries_install() {
    local directory="$1" interpreter="$2" options=()
    shift 2
    while [[ "$1" != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    "$interpreter" -m venv --without-pip "${options[@]}" "$directory"
    python3 -m pip --python "$directory/bin/python" --disable-pip-version-check --quiet install --no-compile "$@" \
        >"$TMPDIR/log" 2>&1 || {
        echo "NOT TESTED: the libraries cannot be installed: $(tail -n 1 "$TMPDIR/log")" >&2
        exit 1
    }
}

packages=(python3-venv python3-torch)
python3 -m pip --version >"$TMPDIR/log" 2>&1 || packages+=(python3-pip)
dpkg --status "${packages[@]}" >"$TMPDIR/log" 2>&1 || packages_install "${packages[@]}" >"$TMPDIR/log" 2>&1 || {
    echo "NOT TESTED: PyTorch cannot be installed: $(tail -n 1 "$TMPDIR/log")" >&2
    exit 1
}
product_build vazao-app vazao-python
wheel_build "$TMPDIR/wheels" "${product_command[@]}"
requirements=crates/python/trials/requirements.txt
libraries_install "$TMPDIR/libraries" python3 -- "$wheel" --requirement "$requirements"
# Debian's own interpreter, with Debian's PyTorch and the NumPy that it was built with.
libraries_install "$TMPDIR/torch" /usr/bin/python3 --system-site-packages -- "$wheel" \
    "$(grep '^fsspec==' "$requirements")"

export PYTHONDONTWRITEBYTECODE=1
"$programs/vazao" up --dir "$TMPDIR/cluster" --data-servers 2 --detach >"$TMPDIR/up.log"
export VAZAO_CLUSTER="$TMPDIR/cluster/client.toml"
passed=0
failed=0
for trials in libraries:pandas,pyarrow,dask,zarr,xarray,h5py,duckdb torch:torch; do
    IFS=: read -r environment names <<<"$trials"
    mkdir "$TMPDIR/$environment.local"
    # shellcheck disable=SC2086
    timeout --kill-after=10s 20m "$TMPDIR/$environment/bin/python" -W ignore -X faulthandler \
        crates/python/trials/trials.py "$TMPDIR/$environment.local" ${names//,/ } >"$TMPDIR/said" 2>&1 || true
    sed '$d' "$TMPDIR/said"
    read -r count _ other _ < <(tail -n 1 "$TMPDIR/said")
    passed=$((passed + ${count:-0}))
    # One that ended without a word has failed.
    failed=$((failed + ${other:-1}))
done
"$programs/vazao" down --dir "$TMPDIR/cluster" >"$TMPDIR/down.log"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -eq 8 ]]
