use super::*;
use std::collections::BTreeMap;

/// Files in memory; the working directory is `/here`.
struct Tree(BTreeMap<PathBuf, Vec<u8>>);

impl Files for Tree {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.0.get(&normal(&Path::new("/here").join(path))).cloned()
    }
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let own = |(path, text): &(&str, &str)| (PathBuf::from(path), text.as_bytes().to_vec());
    Tree(files.iter().map(own).collect())
}

fn resolved(text: &str, options: &str, files: &Tree) -> Resolved {
    let source = Source {
        text: text.as_bytes(),
        options,
        ..Source::default()
    };
    resolve(&source, files).unwrap()
}

/// The compiler's view: the text of each file at its include, found by new names only.
fn flat(resolved: &Resolved, text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let new = line
            .split_once(".baltra/")
            .and_then(|(_, name)| name.strip_suffix('"'));
        match new.map(|name| format!(".baltra/{name}")) {
            Some(name) => {
                let file = resolved.files.iter().find(|(n, _)| *n == name);
                let (_, text) = file.unwrap_or_else(|| panic!("{name} is not sent"));
                out += &flat(resolved, std::str::from_utf8(text).unwrap());
            }
            None if line.starts_with('#') || line.is_empty() => {}
            None => out += &format!("{line};"),
        }
    }
    out
}

/// The lines that the compiler sees, without directives.
fn seen(text: &str, options: &str, files: &Tree) -> String {
    let resolved = resolved(text, options, files);
    let text = resolved
        .text
        .as_deref()
        .map_or(text.into(), String::from_utf8_lossy);
    flat(&resolved, &text)
}

const M: &[(&str, &str)] = &[("/d/m.h", "m"), ("/d/a/x.h", "x"), ("/here/w.h", "w")];

#[test]
fn every_way_to_write_a_name_is_followed() {
    let files = tree(M);
    for (text, options) in [
        ("#include \"m.h\"", "-I/d"),
        ("#include <m.h>", "-I /d"),
        ("  #  include /* c */ <m.h> // c", "-I \"/d\""),
        ("#inc\\\nlude \\\n\"m.h\"", "-I/d"),
        ("/* c\n c */ #include \"m.h\"", "-I/d"),
        ("%:include \"m.h\"\r\n", "-I/d"),
        ("#define H \"m.h\"\n#include H", "-I/d"),
        (
            "#define Q(x) #x\n#define S(x) Q(x)\n#include S(m.h)",
            "-I/d",
        ),
        (
            "#define Q(x) #x\n#define S(x) Q(x)\n#include S(P/m.h)",
            "-D P=/d",
        ),
        (
            "#define Q(x) #x\n#define S(x) Q(x)\n#include S(P/m.h)",
            "-DP=\"/d\"",
        ),
        ("#include H", "-I/d -DH=<m.h>"),
        ("#include H", "-I/d -DH=\\\"m.h\\\""),
        ("#include \"a/../m.h\"", "-I/d"),
        ("#include \"../m.h\"", "-I/d/a"),
        ("#include \"../d/m.h\"", ""),
        ("#include \"/d/./a/../m.h\"", ""),
        ("#import <m.h>", "-I/d"),
        ("#if __has_include(<m.h>)\n#include <m.h>\n#endif", "-I/d"),
        (
            "#if __has_include(\"no.h\")\n#include <x.h>\n#else\n#include <m.h>\n#endif",
            "-I/d -I/d/a",
        ),
        ("#define P(a, ...) <__VA_ARGS__>\n#include P(x,m.h)", "-I/d"),
        ("#define E\n#define P(a) E <a E.h>\n#include P(m)", "-I/d"),
    ] {
        assert_eq!(
            seen(text, options, &files).replace("/* c;", ""),
            "m;",
            "{text}"
        );
        let named = resolved(text, options, &files);
        let names: Vec<_> = named.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [".baltra/0/m.h"], "{text}");
        assert!(!named.options.contains("-I"), "{}", named.options);
    }
}

#[test]
fn names_start_at_the_working_directory_and_at_the_includer() {
    let files = tree(&[
        ("/here/a/b.h", "#include \"c.h\"\n#include <c.h>"),
        ("/here/a/c.h", "beside"),
        ("/i/c.h", "directory"),
    ]);
    assert_eq!(
        seen("#include \"a/b.h\"", "-I/i", &files),
        "beside;directory;"
    );
}

