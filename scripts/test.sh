#!/usr/bin/env bash
# ./x test              installs what the tests need and runs all of them; the last line is "N passed, N failed"
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/steps.sh
sandbox_enter

step "setup" bash scripts/setup.sh
step "format" bash scripts/fmt.sh --check
step "lint" bash scripts/lint.sh
step "tests" cargo test --release --locked --workspace --no-fail-fast

# Whole-system tests: scripts that run the finished binary, in the order of their names. Each ends with a line
# "N passed, N failed" and a status that is not zero when something failed.
for script in scripts/steps/*.sh; do
    [[ ! -f "$script" ]] || step "$(basename "$script" .sh)" bash "$script"
done

steps_end
