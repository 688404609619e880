#!/bin/sh
# ./x bench [--write] [ARGUMENTS OF vazao lab bench]
# Builds the release binary, starts a fresh cluster (1 metadata service, 4 data servers) in a temporary directory,
# measures what the file system has to reach, and prints goals and what was reached. With --write the table goes into
# docs/performance.md too. Never fails on speed. Ctrl-C stops the cluster and removes the directory.
set -eu
cd "$(dirname "$0")/.."

write=no
if [ "${1:-}" = --write ]; then
    write=yes
    shift
fi

cargo build --release --package vazao-app
vazao="${CARGO_TARGET_DIR:-target}/release/vazao"
results="${CARGO_TARGET_DIR:-target}/bench.json"

directory=$(mktemp -d "${TMPDIR:-/tmp}/vazao-bench.XXXXXX")
clean_up() {
    status=$?
    trap - EXIT INT TERM
    "$vazao" down --dir "$directory/cluster" >/dev/null 2>&1 || true
    rm -rf "$directory"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$vazao" up --dir "$directory/cluster" --data-servers 4 --detach >/dev/null
export VAZAO_CLUSTER="$directory/cluster/client.toml"
"$vazao" lab bench --json "$results" "$@"
echo "Every value with its samples: $results"

if [ "$write" = yes ]; then
    page=docs/performance.md
    table="$directory/table.md"
    "$vazao" lab report --markdown "$results" >"$table"
    sed -e '/<!-- bench:begin -->/,/<!-- bench:end -->/{
        /<!-- bench:begin -->/{
            p
            r '"$table"'
            d
        }
        /<!-- bench:end -->/!d
    }' "$page" >"$directory/page.md"
    cat "$directory/page.md" >"$page"
    echo "Table written to $page"
fi
