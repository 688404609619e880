# A cluster of its own and its volume mounted, for steps that run other people's programs on it. To be sourced, after
# sandbox.sh: what is started and mounted here is taken away with the sandbox.

source scripts/lib/product.sh

tools="$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools"

# volume_start MOUNTPOINT OPTIONS: builds vazao, starts a cluster below TMPDIR and mounts its volume.
volume_start() {
    local directory="$TMPDIR/cluster-$$"
    product_build vazao-app
    vazao="$programs/vazao"
    export VAZAO_CLUSTER="$directory/client.toml"
    "$vazao" up --dir "$directory" --data-servers 3 --detach
    mkdir -p "$1"
    "$vazao" mount vz:/ "$1" -o "$2" --log-file "$directory/mount.log"
    volume_directory="$directory"
}

volume_stop() {
    "$vazao" umount "$1"
    "$vazao" down --dir "$volume_directory"
}

# tool NAME VERSION: installs a program from crates.io into the target directory, once, and prints its path.
tool() {
    local root="$tools/$1-$2"
    if [[ ! -x "$root/bin/$1" ]]; then
        CARGO_TARGET_DIR="$tools/build" cargo install --quiet --locked --root "$root" --version "=$2" "$1" >&2 || {
            echo "$1 $2 could not be installed; it comes from crates.io, which must be reachable once" >&2
            return 1
        }
    fi
    echo "$root/bin/$1"
}
