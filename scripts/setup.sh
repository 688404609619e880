#!/usr/bin/env bash
# ./x setup [--lab]     installs what building and testing need (Debian and relatives); --lab: for experiment L1, too
set -euo pipefail

if [[ "${1:-}" != "" && "${1:-}" != --lab ]]; then
    echo "usage: ./x setup [--lab]" >&2
    exit 2
fi

# What is looked for: a command in the path or an absolute file, and the Debian package that brings it.
needed=(
    "gcc:gcc"
    "/usr/include/stdio.h:libc6-dev"
    "g++:g++"
    "pkg-config:pkg-config"
    "make:make"
    "git:git"
    "python3:python3"
    "sqlite3:sqlite3"
    "fusermount3:fuse3"
    "setfattr:attr"
    "setfacl:acl"
    "/usr/sbin/setcap:libcap2-bin"
    "rsync:rsync"
    "/usr/sbin/ip:iproute2"
    "faketime:faketime"
    "lua5.1:lua5.1"
    "lua5.2:lua5.2"
    "lua5.3:lua5.3"
    "lua5.4:lua5.4"
    "luajit:luajit"
    "/usr/share/lua/5.4/socket.lua:lua-socket"
    "/usr/include/lua5.1/lua.h:liblua5.1-0-dev"
    "/usr/include/lua5.2/lua.h:liblua5.2-dev"
    "/usr/include/lua5.3/lua.h:liblua5.3-dev"
    "/usr/include/lua5.4/lua.h:liblua5.4-dev"
    "/usr/include/luajit-2.1/lua.h:libluajit-5.1-dev"
)

is_there() {
    if [[ "$1" == /* ]]; then [[ -e "$1" ]]; else command -v "$1" >/dev/null; fi
}

missing_packages() {
    local entry
    for entry in "${needed[@]}"; do
        is_there "${entry%%:*}" || echo "${entry##*:}"
    done
}

install_packages() {
    local -a packages prefix=()
    mapfile -t packages < <(missing_packages)
    [[ ${#packages[@]} -gt 0 ]] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "setup: this system has no apt-get; install what these Debian packages bring: ${packages[*]}" >&2
        return 1
    fi
    if [[ $EUID -ne 0 ]]; then
        if ! sudo -n true 2>/dev/null; then
            echo "setup: packages are missing; run: sudo apt-get install ${packages[*]}" >&2
            return 1
        fi
        prefix=(sudo -n)
    fi
    echo "setup: installing ${packages[*]}"
    local -a apt=("${prefix[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet --yes)
    "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${packages[@]}"
    mapfile -t packages < <(missing_packages)
    if [[ ${#packages[@]} -gt 0 ]]; then
        echo "setup: still missing after installation: ${packages[*]}" >&2
        return 1
    fi
}

check_rust() {
    if ! command -v cargo >/dev/null; then
        echo "setup: cargo is missing; install a Rust tool chain (1.95 or later)" >&2
        return 1
    fi
    local component
    for component in clippy rustfmt; do
        "cargo-${component/rust/}" --version >/dev/null 2>&1 && continue
        if ! rustup component add "$component"; then
            echo "setup: the Rust component $component is missing and rustup could not add it" >&2
            return 1
        fi
    done
}

# Where `vazao lab run L1` looks for grpcio (crates/lab/src/experiment/calls/mod.rs), and its version.
lab_packages="$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools/lab-python"
lab_grpcio=1.85.3

# grpcio, beside the builds: it is compared with and never tested with, so that no system's Python has to take it.
install_lab() {
    if PYTHONPATH="$lab_packages" python3 -c "import grpc; assert grpc.__version__ == '$lab_grpcio'" 2>/dev/null; then
        return 0
    fi
    if ! timeout 300 python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
        --only-binary :all: --upgrade --target "$lab_packages" "grpcio==$lab_grpcio"; then
        echo "setup: grpcio $lab_grpcio could not be installed into $lab_packages; has python3 pip (python3-pip)," \
            "and is there a network? Without it L1 runs and leaves gRPC out" >&2
        return 1
    fi
    echo "setup: grpcio $lab_grpcio is in $lab_packages"
}

check_rust
if ! install_packages; then
    echo "setup: could not install everything; tests that need it will fail and say so" >&2
    exit 1
fi
if [[ "${1:-}" == --lab ]]; then
    install_lab
fi
