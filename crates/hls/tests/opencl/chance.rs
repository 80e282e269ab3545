//! Random kernels (`generate`): the same bytes from the simulated hardware and from the first
//! OpenCL device of the system.

use super::generate::{Generator, COUNTS, IN_WORDS, OWN_WORDS};
use super::kernels::{bytes, random};
use super::launch::{Argument, End, Program};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use Argument::{Buffer, ReadOnly, Word};

/// Work-items of a launch and of a group.
struct Size {
    global: [u64; 3],
    local: [u64; 3],
}

/// The program that executes a kernel by OpenCL, compiled once.
fn reference() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opencl/reference.c");
        let program = folder.join("reference");
        let mut compiler = Command::new("cc");
        compiler.arg("-w").arg(source).arg("-o").arg(&program);
        assert!(compiler.arg("-lOpenCL").status().unwrap().success());
        program
    })
}

/// The arguments of all kernels: buffers, then the scalar and the structure.
struct Data {
    out: Vec<u8>,
    input: Vec<u8>,
    counts: Vec<u8>,
    table: Vec<u8>,
}

impl Data {
    fn new(items: usize) -> Data {
        let all = random(IN_WORDS + COUNTS);
        let numbers: Vec<i32> = (0..COUNTS as i32).map(|i| i * i - 40).collect();
        Data {
            out: vec![0; 4 * OWN_WORDS * items],
            input: bytes(&all[..IN_WORDS]),
            counts: bytes(&[0_i32; COUNTS]),
            table: bytes(&numbers),
        }
    }
}

/// The scalar, and the members of the structure with its padding.
const SCALAR: u32 = 77;
const PAIR: [u64; 2] = [0xffff_fff9_0000_0005, 0x0123_4567_89ab_cdef];

/// The buffers after the kernel by OpenCL.
fn expected(source: &Path, name: &str, size: &Size, data: &Data) -> Vec<u8> {
    let mut launch = Vec::new();
    for pair in [size.global, size.local] {
        pair[..2]
            .iter()
            .for_each(|n| launch.extend(n.to_le_bytes()));
    }
    let pair: Vec<u8> = PAIR.iter().flat_map(|w| w.to_le_bytes()).collect();
    let group = size.local.iter().product::<u64>();
    let arguments: [(u32, &[u8]); 6] = [
        (1, &data.out),
        (1, &data.input),
        (1, &data.counts),
        (1, &data.table),
        (0, &SCALAR.to_le_bytes()),
        (0, &pair),
    ];
    launch.extend(7_u32.to_le_bytes());
    for (kind, bytes) in arguments {
        launch.extend(kind.to_le_bytes());
        launch.extend((bytes.len() as u64).to_le_bytes());
        launch.extend(bytes);
    }
    launch.extend(2_u32.to_le_bytes());
    launch.extend((8 * group).to_le_bytes());
    let mut program = Command::new(reference())
        .arg(source)
        .arg(name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    program.stdin.take().unwrap().write_all(&launch).unwrap();
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    output.stdout
}

/// Compares a kernel; returns how its results differ. `None`: the compiler refuses it, with the line.
fn compare(seed: u64) -> Option<String> {
    let name = format!("k{seed}");
    let kernel = Generator::new(seed).kernel(&name, !seed.is_multiple_of(3));
    let source = format!("{}{kernel}", Generator::head());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernel.cl");
    std::fs::write(&file, &source).unwrap();
    let program = match Program::try_new(&source, &[]) {
        Ok(program) => program,
        Err(error) => {
            let log = error.log.trim_end();
            println!("seed {seed} is refused: {log}");
            let has_line = log.contains("kernel.cl:");
            return (!has_line).then(|| format!("seed {seed}: refused without a line: {log}"));
        }
    };
    let size = match seed % 3 {
        0 => ([5, 3, 1], [1, 1, 1]),
        1 => ([16, 1, 1], [8, 1, 1]),
        _ => ([4, 4, 1], [2, 4, 1]),
    };
    let size = Size {
        global: size.0,
        local: size.1,
    };
    let items = size.global.iter().product::<u64>();
    let mut data = Data::new(items as usize);
    let expected = expected(&file, &name, &size, &data);
    let group = size.local.iter().product::<u64>();
    let mut arguments = [
        Buffer(&mut data.out),
        ReadOnly(&data.input),
        Buffer(&mut data.counts),
        ReadOnly(&data.table),
        Word(u64::from(SCALAR)),
        Word(PAIR[0]),
        Word(PAIR[1]),
        Word(8 * group),
    ];
    let outcome = program.run(&name, size.global, size.local, &mut arguments);
    let got = [&data.out[..], &data.input, &data.counts, &data.table].concat();
    if outcome.end == End::Done && got == expected {
        return None;
    }
    let at = got.iter().zip(&expected).position(|(a, b)| a != b);
    let end = outcome.end;
    Some(format!(
        "seed {seed}: {end:?}, first difference at byte {at:?}"
    ))
}

/// `KERNELS_SEED` and `KERNELS_ROUNDS` select the first seed and the number of kernels.
#[test]
fn test_random_kernels_have_the_results_of_another_device() {
    let number = |name: &str, other: u64| {
        let text = std::env::var(name).ok();
        text.and_then(|n| n.parse().ok()).unwrap_or(other)
    };
    let (seed, rounds) = (number("KERNELS_SEED", 3), number("KERNELS_ROUNDS", 2));
    let wrong: Vec<String> = (seed..seed + rounds).filter_map(compare).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
