//! Tests of `baltra function`: from a template to a call, with a native function and a real
//! gateway.

mod common;

use baltra_testkit::{Options, Service};
use common::{text, BALTRA};
use std::path::Path;
use std::process::Command;

const MANIFEST: &str = "\
name: shout
description: ASCII letters in upper case
inputs:
  - {name: quiet, type: u8, shape: [length], codecs: [raw]}
outputs:
  - {name: loud, type: u8, shape: [length], codecs: [raw]}
args: [quiet, loud, u64(length)]
implementations:
  - native: {library: shout.so, symbol: shout}
limits: {timeout_ms: 60000}
";

const SOURCE: &str = "\
#include <stdint.h>
#include <stdio.h>
#include \"baltra_function.h\"
int32_t shout(const baltra_argument *a, uint32_t n, char *error, uint64_t room) {
  (void)n;
  const uint8_t *in = a[0].data;
  uint8_t *out = a[1].data;
  uint64_t length = *(const uint64_t *)a[2].data;
  if (in[0] == '!') {
    snprintf(error, room, \"that is loud already\");
    return 1;
  }
  for (uint64_t i = 0; i < length; i++)
    out[i] = in[i] >= 'a' && in[i] <= 'z' ? in[i] - 32 : in[i];
  printf(\"shouted %d bytes\\n\", (int)length);
  fflush(stdout);
  return 0;
}
";

/// A gateway without a Device Manager: native functions need none.
fn gateway() -> Service {
    let options = Options {
        set: vec!["gateway.engine.endpoints=[\"unix:/nowhere/baltra.sock\"]".into()],
        ..Options::default()
    };
    Service::start(BALTRA, "gateway", &options).unwrap()
}

/// The function's directory, with its library built.
fn build(dir: &Path) {
    std::fs::write(dir.join("function.yaml"), MANIFEST).unwrap();
    std::fs::write(dir.join("shout.c"), SOURCE).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../native/include");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "shout.so", "shout.c", "-I"])
        .arg(include)
        .current_dir(dir)
        .output()
        .expect("a C compiler is installed");
    assert!(built.status.success(), "{}", text(&built.stderr));
}

#[test]
fn a_function_is_begun_deployed_called_and_removed() {
    let gateway = gateway();
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("shout");
    let at = dir.to_str().unwrap();

    // The template's name becomes the function's name.
    let begun = gateway.text(&["function", "init", "shout", "--dir", at]);
    assert!(begun.unwrap().contains("function deploy"));
    let template = std::fs::read_to_string(dir.join("function.yaml")).unwrap();
    assert!(template.contains("name: shout"), "{template}");
    let twice = gateway.text(&["function", "init", "shout", "--dir", at]);
    assert!(twice.unwrap_err().to_string().contains("already"));
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();

    // Missing files are listed, and nothing is deployed.
    std::fs::write(dir.join("function.yaml"), MANIFEST).unwrap();
    let lacking = gateway.text(&["function", "deploy", at]).unwrap_err();
    assert!(lacking.to_string().contains("shout.so"), "{lacking}");
    let none = gateway.text(&["function", "list", "--json"]).unwrap();
    assert_eq!(none.trim(), "[]");

    build(&dir);
    // A directory of functions is also accepted.
    let all = home.path().to_str().unwrap();
    let deployed = gateway.text(&["function", "deploy", all]).unwrap();
    let url = format!("{}/function/shout", gateway.url());
    assert!(deployed.contains(&url), "{deployed}");

    let loud = gateway.text(&["function", "invoke", "shout", "--data", "hello"]);
    assert_eq!(loud.unwrap(), "HELLO");
    let file = home.path().join("loud");
    std::fs::write(home.path().join("quiet"), "from a file").unwrap();
    let from = format!("@{}", home.path().join("quiet").display());
    let written = ["--data", &from, "--output", file.to_str().unwrap()];
    let written = [&["function", "invoke", "shout"][..], &written[..]].concat();
    gateway.text(&written).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "FROM A FILE");
    let failed = gateway.baltra(&["function", "invoke", "shout", "--data", "!"]);
    let failed = failed.unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let why = text(&failed.stderr);
    assert!(why.contains("that is loud already"), "{why}");

    let listed = gateway.text(&["function", "list"]).unwrap();
    assert!(listed.contains("shout"), "{listed}");
    let about = gateway.text(&["function", "describe", "shout"]).unwrap();
    for part in [url.as_str(), "ASCII letters in upper case", "native"] {
        assert!(about.contains(part), "{part}: {about}");
    }
    baltra_testkit::until("what it printed is in its log", || {
        let log = gateway.text(&["function", "logs", "shout"]).unwrap();
        log.contains("shouted 5 bytes") && log.contains("that is loud already")
    })
    .unwrap();

    let removed = gateway.text(&["function", "remove", "shout"]).unwrap();
    assert!(removed.contains("removed"), "{removed}");
    let gone = gateway.text(&["function", "invoke", "shout", "--data", "x"]);
    assert!(gone.unwrap_err().to_string().contains("shout"));
    for command in ["describe", "logs", "remove"] {
        let gone = gateway.text(&["function", command, "shout"]);
        assert!(gone.is_err(), "{command}");
    }
}
