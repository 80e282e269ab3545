//! A random kernel (`generate`) with its launch, and its results when it is compiled for this
//! processor, without optimization, with the same library (`reference.c`). PoCL 3.1 has other values
//! of variables across barriers for some kernels. (`crates/hls/src/tests/kernels.rs` uses it, too.)

use super::generate::{Generator, Kind, COUNTS, IN_WORDS, OWN_WORDS};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A kernel, its launch and its buffers.
pub struct Case {
    pub name: String,
    /// Whether its work-items may execute in parts.
    pub parts: bool,
    pub source: String,
    /// Work-items of the launch and of a group.
    pub global: [u64; 3],
    pub local: [u64; 3],
    /// The output, the input, the counters and the table.
    pub buffers: [Vec<u8>; 4],
}

/// The scalar argument, and the words of the structure.
pub const SCALAR: u32 = 77;
pub const PAIR: [u64; 2] = [0xffff_fff9_0000_0005, 0x0123_4567_89ab_cdef];

impl Case {
    /// The kernel of a seed. Two of six have no barriers, of which one has nothing that depends on
    /// groups.
    pub fn new(seed: u64) -> Case {
        let name = format!("k{seed}");
        let (kind, global, local) = match seed % 6 {
            0 => (Kind::Alone, [13, 3, 1], [1, 1, 1]),
            3 => (Kind::Atomics, [5, 3, 1], [1, 1, 1]),
            1 | 4 => (Kind::Groups, [16, 1, 1], [8, 1, 1]),
            _ => (Kind::Groups, [4, 4, 1], [2, 4, 1]),
        };
        let kernel = Generator::new(seed, kind).kernel(&name);
        let items = global.iter().product::<u64>() as usize;
        let input = (0..IN_WORDS as u32).map(|i| (i + 1).wrapping_mul(0x9e37_79b9) ^ i << 7);
        let table = (0..COUNTS as i32).map(|i| i * i - 40);
        Case {
            name,
            parts: kind == Kind::Alone,
            source: format!("{}{kernel}", Generator::head()),
            global,
            local,
            buffers: [
                vec![0; 4 * OWN_WORDS * items],
                input.flat_map(u32::to_le_bytes).collect(),
                vec![0; 4 * COUNTS],
                table.flat_map(i32::to_le_bytes).collect(),
            ],
        }
    }

    /// Bytes of the argument in local memory.
    pub fn local_bytes(&self) -> u64 {
        8 * self.local.iter().product::<u64>()
    }

    /// The buffers after the launch on this processor.
    pub fn expected(&self) -> Vec<u8> {
        let mut launch = Vec::new();
        for size in [self.global, self.local] {
            let words = size[..2].iter();
            words.for_each(|n| launch.extend(n.to_le_bytes()));
        }
        for bytes in &self.buffers {
            launch.extend((bytes.len() as u64).to_le_bytes());
            launch.extend(bytes);
        }
        launch.extend(SCALAR.to_le_bytes());
        PAIR.iter().for_each(|w| launch.extend(w.to_le_bytes()));
        let folder = tempfile::tempdir().unwrap();
        let program = self.compiled(folder.path());
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        process.stdin.take().unwrap().write_all(&launch).unwrap();
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", self.name, output.status);
        output.stdout
    }

    fn compiled(&self, folder: &Path) -> PathBuf {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (file, object) = (folder.join("kernel.cl"), folder.join("kernel.o"));
        let program = folder.join("reference");
        std::fs::write(&file, &self.source).unwrap();
        let run = |command: &mut Command| assert!(command.status().unwrap().success());
        run(Command::new("clang-16")
            .args(["-x", "cl", "-cl-std=CL1.2", "-cl-single-precision-constant"])
            .args(["-O0", "-w", "-ffp-contract=off", "-Xclang", "-fno-builtin"])
            .arg("-fgnu89-inline")
            .arg("-I")
            .arg(home.join("opencl"))
            .args(["-include", "baltra_builtins.h", "-c"])
            .arg(file)
            .arg("-o")
            .arg(&object));
        run(Command::new("clang-16")
            .args(["-w", &format!("-DKERNEL={}", self.name)])
            .arg(home.join("tests/opencl/reference.c"))
            .arg(object)
            .arg("-o")
            .arg(&program));
        program
    }
}

/// Compares the kernels of the seeds that `KERNELS_SEED` and `KERNELS_ROUNDS` select, or of these;
/// `compare` returns how a kernel's results differ.
pub fn all(first: u64, count: u64, compare: impl Fn(u64) -> Option<String>) {
    let number = |name: &str, other: u64| {
        let text = std::env::var(name).ok();
        text.and_then(|n| n.parse().ok()).unwrap_or(other)
    };
    let first = number("KERNELS_SEED", first);
    let count = number("KERNELS_ROUNDS", count);
    let wrong = (first..first + count).filter_map(|seed| {
        let difference = compare(seed)?;
        let file = std::env::temp_dir().join(format!("baltra-kernel-{seed}.cl"));
        std::fs::write(&file, Case::new(seed).source).unwrap();
        let text = format!("seed {seed}: {difference}: {}", file.display());
        println!("{text}");
        Some(text)
    });
    let wrong: Vec<String> = wrong.collect();
    println!(
        "{count} kernels from seed {first} on, {} differ",
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A kernel that the compiler refuses: an error if the log has no line of the source.
pub fn refused(seed: u64, log: &str) -> Option<String> {
    let log = log.trim_end();
    println!("seed {seed} is refused: {log}");
    (!log.contains("kernel.cl:")).then(|| format!("refused without a line: {log}"))
}

/// The first difference of two buffers.
pub fn difference(got: &[u8], expected: &[u8]) -> Option<String> {
    let at = got.iter().zip(expected).position(|(a, b)| a != b);
    let at = at.or((got.len() != expected.len()).then_some(got.len()))?;
    Some(format!("byte {at} differs"))
}
