#!/usr/bin/env bash
# ./x test [--long [PART...]]   runs all tests, or those and long ones; ends with "N passed, N failed"
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/steps.sh
source scripts/lib/runner.sh
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
    # Everything is built: no step builds it again.
    export VAZAO_IS_BUILT=1

    # Whole-system tests: scripts that run the finished binary. Each ends with a line "N passed, N failed" and a status
    # that is not zero when something failed. Those that run other people's programs run beside the tests, which mostly
    # wait; then, side by side, those with limits of milliseconds; at last, one after the other, what measures or
    # changes what is the machine's own.
    steps=scripts/steps
    alone=("$steps"/{33-mount-helper,34-fuse-uring,37-verdicts}.sh)
    # Two lanes of about the same length.
    beside=("$steps"/{31-fsx,38-nfs,35-ftp}.sh)
    beside_too=("$steps"/{43-python,30-pjdfstest,32-applications,41-luarpc,42-library}.sh)
    lane "${beside[@]}"
    lane "${beside_too[@]}"
    step "tests" bounded 20m bash scripts/lib/runner.sh runner_tests "$report_directory/tests" \
        "all() - ($runner_measures)"
    lanes_end
    for script in "$steps"/*.sh; do
        [[ " ${alone[*]} ${beside[*]} ${beside_too[*]} " == *" $script "* ]] || lane "$script"
    done
    lanes_end
    step "tests that measure" bounded 20m bash scripts/lib/runner.sh runner_tests "$report_directory/measures" \
        "$runner_measures" --package vazao-lab --package vazao-app --test machine --test processes -- \
        hosts:: hung_targets::
    for script in "${alone[@]}"; do
        step "$(basename "$script" .sh)" alone "$script"
    done
fi

if [[ -n "$is_long" ]]; then
    long_run "${parts[@]}"
    long_table
fi
steps_end
