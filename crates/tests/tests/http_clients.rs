//! The HTTP door with unmodified third-party clients: faas-cli, Triton's client, schemathesis.

use baltra_testkit::{Options, Service};
use baltra_tests::{baltra, daemon_with, root, Running};
use std::path::{Path, PathBuf};
use std::process::Command;

const UPPERCASE: &str = "name: uppercase
inputs:
  - {name: text, type: u8, shape: [length], codecs: [raw, json], json: text}
outputs:
  - {name: upper, type: u8, shape: [length], codecs: [raw, json], json: text}
args: [text, upper, u64(length)]
implementations:
  - native: {library: test.so, symbol: uppercase}
";

const SCALE: &str = "name: scale
inputs:
  - {name: values, type: f32, shape: [n], codecs: [raw, json]}
  - {name: factor, type: f32, from: query, default: 2}
outputs:
  - {name: scaled, type: f32, shape: [n], codecs: [raw, json]}
args: [values, scaled, factor, u64(n)]
implementations:
  - native: {library: test.so, symbol: scale}
";

/// A gateway process with two native functions, deployed by `baltra function`.
fn gateway() -> Service {
    let options = Options {
        set: vec!["gateway.grpc_address=auto".into()],
        ..Options::default()
    };
    let gateway = Service::start(baltra(), "gateway", &options).expect("a gateway starts");
    let directory = tempfile::tempdir().unwrap();
    for (name, manifest) in [("uppercase", UPPERCASE), ("scale", SCALE)] {
        let function = directory.path().join(name);
        std::fs::create_dir(&function).unwrap();
        std::fs::write(function.join("function.yaml"), manifest).unwrap();
        library(&function.join("test.so"));
    }
    let path = directory.path().display().to_string();
    let printed = gateway.text(&["function", "deploy", &path]).unwrap();
    assert!(printed.contains("uppercase deployed"), "{printed}");
    gateway
}

fn library(to: &Path) {
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .arg(to)
        .arg(root().join("crates/gateway/tests/support/functions.c"))
        .arg("-I")
        .arg(root().join("crates/native/include"))
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "functions.c does not compile"
    );
}

/// Its address for gRPC, as `host:port`.
fn grpc_address(gateway: &Service) -> String {
    let published = std::fs::read(gateway.runtime_dir().join("gateway.json")).unwrap();
    let published: serde_json::Value = serde_json::from_slice(&published).unwrap();
    let url = published["others"][0].as_str().expect("a second address");
    url.trim_start_matches("http://").to_owned()
}

/// A program of the tests' Python environment, which `BALTRA_TEST_VENV` can override.
fn python(name: &str) -> PathBuf {
    let venv = std::env::var_os("BALTRA_TEST_VENV").map(PathBuf::from);
    let venv = venv.unwrap_or_else(|| root().join("target/venv"));
    let path = venv.join("bin").join(name);
    assert!(
        path.exists(),
        "{}: run scripts/setup.sh test",
        path.display()
    );
    path
}

#[test]
fn triton_s_client_infers_over_http_and_grpc() {
    let gateway = gateway();
    let mut command = Command::new(python("python"));
    command
        .arg(root().join("crates/tests/programs/inference.py"))
        .arg(gateway.url().trim_start_matches("http://"))
        .arg(grpc_address(&gateway));
    let answer = Running::run(command).ok();
    assert!(answer.out.ends_with("ok"), "{}", answer.out);
}

/// The commands of a section of docs/http.md, without their prompt.
fn documented(section: &str, programs: &[&str]) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/http.md")).unwrap();
    let (_, text) = text.split_once(section).expect("the section is there");
    let text = text.split("\n## ").next().unwrap_or_default();
    let text = text.replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
    let lines = lines.filter(|line| programs.iter().any(|program| line.starts_with(program)));
    lines.map(str::to_owned).collect()
}

fn shell(command: &str, home: &Path) {
    let ran = Command::new("sh")
        .args(["-ec", command])
        .current_dir(home)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command}: {printed}");
}

