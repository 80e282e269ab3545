//! Generates the services from `proto/`, in Rust alone: no `protoc` is needed. The registry's
//! descriptors are kept for server reflection.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let control = protox::compile(["control.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(control)?;
    let registry = protox::compile(["registry.proto"], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("registry.bin"), registry.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(registry)?;
    Ok(())
}
