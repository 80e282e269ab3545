//! The demonstration's program on a circuit: its kernel is compiled to SystemVerilog, and the circuit's model
//! runs it as an emulated accelerator.

use super::Demonstration;
use crate::commands::accelerator::compilers;
use anyhow::{bail, ensure, Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The clock of emulated accelerators.
const CYCLES_PER_NS: f64 = 0.1;
/// Interval at which the demonstration looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(20);
/// The picture that the circuit makes, in the demonstration's directory.
const PICTURE: &str = "hardware";

impl Demonstration {
    /// Compiles the kernel, runs the program, and compares the picture; prints missing tools.
    pub fn hardware(&self) -> Result<()> {
        if let Err(error) = compilers() {
            println!("left out: {error:#}");
            return Ok(());
        }
        let source = self.home.join("kernel.cl");
        std::fs::write(&source, super::program::SOURCE)?;
        let mut build = self.command()?;
        build.args(["accelerator", "build"]).arg(&source);
        let output = self.wait(build.spawn().context("cannot start the compiler")?)?;
        ensure!(
            output.status.success(),
            "the kernel was not compiled; see the error above"
        );
        let summary = String::from_utf8_lossy(&output.stdout);
        println!("{}", summary.lines().next().unwrap_or_default());
        let mut run = self.command()?;
        run.args(["run", "--standalone", "--set", "device.driver=emulate:"]);
        run.arg("--").arg(std::env::current_exe()?);
        let library = self.library.display().to_string();
        self.program(&mut run, &library, PICTURE).arg("--once");
        let output = self.wait(run.spawn().context("cannot start the program")?)?;
        let report = Self::report(&output)?;
        self.compare(PICTURE)?;
        let cycles = report.kernel_ns as f64 * CYCLES_PER_NS;
        let pixels = f64::from(self.width) * f64::from(self.height);
        println!(
            "the picture equals the native one; {:.2} cycles per pixel, {:.1} ms at 100 MHz",
            cycles / pixels,
            report.kernel_ns as f64 / 1e6
        );
        Ok(())
    }

    /// This program, whose files are all in the demonstration's directory.
    fn command(&self) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        self.own_caches(&mut command);
        Ok(command)
    }

    /// The output of a child, which has little; ends it if the demonstration is interrupted.
    fn wait(&self, mut child: Child) -> Result<Output> {
        while child.try_wait()?.is_none() {
            if self.interrupted.load(Ordering::Relaxed) {
                // Fails if it has ended.
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
                child.wait()?;
                bail!("interrupted");
            }
            std::thread::sleep(LOOK);
        }
        Ok(child.wait_with_output()?)
    }
}
