//! Generates the inference service from `proto/inference.proto`, in Rust alone: no `protoc` is
//! needed. The descriptors are kept for server reflection.

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::DescriptorProto;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/inference.proto");
    let mut files = protox::compile(["inference.proto"], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("inference.bin"), files.encode_to_vec())?;
    let messages = files
        .file
        .iter_mut()
        .flat_map(|file| &mut file.message_type);
    messages.for_each(leave_contents_encoded);
    tonic_prost_build::configure()
        .build_client(false)
        .bytes(".")
        .codec_path("crate::http::inference::wire::Codec")
        .compile_fds(files)?;
    Ok(())
}

/// A request's typed contents stay encoded: decoded element by element into lists of the widest
/// type, they would take many times their size.
fn leave_contents_encoded(message: &mut DescriptorProto) {
    message
        .nested_type
        .iter_mut()
        .for_each(leave_contents_encoded);
    if message.name() != "InferInputTensor" {
        return;
    }
    for field in message
        .field
        .iter_mut()
        .filter(|field| field.name() == "contents")
    {
        field.set_type(Type::Bytes);
        field.type_name = None;
    }
}
