//! Hostile manifests, requests and bodies, mutated from valid ones: no panic, and no more memory
//! than the function's limits allow. Each test runs for `BALTRA_FUZZ_SECONDS` (default 1);
//! `BALTRA_FUZZ_SEED` replays a run.

use baltra_functions::{Body, Files, Function, Request, Tensor, Type};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    /// Bytes that this thread holds, and their maximum.
    static HELD: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// The system's allocator with counters.
struct Counting;

fn count(bytes: i64) {
    // During a thread's exit, the counter is gone.
    let _ = HELD.try_with(|held| {
        let now = held.get().0 + bytes;
        held.set((now, held.get().1.max(now)));
    });
}

// SAFETY: calls the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak memory of `work`, in addition to the memory in use before.
fn most_held(work: impl FnOnce()) -> i64 {
    let before = HELD.with(|held| {
        held.set((held.get().0, held.get().0));
        held.get().0
    });
    work();
    HELD.with(|held| held.get().1) - before
}

/// The generator xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, words: &[&str]) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let word = words[self.below(words.len())].bytes();
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => bytes.truncate(at),
                2 => drop(bytes.drain(at..(at + self.below(12)).min(bytes.len()))),
                3 => {
                    let tail = bytes[at..].to_vec();
                    bytes.extend_from_slice(&tail[..tail.len().min(200)]);
                }
                _ => drop(bytes.splice(at..(at + self.below(4)).min(bytes.len()), word)),
            }
        }
    }
}

fn fuzz(name: &str, mut one: impl FnMut(&mut Random)) {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seconds = number("BALTRA_FUZZ_SECONDS").unwrap_or(1);
    let seed = number("BALTRA_FUZZ_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("after 1970").as_nanos() as u64 | 1
    });
    println!("{name}: replay with BALTRA_FUZZ_SEED={seed}");
    let mut random = Random(seed);
    let (end, mut rounds) = (Instant::now() + Duration::from_secs(seconds), 0u64);
    while Instant::now() < end {
        (0..20).for_each(|_| one(&mut random));
        rounds += 20;
    }
    println!("{name}: {rounds} inputs");
}

const MANIFEST: &str = include_str!("../../../apps/functions/compress/function.yaml");
const SOBEL: &str = include_str!("../../../apps/functions/sobel/function.yaml");
const PRICES: &str = include_str!("../../../apps/functions/blackscholes/function.yaml");
const WORDS: [&str; 24] = [
    "[",
    "]",
    "{",
    "}",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "&a ",
    "*a",
    "\"",
    "'",
    "4294967296",
    "18446744073709551615",
    "-1",
    "1e999",
    "length",
    "align(",
    "ceil_div(length, 0)",
    "null",
    "~",
    "!!binary ",
    "u8",
    "|\n",
];

fn files() -> Files {
    let names = ["compress.cl", "compress.so", "sobel.cl", "blackscholes.cl"];
    Files::from_contents(
        names
            .map(|name| (name.to_owned(), Bytes::from_static(b"kernel")))
            .into(),
    )
}

