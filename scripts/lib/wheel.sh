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

# wheel_build DIR: builds the wheel into a directory, with what cargo has built already, and sets `wheel` to its path.
wheel_build() {
    maturin_install || {
        echo "maturin $maturin_version could not be had from the package index" >&2
        return 1
    }
    rm -rf "$1"
    "$maturin_program" build --quiet --release --locked --manifest-path crates/python/Cargo.toml \
        --interpreter python3 --out "$1"
    wheel="$(echo "$1"/vazao-*.whl)"
}
