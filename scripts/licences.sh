#!/usr/bin/env bash
# ./x licences          checks the licences of all dependencies
set -euo pipefail

cargo run --release --locked --quiet --package vazao-tidy -- licences
