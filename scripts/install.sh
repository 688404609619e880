#!/usr/bin/env bash
# ./x install [DIR]     builds, and installs command, library, completions and manual pages below DIR (/usr/local)
set -euo pipefail

source scripts/lib/library.sh

prefix="${1:-/usr/local}"
if [[ "$prefix" != /* ]]; then
    echo "./x install: $prefix: not an absolute path; write it from / on, as /usr/local" >&2
    exit 2
fi

cargo build --release --locked --package vazao-app --package vazao-capi
programs="${CARGO_TARGET_DIR:-target}/release"
vazao="$programs/vazao"

man="$prefix/share/man/man1"
mkdir -p "$man"
install -D -m 755 "$vazao" "$prefix/bin/vazao"
"$vazao" man "$man"
library_install "$prefix"
# So that programs find the library where the dynamic linker looks in $prefix/lib.
if [[ $EUID -eq 0 ]]; then
    ldconfig
fi

# completion SHELL FILE: where each shell looks for completions of what is installed below $prefix.
completion() {
    mkdir -p "$(dirname "$prefix/share/$2")"
    "$vazao" completions "$1" >"$prefix/share/$2"
}
completion bash bash-completion/completions/vazao
completion zsh zsh/site-functions/_vazao
completion fish fish/vendor_completions.d/vazao.fish
echo "installed: $prefix/bin/vazao, manual pages (man vazao-cp), completions for bash, zsh and fish," \
    "and for programs in C $prefix/lib/libvazao.so and $prefix/include/vazao.h (man 3 vazao)"
