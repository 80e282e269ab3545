//! Generates the registry's service from `proto/registry.proto`, in Rust alone: no `protoc` is
//! needed. The descriptors are kept for server reflection.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/registry.proto");
    let files = protox::compile(["registry.proto"], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("registry.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
