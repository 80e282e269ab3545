//! Constant arrays, from the manifest, a file or a seed.

use crate::codec::npy;
use crate::files::Files;
use crate::manifest::Constant;
use crate::types::{Scalar, Type};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Most bytes of a function's constants.
const BYTES_MAX: u64 = 1 << 30;

/// A constant array; one from a seed is generated at its first use.
#[derive(Debug)]
pub(crate) struct ConstantPlan {
    bytes: OnceLock<Bytes>,
    random: Option<Random>,
}

#[derive(Clone, Copy, Debug)]
struct Random {
    seed: u64,
    range: f64,
    /// Numbers of the sequence that earlier constants use.
    skip: u64,
    count: u64,
}

impl ConstantPlan {
    /// The array's bytes.
    pub fn bytes(&self) -> Bytes {
        self.bytes
            .get_or_init(|| self.random.map(Random::bytes).unwrap_or_default())
            .clone()
    }
}

/// Memory of the constants so far.
#[derive(Default)]
pub(super) struct Taken {
    bytes: u64,
    of_seed: BTreeMap<u64, u64>,
}

impl Taken {
    /// The constant array of a type and shape, or the reason why it is invalid.
    pub fn array(
        &mut self,
        constant: &Constant,
        kind: Type,
        shape: &[u64],
        files: &mut Files,
    ) -> Result<ConstantPlan, String> {
        let count = shape
            .iter()
            .fold(1u64, |count, size| count.saturating_mul(*size));
        self.bytes = self.bytes.saturating_add(count.saturating_mul(kind.size()));
        if self.bytes > BYTES_MAX {
            return Err(format!("the constants take more than {BYTES_MAX} bytes"));
        }
        let bytes = match constant {
            Constant::Value(_) => {
                return Err("an array's constant must be values, a file or random".into())
            }
            Constant::Values(values) if values.len() as u64 != count => {
                return Err(format!(
                    "{} values, but the shape has {count} elements",
                    values.len()
                ));
            }
            Constant::Values(values) => {
                let mut bytes = Vec::with_capacity(values.len() * kind.size() as usize);
                for value in values {
                    number(kind, *value)?.append_to(&mut bytes);
                }
                bytes.into()
            }
            Constant::File(name) => from_file(name, kind, shape, files)?,
            Constant::Random { .. } if kind != Type::F32 => {
                return Err("random constants are of type f32".into())
            }
            Constant::Random { range, .. } if !(*range > 0.0 && range.is_finite()) => {
                return Err("the range must be above 0".into());
            }
            Constant::Random { seed, range } => {
                let taken = self.of_seed.entry(*seed).or_default();
                let random = Random {
                    seed: *seed,
                    range: *range,
                    skip: *taken,
                    count,
                };
                *taken += count;
                return Ok(ConstantPlan {
                    bytes: OnceLock::new(),
                    random: Some(random),
                });
            }
        };
        Ok(ConstantPlan {
            bytes: OnceLock::from(bytes),
            random: None,
        })
    }
}

/// Converts a number of the manifest to a type. YAML numbers are parsed as `f64`, which represents
/// integers up to 2^53 exactly.
pub(super) fn number(kind: Type, value: f64) -> Result<Scalar, String> {
    if let Some(scalar) = Scalar::from_float(kind, value) {
        return Ok(scalar);
    }
    let whole = value.fract() == 0.0 && value.abs() <= (1u64 << 53) as f64;
    whole
        .then(|| Scalar::from_integer(kind, value as i128))
        .flatten()
        .ok_or_else(|| format!("{value} is not a valid {kind}"))
}

fn from_file(name: &str, kind: Type, shape: &[u64], files: &mut Files) -> Result<Bytes, String> {
    let bytes = files.open(name)?;
    let wanted = shape.iter().product::<u64>() * kind.size();
    if !name.ends_with(".npy") {
        return match bytes.len() as u64 {
            length if length == wanted => Ok(bytes),
            length => Err(format!(
                "'{name}' has {length} bytes, but the shape has {wanted}"
            )),
        };
    }
    let header = npy::header(&bytes).map_err(|reason| format!("'{name}': {reason}"))?;
    if header.kind != kind || header.shape != shape {
        return Err(format!(
            "'{name}' holds {}{:?}, not {kind}{shape:?}",
            header.kind, header.shape
        ));
    }
    let data = bytes.slice(header.data..);
    if data.len() as u64 != wanted {
        return Err(format!(
            "'{name}' has {} bytes of elements, but its shape has {wanted}",
            data.len()
        ));
    }
    Ok(data)
}

