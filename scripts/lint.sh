#!/usr/bin/env bash
# ./x lint              clippy over everything, warnings denied, and the syntax of the scripts
set -euo pipefail

for script in x .ci/run scripts/*.sh scripts/lib/*.sh scripts/steps/*.sh; do
    [[ ! -f "$script" ]] || bash -n "$script"
done
cargo clippy --release --locked --workspace --all-targets --quiet
