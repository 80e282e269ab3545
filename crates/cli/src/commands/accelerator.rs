//! `baltra accelerator`

mod build;
mod html;
mod page;
mod placement;
mod report;
mod summary;

pub use build::compilers;

use crate::args::Accelerator;
use crate::control::Control;
use crate::output::{self, Table};
use anyhow::{Context, Result};
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// Bytes of an image in one message.
const CHUNK_BYTES: usize = 1 << 20;

/// Runs `baltra accelerator`.
pub fn accelerator(paths: &PathOptions, command: Accelerator) -> Result<ExitCode> {
    match command {
        Accelerator::Build(args) => return build::build(&args),
        Accelerator::Prepare { tree, shared } => build::prepare(&tree, &shared)?,
        Accelerator::Report(args) => report::report(&args)?,
        command => stored(&mut Control::connect(paths)?, command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Commands about the images that the manager stores.
fn stored(control: &mut Control, command: Accelerator) -> Result<()> {
    match command {
        Accelerator::Build(_) | Accelerator::Prepare { .. } | Accelerator::Report(_) => {}
        Accelerator::Push {
            file,
            name,
            kernels,
            target,
        } => {
            let metadata = proto::AcceleratorMetadata {
                name,
                kernels,
                target,
            };
            let chunks = chunks(&file, metadata)?;
            let kept = control.call(|mut c| async move { c.accelerator_push(chunks).await })?;
            println!(
                "{}  {}  {}",
                kept.digest,
                kept.name,
                output::bytes(kept.bytes)
            );
        }
        Accelerator::Ls(json) => list(control, json.json)?,
        Accelerator::Rm { accelerator } => {
            let request = proto::AcceleratorRemoveRequest { accelerator };
            let gone = control.call(|mut c| async move { c.accelerator_remove(request).await })?;
            println!("{} ({}) removed", gone.name, gone.digest);
        }
        Accelerator::Load {
            accelerator,
            device,
        } => {
            let request = proto::ReconfigureRequest {
                device: device.clone(),
                accelerator,
            };
            let reply = control.call(|mut c| async move { c.reconfigure(request).await })?;
            let how = if reply.unchanged {
                "held already"
            } else {
                "loaded"
            };
            println!("{device}: {} {how}", reply.digest);
        }
    }
    Ok(())
}

/// The file in pieces, because two copies of a long file may not fit into memory.
fn chunks(
    path: &Path,
    metadata: proto::AcceleratorMetadata,
) -> Result<impl tonic::IntoStreamingRequest<Message = proto::AcceleratorChunk>> {
    let mut file =
        std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut metadata = Some(metadata);
    let pieces = std::iter::from_fn(move || {
        let mut data = Vec::new();
        let read = (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut data);
        let first = metadata.take();
        match read {
            Ok(0) if first.is_none() => None,
            Ok(_) => Some(proto::AcceleratorChunk {
                metadata: first,
                data,
            }),
            // The daemon discards an aborted upload, because its digest does not match.
            Err(_) => None,
        }
    });
    Ok(tokio_stream::iter(pieces))
}

fn list(control: &mut Control, as_json: bool) -> Result<()> {
    let request = proto::AcceleratorsRequest {};
    let reply = control.call(|mut c| async move { c.accelerators(request).await })?;
    if as_json {
        let all: Vec<_> = reply
            .accelerators
            .iter()
            .map(|a| {
                json!({
                    "digest": a.digest, "name": a.name, "kernels": a.kernels,
                    "target": a.target, "bytes": a.bytes, "pushed_at_s": a.pushed_at_s,
                })
            })
            .collect();
        output::json(&json!(all));
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "DIGEST", ">SIZE", "KERNELS", "TARGET"]);
    for a in reply.accelerators {
        table.row([
            a.name,
            a.digest.chars().take(12).collect(),
            output::bytes(a.bytes),
            a.kernels.join(","),
            a.target,
        ]);
    }
    table.print();
    Ok(())
}
