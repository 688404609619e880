# Packages that a step needs beyond what setup brings. To be sourced.

# packages_install NAME...: installs packages of Debian. Steps that run side by side take turns.
packages_install() {
    local -a apt=(flock /var/cache/apt env DEBIAN_FRONTEND=noninteractive apt-get --quiet --quiet --yes)
    local -a install=("${apt[@]}" install --no-install-recommends "$@")
    # The list of packages may be missing or old.
    "${install[@]}" || { "${apt[@]}" update && "${install[@]}"; }
}
