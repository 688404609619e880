//! Compiles the .proto files without an external compiler.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors =
        protox::compile(["proto/vazao.proto", "proto/conversions.proto", "proto/copies.proto"], ["proto"])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
