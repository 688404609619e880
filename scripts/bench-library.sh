#!/usr/bin/env bash
# ./x bench-library [--size MIB] [--rounds N]
# The libraries for C and Python against that for Rust, in turns, on a fresh cluster (1 metadata service, 4 data
# servers): a stream, ranges in one call, samples read by four processes. Never fails on speed. Needs the package
# index for fsspec.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/library.sh
sandbox_enter

mib=1024
rounds=5
while [[ $# -gt 0 ]]; do
    case "$1" in
    --size) mib="$2" && shift 2 ;;
    --rounds) rounds="$2" && shift 2 ;;
    *) echo "bench-library: $1: see ./x help" >&2 && exit 2 ;;
    esac
done

product_build vazao-app vazao-capi vazao-python
[[ -n "${VAZAO_IS_BUILT:-}" ]] || cargo build --release --locked --package vazao-client --example reads
library_install "$TMPDIR/prefix"
cc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -o "$TMPDIR/reads" crates/capi/bench/reads.c \
    -I"$TMPDIR/prefix/include" -L"$TMPDIR/prefix/lib" -Wl,-rpath,"$TMPDIR/prefix/lib" -lvazao
# The package beside its module, without a wheel.
mkdir "$TMPDIR/python"
cp -r crates/python/python/vazao "$TMPDIR/python"
cp "$programs/lib_vazao.so" "$TMPDIR/python/vazao/_vazao.abi3.so"
python3 -m pip --disable-pip-version-check --quiet install --root-user-action ignore --target "$TMPDIR/python" \
    "$(grep '^fsspec==' crates/python/tests/requirements.txt)"
export PYTHONPATH="$TMPDIR/python" PYTHONDONTWRITEBYTECODE=1

"$programs/vazao" up --dir "$TMPDIR/cluster" --data-servers 4 --detach >"$TMPDIR/up.log"
export VAZAO_CLUSTER="$TMPDIR/cluster/client.toml"
# A file of its own offsets.
python3 -c '
import array, sys
for start in range(0, int(sys.argv[1]) << 20, 1 << 20):
    array.array("Q", range(start, start + (1 << 20), 8)).tofile(sys.stdout.buffer)' "$mib" >"$TMPDIR/offsets"
"$programs/vazao" cp "$TMPDIR/offsets" vz:/reads >"$TMPDIR/cp.log" 2>&1
rm "$TMPDIR/offsets"
python3 scripts/lib/bench_library.py "$TMPDIR" "$rounds" "$mib" "$programs/examples/reads /reads" \
    "$TMPDIR/reads vz:/reads" "python3 crates/python/bench/reads.py /reads"
"$programs/vazao" down --dir "$TMPDIR/cluster" >"$TMPDIR/down.log"
