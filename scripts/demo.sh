#!/usr/bin/env bash
# ./x demo [FILE…]      moves files (or this source tree and 1 GiB of noise) through a cluster, compares and times
set -euo pipefail

cargo build --release --locked --package vazao-app
vazao="${CARGO_TARGET_DIR:-target}/release/vazao"

if [[ $# -gt 0 ]]; then
    exec "$vazao" demo -- "$@"
fi
exec "$vazao" demo --generate 1G -- crates docs scripts ARCHITECTURE.md Cargo.lock Cargo.toml LICENSE README.md
