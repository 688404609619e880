#!/usr/bin/env bash
# ./x wheel [DIR]       builds the wheel of the library for Python into DIR (target/wheels)
set -euo pipefail

source scripts/lib/wheel.sh
wheel_build "${1:-${CARGO_TARGET_DIR:-target}/wheels}"
echo "built: $wheel"