#[test]
fn lines_stay_where_they_are_and_other_text_as_it_is() {
    let text = "a\n#include \\\n \"m.h\" /* x\n y */\nb \\\n#include \"m.h\"\n\"#include <m.h>\"\n";
    let resolved = resolved(text, "-I/d", &tree(M));
    let made = String::from_utf8(resolved.text.unwrap()).unwrap();
    let expected =
        "a\n#include \".baltra/0/m.h\"\n\n\nb \\\n#include \"m.h\"\n\"#include <m.h>\"\n";
    assert_eq!(made, expected);
    assert_eq!(resolved.files[0].1, b"#line 1 \"/d/m.h\"\nm");
}

#[test]
fn conditions_decide() {
    let files = tree(M);
    let of = |condition: &str, options: &str| {
        let text = format!("#if {condition}\n#include \"m.h\"\n#else\n#include \"w.h\"\n#endif");
        seen(&text, &format!("-I/d {options}"), &files)
    };
    for condition in [
        "1",
        "defined X && X > 1",
        "!defined(Y)",
        "X == 2 && (1 ? 3 : 4) == 3",
        "-1 < 0 && 0xffffffffffffffffu > 0 && 010 == 8 && 'a' == 97 && '\\n' == 10",
        "~0 == -1 && 7 / 2 == 3 && -7 % 4 == -3 && 1 << 4 == 16 && (6 ^ 3 | 8) == 13",
        "F(X, 3) == 5",
        "Y == 0",
        "0 || X",
        "(X) >= 2L && X <= 2UL && X != 3",
    ] {
        assert_eq!(of(condition, "-DX=2 -D\"F(a,b)=a+b\""), "m;", "{condition}");
        assert_eq!(
            of(&format!("!({condition})"), "-DX=2 -D\"F(a,b)=a+b\""),
            "w;",
            "{condition}"
        );
    }
    let chain =
        "#ifdef A\n#include <m.h>\n#elif B\n#include <x.h>\n#elifndef C\n#include \"w.h\"\n#endif";
    for (options, expected) in [("-DA", "m;"), ("-DB", "x;"), ("", "w;"), ("-DC", "")] {
        let options = format!("-I/d -I/d/a {options}");
        assert_eq!(seen(chain, &options, &files), expected, "{options}");
    }
}

#[test]
fn macros_of_the_compiler_alone_leave_both_branches() {
    let files = tree(M);
    let both = "#ifdef __NV_CL_C_VERSION\n#include \"m.h\"\n#else\n#include \"w.h\"\n#endif";
    assert_eq!(seen(both, "-I/d", &files), "m;w;");
    let call = "#if __has_builtin(x) && 1\n#include \"m.h\"\n#endif";
    assert_eq!(seen(call, "-I/d", &files), "m;");
    // A name that depends on the macro is kept, and all files that it may refer to are sent.
    let named = "#ifdef __X\n#define H \"m.h\"\n#else\n#define H \"a/x.h\"\n#endif\n#include H";
    let ambiguous = resolved(named, "-I/d", &files);
    assert_eq!(ambiguous.text, None);
    let names: Vec<_> = ambiguous
        .files
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    for name in ["m.h", "a/x.h"] {
        assert!(names.contains(&name), "{names:?}");
    }
    // A name that does not depend on the macro is replaced.
    let same =
        "#ifdef __X\n#define A 1\n#define H \"m.h\"\n#else\n#define H \"m.h\"\n#endif\n#include H";
    assert_eq!(seen(same, "-I/d", &files), "m;");
    let predefined = [("__X".to_owned(), "1".to_owned())];
    let source = Source {
        text: both.replace("__NV_CL_C_VERSION", "__X").into_bytes().leak(),
        options: "-I/d",
        predefined: &predefined,
        ..Source::default()
    };
    assert_eq!(resolve(&source, &files).unwrap().files.len(), 1);
}

#[test]
fn files_are_included_as_often_as_they_say() {
    let files = tree(&[
        (
            "/d/guard.h",
            "#ifndef __G_H__\n#define __G_H__\ng\n#include \"guard.h\"\n#endif",
        ),
        ("/d/once.h", "#pragma once\no\n#include \"once.h\""),
        ("/d/each.h", "e\n#if N < 3\n#include NEXT\n#endif"),
        ("/d/x.h", "#undef N\n#define N 3\n#include \"each.h\""),
    ]);
    let text = "#include \"guard.h\"\n#include \"guard.h\"";
    let found = resolved(text, "-I/d", &files);
    assert_eq!(found.files.len(), 1);
    let once = resolved(
        "#include <once.h>\n#import <once.h>\n#include <once.h>",
        "-I/d",
        &files,
    );
    assert_eq!(once.files.len(), 1);
    // The same text under two sets of macros.
    let text = "#define NEXT <x.h>\n#define N 1\n#include \"each.h\"";
    // N is 1, then 3: `each.h` is one file under both sets of macros.
    assert_eq!(resolved(text, "-I/d", &files).files.len(), 2);
}

