# The product's programs for steps. To be sourced.

# product_build PACKAGE...: builds the programs of these packages, unless a run of `./x test` has built all of them,
# sets `programs` to the directory where they are, and `product_command` to what built them.
product_build() {
    product_command=(bash scripts/lib/runner.sh runner_product)
    if [[ -z "${VAZAO_IS_BUILT:-}" ]]; then
        product_command=(cargo build --release --locked "${@/#/--package=}")
        "${product_command[@]}"
    fi
    programs="$(realpath "${CARGO_TARGET_DIR:-target}/release")"
}
