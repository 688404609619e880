#!/usr/bin/env bash
# ./x fmt [--check]     formats the source, or says what is not formatted
set -euo pipefail

cargo fmt --all -- "$@"
