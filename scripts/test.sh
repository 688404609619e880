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
    step "build" bounded 30m bash scripts/lib/runner.sh runner_build
    rm -rf "$report_directory"
    mkdir -p "$report_directory"
    step "tests" bounded 20m bash scripts/lib/runner.sh runner_tests "$report_directory/tests" "all()"

    # Whole-system tests: scripts that run the finished binary. Each ends with a line "N passed, N failed" and a status
    # that is not zero when something failed. First those that measure or change what is the machine's own, one after
    # the other; then the rest, which share nothing, side by side.
    steps=scripts/steps
    alone=("$steps"/{33-mount-helper,34-fuse-uring,37-verdicts}.sh)
    first=("$steps"/30-pjdfstest.sh)
    second=("$steps"/{35-ftp,31-fsx,32-applications}.sh)
    third=()
    for script in "$steps"/*.sh; do
        [[ " ${alone[*]} ${first[*]} ${second[*]} " == *" $script "* ]] || third+=("$script")
    done
    for script in "${alone[@]}"; do
        step "$(basename "$script" .sh)" bounded 15m bash "$script"
    done
    lane "${first[@]}"
    lane "${second[@]}"
    lane "${third[@]}"
    lanes_end
fi

if [[ -n "$is_long" ]]; then
    long_run "${parts[@]}"
    long_table
fi
steps_end
