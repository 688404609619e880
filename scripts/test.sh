#!/usr/bin/env bash
# ./x test [--long [PART...]]   runs all tests, or those and long ones; ends with "N passed, N failed"
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/steps.sh
source scripts/lib/long.sh

is_long=""
if [[ "${1:-}" == --long ]]; then
    is_long=1
    shift
fi
parts=("$@")
if [[ ${#parts[@]} -gt 0 && -z "$is_long" ]]; then
    echo "usage: ./x test [--long [PART...]]" >&2
    exit 2
fi
long_check "${parts[@]}"
sandbox_enter

# With parts named only these are run.
if [[ ${#parts[@]} -eq 0 ]]; then
    step "setup" bash scripts/setup.sh
    step "format" bash scripts/fmt.sh --check
    step "lint" bash scripts/lint.sh
    step "tests" bounded 60m cargo test --release --locked --workspace --no-fail-fast

    # Whole-system tests: scripts that run the finished binary, in the order of their names. Each ends with a line
    # "N passed, N failed" and a status that is not zero when something failed.
    for script in scripts/steps/*.sh; do
        [[ ! -f "$script" ]] || step "$(basename "$script" .sh)" bounded 30m bash "$script"
    done
fi

if [[ -n "$is_long" ]]; then
    long_run "${parts[@]}"
    long_table
fi
steps_end
