use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A manifest of one kernel `f` in `k.cl`, with `text` before the implementations.
pub(crate) fn function(text: &str) -> Result<Function, ManifestError> {
    with_kernel(text, "kernel: f\n      global: [1]\n")
}

pub(crate) fn with_kernel(text: &str, kernel: &str) -> Result<Function, ManifestError> {
    let text = format!(
        "name: f\n{text}\nimplementations:\n  - opencl:\n      source: k.cl\n      {kernel}"
    );
    from_text(&text)
}

pub(crate) fn from_text(text: &str) -> Result<Function, ManifestError> {
    let file = |name: &str, bytes: &'static [u8]| (name.to_owned(), Bytes::from_static(bytes));
    let files = [
        file("k.cl", b"kernel void f() {}"),
        file("lib.so", b"\x7fELF"),
        file("w.raw", &[0; 8]),
        file("bad.cl", b"\xff"),
    ];
    Function::from_files(text, Files::from_contents(BTreeMap::from(files)))
}

const WHOLE: &str = r#"
name: whole
description: Everything that there is
version: "2.1"
tenant: vision
methods: [POST, PUT]
inputs:
  - {name: image, type: u8, shape: [height, width, 3], codecs: [png, raw]}
  - {name: table, type: f32, shape: [4], from: constant, constant: {values: [1, 2, 3, 4.5]}}
  - {name: weights, type: f32, shape: [2], from: constant, constant: {file: w.raw}}
  - {name: noise, type: f32, shape: [8], from: constant, constant: {random: {seed: 1, range: 0.5}}}
  - {name: gain, type: f32, from: query, default: 1.5, min: 0, max: 10}
  - {name: depth, type: i32, from: header, header: X-Depth}
outputs:
  - {name: out, type: u8, shape: ["height / 2", "width / 2"], codecs: [png, raw]}
  - {name: written, type: u32}
  - {name: log, type: u8, shape: [1024], length: written, codecs: [raw]}
symbols:
  width: {min: 2, max: 4096}
  height: {min: 2, max: 4096, default: 480}
implementations:
  - opencl:
      source: k.cl
      options: -DX=1
      device: {vendor: NVIDIA, accelerator: x}
      scratch:
        - {name: mid, type: f32, shape: [height, "align(width, 64)"]}
      steps:
        - {kernel: a, args: [image, table, weights, noise, mid, "i32(width)", "local(width * 4)"], global: [width, height]}
        - {kernel: b, args: [mid, gain, depth, out, written, log, "f32(-0.5)"], global: ["align(width, 64)"], local: [64]}
  - native:
      library: lib.so
      symbol: whole
      args: [image, table, weights, noise, out, written, log, gain, depth]
limits: {body_bytes: 16MiB, memory_bytes: 1GiB, timeout_ms: 500, concurrency: 4}
batching: {max: 8, wait_us: 100}
idle_s: 60
scale: {max: 4, target: 8, type: capacity, zero: true}
labels: {team: red}
"#;

#[test]
fn a_manifest_with_everything_is_read() {
    let function = from_text(WHOLE).unwrap();
    assert_eq!(function.manifest.limits.body_bytes.0, 16 << 20);
    let scale = function.manifest.scale.unwrap();
    assert_eq!((scale.min, scale.max, scale.target), (1, 4, 8));
    assert_eq!(scale.demand, crate::manifest::Demand::Capacity);
    assert_eq!(function.constants(), 3);
    assert_eq!(function.constant(0).len(), 16);
    assert_eq!(function.constant(2).len(), 32);
    assert_eq!(
        function.files.contents.keys().collect::<Vec<_>>(),
        ["k.cl", "lib.so", "w.raw"],
        "bad.cl is not named"
    );
    assert_eq!(
        Function::file_names(&function.text).unwrap(),
        ["k.cl", "lib.so", "w.raw"]
    );
    let again = from_text(&function.text).unwrap();
    assert_eq!(function.digest, again.digest);
    let json = serde_json::to_value(&function.manifest).unwrap();
    assert_eq!(
        serde_json::from_value::<Manifest>(json).unwrap(),
        function.manifest
    );
}

