//! The example functions give the same results as independent references, on PoCL and natively.

mod common;

use baltra_functions::{Call, Function};
use bytes::Bytes;
use common::{
    answer, bind, example, examples, floats, from_floats, make, native, noise, opencl, repository,
};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// The outputs of the device, after a comparison with those of the native implementation, if there
/// is one.
fn run(function: &Function, call: &Call) -> Vec<Bytes> {
    let outputs = opencl::run(function, call);
    if let Some(native) = native::run(function, call) {
        // Contents beyond the length are not sent, and may differ.
        let [native, device] = [native.unwrap(), outputs.clone()]
            .map(|outputs| answer(function, call, outputs, "*/*"));
        assert!(
            native == device,
            "{}: native and OpenCL differ",
            function.manifest.name
        );
    }
    outputs
}

/// Calls with a raw body and returns the raw response.
fn raw(function: &Function, query: &str, body: &[u8]) -> Bytes {
    let call = bind(function, query, "application/octet-stream", body.to_vec());
    let outputs = run(function, &call);
    answer(function, &call, outputs, "application/octet-stream")
        .body
        .to_bytes()
}

#[test]
fn every_example_is_a_valid_function() {
    let mut names: Vec<String> = std::fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .inspect(|name| assert_eq!(example(name).manifest.name, *name))
        .collect();
    names.sort();
    let all = "alexnet blackscholes compress empty empty-native factorial fibonacci matmul repeated-factorial \
               repeated-fibonacci sha256 sobel uppercase";
    assert_eq!(names.join(" "), all);
}

#[test]
fn empty_does_nothing() {
    let function = example("empty");
    assert!(run(&function, &bind(&function, "", "", vec![])).is_empty());
    let function = example("empty-native");
    assert!(native::run(&function, &bind(&function, "", "", vec![]))
        .unwrap()
        .unwrap()
        .is_empty());
}

#[test]
fn uppercase_is_ascii_uppercase() {
    let function = example("uppercase");
    for length in [0, 1, 63, 64, 65, 1000] {
        let text = noise(length, 1);
        assert_eq!(raw(&function, "", &text), text.to_ascii_uppercase());
    }
    let call = bind(
        &function,
        "",
        "application/json",
        "{\"text\": \"straße\"}".as_bytes().to_vec(),
    );
    let json = answer(&function, &call, run(&function, &call), "application/json");
    assert_eq!(json.body.to_bytes(), "{\"upper\":\"STRAßE\"}\n");
}

#[test]
fn sha256_is_sha256() {
    let function = example("sha256");
    for length in [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000] {
        let message = noise(length, 2);
        assert_eq!(
            raw(&function, "", &message),
            Sha256::digest(&message).as_slice(),
            "{length}"
        );
    }
    let messages = noise(5 * 77, 3);
    let digests: Vec<u8> = messages
        .chunks(77)
        .flat_map(|message| Sha256::digest(message).to_vec())
        .collect();
    assert_eq!(raw(&function, "messages=5", &messages), digests);
    let call = bind(
        &function,
        "",
        "application/json",
        br#"{"message": "abc"}"#.to_vec(),
    );
    let json = answer(&function, &call, run(&function, &call), "application/json")
        .body
        .to_bytes();
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(json, format!("{{\"digest\":[\"{expected}\"]}}\n"));
}

