# The library for C: linked, and installed. To be sourced, with `programs` set to where the static library was built.

# The version of the workspace, which is that of the library.
library_version="$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)"

# library_link DIRECTORY: links the shared library into a directory, with versions of its symbols (vazao.map), and
# nothing else of it visible.
library_link() {
    local file="libvazao.so.$library_version"
    cc -shared -o "$1/$file" -Wl,-soname,libvazao.so.0 -Wl,--version-script=crates/capi/vazao.map \
        -Wl,--no-undefined -Wl,--gc-sections -Wl,--whole-archive "$programs/libvazao.a" -Wl,--no-whole-archive \
        -lgcc_s -lm -lpthread -ldl -lc
    ln -sf "$file" "$1/libvazao.so.0"
    ln -sf libvazao.so.0 "$1/libvazao.so"
}

# library_install PREFIX: libraries, header, what pkg-config asks for, and the manual page.
library_install() {
    mkdir -p "$1/lib/pkgconfig"
    library_link "$1/lib"
    install -m 644 "$programs/libvazao.a" "$1/lib/libvazao.a"
    install -D -m 644 crates/capi/include/vazao.h "$1/include/vazao.h"
    install -D -m 644 crates/capi/man/vazao.3 "$1/share/man/man3/vazao.3"
    sed "s|@PREFIX@|$1|; s|@VERSION@|$library_version|" crates/capi/vazao.pc.in >"$1/lib/pkgconfig/vazao.pc"
}