impl Random {
    fn bytes(self) -> Bytes {
        let scale = (self.range / 2_147_483_648.0) as f32;
        let mut state = jump(
            0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(self.seed.wrapping_add(1)),
            self.skip,
        );
        let mut bytes = Vec::with_capacity(self.count as usize * 4);
        for _ in 0..self.count {
            state = step(state);
            bytes
                .extend_from_slice(&((((state >> 32) as u32 as i32) as f32) * scale).to_le_bytes());
        }
        bytes.into()
    }
}

/// One step of xorshift64 (Marsaglia 2003, shifts 13, 7, 17).
fn step(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

/// `steps` steps at once. A step is linear over bits, so that many steps are a power of a 64 × 64
/// bit matrix.
fn jump(mut state: u64, mut steps: u64) -> u64 {
    let mut matrix: [u64; 64] = std::array::from_fn(|bit| step(1 << bit));
    let apply = |matrix: &[u64; 64], vector: u64| {
        (0..64)
            .filter(|bit| vector >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ matrix[bit])
    };
    while steps > 0 {
        if steps & 1 == 1 {
            state = apply(&matrix, state);
        }
        matrix = std::array::from_fn(|bit| apply(&matrix, matrix[bit]));
        steps >>= 1;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_as_many_steps() {
        for steps in [0u64, 1, 2, 63, 1000, 4097] {
            let walked = (0..steps).fold(12345, |state, _| step(state));
            assert_eq!(jump(12345, steps), walked, "{steps}");
        }
    }

    #[test]
    fn constants_of_a_seed_continue_one_sequence() {
        let random = Constant::Random {
            seed: 7,
            range: 0.5,
        };
        let mut files = Files::default();
        let whole = Taken::default()
            .array(&random, Type::F32, &[30], &mut files)
            .unwrap()
            .bytes();
        let mut taken = Taken::default();
        let first = taken.array(&random, Type::F32, &[10], &mut files).unwrap();
        let second = taken
            .array(&random, Type::F32, &[4, 5], &mut files)
            .unwrap();
        assert_eq!(second.bytes(), whole.slice(40..), "asked for first");
        assert_eq!(first.bytes(), whole.slice(..40));
        for value in whole
            .chunks(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        {
            assert!((-0.5..0.5).contains(&value));
        }
    }

    #[test]
    fn values_must_fit_type_and_shape() {
        let mut files =
            Files::from_contents([("raw".to_owned(), Bytes::from_static(&[1, 2, 3]))].into());
        let mut array = |constant: Constant, kind, shape: &[u64]| {
            Taken::default().array(&constant, kind, shape, &mut files)
        };
        assert_eq!(
            array(Constant::Values(vec![1.0, 258.0]), Type::U16, &[2])
                .unwrap()
                .bytes(),
            &[1u8, 0, 2, 1][..]
        );
        assert!(array(Constant::Values(vec![1.5]), Type::U16, &[1])
            .unwrap_err()
            .contains("1.5 is not a valid u16"));
        assert!(array(Constant::Values(vec![1.0]), Type::U16, &[2])
            .unwrap_err()
            .contains("1 values"));
        assert_eq!(
            array(Constant::File("raw".into()), Type::U8, &[3])
                .unwrap()
                .bytes(),
            &[1u8, 2, 3][..]
        );
        assert!(array(Constant::File("raw".into()), Type::U8, &[4])
            .unwrap_err()
            .contains("3 bytes"));
        assert!(array(
            Constant::Random {
                seed: 1,
                range: 1.0
            },
            Type::F32,
            &[1 << 40]
        )
        .unwrap_err()
        .contains("constants take"));
    }
}