#[test]
fn factorial_and_fibonacci_count() {
    let numbers: Vec<u32> = (0..100).collect();
    let list = numbers
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let all = |name: &str| -> Vec<u64> {
        let bytes = raw(&example(name), &format!("n={list}"), b"");
        bytes
            .chunks(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    };
    let factorials = numbers
        .iter()
        .map(|n| (1..=u64::from(*n)).fold(1, u64::wrapping_mul));
    assert_eq!(all("factorial"), factorials.collect::<Vec<_>>());
    let mut fibonacci = vec![0u64, 1];
    while fibonacci.len() < numbers.len() {
        fibonacci.push(fibonacci[fibonacci.len() - 1].wrapping_add(fibonacci[fibonacci.len() - 2]));
    }
    assert_eq!(fibonacci[93], 12_200_160_415_121_876_738);
    assert_eq!(all("fibonacci"), fibonacci);
    let function = example("factorial");
    let call = bind(&function, "n=20", "", vec![]);
    let json = answer(&function, &call, run(&function, &call), "*/*")
        .body
        .to_bytes();
    assert_eq!(json, "{\"factorial\":[2432902008176640000]}\n");
}

/// VirtFun's two functions, which have only native implementations.
#[test]
fn repeated_functions_give_what_one_repetition_gives() {
    let value = |name: &str, query: &str| {
        let function = example(name);
        let call = bind(&function, query, "", vec![]);
        let outputs = native::run(&function, &call).unwrap().unwrap();
        u64::from_le_bytes(outputs[0][..].try_into().unwrap())
    };
    let factorial: f64 = (2..=51).map(f64::from).product();
    for query in ["n=51", "n=51&repetitions=1", "n=51&repetitions=1000"] {
        assert_eq!(value("repeated-factorial", query), factorial.to_bits());
    }
    for query in ["n=93", "n=93&repetitions=1000"] {
        let expected = 12_200_160_415_121_876_738;
        assert_eq!(value("repeated-fibonacci", query), expected);
    }
    assert_eq!(value("repeated-fibonacci", "n=93&repetitions=0"), 0);
}

#[test]
fn compress_makes_files_that_gunzip_reads() {
    let function = example("compress");
    let prose = std::fs::read(repository().join("ARCHITECTURE.md")).unwrap();
    for (data, most) in [
        (Vec::new(), 20),
        (b"a".to_vec(), 30),
        (vec![0; 100_000], 1000),
        (prose.repeat(5), prose.len() * 4),
        (noise(70_000, 4), 70_000 + 3 * 5 + 20),
        (noise(32_768, 5), 32_768 + 25),
        (noise(1000, 6).repeat(40), 8000),
    ] {
        let file = raw(&function, "", &data);
        assert!(
            file.len() <= most,
            "{} bytes became {}",
            data.len(),
            file.len()
        );
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&file[..])
            .read_to_end(&mut back)
            .unwrap();
        assert!(
            back == data,
            "{} bytes came back as {}",
            data.len(),
            back.len()
        );
    }
}

#[test]
fn sobel_finds_the_edges_that_plain_loops_find() {
    let function = example("sobel");
    for (width, height) in [(1, 1), (7, 3), (64, 4), (131, 67)] {
        let pixels = noise((width * height) as usize, 7);
        let at = |x: i32, y: i32| {
            i32::from(pixels[(y.clamp(0, height - 1) * width + x.clamp(0, width - 1)) as usize])
        };
        let edge = |x: i32, y: i32| {
            let row = |y: i32, weight: [i32; 3]| {
                (0..3)
                    .map(|i| weight[i as usize] * at(x + i - 1, y))
                    .sum::<i32>()
            };
            let gx = row(y - 1, [-1, 0, 1]) + row(y, [-2, 0, 2]) + row(y + 1, [-1, 0, 1]);
            let gy = row(y + 1, [1, 2, 1]) - row(y - 1, [1, 2, 1]);
            (gx.abs() + gy.abs()).min(255) as u8
        };
        let edges: Vec<u8> = (0..height)
            .flat_map(|y| (0..width).map(move |x| (x, y)))
            .map(|(x, y)| edge(x, y))
            .collect();
        assert_eq!(
            raw(&function, &format!("width={width}"), &pixels),
            edges,
            "{width} x {height}"
        );
        // The same picture, encoded and decoded as PNG.
        let picture =
            image::GrayImage::from_raw(width as u32, height as u32, pixels.clone()).unwrap();
        let mut png = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut png, image::ImageFormat::Png).unwrap();
        let call = bind(&function, "", "", png.into_inner());
        let answer = answer(&function, &call, run(&function, &call), "image/*");
        assert_eq!(answer.content_type, "image/png");
        assert_eq!(
            image::load_from_memory(&answer.body.to_bytes())
                .unwrap()
                .into_luma8()
                .into_raw(),
            edges
        );
    }
}

#[test]
fn matmul_multiplies_matrices_of_any_shape() {
    let function = example("matmul");
    for (rows, inner, columns) in [(1, 1, 1), (3, 5, 2), (16, 16, 16), (33, 40, 17)] {
        // Integers: the sum is the same in every order.
        let whole = |count: usize, seed| {
            noise(count, seed)
                .iter()
                .map(|byte| f32::from(*byte as i8))
                .collect::<Vec<_>>()
        };
        let (a, b) = (whole(rows * inner, 8), whole(inner * columns, 9));
        let element = |i: usize| {
            (0..inner)
                .map(|k| a[i / columns * inner + k] * b[k * columns + i % columns])
                .sum()
        };
        let expected: Vec<f32> = (0..rows * columns).map(element).collect();
        let body = [floats(&a), floats(&b)].concat();
        let query = format!("rows={rows}&columns={columns}");
        assert_eq!(from_floats(&raw(&function, &query, &body)), expected);
    }
    let json = br#"{"a": [[1,2],[3,4]], "b": [[5,6],[7,8]]}"#;
    let call = bind(&function, "", "application/json", json.to_vec());
    let json = answer(&function, &call, run(&function, &call), "application/json")
        .body
        .to_bytes();
    assert_eq!(json, "{\"c\":[[19.0,22.0],[43.0,50.0]]}\n");
}

