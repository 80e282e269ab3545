//! The demonstration's OpenCL program: `apps/sobel` without a compiler or an ICD loader. The
//! process loads an OpenCL library, a vendor's or Baltra's, as a loader does, and then makes the
//! same calls with either.

use crate::args::DemoProgram;
use anyhow::{anyhow, ensure, Context as _, Result};
use baltra_executor::driver::{Context, Device, Enqueue, Kernel, Mem, Queue};
use baltra_wire::opencl::{DEVICE_NAME, QUEUE_PROFILING_ENABLE};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

pub const SOURCE: &str = include_str!("../../../../../apps/sobel/sobel.cl");
const GROUP: [usize; 3] = [64, 4, 0];
/// The program repeats its work until either is reached.
const RUNS_MAX: usize = 40;
const TIME_MAX: Duration = Duration::from_millis(800);

const MEM_WRITE_ONLY: u64 = 1 << 1;
const MEM_READ_ONLY: u64 = 1 << 2;
/// `CL_PROGRAM_BUILD_LOG`
const BUILD_LOG: u32 = 0x1183;

/// The program's measurements, printed as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// Time from the program's start to the first result, milliseconds.
    pub first_ms: f64,
    /// Median time of write, kernel and read after that, milliseconds; 0 for a program that runs once.
    pub median_ms: f64,
    /// Of a program that runs once: time of the kernel by the device's clock, nanoseconds.
    pub kernel_ns: u64,
}

/// Everything that one run uses.
struct Work {
    queue: Queue,
    kernel: Kernel,
    source: Mem,
    edges: Mem,
    global: [usize; 3],
    /// Whether the queue measures times.
    is_measured: bool,
}

/// Runs the program and prints its report.
pub fn run(args: &DemoProgram) -> Result<()> {
    let began = Instant::now();
    let input = std::fs::read(&args.input)
        .with_context(|| format!("cannot read {}", args.input.display()))?;
    let expected = u64::from(args.width) * u64::from(args.height) * 4;
    ensure!(
        input.len() as u64 == expected && expected > 0,
        "{} has {} bytes instead of {expected}",
        args.input.display(),
        input.len()
    );
    let device = Device::open(&args.library, &args.select)?;
    let work = prepare(device, args, input.len())?;
    let mut output = vec![0; input.len()];
    // The first run is a warm-up, because drivers may compile late.
    let kernel_ns = work.run(&input, &mut output)?;
    let first_ms = ms(began.elapsed());
    let (started, mut times) = (Instant::now(), Vec::new());
    let runs_max = if args.once { 0 } else { RUNS_MAX };
    while times.len() < runs_max && (times.is_empty() || started.elapsed() < TIME_MAX) {
        let from = Instant::now();
        work.run(&input, &mut output)?;
        times.push(ms(from.elapsed()));
    }
    std::fs::write(&args.edges, &output)
        .with_context(|| format!("cannot write {}", args.edges.display()))?;
    let report = Report {
        device: device.text(DEVICE_NAME),
        first_ms,
        median_ms: median(&mut times),
        kernel_ns,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn prepare(device: Device, args: &DemoProgram, size: usize) -> Result<Work> {
    let failed = |call: &'static str| move |code: i32| anyhow!("{call} failed with error {code}");
    let context = Context::new(&[device]).map_err(failed("clCreateContext"))?;
    let properties = if args.once { QUEUE_PROFILING_ENABLE } else { 0 };
    let queue = context.queue(device, properties);
    let queue = queue.map_err(failed("clCreateCommandQueue"))?;
    let program = context.program_source(SOURCE.as_bytes());
    let program = program.map_err(failed("clCreateProgramWithSource"))?;
    program.build(&[device], "").map_err(|code| {
        let log = program.build_info(device, BUILD_LOG).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        anyhow!("clBuildProgram failed with error {code}: {}", log.trim())
    })?;
    let kernel = program.kernel("sobel");
    let mut kernel = kernel.map_err(failed("clCreateKernel"))?;
    let buffer = |flags| context.device_buffer(flags, size);
    let source = buffer(MEM_READ_ONLY).map_err(failed("clCreateBuffer"))?;
    let edges = buffer(MEM_WRITE_ONLY).map_err(failed("clCreateBuffer"))?;
    kernel
        .set_memory(0, Some(&source))
        .and_then(|()| kernel.set_memory(1, Some(&edges)))
        .and_then(|()| kernel.set_value(2, &args.width.to_ne_bytes()))
        .and_then(|()| kernel.set_value(3, &args.height.to_ne_bytes()))
        .map_err(failed("clSetKernelArg"))?;
    let whole = |count: u32, group: usize| (count as usize).next_multiple_of(group);
    Ok(Work {
        queue,
        kernel,
        source,
        edges,
        global: [whole(args.width, GROUP[0]), whole(args.height, GROUP[1]), 0],
        is_measured: args.once,
    })
}

impl Work {
    /// Writes the picture, runs the kernel, reads the edges; returns the kernel's time by the device's
    /// clock, nanoseconds, or 0.
    fn run(&self, input: &[u8], output: &mut [u8]) -> Result<u64> {
        let at_once = Enqueue {
            waits: &[],
            event: self.is_measured,
        };
        let (queue, kernel) = (&self.queue, &self.kernel);
        let launch = |()| queue.launch(at_once, kernel, 2, &[0; 3], &self.global, &GROUP);
        let written = queue.write_from(&self.source, input);
        let launched = written.and_then(launch).and_then(|event| {
            queue.read_into(&self.edges, output)?;
            Ok(event)
        });
        let event =
            launched.map_err(|code| anyhow!("the program failed with OpenCL error {code}"))?;
        let times = event.map(|event| event.times());
        Ok(times.map_or(0, |[_, _, started, ended]| ended.saturating_sub(started)))
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median; 0 for an empty list.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
