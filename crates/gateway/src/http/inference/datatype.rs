//! The protocol's datatypes, and the binding of those that functions have no type for.
//!
//! | datatype | bound to | as |
//! |---|---|---|
//! | `BOOL` | `u8` | 0 and 1 |
//! | `BYTES`, one element | `u8`, one dimension | its bytes |
//! | `FP16`, `BF16` | `f32`, `f64` | the same numbers (exact) |
//!
//! If an input is sent as `BYTES`, text outputs (`json: text`) are returned as `BYTES`.

use crate::http::function::table::Deployed;
use crate::http::problem::Problem;
use baltra_functions::manifest::JsonForm;
use baltra_functions::{Body, Tensor, Type};

/// An element type of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datatype {
    /// A type that functions have.
    Own(Type),
    Bool,
    Bytes,
    Fp16,
    Bf16,
}

/// Size of the length before an element of `BYTES`.
const LENGTH: u64 = 4;

impl Datatype {
    /// Parses a name; an unsupported one is rejected with the list of supported ones.
    pub fn of(input: &str, name: &str) -> Result<Datatype, Problem> {
        let others = [
            ("BOOL", Datatype::Bool),
            ("BYTES", Datatype::Bytes),
            ("FP16", Datatype::Fp16),
            ("BF16", Datatype::Bf16),
        ];
        let other = others.iter().find(|(known, _)| *known == name);
        let own = Type::from_datatype(name).map(Datatype::Own);
        own.or(other.map(|(_, datatype)| *datatype)).ok_or_else(|| {
            let own = Type::ALL.iter().map(|t| t.datatype());
            let names: Vec<&str> = own.chain(others.map(|(known, _)| known)).collect();
            let name: String = name.chars().take(32).collect();
            Problem::bad_request(format!(
                "input '{input}': unknown datatype '{name}', expected one of {}",
                names.join(", ")
            ))
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Datatype::Own(kind) => kind.datatype(),
            Datatype::Bool => "BOOL",
            Datatype::Bytes => "BYTES",
            Datatype::Fp16 => "FP16",
            Datatype::Bf16 => "BF16",
        }
    }

    /// Bytes of an element; `None` if elements have their own lengths.
    pub fn size(self) -> Option<u64> {
        match self {
            Datatype::Own(kind) => Some(kind.size()),
            Datatype::Bool => Some(1),
            Datatype::Bytes => None,
            Datatype::Fp16 | Datatype::Bf16 => Some(2),
        }
    }

    /// Parses elements from JSON, at most `bytes` in total.
    pub fn parse_json(self, input: &str, json: &str, bytes: u64) -> Result<Body, Problem> {
        let wrong = |why: String| Problem::unprocessable(format!("input '{input}': {why}"));
        match self {
            Datatype::Own(kind) => Tensor::data_from_json(kind, json.as_bytes(), bytes)
                .map_err(|error| wrong(error.to_string())),
            Datatype::Bool => {
                let read = bools(json)
                    .ok_or_else(|| wrong("the data must be a list of true and false".to_owned()))?;
                Ok(read.into())
            }
            Datatype::Bytes => {
                let [text] = serde_json::from_str::<[String; 1]>(json).map_err(|_| {
                    wrong("the data of BYTES must be a list of one string".to_owned())
                })?;
                Ok(element(text.into_bytes()))
            }
            Datatype::Fp16 | Datatype::Bf16 => {
                let name = self.name();
                Err(wrong(format!(
                    "{name} cannot be sent as JSON: send binary data, or FP32"
                )))
            }
        }
    }

    /// Converts a tensor for a function's input of type `wanted`.
    pub fn bind(
        self,
        name: String,
        shape: Vec<u64>,
        data: Body,
        wanted: Option<Type>,
    ) -> Result<Tensor, Problem> {
        let wrong = |why: &str| Problem::unprocessable(format!("input '{name}': {why}"));
        let fits = match self {
            Datatype::Own(_) => true,
            Datatype::Bool | Datatype::Bytes => wanted.is_none_or(|kind| kind == Type::U8),
            Datatype::Fp16 | Datatype::Bf16 => wanted.is_none_or(|kind| !kind.is_integer()),
        };
        if !fits {
            let wanted = wanted.map_or("", Type::datatype);
            let own = self.name();
            return Err(wrong(&format!("it is {own}; it must be {wanted}")));
        }
        let (kind, shape, data) = match self {
            Datatype::Own(kind) => (kind, shape, data),
            Datatype::Bool => {
                if data.0.iter().flatten().any(|byte| *byte > 1) {
                    return Err(wrong("an element of BOOL is neither 0 nor 1"));
                }
                (Type::U8, shape, data)
            }
            Datatype::Bytes => {
                let length = data.slice(0, LENGTH).to_bytes();
                let length = <[u8; 4]>::try_from(&length[..]).map(u32::from_le_bytes);
                let inner = data.slice(LENGTH, u64::MAX);
                if !length.is_ok_and(|length| u64::from(length) == inner.len()) {
                    return Err(wrong(
                        "BYTES must be one element: its length in 4 bytes, then its bytes",
                    ));
                }
                (Type::U8, vec![inner.len()], inner)
            }
            Datatype::Fp16 | Datatype::Bf16 => {
                let kind = wanted.unwrap_or(Type::F32);
                let widened = self.widen(&data, kind);
                (kind, shape, widened.into())
            }
        };
        Ok(Tensor {
            name,
            kind,
            shape,
            data,
        })
    }

    fn widen(self, data: &Body, kind: Type) -> Vec<u8> {
        let halves = data.to_bytes();
        let mut out = Vec::with_capacity(halves.len() / 2 * kind.size() as usize);
        for half in halves.chunks_exact(2) {
            let half = u16::from_le_bytes([half[0], half[1]]);
            let float = match self {
                Datatype::Bf16 => f32::from_bits(u32::from(half) << 16),
                _ => from_half(half),
            };
            match kind {
                Type::F64 => out.extend(f64::from(float).to_le_bytes()),
                _ => out.extend(float.to_le_bytes()),
            }
        }
        out
    }
}

/// An element of `BYTES`, with its length prefix.
pub(crate) fn element(bytes: Vec<u8>) -> Body {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    Body(vec![length.to_le_bytes().to_vec().into(), bytes.into()])
}

/// Converts binary16 (IEEE 754) to binary32, exactly.
fn from_half(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let (exponent, fraction) = (u32::from(half >> 10) & 31, u32::from(half) & 0x3ff);
    let bits = match (exponent, fraction) {
        (31, _) => 0xff << 23 | fraction << 13,
        (0, 0) => 0,
        (0, _) => {
            // Subnormal in binary16, normal in binary32.
            let float = fraction as f32 / (1u32 << 24) as f32;
            float.to_bits()
        }
        _ => (exponent + 127 - 15) << 23 | fraction << 13,
    };
    f32::from_bits(sign | bits)
}

/// Parses lists of booleans in any nesting into bytes.
fn bools(json: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let words = json.split(|c: char| c.is_ascii_whitespace() || matches!(c, '[' | ']' | ','));
    for word in words {
        match word {
            "" => {}
            "true" | "1" => out.push(1),
            "false" | "0" => out.push(0),
            _ => return None,
        }
    }
    Some(out)
}

/// An output in the form in which it is sent.
pub(crate) struct Output {
    pub tensor: Tensor,
    pub datatype: &'static str,
}

impl Output {
    /// Text is sent as `BYTES` if `texts` is set: the request then has inputs of `BYTES`.
    pub fn of(deployed: &Deployed, tensor: Tensor, texts: bool) -> Output {
        let outputs = &deployed.function.manifest.outputs;
        let manifest = outputs.iter().find(|output| output.name == tensor.name);
        let is_text = manifest.is_some_and(|output| output.json == JsonForm::Text);
        if !texts || !is_text || tensor.shape.len() != 1 {
            return Output {
                datatype: tensor.kind.datatype(),
                tensor,
            };
        }
        let length = u32::try_from(tensor.data.len()).unwrap_or(u32::MAX);
        let mut frames = vec![length.to_le_bytes().to_vec().into()];
        frames.extend(tensor.data.0);
        Output {
            datatype: Datatype::Bytes.name(),
            tensor: Tensor {
                shape: vec![1],
                data: Body(frames),
                ..tensor
            },
        }
    }

