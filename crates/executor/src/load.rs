//! Loads an image for the operator.

use crate::driver::take_refusal;
use crate::Shared;
use anyhow::Context;
use baltra_opencl::{CL_PROGRAM_BUILD_LOG, CL_SUCCESS};
use baltra_wire::opencl::text_of;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Has the driver load an image, in a thread of its own, and reports the result to the manager.
pub fn start(shared: &Arc<Shared>, call: u64, fds: Vec<OwnedFd>) {
    let thread = std::thread::Builder::new().name("load".into());
    let started = thread.spawn({
        let shared = shared.clone();
        move || {
            let error = load_image(&shared, fds).err();
            let error = error.map_or(String::new(), |e| format!("{e:#}"));
            shared.images.load_ended(call, error);
        }
    });
    if let Err(error) = started {
        let error = format!("cannot start a thread: {error}");
        shared.images.load_ended(call, error);
    }
}

/// Has the driver create and build a program of an image, and releases it.
fn load_image(shared: &Shared, fds: Vec<OwnedFd>) -> anyhow::Result<()> {
    let file = fds.into_iter().next().context("the image is missing")?;
    let mut image = Vec::new();
    File::from(file).read_to_end(&mut image)?;
    let devices = [shared.device];
    let (program, status) = shared.context.program_binary(&devices, &[&image]);
    let refused = |code| {
        let code = status
            .iter()
            .copied()
            .find(|s| *s != CL_SUCCESS)
            .unwrap_or(code);
        let reason = take_refusal().map_or(String::new(), |reason| format!(": {reason}"));
        anyhow::anyhow!("the driver refused the image: {}{reason}", text_of(code))
    };
    let program = program.map_err(refused)?;
    program.build(&devices, "").map_err(|code| {
        let log = program.build_info(shared.device, CL_PROGRAM_BUILD_LOG as u32);
        let log = String::from_utf8_lossy(&log.unwrap_or_default())
            .trim_matches(['\0', '\n'])
            .to_owned();
        let code = text_of(code);
        anyhow::anyhow!("the driver could not build the image: {code} {log}")
    })
}
