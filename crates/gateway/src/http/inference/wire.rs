//! Checks gRPC messages before they are decoded, by reading protobuf fields in place.
//!
//! A decoded message may take many times its size: an empty tensor is two bytes of a message and
//! hundreds in memory. [`Codec`] therefore counts an inference's tensors first, and their typed
//! contents stay encoded until [`contents`] writes them as elements of the input's own type.

use super::{DIMENSIONS_MAX, TENSORS_MAX};
use crate::proto::ModelInferRequest;
use baltra_functions::Type;
use bytes::{Buf, Bytes};
use prost::Message;
use std::any::TypeId;
use std::marker::PhantomData;
use tonic::codec::{DecodeBuf, Decoder};
use tonic::Status;

/// Parameters of a request, or of one of its tensors.
const PARAMETERS_MAX: usize = 64;
/// A varint's bytes, at most.
const VARINT_MAX: usize = 10;

/// Prost's codec, with [`check`] before decoding.
pub(crate) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = tonic_prost::ProstEncoder<T>;
    type Decoder = Checked<U>;

    fn encoder(&mut self) -> Self::Encoder {
        tonic_prost::ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Checked(PhantomData)
    }
}

/// Decodes messages that pass [`check`].
pub(crate) struct Checked<U>(PhantomData<U>);

impl<U: Message + Default + 'static> Decoder for Checked<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message: Bytes = buffer.copy_to_bytes(buffer.remaining());
        if TypeId::of::<U>() == TypeId::of::<ModelInferRequest>() {
            check(&message)?;
        }
        let decoded = U::decode(message);
        decoded.map(Some).map_err(|error| malformed(&error))
    }
}

fn malformed(why: &dyn std::fmt::Display) -> Status {
    Status::invalid_argument(format!("malformed message: {why}"))
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// Takes a varint off the front; `None`: it is truncated or too long.
fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for at in 0..VARINT_MAX.min(from.len()) {
        let byte = from[at];
        // The tenth byte may contain one bit only.
        if at == VARINT_MAX - 1 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *from = &from[at + 1..];
            return Some(value);
        }
    }
    None
}

fn take<'a>(from: &mut &'a [u8], bytes: u64) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(usize::try_from(bytes).ok()?)?;
    *from = rest;
    Some(taken)
}

/// Takes a field off the front and returns its number and value; `None`: it is malformed or
/// truncated.
fn field<'a>(from: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(from)?;
    let value = match tag & 7 {
        0 => Value::Varint(varint(from)?),
        1 => Value::Fixed64(take(from, 8)?.try_into().ok()?),
        2 => {
            let length = varint(from)?;
            Value::Bytes(take(from, length)?)
        }
        5 => Value::Fixed32(take(from, 4)?.try_into().ok()?),
        // Groups do not exist in proto3.
        _ => return None,
    };
    Some((tag >> 3, value))
}

/// Calls `each` with every field of a message.
fn fields<'a>(
    mut message: &'a [u8],
    mut each: impl FnMut(u64, Value<'a>) -> Result<(), Status>,
) -> Result<(), Status> {
    while !message.is_empty() {
        let (number, value) =
            field(&mut message).ok_or_else(|| malformed(&"a field is truncated"))?;
        each(number, value)?;
    }
    Ok(())
}

/// The model's name, from the head of an inference message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Model<'a> {
    Named(&'a str),
    /// More of the message is needed.
    Unknown,
    Malformed,
}

/// Finds the model's name in the beginning of a [`ModelInferRequest`].
pub(crate) fn model_name(mut head: &[u8]) -> Model<'_> {
    while !head.is_empty() {
        match field(&mut head) {
            Some((1, Value::Bytes(name))) => {
                return std::str::from_utf8(name).map_or(Model::Malformed, Model::Named);
            }
            Some(_) => {}
            None => return Model::Unknown,
        }
    }
    Model::Unknown
}

/// Counts an inference's tensors, dimensions and parameters.
fn check(message: &[u8]) -> Result<(), Status> {
    let mut counts = [0usize; 8];
    fields(message, |number, value| {
        let most = match number {
            4 => PARAMETERS_MAX,
            5..=7 => TENSORS_MAX,
            _ => return Ok(()),
        };
        counts[number as usize] += 1;
        if counts[number as usize] > most {
            let what = ["parameters", "inputs", "outputs", "raw contents"][number as usize - 4];
            let why = format!("more than {most} {what}");
            return Err(malformed(&why));
        }
        match (number, value) {
            (5 | 6, Value::Bytes(tensor)) => check_tensor(tensor, number == 5),
            _ => Ok(()),
        }
    })
}

