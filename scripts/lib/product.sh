# The product's programs for steps. To be sourced.

# product_build PACKAGE...: builds the programs of these packages, unless a run of `./x test` has built all of them,
# and sets `programs` to the directory where they are.
product_build() {
    [[ -n "${VAZAO_IS_BUILT:-}" ]] || cargo build --release --locked "${@/#/--package=}"
    programs="$(realpath "${CARGO_TARGET_DIR:-target}/release")"
}
