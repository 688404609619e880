//! Compiles the .proto files without an external compiler.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files =
        ["vazao", "areas", "conversions", "copies", "integrity"].map(|name| format!("proto/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
