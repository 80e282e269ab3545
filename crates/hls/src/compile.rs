//! Compiles C to LLVM's IR: clang compiles a kernel and its library for a target whose types have
//! the sizes that they have on the hosts.

use anyhow::{ensure, Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The compiler; `parse` reads the IR of this version.
pub const CLANG: &str = "clang-16";

/// Gives `char` the sign that it has on this host.
pub const CHAR: &str = if std::ffi::c_char::MIN == 0 {
    "-funsigned-char"
} else {
    "-fsigned-char"
};

/// A kernel to synthesize.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The module's name.
    pub name: String,
    /// Its C files.
    pub sources: Vec<PathBuf>,
    /// The rank of its first copy.
    pub first: u32,
    /// Number of copies.
    pub copies: u32,
    /// Number of ranks of all kernels.
    pub ranks: u32,
    /// The first rank that has streams only and takes no part in collectives.
    pub streams: Option<u32>,
    /// Arguments of `main`; `None`: the number of ranks and the kernel's own rank.
    pub arguments: Option<Vec<String>>,
    /// Names and values of environment variables.
    pub environment: Vec<(String, String)>,
    /// Bytes of memory off the chip.
    pub memory: u64,
    /// The folder `humboldt` of Baltra's tree.
    pub humboldt: PathBuf,
    /// A folder for intermediate files.
    pub work: PathBuf,
}

fn quoted(text: &str) -> String {
    let bytes: String = text.bytes().map(|b| format!("\\{b:03o}")).collect();
    format!("\"{bytes}\",")
}

impl Kernel {
    fn command(&self) -> Command {
        let (count, arguments) = match &self.arguments {
            Some(words) => (words.len() + 1, words.iter().map(|w| quoted(w)).collect()),
            None => {
                let own = if self.copies == 1 {
                    quoted(&self.first.to_string())
                } else {
                    "own,".to_owned()
                };
                (3, quoted(&self.ranks.to_string()) + &own)
            }
        };
        let environment: String = self
            .environment
            .iter()
            .map(|(name, value)| format!("{{{}{}}},", quoted(name), quoted(value)))
            .collect();
        let mut command = Command::new(CLANG);
        command
            .args([
                "--target=riscv64-unknown-elf",
                "-march=rv64imafd",
                "-mabi=lp64",
                CHAR,
                "-std=gnu11",
                "-O2",
                "-g",
            ])
            .args(["-isystem", "/usr/lib/picolibc/riscv64-unknown-elf/include"])
            .args([
                "-ffp-contract=off",
                "-fno-vectorize",
                "-fno-slp-vectorize",
                "-fno-unroll-loops",
                "-fno-discard-value-names",
                "-mllvm",
                "-disable-loop-idiom-all",
                // Counters of 32 bits keep their width.
                "-mllvm",
                "-indvars-widen-indvars=false",
            ])
            .args(
                ["printf", "fprintf", "puts", "putchar", "fputc", "fputs"]
                    .map(|f| format!("-fno-builtin-{f}")),
            )
            .arg("-I")
            .arg(self.humboldt.join("include"))
            .arg("-I")
            .arg(self.humboldt.join("src"))
            .args(["-DHUM_SYNTHESIZED", "-w", "-emit-llvm"])
            .arg(format!("-DHUM_RANKS={}", self.ranks))
            .arg(format!("-DHUM_FIRST={}", self.first))
            .arg(format!("-DHUM_COPIES={}", self.copies))
            .arg(format!("-DHUM_ARGC={count}"))
            .arg(format!("-DHUM_ARGV={arguments}"))
            .arg(format!("-DHUM_ENVIRONMENT={environment}"))
            .args(
                self.streams
                    .map(|rank| format!("-DHUM_STREAMS_RANK={rank}")),
            )
            .stdin(Stdio::null());
        command
    }

    /// Compiles the kernel and its library to one module of IR.
    pub(crate) fn ir(&self) -> Result<String> {
        let run = |mut command: Command| -> Result<()> {
            let done = command.output().with_context(|| {
                format!("cannot run {CLANG} ('scripts/setup.sh fabric' installs it)")
            })?;
            ensure!(
                done.status.success(),
                "{CLANG} cannot compile the kernel for synthesis:\n{}",
                String::from_utf8_lossy(&done.stderr)
            );
            Ok(())
        };
        let fabric = self.humboldt.join("fabric");
        // Streams and collectives precede messages, as only functions that are called so far are
        // linked.
        let library = [
            self.humboldt.join("src/stream.c"),
            fabric.join("collective.c"),
            fabric.join("fabric.c"),
            self.humboldt.join("src/types.c"),
        ];
        let mut parts = Vec::new();
        for (at, source) in self.sources.iter().chain(&library).enumerate() {
            let part = self.work.join(format!("{}.{at}.bc", self.name));
            let mut command = self.command();
            command
                .args(["-Xclang", "-disable-llvm-passes", "-c"])
                .arg(source)
                .arg("-o")
                .arg(&part);
            run(command)?;
            parts.push(part);
        }
        // Parts are linked before optimization, and only the entry is visible outside.
        let out = self.work.join(format!("{}.ll", self.name));
        let mut command = self.command();
        command
            .arg("-S")
            .arg(fabric.join("hls.c"))
            .arg("-o")
            .arg(&out);
        for part in &parts {
            command
                .args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"])
                .arg(part);
        }
        let done = run(command);
        for part in &parts {
            let _ = fs::remove_file(part);
        }
        done?;
        fs::read_to_string(&out).with_context(|| out.display().to_string())
    }
}
