# The wheel of the library for Python, by maturin. To be sourced.

maturin_version=1.16.0
# Of its package for x86-64.
maturin_sha256=837db2f4d93d4899c3ac393fb3cc9eebf35b6002336e5d574f4a4fb6c49fe283
maturin_program="$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools/maturin-$maturin_version/maturin"

# maturin_install: gets maturin once. Fails where there is no network, or another machine.
maturin_install() {
    [[ ! -x "$maturin_program" ]] || return 0
    [[ "$(uname -m)" == x86_64 ]] || return 1
    local place
    place="$(dirname "$maturin_program")"
    mkdir -p "$place"
    echo "maturin==$maturin_version --hash=sha256:$maturin_sha256" >"$place/requirements"
    timeout 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes --dest "$place" -r "$place/requirements" || return 1
    python3 -m zipfile -e "$place"/*.whl "$place/unpacked" || return 1
    mv "$place"/unpacked/*.data/scripts/maturin "$maturin_program"
    chmod +x "$maturin_program"
    rm -rf "$place/unpacked" "$place"/*.whl
}

# wheel_cargo DIR COMMAND...: puts a `cargo` for maturin into a directory. Maturin has the one package built, which
# gives its dependencies the features that this package needs alone: after a build of more packages, all of them would
# be compiled a second time. The command that built them compiles nothing, and tells maturin where the module is.
wheel_cargo() {
    local directory="$1"
    shift
    {
        echo '#!/usr/bin/env bash'
        printf 'export PATH=%q\n' "$PATH"
        echo '[[ "$1" == rustc ]] || exec cargo "$@"'
        printf 'cd %q && exec %s --message-format json-render-diagnostics\n' "$PWD" "${*@Q}"
    } >"$directory/cargo"
    chmod +x "$directory/cargo"
}

# wheel_build DIR [COMMAND...]: builds the wheel into a directory, and sets `wheel` to its path. COMMAND: what has built
# the extension module, among others.
wheel_build() {
    local directory="$1" cargo_directory
    shift
    maturin_install || {
        echo "maturin $maturin_version could not be had from the package index" >&2
        return 1
    }
    cargo_directory="$(mktemp -d)"
    [[ $# -eq 0 ]] || wheel_cargo "$cargo_directory" "$@"
    rm -rf "$directory"
    PATH="$cargo_directory:$PATH" "$maturin_program" build --quiet --release --locked \
        --manifest-path crates/python/Cargo.toml --interpreter python3 --out "$directory"
    rm -rf "$cargo_directory"
    wheel="$(echo "$directory"/vazao-*.whl)"
}