    /// Its elements as the protocol's JSON `data`.
    pub fn data_to_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        if self.datatype != Datatype::Bytes.name() {
            self.tensor.data_to_json(out);
            return Ok(());
        }
        let text = self.tensor.data.slice(LENGTH, u64::MAX).to_bytes();
        // Bytes that are not UTF-8 have to be requested as binary data.
        serde_json::to_writer(out, &[String::from_utf8_lossy(&text)])
    }

    /// Upper bound of the length of that JSON.
    pub fn json_bytes_max(&self) -> u64 {
        if self.datatype == Datatype::Bytes.name() {
            // A control character takes six bytes in JSON.
            self.tensor.data.len().saturating_mul(6).saturating_add(4)
        } else {
            self.tensor.json_bytes_max()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_numbers_that_they_stand_for() {
        for (half, float) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f32.powi(-24)),
            (0x03ff, 1023.0 * 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(from_half(half), float, "{half:#x}");
        }
        assert!(from_half(0x7e00).is_nan());
        assert_eq!(from_half(0x8000).to_bits(), (-0f32).to_bits());
        // Values ascend strictly with their bits.
        let all: Vec<f32> = (0..0x7c00).map(from_half).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn tensors_of_other_datatypes_are_bound_to_a_function_s_type() {
        let bind = |datatype: Datatype, shape: &[u64], data: &[u8], wanted| {
            datatype.bind(
                "a".into(),
                shape.into(),
                Body::from(data.to_vec()),
                Some(wanted),
            )
        };
        let half = bind(Datatype::Fp16, &[2], &[0, 0x3c, 0, 0xc0], Type::F64).unwrap();
        assert_eq!(
            half.data.to_bytes(),
            [1f64, -2.0].map(f64::to_le_bytes).concat()
        );
        let brain = bind(Datatype::Bf16, &[1], &[0x80, 0x3f], Type::F32).unwrap();
        assert_eq!(brain.data.to_bytes(), 1f32.to_le_bytes().to_vec());
        let text = bind(Datatype::Bytes, &[1], b"\x02\0\0\0ab", Type::U8).unwrap();
        assert_eq!((text.shape, text.data.to_bytes()), (vec![2], "ab".into()));
        let flags = bind(Datatype::Bool, &[2], &[1, 0], Type::U8).unwrap();
        assert_eq!((flags.kind, flags.shape), (Type::U8, vec![2]));
        for (datatype, data, wanted) in [
            (Datatype::Fp16, &[0u8, 0][..], Type::I32),
            (Datatype::Bytes, b"\0\0\0\0", Type::F32),
            (Datatype::Bytes, b"\x03\0\0\0ab", Type::U8),
            (Datatype::Bytes, b"\x01", Type::U8),
            (Datatype::Bool, &[2], Type::U8),
            (Datatype::Bool, &[1], Type::I8),
        ] {
            let problem = bind(datatype, &[1], data, wanted).unwrap_err();
            assert_eq!(problem.status, 422, "{datatype:?} {data:?}");
        }
    }

    #[test]
    fn json_has_texts_and_truths() {
        let read = |datatype: Datatype, json| datatype.parse_json("a", json, 100);
        let flags = read(Datatype::Bool, "[[true, false], [true,true]]").unwrap();
        assert_eq!(flags.to_bytes(), &[1u8, 0, 1, 1][..]);
        let text = read(Datatype::Bytes, r#"["a\u00e4"]"#).unwrap();
        assert_eq!(text.to_bytes(), "\x03\0\0\0a\u{e4}");
        for (datatype, json) in [
            (Datatype::Bool, "[2]"),
            (Datatype::Bool, "[truefalse]"),
            (Datatype::Bytes, "[\"a\", \"b\"]"),
            (Datatype::Bytes, "[1]"),
            (Datatype::Fp16, "[1]"),
        ] {
            assert!(read(datatype, json).is_err(), "{json}");
        }
    }
}