/// Text of the right manifest, what replaces it, the entry and a part of the reason of the refusal.
const WRONG: &[(&str, &str, &str, &str)] = &[
    ("name: whole", "name: Whole", "name", "lower-case"),
    ("description: E", "descriptoin: E", "", "unknown field"),
    ("tenant: vision", "tenant: [a]", "", ""),
    (
        "methods: [POST, PUT]",
        "methods: [POST, FETCH]",
        "methods[1]",
        "'FETCH'",
    ),
    (
        "methods: [POST, PUT]",
        "methods: []",
        "methods",
        "at least one",
    ),
    (
        "{name: image, type: u8,",
        "{name: image, type: u9,",
        "",
        "u9",
    ),
    (
        "{name: image,",
        "{name: 1mage,",
        "inputs[0].name",
        "letters, digits",
    ),
    (
        "{name: table,",
        "{name: image,",
        "inputs[1].name",
        "another input",
    ),
    (
        "{name: table,",
        "{name: min,",
        "inputs[1].name",
        "is a reserved word",
    ),
    (
        "[height, width, 3]",
        "[height, \"width + 1\", 3]",
        "inputs[0].shape[1]",
        "only outputs",
    ),
    ("[height, width, 3]", "[height, width, -3]", "", "number"),
    (
        "[height, width, 3]",
        "[height, width, 5]",
        "inputs[0].codecs[0]",
        "channels",
    ),
    (
        "values: [1, 2, 3, 4.5]",
        "values: [1, 2, 3]",
        "inputs[1].constant",
        "3 values",
    ),
    (
        "file: w.raw",
        "file: ../w.raw",
        "inputs[2].constant",
        "in the manifest's directory",
    ),
    (
        "file: w.raw",
        "file: none.raw",
        "inputs[2].constant",
        "was not sent",
    ),
    (
        "default: 1.5",
        "default: 11",
        "inputs[4].default",
        "outside",
    ),
    (
        "from: header, header: X-Depth",
        "from: header, header: 'a b'",
        "inputs[5].header",
        "not a valid header name",
    ),
    (
        "type: i32, from: header",
        "type: i32, shape: [a, b], from: header",
        "inputs[5].shape",
        "one dimension",
    ),
    (
        "\"height / 2\"",
        "\"height / two\"",
        "outputs[0].shape[0]",
        "'two'",
    ),
    (
        "\"height / 2\"",
        "\"height / \"",
        "outputs[0].shape[0]",
        "unexpected end",
    ),
    (
        "length: written",
        "length: wrote",
        "outputs[2].length",
        "unknown output",
    ),
    (
        "length: written",
        "length: out",
        "outputs[2].length",
        "u32 or u64",
    ),
    (
        "width: {min: 2, max: 4096}",
        "width: {min: 5000, max: 4096}",
        "symbols.width",
        "ascending order",
    ),
    (
        "default: 480",
        "default: 1",
        "symbols.height",
        "ascending order",
    ),
    (
        "source: k.cl",
        "source: /etc/passwd",
        "implementations[0].opencl.source",
        "in the manifest's directory",
    ),
    (
        "source: k.cl",
        "source: bad.cl",
        "implementations[0].opencl.source",
        "not text",
    ),
    (
        "source: k.cl",
        "accelerator: ''",
        "implementations[0].opencl.accelerator",
        "name or digest",
    ),
    (
        "      source: k.cl\n",
        "",
        "implementations[0].opencl",
        "either source",
    ),
    (
        "{kernel: a,",
        "{kernel: 'a b',",
        "implementations[0].opencl.steps[0]",
        "not a C identifier",
    ),
    (
        "[image, table, weights, noise, mid,",
        "[image, table, weights, nose, mid,",
        "implementations[0].opencl.steps[0].args[3]",
        "'nose'",
    ),
    (
        "\"i32(width)\"",
        "width",
        "implementations[0].opencl.steps[0].args[5]",
        "i32(width)",
    ),
    (
        "\"i32(width)\"",
        "\"int(width)\"",
        "implementations[0].opencl.steps[0].args[5]",
        "unknown type",
    ),
    (
        "global: [width, height]",
        "global: [1, 2, 3, 4]",
        "implementations[0].opencl.steps[0].global",
        "1 to 3",
    ),
    (
        "local: [64]",
        "local: [64, 1]",
        "implementations[0].opencl.steps[1].local",
        "as many",
    ),
    (
        "local: [64]",
        "local: [0]",
        "implementations[0].opencl.steps[1].local[0]",
        "at least 1",
    ),
    (
        "[mid, gain, depth,",
        "[mid, gain,",
        "implementations[0].opencl",
        "'depth' is not an argument",
    ),
    (
        "log, gain, depth]",
        "log, depth]",
        "implementations[1].native",
        "'gain' is not an argument",
    ),
    (
        "noise, out, written",
        "out, written",
        "implementations[1].native",
        "'noise' is not an argument",
    ),
    (
        "symbol: whole",
        "symbol: wh-ole",
        "implementations[1].native",
        "not a C identifier",
    ),
    (
        "library: lib.so",
        "library: lib.dll",
        "implementations[1].native.library",
        "was not sent",
    ),
    (
        "timeout_ms: 500",
        "timeout_ms: 0",
        "limits.timeout_ms",
        "between",
    ),
    ("body_bytes: 16MiB", "body_bytes: 16MB", "", "16MB"),
    (
        "batching: {max: 8",
        "batching: {max: 0",
        "batching.max",
        "4096",
    ),
    (
        "wait_us: 100}",
        "wait_us: 100, dimension: height}",
        "batching.dimension",
        "'out'",
    ),
    (
        "wait_us: 100}",
        "wait_us: 100, dimension: width}",
        "batching.dimension",
        "'image'",
    ),
    ("idle_s: 60", "idle_s: soon", "", ""),
    ("idle_s: 60", "idle_s: 60\nidle_s: 61", "", "duplicate"),
    ("scale: {max: 4", "scale: {max: 0", "scale.min", "maximum"),
    ("type: capacity", "type: cpu", "", ""),
    ("idle_s: 60", "idle_s: 0", "scale.zero", "'idle_s'"),
    (
        "labels: {team: red}",
        "labels: &a {team: red}\nx: *a",
        "",
        "",
    ),
];