fn check_tensor(tensor: &[u8], is_input: bool) -> Result<(), Status> {
    let (mut parameters, mut dimensions) = (0usize, 0usize);
    fields(tensor, |number, value| {
        match (number, is_input, value) {
            (3, true, Value::Bytes(packed)) => dimensions += packed.len().div_ceil(VARINT_MAX),
            (3, true, _) => dimensions += 1,
            (4, true, _) | (2, false, _) => parameters += 1,
            _ => {}
        }
        // A packed dimension takes at least one byte.
        let wide = matches!(value, Value::Bytes(packed)
            if number == 3 && packed.len() > DIMENSIONS_MAX * VARINT_MAX);
        if wide || dimensions > DIMENSIONS_MAX {
            return Err(malformed(&format!(
                "a tensor has more than {DIMENSIONS_MAX} dimensions"
            )));
        }
        if parameters > PARAMETERS_MAX {
            Err(malformed(&format!(
                "a tensor has more than {PARAMETERS_MAX} parameters"
            )))
        } else {
            Ok(())
        }
    })
}

/// Decodes the elements of an input's encoded `InferTensorContents` to `bytes` bytes, little
/// endian.
pub(crate) fn contents(
    input: &str,
    datatype: &str,
    kind: Type,
    encoded: &[u8],
    bytes: u64,
) -> Result<Vec<u8>, Status> {
    let own = match datatype {
        "BOOL" => 1,
        _ => match kind {
            Type::I8 | Type::I16 | Type::I32 => 2,
            Type::I64 => 3,
            Type::U8 | Type::U16 | Type::U32 => 4,
            Type::U64 => 5,
            Type::F32 => 6,
            Type::F64 => 7,
        },
    };
    let wrong = |why: String| Status::invalid_argument(format!("input '{input}': {why}"));
    let mut out = Vec::new();
    let mut put = |element: Option<[u8; 8]>| {
        let size = kind.size();
        let element =
            element.ok_or_else(|| wrong(format!("an element is not a valid {datatype}")))?;
        if out.len() as u64 + size > bytes {
            return Err(wrong(
                "more elements in its contents than in its shape".into(),
            ));
        }
        out.extend_from_slice(&element[..size as usize]);
        Ok(())
    };
    fields(encoded, |number, value| {
        if number != own {
            return Err(wrong(format!(
                "its contents are not in the field for {datatype}"
            )));
        }
        match value {
            Value::Varint(value) => put(integer(datatype, kind, value)),
            Value::Fixed32(float) if kind == Type::F32 => put(Some(padded(float))),
            Value::Fixed64(float) if kind == Type::F64 => put(Some(float)),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    let element = match kind {
                        Type::F32 => take(&mut packed, 4)
                            .and_then(|float| float.try_into().ok())
                            .map(padded),
                        Type::F64 => take(&mut packed, 8).and_then(|float| float.try_into().ok()),
                        _ => varint(&mut packed).and_then(|v| integer(datatype, kind, v)),
                    };
                    put(element)?;
                }
                Ok(())
            }
            _ => put(None),
        }
    })?;
    Ok(out)
}

fn padded(float: [u8; 4]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&float);
    bytes
}

