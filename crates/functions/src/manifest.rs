//! The manifest's schema: one YAML document without unknown fields. [`crate::plan`] checks the
//! fields' combination.

mod scalars;
mod scale;

pub use scalars::{Dimension, Size};
pub use scale::{Demand, Scale, REPLICAS_MAX};

use crate::types::Type;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A function that can be called over HTTP or from VMs, and its implementations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name in the URL: lower-case letters, digits and dashes, at most 63, a letter or digit at both ends.
    pub name: String,
    /// A one-sentence description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The version in the Open Inference Protocol.
    #[serde(default = "defaults::version")]
    pub version: String,
    /// The tenant that is charged; default: the one that deploys it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The HTTP methods that call it.
    #[serde(default = "defaults::methods")]
    pub methods: Vec<String>,
    /// Its inputs.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// Its outputs.
    #[serde(default)]
    pub outputs: Vec<Output>,
    /// Bounds of shape symbols. A symbol that is not listed is between 0 and 2^32 - 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub symbols: BTreeMap<String, Bounds>,
    /// The arguments' order: names of inputs, outputs and scratch buffers, `TYPE(EXPRESSION)` for a number,
    /// `local(EXPRESSION)` for bytes of local memory. None: inputs, then outputs, as they are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Its implementations, the preferred one first.
    pub implementations: Vec<Implementation>,
    /// Limits of a call.
    #[serde(default)]
    pub limits: Limits,
    /// Whether calls may be merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<Batching>,
    /// Seconds without a call after which it is unloaded; 0: never.
    #[serde(default = "defaults::idle_s")]
    pub idle_s: u64,
    /// Scaling with demand; none: a fixed number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// Labels for tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Manifest {
    /// Whether an implementation runs on a device.
    pub fn wants_devices(&self) -> bool {
        let mut implementations = self.implementations.iter();
        implementations.any(|implementation| implementation.device().is_some())
    }
}

/// An input: a number, or an array if it has a shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Letters, digits and underscores.
    pub name: String,
    /// The type of an element.
    #[serde(rename = "type")]
    pub kind: Type,
    /// Dimensions, outermost first: symbols or numbers. Empty: one number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<Dimension>,
    /// Its source in the request.
    #[serde(default)]
    pub from: Source,
    /// The header's name, with `from: header`. None: `x-` and the input's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Its codecs, with `from: body`. The first applies without a content type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codecs: Vec<Codec>,
    /// Its JSON form.
    #[serde(default, skip_serializing_if = "JsonForm::is_default")]
    pub json: JsonForm,
    /// The default (numbers only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<f64>,
    /// The minimum (numbers only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The maximum (numbers only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// The constant, with `from: constant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constant: Option<Constant>,
}

/// The source of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The request's body.
    #[default]
    Body,
    /// The query parameter of the input's name. An array is numbers with commas between them.
    Query,
    /// A header.
    Header,
    /// The text of the sub-path (`u8` arrays).
    Path,
    /// The text of the method (`u8` arrays).
    Method,
    /// The manifest.
    Constant,
}

/// A value shared by all calls; arrays are written once per device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Constant {
    /// One number.
    Value(f64),
    /// Numbers, row major.
    Values(Vec<f64>),
    /// A file beside the manifest: `.npy`, or else raw little endian elements.
    File(String),
    /// Pseudo-random `f32` numbers (xorshift64). Constants of one seed continue one sequence, in the manifest's order.
    Random {
        /// Start of the sequence.
        seed: u64,
        /// Values are from `-range` to just below `range`.
        range: f64,
    },
}

/// An output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Letters, digits and underscores.
    pub name: String,
    /// The type of an element.
    #[serde(rename = "type")]
    pub kind: Type,
    /// Dimensions, outermost first: expressions over symbols and whole-number inputs. Empty: one number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<Dimension>,
    /// Its codecs. The first is the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codecs: Vec<Codec>,
    /// Its JSON form.
    #[serde(default, skip_serializing_if = "JsonForm::is_default")]
    pub json: JsonForm,
    /// The input whose memory this is: the function changes it in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inout: Option<String>,
    /// An output (`u32` or `u64`, one number) that counts how much of the first dimension was
    /// really written. It is not sent itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<String>,
}

/// Encodings of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Little endian elements, row major: `application/octet-stream`.
    Raw,
    /// `application/json`
    Json,
    /// NumPy's format: `application/x-npy`.
    Npy,
    /// `image/png`, for `u8` and `u16` arrays of height, width and perhaps 1 to 4 channels.
    Png,
    /// `image/jpeg`, the same for `u8`; 1 or 3 channels.
    Jpeg,
}

impl Codec {
    /// Whether it is a picture's format.
    pub const fn is_picture(self) -> bool {
        matches!(self, Codec::Png | Codec::Jpeg)
    }