/// A wrong manifest, the position of the error (line, column), and a part of the reason.
#[test]
fn a_wrong_manifest_is_refused_with_line_column_and_reason() {
    let whole = WHOLE;
    for (right, wrong, entry, reason) in WRONG.iter().copied() {
        assert!(whole.contains(right), "{right}");
        let text = whole.replacen(right, wrong, 1);
        let error = from_text(&text).expect_err(wrong);
        assert_eq!(error.entry, entry, "{wrong}: {error}");
        assert!(error.reason.contains(reason), "{wrong}: {error}");
        assert!(error.line > 0 && error.column > 0, "{wrong}: {error}");
        // The error is on the changed line; a missing entry is reported at its parent.
        let changed = text[..whole.find(right).unwrap()].lines().count().max(1) as u32;
        // An unbound argument is reported for the whole implementation.
        let back = if error.reason.contains("not an argument") {
            10
        } else {
            3
        };
        let (first, last) = (changed.saturating_sub(back), changed + 4);
        assert!(
            (first..=last).contains(&error.line),
            "{wrong}: line {} is not near {changed}",
            error.line
        );
    }
}

#[test]
fn the_position_is_exact() {
    let error = function("outputs:\n  - {name: y, type: u8, shape: [n]}").unwrap_err();
    assert_eq!(
        (error.line, error.column, error.entry.as_str()),
        (3, 33, "outputs[0].shape[0]"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("line 3, column 33: outputs[0].shape[0]: 'n' is neither"),
        "{error}"
    );
    let error = from_text("name: f\n\nimplementation: []\n").unwrap_err();
    assert_eq!((error.line, error.column), (3, 1), "{error}");
    assert!(!error.reason.contains("line"), "{error}");
    let error = from_text("name: [\n").unwrap_err();
    assert!(error.line > 0, "{error}");
}

#[test]
fn a_directory_is_read_and_its_file_named_in_errors() {
    let directory = tempfile::tempdir().unwrap();
    let error = Function::load(directory.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("function.yaml: cannot read the manifest"),
        "{error}"
    );
    let manifest =
        "name: f\nimplementations:\n  - opencl: {source: k.cl, kernel: f, global: [1]}\n";
    std::fs::write(directory.path().join(MANIFEST_FILE), manifest).unwrap();
    let error = Function::load(directory.path()).unwrap_err();
    assert_eq!(
        (error.line, error.entry.as_str()),
        (3, "implementations[0].opencl.source"),
        "{error}"
    );
    std::fs::write(directory.path().join("k.cl"), "kernel void f() {}").unwrap();
    let function = Function::load(directory.path()).unwrap();
    assert_eq!(
        function.files.path("k.cl").unwrap(),
        directory.path().join("k.cl")
    );
    assert_eq!(
        Function::load(&directory.path().join(MANIFEST_FILE))
            .unwrap()
            .digest,
        function.digest
    );
    assert_eq!(
        Function::from_files(manifest, function.files.clone())
            .unwrap()
            .digest,
        function.digest
    );
}

#[test]
fn bombs_of_aliases_and_nesting_are_refused() {
    let nested = format!("name: {}x{}", "[".repeat(5000), "]".repeat(5000));
    assert!(from_text(&nested).is_err());
    let aliases = "name: &a [x, x]\nlabels: {a: *a}\nimplementations: []\n";
    assert!(from_text(aliases).is_err());
    assert!(from_text(&"a: b\n".repeat(400_000)).is_err());
    assert!(from_text("").is_err());
    assert!(from_text("a\n---\nb").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_changed_manifest_panics(at in any::<prop::sample::Index>(), length in 0usize..12, with in "[\\[\\]{}:,#&*\\-\"' \na-z0-9()/]{0,12}") {
        let characters: Vec<char> = WHOLE.chars().collect();
        let at = at.index(characters.len());
        let end = (at + length).min(characters.len());
        let text: String = characters[..at].iter().chain(with.chars().collect::<Vec<_>>().iter()).chain(&characters[end..]).collect();
        if let Err(error) = from_text(&text) {
            prop_assert!(!error.reason.is_empty());
            prop_assert!(error.line as usize <= text.lines().count() + 1, "{}", error);
        }
    }

    #[test]
    fn no_text_panics(text in "(\\PC|\n){0,200}") {
        let _ = from_text(&text);
    }
}

/// An image of a region whose kernel takes one scalar.
fn image(described: bool) -> Vec<u8> {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let mut file = b"BLRG".to_vec();
    let crc = crc32fast::hash(&[7; 8]);
    file.extend(words(&[1, 1, u32::MAX, 8, crc, 3]));
    file.extend(crc32fast::hash(&file).to_le_bytes());
    file.extend([7; 8]);
    file.resize(256, 0);
    if described {
        let mut about = b"BLRN".to_vec();
        about.extend(words(&[1]));
        about.extend(b"sobel\0\0\0\0\0\0\0\0\0\0\0width\0\0\0");
        about.resize(64, 0);
        about.extend(crc32fast::hash(&about).to_le_bytes());
        file.extend(about);
    }
    file
}

fn with_board(board: &str) -> Result<Function, ManifestError> {
    let text = format!(
        "name: edges\ninputs:\n  - {{name: picture, type: u16, shape: [height, width]}}\noutputs:\n  \
         - {{name: edges, type: u8, shape: [height, width]}}\nsymbols: {{width: {{max: 99}}, height: {{max: 99}}}}\n\
         implementations:\n  - board: {board}\n"
    );
    let mut damaged = image(true);
    damaged[33] ^= 1;
    let file = |name: &str, bytes: Vec<u8>| (name.to_owned(), Bytes::from(bytes));
    let files = [
        file("k.img", image(true)),
        file("bare.img", image(false)),
        file("damaged.img", damaged),
    ];
    Function::from_files(&text, Files::from_contents(BTreeMap::from(files)))
}

#[test]
fn a_board_is_called_with_body_answer_and_the_images_scalars() {
    let explicit = "{image: k.img, args: [picture, edges, u32(width)], device: {name: b0}}";
    for text in ["{image: k.img}", explicit] {
        let function = with_board(text).unwrap();
        let headers = http::HeaderMap::new();
        let request = Request {
            method: &http::Method::POST,
            path: "",
            query: "width=6&height=4",
            headers: &headers,
        };
        let call = function.bind(&request, Body::from(vec![0; 48])).unwrap();
        let step = &call.launches[0].steps[0];
        assert_eq!((&*step.kernel, step.arguments.len()), ("sobel", 3));
        // A work-item for each byte of the body.
        assert_eq!(step.global, [48, 1, 1]);
    }
    let query = |text| {
        let function = with_board(text).unwrap();
        function.manifest.implementations[0]
            .device()
            .cloned()
            .unwrap()
    };
    assert_eq!(query("{image: k.img}").vendor.as_deref(), Some("Baltra"));
    assert_eq!(query(explicit).name.as_deref(), Some("b0"));
}

#[test]
fn a_boards_wrong_image_or_arguments_are_refused() {
    for (text, entry, reason) in [
        ("{image: none.img}", "image", "was not sent"),
        (
            "{image: bare.img}",
            "image",
            "its kernel's name and arguments",
        ),
        ("{image: damaged.img}", "image", "checksum"),
        ("{image: ../k.img}", "image", "'..'"),
        ("{image: k.img, args: [picture, edges]}", "args", "takes 3"),
        (
            "{image: k.img, args: [edges, picture, u32(width)]}",
            "args",
            "takes 3",
        ),
        (
            "{image: k.img, args: [picture, edges, u32(depth)]}",
            "args[2]",
            "depth",
        ),
    ] {
        let error = with_board(text).expect_err(text);
        let at = format!("implementations[0].board.{entry}");
        assert_eq!(error.entry, at, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
}
