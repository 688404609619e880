//! Links the extension module without what only debuggers read: it is most of the wheel otherwise.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
}
