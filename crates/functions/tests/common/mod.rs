//! Builds and runs the example functions, as a user would.
#![allow(dead_code)]

pub mod native;
pub mod opencl;

use baltra_functions::{Answer, Body, Call, Function, Request};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Runs `make`; panics with its output if it fails.
pub fn make(directory: &Path, args: &[String]) {
    let output = Command::new("make")
        .arg("-C")
        .arg(directory)
        .args(args)
        .output()
        .expect("make is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "make {args:?}: {text}");
}

/// The directory with all example functions.
pub fn examples() -> &'static Path {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("functions");
        make(
            &repository().join("apps/functions"),
            &[format!("OUT={}", out.display())],
        );
        out
    })
}

pub fn example(name: &str) -> Function {
    Function::load(&examples().join(name)).unwrap_or_else(|error| panic!("{error}"))
}

pub fn bind(function: &Function, query: &str, content_type: &str, body: impl Into<Body>) -> Call {
    let mut headers = HeaderMap::new();
    if !content_type.is_empty() {
        headers.insert("content-type", HeaderValue::from_str(content_type).unwrap());
    }
    let request = Request {
        method: &Method::POST,
        path: "",
        query,
        headers: &headers,
    };
    function
        .bind(&request, body.into())
        .unwrap_or_else(|error| panic!("{error}"))
}

pub fn answer(function: &Function, call: &Call, outputs: Vec<Bytes>, accept: &str) -> Answer {
    function
        .answer(call, outputs, Some(accept))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Pseudo-random bytes, the same ones for a seed.
pub fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 7;
            state ^= state >> 9;
            (state >> 24) as u8
        })
        .collect()
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub fn from_floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}