/// Output of curl and of the command line against a gateway with this certificate.
fn trusted(home: &Path, certificate: &str, key: &str, trust: &str) -> [Result<String, String>; 2] {
    let path = |name: &str| home.join(name).display().to_string();
    let options = Options {
        set: vec![
            format!("gateway.tls_cert={}", path(certificate)),
            format!("gateway.tls_key={}", path(key)),
        ],
        ..Options::default()
    };
    let gateway = Service::start(baltra(), "gateway", &options).expect("a gateway starts");
    let port = gateway
        .url()
        .rsplit(':')
        .next()
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    let url = format!("https://localhost:{port}");
    let run = |command: &mut Command| {
        let ran = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if ran.status.success() {
            Ok(text(&ran.stdout))
        } else {
            Err(text(&ran.stderr))
        }
    };
    let curl = run(Command::new("curl").args([
        "-sS",
        "--cacert",
        &path(trust),
        &format!("{url}/healthz"),
    ]));
    let mut list = Command::new(baltra());
    list.args(["function", "list", "--gateway", &url, "--ca", &path(trust)]);
    [curl, run(&mut list)]
}

#[test]
fn the_documented_certificates_work_and_an_authority_s_own_is_explained() {
    let home = tempfile::tempdir().unwrap();
    let commands = documented("### Certificates", &["openssl", "printf"]);
    assert_eq!(commands.len(), 5, "{commands:#?}");
    shell(&commands[0], home.path());
    let [curl, list] = trusted(home.path(), "cert.pem", "key.pem", "cert.pem");
    assert_eq!(curl.unwrap(), "ok\n");
    list.unwrap();
    for command in &commands[1..] {
        shell(command, home.path());
    }
    let [curl, list] = trusted(home.path(), "cert.pem", "key.pem", "ca.pem");
    assert_eq!(curl.unwrap(), "ok\n");
    list.unwrap();
    // Without the option that makes it a server certificate.
    let authority = commands[0].replace("-addext basicConstraints=critical,CA:FALSE", "");
    assert_ne!(authority, commands[0]);
    shell(&authority, home.path());
    let [_, list] = trusted(home.path(), "cert.pem", "key.pem", "cert.pem");
    let error = list.unwrap_err();
    assert!(
        error.contains("CA:TRUE") && error.contains("basicConstraints=CA:FALSE"),
        "{error}"
    );
    assert!(!error.contains("Other("), "{error}");
}

const COPY: &str = "name: copy
inputs: [{name: a, type: u8, shape: [n]}]
outputs: [{name: b, type: u8, shape: [n]}]
implementations: [{opencl: {source: copy.cl, kernel: copy, global: [n]}}]
";

#[test]
fn a_kernel_that_cannot_be_built_is_refused_at_deployment() {
    let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
    let _node = daemon_with(&[&format!("node.registry={}", registry.url())]);
    let options = Options {
        set: vec![format!("gateway.engine.registry={}", registry.url())],
        ..Options::default()
    };
    let gateway = Service::start(baltra(), "gateway", &options).expect("a gateway starts");
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("function.yaml"), COPY).unwrap();
    let path = home.path().display().to_string();
    let deploy = |source: &str| {
        std::fs::write(home.path().join("copy.cl"), source).unwrap();
        let output = gateway.baltra(&["function", "deploy", &path]).unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    };
    let right = "kernel void copy(global uchar *a, global uchar *b) { b[get_global_id(0)] = a[get_global_id(0)]; }";
    let (done, printed) = deploy(right);
    assert!(done, "{printed}");
    let url = format!("{}/function/copy", gateway.url());
    let call = || {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-H", "content-type: application/octet-stream"]);
        curl.args(["--data-binary", "same", &url]);
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    };
    assert_eq!(call(), "same");
    for (source, word) in [
        (
            "kernel void copy(global uchar *a, global uchar *b) { nonsense; }",
            "nonsense",
        ),
        (
            "kernel void other(global uchar *a, global uchar *b) {}",
            "no kernel 'copy'",
        ),
        ("kernel void copy(global uchar *a) {}", "1 arguments"),
    ] {
        let (done, printed) = deploy(source);
        assert!(!done && printed.contains(word), "{printed}");
        // The manifest's path is the caller's; the gateway's message follows.
        let (_, reason) = printed.split_once("deployment failed").expect("a reason");
        assert!(!reason.contains('/'), "{reason}");
        // The previous version stays deployed.
        assert_eq!(call(), "same");
    }
}

/// From `BALTRA_FAAS_CLI`, `target/tools` or the path.
fn faas_cli() -> Option<PathBuf> {
    let named = std::env::var_os("BALTRA_FAAS_CLI").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|dir| dir.join("faas-cli"));
    let tools = root().join("target/tools/faas-cli");
    named
        .into_iter()
        .chain([tools])
        .chain(places)
        .find(|path| path.is_file())
}