/// The integral of the normal density, by Simpson's rule.
fn normal(x: f64) -> f64 {
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (steps, step) = (2000, x / 2000.0);
    let inner: f64 = (1..steps)
        .map(|i| density(f64::from(i) * step) * if i % 2 == 1 { 4.0 } else { 2.0 })
        .sum();
    0.5 + (density(0.0) + inner + density(x)) * step / 3.0
}

#[test]
fn blackscholes_prices_options() {
    let function = example("blackscholes");
    let count = 100;
    let spread = |low: f32, high: f32, seed| {
        noise(count, seed)
            .iter()
            .map(|b| low + (high - low) * f32::from(*b) / 255.0)
            .collect::<Vec<_>>()
    };
    let (spot, strike, years) = (
        spread(50.0, 150.0, 10),
        spread(50.0, 150.0, 11),
        spread(0.1, 3.0, 12),
    );
    let body = [floats(&spot), floats(&strike), floats(&years)].concat();
    let prices = from_floats(&raw(&function, "rate=0.05&volatility=0.2", &body));
    assert_eq!(prices.len(), 2 * count);
    for i in 0..count {
        let (s, k, t) = (
            f64::from(spot[i]),
            f64::from(strike[i]),
            f64::from(years[i]),
        );
        let d1 = ((s / k).ln() + (0.05 + 0.2 * 0.2 / 2.0) * t) / (0.2 * t.sqrt());
        let d2 = d1 - 0.2 * t.sqrt();
        let call = s * normal(d1) - k * (-0.05 * t).exp() * normal(d2);
        let put = call - s + k * (-0.05 * t).exp();
        assert!(
            (f64::from(prices[i]) - call).abs() < 1e-3,
            "call {i}: {} for {call}",
            prices[i]
        );
        assert!(
            (f64::from(prices[count + i]) - put).abs() < 1e-3,
            "put {i}: {} for {put}",
            prices[count + i]
        );
    }
}

#[test]
fn merged_calls_give_what_single_ones_give() {
    for (name, query, bodies) in [
        (
            "uppercase",
            "",
            vec![b"abc".to_vec(), Vec::new(), noise(500, 13)],
        ),
        (
            "sha256",
            "",
            vec![noise(64, 14), noise(64, 15), noise(64, 16)],
        ),
        (
            "blackscholes",
            "rate=0.01",
            vec![
                floats(&[100.0, 90.0, 1.0]),
                floats(&[100.0, 101.0, 80.0, 81.0, 1.0, 2.0]),
            ],
        ),
        ("fibonacci", "n=7", vec![Vec::new(), Vec::new()]),
    ] {
        let function = example(name);
        let calls: Vec<Call> = bodies
            .into_iter()
            .map(|body| bind(&function, query, "application/octet-stream", body))
            .collect();
        let merged = Call::merge(&calls).unwrap();
        let parts = merged.split(&run(&function, &merged)).unwrap();
        for (part, call) in parts.iter().zip(&calls) {
            assert_eq!(*part, run(&function, call), "{name}");
        }
    }
}

/// The program in apps/cnn, whose `--check` compares its scores with loops on the host, computes
/// the same scores.
#[test]
fn alexnet_gives_the_scores_of_the_program() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("apps");
    make(
        &repository().join("apps"),
        &["cnn".into(), format!("OUT={}", out.display())],
    );
    let pixels = noise(227 * 227 * 3, 17);
    let ppm = out.join("noise.ppm");
    std::fs::write(&ppm, [b"P6\n227 227\n255\n", pixels.as_slice()].concat()).unwrap();
    let arguments = [
        "--json",
        "--device",
        "Portable Computing Language",
        "--input",
    ];
    let output = Command::new(out.join("cnn"))
        .args(arguments)
        .arg(&ppm)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();

    let scores = raw(&example("alexnet"), "", &pixels);
    assert!((from_floats(&scores).iter().sum::<f32>() - 1.0).abs() < 1e-3);
    let checksum = scores.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    assert_eq!(result["checksum"], format!("{checksum:016x}"));
}