    /// The content type that answers have.
    pub const fn content_type(self) -> &'static str {
        match self {
            Codec::Raw => "application/octet-stream",
            Codec::Json => "application/json",
            Codec::Npy => "application/x-npy",
            Codec::Png => "image/png",
            Codec::Jpeg => "image/jpeg",
        }
    }
}

/// JSON form of an array of `u8`; other types always use `array`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JsonForm {
    /// Nested arrays of numbers.
    #[default]
    Array,
    /// A string of hexadecimal digits (arrays of strings, where there is more than one dimension).
    Hex,
    /// A string in UTF-8.
    Text,
}

impl JsonForm {
    fn is_default(&self) -> bool {
        *self == JsonForm::Array
    }
}

/// Bounds of a symbol, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The minimum.
    #[serde(default)]
    pub min: u64,
    /// The maximum.
    #[serde(default = "defaults::symbol_max")]
    pub max: u64,
    /// The value if neither a shape nor the request has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<u64>,
}

/// An implementation of the function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Implementation {
    /// Kernels on an OpenCL device.
    Opencl(Box<Opencl>),
    /// A symbol of a shared library, run in a separate process.
    Native(Native),
    /// A kernel in a board's region.
    Board(Board),
}

impl Implementation {
    /// The query of the devices that fit, for a function that runs on one.
    pub fn device(&self) -> Option<&DeviceQuery> {
        match self {
            Implementation::Opencl(opencl) => Some(&opencl.device),
            Implementation::Board(board) => Some(&board.device),
            Implementation::Native(_) => None,
        }
    }
}

/// Kernels on an OpenCL device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Opencl {
    /// The OpenCL C file beside the manifest. Either this or `accelerator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The name or digest of an accelerator in the node's store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// The compiler's options.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
    /// Conditions on the device.
    #[serde(default, skip_serializing_if = "DeviceQuery::is_any")]
    pub device: DeviceQuery,
    /// Device memory between steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scratch: Vec<Scratch>,
    /// The kernel, for a function of one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Its arguments; none: the manifest's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Its work-items, 1 to 3 expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global: Vec<Dimension>,
    /// Work-items per group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local: Vec<Dimension>,
    /// Several kernels in sequence, instead of `kernel`, `args`, `global` and `local`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Kernel>,
}

/// One kernel of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Its name in the source.
    pub kernel: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its work-items, 1 to 3 expressions.
    pub global: Vec<Dimension>,
    /// Work-items per group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local: Vec<Dimension>,
}

/// A buffer between steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scratch {
    /// Letters, digits and underscores.
    pub name: String,
    /// The type of an element.
    #[serde(rename = "type")]
    pub kind: Type,
    /// Dimensions: expressions over symbols and whole-number inputs.
    pub shape: Vec<Dimension>,
}

/// Conditions on a device; empty ones match all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceQuery {
    /// A part of the vendor's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// A part of the platform's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// The device's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The accelerator to load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
}

impl DeviceQuery {
    /// Whether every device will do.
    pub fn is_any(&self) -> bool {
        *self == DeviceQuery::default()
    }
}

/// A symbol of a shared library with the C interface of `baltra_function.h`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Native {
    /// The shared library beside the manifest.
    pub library: String,
    /// The name of its function.
    pub symbol: String,
    /// Its arguments; none: the manifest's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
}

/// A kernel in a board's region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// The region's image beside the manifest.
    pub image: String,
    /// Conditions on the device; default: any board.
    #[serde(default = "boards")]
    pub device: DeviceQuery,
    /// Its arguments: the body, the answer, the image's scalars. None: inputs, outputs, and the scalars by their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
}

fn boards() -> DeviceQuery {
    DeviceQuery {
        vendor: Some("Baltra".into()),
        ..DeviceQuery::default()
    }
}

/// Limits of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Limit of the body, and of a decoded picture or array in it.
    pub body_bytes: Size,
    /// Limit of a call's device memory: inputs, outputs and scratch.
    pub memory_bytes: Size,
    /// Time limit from the end of the request to the start of the response, milliseconds.
    pub timeout_ms: u64,
    /// Concurrent calls on a replica; 0: the device's limit.
    pub concurrency: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: Size(64 << 20),
            memory_bytes: Size(1 << 30),
            timeout_ms: 30_000,
            concurrency: 0,
        }
    }
}

/// Merging of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Most calls in a launch.
    pub max: u32,
    /// Longest wait of a call for others, microseconds.
    pub wait_us: u64,
    /// The symbol that is the first dimension of every array from the request and of every output; along it calls are
    /// put together. Without a value, it is 1. None: calls are only submitted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
}

mod defaults {
    pub fn version() -> String {
        "1".into()
    }
    pub fn methods() -> Vec<String> {
        vec!["POST".into()]
    }
    pub fn idle_s() -> u64 {
        300
    }
    pub fn symbol_max() -> u64 {
        u32::MAX.into()
    }
}