#[test]
fn faas_cli_deploys_lists_invokes_logs_and_removes() {
    let Some(faas_cli) = faas_cli() else {
        eprintln!("skipped: faas-cli is not installed; BALTRA_FAAS_CLI names it");
        return;
    };
    let gateway = gateway();
    let home = tempfile::tempdir().unwrap();
    let stack = "version: 1.0
provider: {name: openfaas}
functions:
  loud: {lang: dockerfile, handler: ./loud, image: uppercase, labels: {team: a}}
";
    std::fs::write(home.path().join("functions.yml"), stack).unwrap();
    let run = |arguments: &[&str], input: &str| {
        let mut command = Command::new(&faas_cli);
        command
            .args(arguments)
            .current_dir(home.path())
            .env("HOME", home.path())
            .env("OPENFAAS_URL", gateway.url())
            .env("OPENFAAS_CONFIG", home.path());
        std::fs::write(home.path().join("input"), input).unwrap();
        command.stdin(std::fs::File::open(home.path().join("input")).unwrap());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let printed = (text(&output.stdout), text(&output.stderr));
        (output.status.success(), printed.0, printed.1)
    };
    let ok = |arguments: &[&str], input: &str| {
        let (success, out, err) = run(arguments, input);
        assert!(success, "faas-cli {arguments:?}: {out}{err}");
        out
    };
    let deployed = ok(&["deploy", "-f", "functions.yml"], "");
    assert!(deployed.contains("Deployed. 202 Accepted"), "{deployed}");
    // Deployed again, as an update.
    let updated = ok(&["deploy", "-f", "functions.yml"], "");
    assert!(updated.contains("202"), "{updated}");
    let named = ok(&["deploy", "--name", "louder", "--image", "uppercase"], "");
    assert!(named.contains("202"), "{named}");
    let list = ok(&["list"], "");
    assert!(
        list.contains("loud") && list.contains("louder") && list.contains("scale"),
        "{list}"
    );
    // It also prints on standard output that it found no configuration.
    assert!(ok(&["invoke", "loud"], "hello").ends_with("HELLO"));
    let again = ok(
        &[
            "invoke",
            "loud",
            "--content-type",
            "application/octet-stream",
        ],
        "again",
    );
    assert!(again.ends_with("AGAIN"), "{again}");
    ok(&["invoke", "loud", "--async"], "later");
    let described = ok(&["describe", "loud"], "");
    assert!(
        described.contains("uppercase") && described.contains("team"),
        "{described}"
    );
    let logs = ok(&["logs", "loud", "--tail=false"], "");
    assert!(logs.contains("POST / 200"), "{logs}");
    let namespaces = ok(&["namespaces"], "");
    assert!(namespaces.contains("openfaas-fn"), "{namespaces}");
    let version = ok(&["version", "--warn-update=false"], "");
    assert!(version.contains("baltra"), "{version}");
    let (success, out, err) = run(
        &[
            "deploy",
            "--name",
            "x",
            "--image",
            "ghcr.io/openfaas/nodeinfo:latest",
        ],
        "",
    );
    let refused = format!("{out}{err}");
    assert!(
        !success && refused.contains("400") && refused.contains("store"),
        "{refused}"
    );
    ok(&["remove", "-f", "functions.yml"], "");
    ok(&["remove", "louder"], "");
    let list = ok(&["list"], "");
    assert!(!list.contains("loud"), "{list}");
}

const CHECKS: &str = "not_a_server_error,content_type_conformance,\
    response_headers_conformance,status_code_conformance,response_schema_conformance";

#[test]
fn schemathesis_finds_no_server_error_and_no_lie_in_the_description() {
    let gateway = gateway();
    let home = tempfile::tempdir().unwrap();
    // No time limit: the program ends by itself.
    let answer = Command::new(python("st"))
        .arg("run")
        .arg(format!("{}/openapi.json", gateway.url()))
        .args(["--phases", "examples,coverage,fuzzing", "--seed", "1"])
        .args(["--max-examples", "15", "--no-color"])
        .args(["--request-timeout", "60", "--checks"])
        .arg(CHECKS)
        .current_dir(home.path())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&answer.stdout);
    let err = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "{out}\n{err}");
    // The client has found tests to generate.
    let before = out.split(" generated, ").next().unwrap_or_default();
    let cases = before.split_whitespace().next_back();
    let cases = cases.and_then(|text| text.parse::<u32>().ok());
    assert!(cases.is_some_and(|cases| cases > 100), "{out}");
}
