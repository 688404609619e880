#!/usr/bin/env bash
# ./x setup             installs what building and testing need (Debian and its relatives)
set -euo pipefail

# What is looked for: a command in the path or an absolute file, and the Debian package that brings it.
needed=(
    "gcc:gcc"
    "/usr/include/stdio.h:libc6-dev"
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

check_rust
if ! install_packages; then
    echo "setup: could not install everything; tests that need it will fail and say so" >&2
    exit 1
fi