/// Encodes an integer if it is in the type's range. Negative numbers are varints of 64 bits.
fn integer(datatype: &str, kind: Type, value: u64) -> Option<[u8; 8]> {
    if datatype == "BOOL" {
        return (value <= 1).then(|| value.to_le_bytes());
    }
    let (least, greatest) = kind.range()?;
    let value = if least < 0 {
        i128::from(value as i64)
    } else {
        i128::from(value)
    };
    let fits = (least..=greatest).contains(&value);
    fits.then(|| (value as u64).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
    use crate::proto::InferTensorContents;
    use proptest::prelude::*;
    use tonic::Code;

    #[test]
    fn a_name_is_found_in_the_head_of_a_message() {
        let request = ModelInferRequest {
            model_name: "scale".into(),
            raw_input_contents: vec![Bytes::from(vec![0; 1000])],
            ..Default::default()
        };
        let message = request.encode_to_vec();
        assert_eq!(model_name(&message), Model::Named("scale"));
        assert_eq!(model_name(&message[..7]), Model::Named("scale"));
        for cut in 0..7 {
            assert_eq!(model_name(&message[..cut]), Model::Unknown, "{cut}");
        }
        assert_eq!(model_name(b"\x0a\x01\xff"), Model::Malformed);
    }

    #[test]
    fn more_tensors_than_may_be_are_refused_undecoded() {
        let allowed = ModelInferRequest {
            inputs: vec![InferInputTensor::default(); TENSORS_MAX],
            outputs: vec![InferRequestedOutputTensor::default(); TENSORS_MAX],
            raw_input_contents: vec![Bytes::new(); TENSORS_MAX],
            ..Default::default()
        };
        check(&allowed.encode_to_vec()).unwrap();
        let more = |change: fn(&mut ModelInferRequest)| {
            let mut request = allowed.clone();
            change(&mut request);
            let status = check(&request.encode_to_vec()).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
        };
        more(|r| r.inputs.push(InferInputTensor::default()));
        more(|r| r.outputs.push(InferRequestedOutputTensor::default()));
        more(|r| r.raw_input_contents.push(Bytes::new()));
        more(|r| r.inputs[0].shape = vec![1; 1000]);
        more(|r| {
            for i in 0..=PARAMETERS_MAX {
                r.parameters.insert(i.to_string(), Default::default());
            }
        });
    }

    #[test]
    fn typed_contents_are_elements_of_the_input_s_type() {
        let read = |datatype, kind, given: &InferTensorContents, bytes| {
            contents("a", datatype, kind, &given.encode_to_vec(), bytes)
        };
        let ints = InferTensorContents {
            int_contents: vec![-1, 2, -128],
            ..Default::default()
        };
        assert_eq!(read("INT8", Type::I8, &ints, 3).unwrap(), [255, 2, 128]);
        let wide = read("INT16", Type::I16, &ints, 6).unwrap();
        assert_eq!(wide, [255, 255, 2, 0, 128, 255]);
        assert!(read("INT8", Type::I8, &ints, 2).is_err());
        assert!(read("UINT8", Type::U8, &ints, 3).is_err());
        let large = InferTensorContents {
            uint_contents: vec![256],
            ..Default::default()
        };
        assert!(read("UINT8", Type::U8, &large, 1).is_err());
        assert_eq!(read("UINT16", Type::U16, &large, 2).unwrap(), [0, 1]);
        let floats = InferTensorContents {
            fp32_contents: vec![1.5, f32::NAN],
            ..Default::default()
        };
        let bytes = read("FP32", Type::F32, &floats, 8).unwrap();
        assert_eq!(bytes, [1.5f32, f32::NAN].map(f32::to_le_bytes).concat());
        let doubles = InferTensorContents {
            fp64_contents: vec![-0.5],
            ..Default::default()
        };
        assert_eq!(
            read("FP64", Type::F64, &doubles, 8).unwrap(),
            (-0.5f64).to_le_bytes()
        );
        let bools = InferTensorContents {
            bool_contents: vec![true, false],
            ..Default::default()
        };
        assert_eq!(read("BOOL", Type::U8, &bools, 2).unwrap(), [1, 0]);
        let u64s = InferTensorContents {
            uint64_contents: vec![u64::MAX],
            ..Default::default()
        };
        assert_eq!(read("UINT64", Type::U64, &u64s, 8).unwrap(), [255; 8]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_contents_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            index in 0usize..10,
        ) {
            let kind = Type::ALL[index];
            if let Ok(read) = contents("a", kind.datatype(), kind, &bytes, 64) {
                prop_assert!(read.len() <= 64);
            }
            let _ = model_name(&bytes);
            if check(&bytes).is_ok() {
                let _ = ModelInferRequest::decode(&bytes[..]);
            }
        }

        #[test]
        fn integers_are_those_of_the_message(values in proptest::collection::vec(any::<i64>(), 0..20)) {
            let given = InferTensorContents { int64_contents: values.clone(), ..Default::default() };
            let read = contents("a", "INT64", Type::I64, &given.encode_to_vec(), 160).unwrap();
            let expected: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            prop_assert_eq!(read, expected);
        }
    }
}