/// A function whose bodies and calls are limited to `limit` bytes.
fn limited(manifest: &str, limit: u64) -> Function {
    let mut text: String = manifest.split("limits:").next().unwrap().into();
    text.push_str(&format!(
        "\nlimits: {{body_bytes: {limit}, memory_bytes: {limit}}}\n"
    ));
    Function::from_files(&text, files()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn manifests() {
    fuzz("manifests", |random| {
        let mut text = [MANIFEST, SOBEL, PRICES][random.below(3)]
            .as_bytes()
            .to_vec();
        random.mutate(&mut text, &WORDS);
        let text = String::from_utf8_lossy(&text);
        let held = most_held(|| match Function::from_files(&text, files()) {
            Ok(function) => drop(function.metadata()),
            Err(error) => assert!(!error.to_string().is_empty()),
        });
        assert!(held < 8 << 20, "{held} bytes for\n{text}");
    });
}

#[test]
fn requests() {
    const LIMIT: u64 = 1 << 16;
    let functions = [MANIFEST, SOBEL, PRICES].map(|manifest| limited(manifest, LIMIT));
    let mut png = std::io::Cursor::new(Vec::new());
    image::GrayImage::from_fn(19, 23, |x, y| image::Luma([(x * y) as u8]))
        .write_to(&mut png, image::ImageFormat::Png)
        .unwrap();
    let mut jpeg = std::io::Cursor::new(Vec::new());
    image::GrayImage::from_fn(19, 23, |x, y| image::Luma([(x * y) as u8]))
        .write_to(&mut jpeg, image::ImageFormat::Jpeg)
        .unwrap();
    let mut npy =
        b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (4, 5), }"
            .to_vec();
    npy.resize(127, b' ');
    npy.extend_from_slice(b"\n01234567890123456789");
    let json = br#"{"spot": [100, 1e2], "strike": [90, "NaN"], "years": [1, 0.5]}"#.to_vec();
    let bodies = [png.into_inner(), jpeg.into_inner(), npy, json, vec![7; 64]];
    let types = [
        "",
        "image/png",
        "image/jpeg",
        "application/x-npy",
        "application/json",
        "application/octet-stream",
        "text/plain",
    ];
    let words = [
        "[",
        "]",
        "{",
        "}",
        "\"",
        ",",
        "1e309",
        "-",
        "(",
        ")",
        "99999999999999999999",
        "\0",
        "\u{ff}\u{ff}",
        "IHDR",
        "IDAT",
    ];
    fuzz("requests", |random| {
        let function = &functions[random.below(functions.len())];
        let mut body = bodies[random.below(bodies.len())].clone();
        random.mutate(&mut body, &words);
        let mut query = b"width=8&height=8&rate=0.5".to_vec();
        random.mutate(
            &mut query,
            &[
                "=",
                "&",
                "%",
                "+",
                "%zz",
                "width",
                "99999999999",
                "-",
                "length",
            ],
        );
        let query = String::from_utf8_lossy(&query);
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(types[random.below(types.len())]) {
            headers.insert("content-type", value);
        }
        // Split into frames of random sizes.
        let (mut rest, mut frames) = (Bytes::from(body), Vec::new());
        while !rest.is_empty() {
            frames.push(rest.split_to(1 + random.below(rest.len())));
        }
        let body = Body(frames);
        let request = Request {
            method: &Method::POST,
            path: "",
            query: &query,
            headers: &headers,
        };
        let held = most_held(|| match function.bind(&request, body.clone()) {
            Ok(call) => {
                assert!(call.outputs.iter().all(|output| output.bytes <= LIMIT));
                let outputs = call
                    .outputs
                    .iter()
                    .map(|output| vec![1; output.bytes as usize].into())
                    .collect();
                let _ = function.answer(&call, outputs, Some("application/json;q=0.5, */*"));
            }
            Err(error) => assert!((400..500).contains(&error.status()), "{error}"),
        });
        // Allowance for a decoder's own tables, and for text that is several times longer than its
        // numbers.
        assert!(
            held < 4 << 20,
            "{held} bytes for a body of {} and '{query}'",
            body.len()
        );
    });
}

#[test]
fn tensors() {
    let function = limited(PRICES, 1 << 16);
    fuzz("tensors", |random| {
        let names = ["spot", "strike", "years", "rate", "volatility", "x"];
        let tensors = (0..random.below(7)).map(|_| {
            let count = random.below(5);
            let mut json = b"[1,2.5,[3]]".to_vec();
            random.mutate(&mut json, &["[", "]", ",", "1e99", "\"NaN\"", "null"]);
            let data =
                Tensor::data_from_json(Type::F32, &json, 64).unwrap_or(vec![0; count * 4].into());
            let shape = match random.below(4) {
                0 => vec![random.next()],
                1 => vec![random.next(), random.next(), 0],
                _ => vec![data.len() / 4],
            };
            Tensor {
                name: names[random.below(names.len())].into(),
                kind: Type::ALL[random.below(10)],
                shape,
                data,
            }
        });
        let tensors = tensors.collect();
        if let Err(error) = function.bind_tensors(tensors) {
            assert!((400..500).contains(&error.status()), "{error}");
        }
    });
}
