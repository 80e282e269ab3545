//! Random trees of files: a compiler's own preprocessor must produce the same text from the
//! program's files and from the files sent in their place.

use baltra_include::{resolve, Files, Source};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const TREES: u64 = 40;
const HEADERS: usize = 8;

struct Disk(PathBuf);

impl Files for Disk {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let path = self.0.join(path);
        path.is_file().then(|| std::fs::read(path).ok()).flatten()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        self.0.join(path).canonicalize().expect("it was read")
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// The path of header `n`.
fn place(n: usize) -> String {
    format!("{}/h{n}.h", ["i0", "i1", "i0/sub", "work"][n % 4])
}

/// Ways to name header `n` from any file.
fn name(random: &mut Random, n: usize, root: &Path) -> String {
    let file = format!("h{n}.h");
    let by_directory = match n % 4 {
        0 | 1 => file.clone(),
        2 => format!("sub/{file}"),
        _ => format!("../work/{file}"),
    };
    let root = root.display();
    match random.below(9) {
        0 => format!("#include <{by_directory}>"),
        1 => format!("  #  include \"{by_directory}\" // c"),
        2 => format!("#include \\\n /* a\n b */ \"{by_directory}\""),
        3 => format!("#define NAME \"{by_directory}\"\n#include NAME\n#undef NAME"),
        4 => format!("#include TEXT({by_directory})"),
        5 => format!("#include \"{root}/{}\"", place(n)),
        6 => format!("#include TEXT(ROOT/{})", place(n)),
        7 => format!("#include ANGLED({by_directory})"),
        _ => format!("#if __has_include(\"{by_directory}\")\n#include \"{by_directory}\"\n#endif"),
    }
}

fn condition(random: &mut Random) -> String {
    let name = random.of(&["A", "B", "C", "__GNUC__", "__NONE", "D"]);
    match random.below(7) {
        0 => format!("defined {name}"),
        1 => format!("!defined({name})"),
        2 => format!("{name} + 0 > 1"),
        3 => format!("defined({name}) && PICK({name}, 3) != 2"),
        4 => format!("({name}+0) % 3 == 1 || 'a' == 98"),
        5 => format!("{name}+0 ? 0 : 1u"),
        _ => format!("-1 < {name} + 0 && 07 == 0x7"),
    }
}

/// A text with includes of headers from `first` on.
fn text(random: &mut Random, first: usize, root: &Path) -> String {
    let mut text = String::new();
    for _ in 0..2 + random.below(6) {
        let include = if first < HEADERS {
            let n = first + random.below(HEADERS - first);
            name(random, n, root)
        } else {
            "last".to_owned()
        };
        let macro_ = random.of(&["A", "B", "C", "D"]);
        let value = random.below(4);
        match random.below(8) {
            0 => writeln!(text, "#define {macro_} {value}"),
            1 => writeln!(text, "#undef {macro_}"),
            2 => writeln!(
                text,
                "#if {}\n{include}\n#define {macro_} 2\n{}",
                condition(random),
                format_args!(
                    "#elif {}\n#undef {macro_}\n#else\n{include}\n#endif",
                    condition(random)
                )
            ),
            3 => writeln!(
                text,
                "t{value} __LINE__ '\"' \"// /*\" /* #include \"no.h\" */"
            ),
            4 => writeln!(text, "#if 0\ndon't\n{include}\n#endif"),
            _ => writeln!(text, "{include}"),
        }
        .expect("a text takes everything");
    }
    text
}

fn write_tree(seed: u64, root: &Path) {
    let random = &mut Random(seed);
    for n in (0..HEADERS).rev() {
        let mut body =
            format!("// header {n}\nin{n} __LINE__ __FILE__\n") + &text(random, n + 1, root);
        body = match random.below(3) {
            0 => format!("#pragma once\n{body}"),
            1 => format!(
                "#ifndef __H{n}_H__\n#define __H{n}_H__\n#include \"h{n}.h\"\n{body}#endif\n"
            ),
            _ => body,
        };
        let path = root.join(place(n));
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, body).expect("a file");
    }
    let helpers = "#define TEXT_(x) #x\n#define TEXT(x) TEXT_(x)\n\
        #define ANGLED(x) <x>\n#define PICK(a, ...) (a+0)\n";
    let source = format!("{helpers}{}", text(random, 0, root));
    std::fs::write(root.join("work/main.c"), source).expect("a file");
}

fn preprocessed(directory: &Path, options: &[String]) -> String {
    let output = Command::new("cc")
        .current_dir(directory)
        .args(["-E", "-P", "-w", "-nostdinc"])
        .args(options)
        .arg("main.c")
        .output()
        .expect("cc runs");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {err}", directory.display());
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_compiler_sees_the_same_text() {
    let home = std::env::temp_dir().join(format!("baltra-include-{}", std::process::id()));
    let mut included = 0;
    for seed in 0..TREES {
        let root = home.join(seed.to_string());
        std::fs::create_dir_all(root.join("work")).expect("a directory");
        write_tree(seed, &root);
        let text = std::fs::read(root.join("work/main.c")).expect("just written");
        let options = format!("-I{0}/i0 -I {0}/i1 -D ROOT={0} -DA=1", root.display());
        let native: Vec<String> = options.split(' ').map(str::to_owned).collect();
        let expected = preprocessed(&root.join("work"), &native);
        let source = Source {
            text: &text,
            options: &options,
            ..Source::default()
        };
        let resolved = resolve(&source, &Disk(root.join("work"))).expect("few files");
        included += resolved.files.len();
        // The program's own files are not accessible.
        let sent = home.join(format!("{seed}-sent"));
        std::fs::create_dir_all(&sent).expect("a directory");
        for (name, text) in &resolved.files {
            let path = sent.join(name);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        std::fs::write(sent.join("main.c"), resolved.text.unwrap_or(text)).expect("a file");
        std::fs::rename(&root, home.join("gone")).expect("it moves");
        let mut options: Vec<String> = resolved.options.split(' ').map(str::to_owned).collect();
        options.push(format!("-I{}", sent.display()));
        let got = preprocessed(&sent, &options);
        assert_eq!(got, expected, "tree {seed} in {}", home.display());
        std::fs::remove_dir_all(home.join("gone")).expect("it goes");
        std::fs::remove_dir_all(sent).expect("it goes");
    }
    assert!(included > 2 * TREES as usize, "{included} files in all");
    std::fs::remove_dir_all(home).expect("it goes");
}
