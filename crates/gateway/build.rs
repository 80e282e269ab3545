//! Generates the inference service from `proto/inference.proto`, in Rust alone: no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/inference.proto");
    let files = protox::compile(["inference.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