#[test]
fn a_text_that_means_two_files_becomes_two() {
    let files = tree(&[
        ("/d/by.h", "#include HERE"),
        ("/d/1.h", "one"),
        ("/d/2.h", "two"),
    ]);
    let by = |name: &str| format!("#undef HERE\n#define HERE \"{name}\"\n#include \"by.h\"\n");
    let text = by("1.h") + &by("2.h");
    assert_eq!(seen(&text, "-I/d", &files), "one;two;");
}

#[test]
fn the_next_directory_is_found() {
    let files = tree(&[
        ("/1/a.h", "1\n#include_next <a.h>"),
        ("/2/a.h", "2\n#include_next <a.h>"),
        ("/3/a.h", "3"),
    ]);
    assert_eq!(seen("#include <a.h>", "-I/1 -I/2 -I /3", &files), "1;2;3;");
}

#[test]
fn headers_of_the_programs_own_come_first() {
    let files = tree(&[("/d/a.h", "file"), ("/d/b.h", "b")]);
    let embedded: [(&str, &[u8]); 2] = [
        ("a.h", b"own\n#include \"b.h\"\n#include \"s/c.h\""),
        ("s/c.h", b"c"),
    ];
    let source = Source {
        text: b"#include \"a.h\"",
        options: "-I/d",
        embedded: &embedded,
        ..Source::default()
    };
    let resolved = resolve(&source, &files).unwrap();
    let text = String::from_utf8(resolved.text.clone().unwrap()).unwrap();
    assert_eq!(flat(&resolved, &text), "own;b;c;");
}

#[test]
fn what_is_not_found_is_left_to_the_compiler() {
    let files = tree(M);
    for text in [
        "#include \"none.h\"",
        "#include <w.h>",
        "#include",
        "#include <",
        "#include \"\"",
        "#include X(",
        "#include __X",
        "#if 0\n#include \"w.h\"\n#endif",
        "#define X X\n#include X",
        "#",
        "#error \"w.h\"",
    ] {
        let resolved = resolved(text, "", &files);
        assert_eq!(
            (resolved.text, resolved.files),
            (None, Vec::new()),
            "{text}"
        );
    }
}

#[test]
fn what_would_never_end_is_an_error() {
    let endless = "#ifdef __X\n#include \"e.h\"\n#include \"e.h\"\n#endif\nint x;";
    let files = tree(&[("/d/e.h", endless)]);
    let of = |text: &str| {
        let source = Source {
            text: text.as_bytes(),
            options: "-I/d",
            ..Source::default()
        };
        resolve(&source, &files)
    };
    assert_eq!(of("#include \"e.h\""), Err(Error::TooLarge));
    let doubling: String = (0..40)
        .map(|n| format!("#define A{} A{n} A{n}\n", n + 1))
        .collect();
    assert_eq!(
        of(&format!("{doubling}#if A40\n#endif")),
        Err(Error::TooLarge)
    );
    let deep = "(".repeat(100_000);
    assert!(of(&format!("#if {deep}\n#endif")).is_ok());
    let nested = format!("#define F(x) x\n#if {}1\n#endif", "F(".repeat(100_000));
    assert_eq!(of(&nested), Err(Error::TooLarge));
    let closed = format!(
        "#define F(x) x\n#if {}1{}\n#endif",
        "F(".repeat(1_000),
        ")".repeat(1_000)
    );
    assert_eq!(of(&closed), Err(Error::TooLarge));
}

#[test]
fn any_bytes_come_to_an_end() {
    let mut state = 7u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let words = [
        "#",
        "include",
        "define",
        "if",
        "endif",
        "else",
        "elif",
        "ifdef",
        "\n",
        "\n",
        " ",
        "\\\n",
        "\"m.h\"",
        "<m.h>",
        "X",
        "X(",
        ")",
        "(",
        ",",
        "##",
        "__VA_ARGS__",
        "...",
        "1",
        "'",
        "\"",
        "/*",
        "*/",
        "//",
        "\u{e9}",
        "\0",
        "defined",
        "?",
        ":",
        "&&",
        "<",
        ">",
        "undef",
        "import",
        "pragma once",
    ];
    let files = tree(&[(
        "/d/m.h",
        "#ifndef X\n#define X(a) a\n#include <m.h>\n#endif\n",
    )]);
    for _ in 0..3_000 {
        let text: String = (0..60).map(|_| words[random() % words.len()]).collect();
        let source = Source {
            text: text.as_bytes(),
            options: "-I/d -DY=X(1)",
            ..Source::default()
        };
        // There is no panic, and the evaluation ends.
        let _ = resolve(&source, &files);
    }
}
