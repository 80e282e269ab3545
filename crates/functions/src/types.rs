//! Element types and scalar values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of an element, little endian in memory, as on all supported devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl Type {
    /// Every type, in the order of declaration.
    pub const ALL: [Type; 10] = [
        Type::U8,
        Type::I8,
        Type::U16,
        Type::I16,
        Type::U32,
        Type::I32,
        Type::U64,
        Type::I64,
        Type::F32,
        Type::F64,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            Type::U8 | Type::I8 => 1,
            Type::U16 | Type::I16 => 2,
            Type::U32 | Type::I32 | Type::F32 => 4,
            Type::U64 | Type::I64 | Type::F64 => 8,
        }
    }

    /// The name in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Type::U8 => "u8",
            Type::I8 => "i8",
            Type::U16 => "u16",
            Type::I16 => "i16",
            Type::U32 => "u32",
            Type::I32 => "i32",
            Type::U64 => "u64",
            Type::I64 => "i64",
            Type::F32 => "f32",
            Type::F64 => "f64",
        }
    }

    /// The name in the Open Inference Protocol.
    pub const fn datatype(self) -> &'static str {
        match self {
            Type::U8 => "UINT8",
            Type::I8 => "INT8",
            Type::U16 => "UINT16",
            Type::I16 => "INT16",
            Type::U32 => "UINT32",
            Type::I32 => "INT32",
            Type::U64 => "UINT64",
            Type::I64 => "INT64",
            Type::F32 => "FP32",
            Type::F64 => "FP64",
        }
    }

    /// The type with a name in manifests.
    pub fn from_name(name: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.name() == name)
    }

    /// The type with a name in the Open Inference Protocol; `None` for BOOL, BYTES and the half
    /// floats.
    pub fn from_datatype(datatype: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|t| t.datatype() == datatype)
    }

    /// Whether it is an integer.
    pub const fn is_integer(self) -> bool {
        !matches!(self, Type::F32 | Type::F64)
    }

    /// The least and the greatest value, for integers.
    pub const fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            Type::U8 => (0, u8::MAX as i128),
            Type::I8 => (i8::MIN as i128, i8::MAX as i128),
            Type::U16 => (0, u16::MAX as i128),
            Type::I16 => (i16::MIN as i128, i16::MAX as i128),
            Type::U32 => (0, u32::MAX as i128),
            Type::I32 => (i32::MIN as i128, i32::MAX as i128),
            Type::U64 => (0, u64::MAX as i128),
            Type::I64 => (i64::MIN as i128, i64::MAX as i128),
            Type::F32 | Type::F64 => return None,
        })
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One value of a type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// [`Type::U8`]
    U8(u8),
    /// [`Type::I8`]
    I8(i8),
    /// [`Type::U16`]
    U16(u16),
    /// [`Type::I16`]
    I16(i16),
    /// [`Type::U32`]
    U32(u32),
    /// [`Type::I32`]
    I32(i32),
    /// [`Type::U64`]
    U64(u64),
    /// [`Type::I64`]
    I64(i64),
    /// [`Type::F32`]
    F32(f32),
    /// [`Type::F64`]
    F64(f64),
}

impl Scalar {
    /// Its type.
    pub const fn kind(self) -> Type {
        match self {
            Scalar::U8(_) => Type::U8,
            Scalar::I8(_) => Type::I8,
            Scalar::U16(_) => Type::U16,
            Scalar::I16(_) => Type::I16,
            Scalar::U32(_) => Type::U32,
            Scalar::I32(_) => Type::I32,
            Scalar::U64(_) => Type::U64,
            Scalar::I64(_) => Type::I64,
            Scalar::F32(_) => Type::F32,
            Scalar::F64(_) => Type::F64,
        }
    }

    /// The integer as a value of a type; `None` if it is out of range.
    pub fn from_integer(kind: Type, value: i128) -> Option<Scalar> {
        Some(match kind {
            Type::U8 => Scalar::U8(value.try_into().ok()?),
            Type::I8 => Scalar::I8(value.try_into().ok()?),
            Type::U16 => Scalar::U16(value.try_into().ok()?),
            Type::I16 => Scalar::I16(value.try_into().ok()?),
            Type::U32 => Scalar::U32(value.try_into().ok()?),
            Type::I32 => Scalar::I32(value.try_into().ok()?),
            Type::U64 => Scalar::U64(value.try_into().ok()?),
            Type::I64 => Scalar::I64(value.try_into().ok()?),
            Type::F32 => Scalar::F32(value as f32),
            Type::F64 => Scalar::F64(value as f64),
        })
    }

    /// The number as a value of a floating type; `None` for integer types.
    pub fn from_float(kind: Type, value: f64) -> Option<Scalar> {
        match kind {
            Type::F32 => Some(Scalar::F32(value as f32)),
            Type::F64 => Some(Scalar::F64(value)),
            _ => None,
        }
    }

    /// The value, if it is an integer.
    pub fn integer(self) -> Option<i128> {
        Some(match self {
            Scalar::U8(v) => v.into(),
            Scalar::I8(v) => v.into(),
            Scalar::U16(v) => v.into(),
            Scalar::I16(v) => v.into(),
            Scalar::U32(v) => v.into(),
            Scalar::I32(v) => v.into(),
            Scalar::U64(v) => v.into(),
            Scalar::I64(v) => v.into(),
            Scalar::F32(_) | Scalar::F64(_) => return None,
        })
    }

    /// Its bytes, little endian, appended to `to`.
    pub fn append_to(self, to: &mut Vec<u8>) {
        let (bytes, size) = self.bytes();
        to.extend_from_slice(&bytes[..size]);
    }

    /// Its bytes, little endian, and their number, as `clSetKernelArg` takes them.
    pub fn bytes(self) -> ([u8; 8], usize) {
        let mut bytes = [0; 8];
        let size = self.kind().size() as usize;
        match self {
            Scalar::U8(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::I8(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::U16(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::I16(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::U32(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::I32(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::U64(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::I64(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::F32(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
            Scalar::F64(v) => bytes[..size].copy_from_slice(&v.to_le_bytes()),
        }
        (bytes, size)
    }

    /// The value at the start of `bytes`; `None` if there are too few.
    pub fn from_bytes(kind: Type, bytes: &[u8]) -> Option<Scalar> {
        Some(match kind {
            Type::U8 => Scalar::U8(u8::from_le_bytes(*bytes.first_chunk()?)),
            Type::I8 => Scalar::I8(i8::from_le_bytes(*bytes.first_chunk()?)),
            Type::U16 => Scalar::U16(u16::from_le_bytes(*bytes.first_chunk()?)),
            Type::I16 => Scalar::I16(i16::from_le_bytes(*bytes.first_chunk()?)),
            Type::U32 => Scalar::U32(u32::from_le_bytes(*bytes.first_chunk()?)),
            Type::I32 => Scalar::I32(i32::from_le_bytes(*bytes.first_chunk()?)),
            Type::U64 => Scalar::U64(u64::from_le_bytes(*bytes.first_chunk()?)),
            Type::I64 => Scalar::I64(i64::from_le_bytes(*bytes.first_chunk()?)),
            Type::F32 => Scalar::F32(f32::from_le_bytes(*bytes.first_chunk()?)),
            Type::F64 => Scalar::F64(f64::from_le_bytes(*bytes.first_chunk()?)),
        })
    }
}
