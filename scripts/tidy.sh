#!/usr/bin/env bash
# ./x tidy [RULE...]    what breaks the house rules; --accept: formats and their documents were reviewed
set -euo pipefail

cargo run --release --locked --quiet --package vazao-tidy -- "$@"
