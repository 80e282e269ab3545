//! Bindings: how a board's own HTTP calls a kernel that is compiled from OpenCL C
//! (`hdl/kernels/rtl/region_call.sv` has the format).
//!
//! The words of the kernel's argument block and the bytes of the answer are *operands*: a number, a
//! scalar (a query parameter), the bytes of the body, or one of these divided by a number or a
//! scalar. The board evaluates them in each call, and refuses it if a quotient is not whole.

use crate::accelerator::manifest::{Address, Kernel};

/// Scalars of a function that is bound to a kernel.
pub const SCALARS: usize = 3;
/// Words of a binding's argument block.
const WORDS_MAX: usize = 64;
/// Most buffers of a kernel.
const BUFFERS_MAX: usize = 15;
/// Position of a buffer's number in an argument's word.
const TAG_SHIFT: u32 = 28;
const DIMENSIONS: usize = 3;

const CONSTANT: u64 = 0;
const SCALAR: u64 = 1;
const BODY: u64 = 2;
/// In place of a divisor.
const NO_DIVISOR: u64 = 2;
const POSITIVE: u64 = 1 << 40;

/// Reasons for which a kernel cannot be bound.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The text is not an operand.
    #[error("invalid operand '{0}': expected a number up to 4294967295, a scalar, 'body', or one of these divided by a number or a scalar, such as 'body/width'")]
    Operand(String),
    /// The dividend is a number, and so is the divisor.
    #[error("invalid operand '{0}': write the quotient of two numbers as a number")]
    Numbers(String),
    /// The image lacks the kernel.
    #[error("the image has no kernel '{kernel}' (it has {have})")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// The image's kernels.
        have: String,
    },
    /// Another number of arguments.
    #[error("kernel '{kernel}' has {want} arguments, but {have} are bound")]
    Count {
        /// The kernel.
        kernel: String,
        /// Number of the kernel's arguments.
        want: usize,
        /// Those that are bound.
        have: usize,
    },
    /// An argument that cannot be bound so.
    #[error("argument '{argument}' of kernel '{kernel}' {reason}")]
    Argument {
        /// The kernel.
        kernel: String,
        /// The argument.
        argument: String,
        /// The reason.
        reason: &'static str,
    },
    /// The kernel has groups of a size of its own.
    #[error("kernel '{0}' requires work-groups of more than one work-item, which a function of a board does not have")]
    Group(String),
    /// The number of dimensions is wrong.
    #[error("a kernel runs over 1 to 3 dimensions, not {0}")]
    Dimensions(usize),
}

/// A kernel's binding, as the board receives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The argument block, as operands.
    pub words: Vec<u64>,
    /// For each of the kernel's buffers 0 (the body) or 1 (the answer).
    pub buffers: Vec<u64>,
    /// The bytes of the answer, an operand.
    pub answer: u64,
}

/// The arguments that a function passes to its kernel, as text.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// For each argument `body`, `answer`, or an operand.
    pub arguments: &'a [String],
    /// The work-items of each dimension, operands.
    pub global: &'a [String],
    /// The bytes of the answer, an operand.
    pub answer: &'a str,
    /// The names of the scalars.
    pub scalars: &'a [String],
}

impl Binding {
    /// Binds a kernel. Each work-item is a work-group of its own.
    pub fn new(kernel: &Kernel, call: &Call<'_>) -> Result<Binding, Error> {
        if kernel.required_work_group_size.is_some_and(|s| s != [1; 3]) {
            return Err(Error::Group(kernel.name.clone()));
        }
        let dimensions = call.global.len();
        if !(1..=DIMENSIONS).contains(&dimensions) {
            return Err(Error::Dimensions(dimensions));
        }
        if call.arguments.len() != kernel.arguments.len() {
            return Err(Error::Count {
                kernel: kernel.name.clone(),
                want: kernel.arguments.len(),
                have: call.arguments.len(),
            });
        }
        let mut words = Vec::new();
        for at in 0..DIMENSIONS {
            let size = call.global.get(at);
            words.push(size.map_or(Ok(number(1)), |text| operand(text, call.scalars))? | POSITIVE);
        }
        words.extend([number(0); DIMENSIONS]);
        words.extend([number(1); DIMENSIONS]);
        words.push(number(dimensions as u32));
        let mut binding = Binding {
            words,
            answer: operand(call.answer, call.scalars)?,
            ..Binding::default()
        };
        for (argument, text) in kernel.arguments.iter().zip(call.arguments) {
            let refused = |reason| Error::Argument {
                kernel: kernel.name.clone(),
                argument: argument.name.clone(),
                reason,
            };
            if argument.is_pipe() {
                return Err(refused("is a pipe, which is not bound"));
            }
            match (argument.address, text.as_str()) {
                (Address::Global | Address::Constant, "body" | "answer") => {
                    if binding.buffers.len() == BUFFERS_MAX {
                        return Err(refused("is the sixteenth buffer"));
                    }
                    binding.buffers.push(u64::from(text == "answer"));
                    let tag = binding.buffers.len() as u32;
                    binding.words.push(number(tag << TAG_SHIFT));
                }
                (Address::Global | Address::Constant, _) => {
                    return Err(refused("is a buffer: bind it to 'body' or 'answer'"));
                }
                (Address::Local, _) => return Err(refused("is local memory, which is not bound")),
                (Address::Private, _) if argument.words != 1 || argument.bytes > 8 => {
                    return Err(refused("has more than eight bytes"));
                }
                (Address::Private, text) => binding.words.push(operand(text, call.scalars)?),
            }
        }
        if binding.words.len() > WORDS_MAX {
            return Err(Error::Count {
                kernel: kernel.name.clone(),
                want: WORDS_MAX,
                have: binding.words.len(),
            });
        }
        Ok(binding)
    }
}

fn number(n: u32) -> u64 {
    u64::from(n) | CONSTANT << 32 | NO_DIVISOR << 36
}

/// Encodes an operand.
fn operand(text: &str, scalars: &[String]) -> Result<u64, Error> {
    let wrong = || Error::Operand(text.chars().take(80).collect());
    let (dividend, divisor) = match text.split_once('/') {
        Some((dividend, divisor)) => (dividend, Some(divisor)),
        None => (text, None),
    };
    let scalar = |name: &str| scalars.iter().take(SCALARS).position(|s| s == name);
    let constant = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let mut encoded = match (scalar(dividend), constant(dividend)) {
        (Some(at), _) => SCALAR << 32 | (at as u64) << 34,
        (None, Some(n)) => n | CONSTANT << 32,
        (None, None) if dividend == "body" => BODY << 32,
        (None, None) => return Err(wrong()),
    };
    encoded |= match divisor {
        None => NO_DIVISOR << 36,
        Some(divisor) => match (scalar(divisor), constant(divisor)) {
            (Some(at), _) => SCALAR << 36 | (at as u64) << 38,
            (None, Some(0) | None) => return Err(wrong()),
            (None, Some(_)) if constant(dividend).is_some() => {
                return Err(Error::Numbers(text.chars().take(80).collect()))
            }
            (None, Some(n)) => n | CONSTANT << 36,
        },
    };
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accelerator::manifest::Argument;

    fn argument(name: &str, address: Address) -> Argument {
        Argument {
            name: name.into(),
            type_name: "int".into(),
            address,
            qualifiers: String::new(),
            bytes: 4,
            words: 1,
            access: String::new(),
            packet_bytes: 0,
        }
    }

    fn sobel() -> Kernel {
        Kernel {
            name: "sobel".into(),
            arguments: vec![
                argument("in", Address::Global),
                argument("out", Address::Global),
                argument("width", Address::Private),
            ],
            ..Kernel::default()
        }
    }

    fn bind(arguments: &[&str], global: &[&str], answer: &str) -> Result<Binding, Error> {
        let owned = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        Binding::new(
            &sobel(),
            &Call {
                arguments: &owned(arguments),
                global: &owned(global),
                answer,
                scalars: &owned(&["width", "gain"]),
            },
        )
    }

    #[test]
    fn an_argument_block_has_operands_in_its_order() {
        let global = ["width", "body/width"];
        let bound = bind(&["body", "answer", "width"], &global, "body/4").unwrap();
        assert_eq!(bound.buffers, [0, 1]);
        assert_eq!(bound.words.len(), 13);
        assert_eq!(bound.words[0], POSITIVE | NO_DIVISOR << 36 | SCALAR << 32);
        assert_eq!(bound.words[1], POSITIVE | SCALAR << 36 | BODY << 32);
        assert_eq!(bound.words[2], POSITIVE | number(1));
        assert_eq!(bound.words[9], number(2));
        assert_eq!(bound.words[10..12], [number(1 << 28), number(2 << 28)]);
        assert_eq!(bound.answer, BODY << 32 | 4);
        assert_eq!(
            operand("gain", &["width".into(), "gain".into()]).unwrap() >> 34 & 3,
            1
        );
    }

    #[test]
    fn what_cannot_be_bound_is_refused() {
        let all = ["body", "answer", "width"];
        for text in [
            "",
            "height",
            "body/0",
            "body/",
            "/4",
            "width/height",
            "-1",
            "4294967296",
            "body/4/2",
        ] {
            assert_eq!(
                bind(&all, &[text], "body"),
                Err(Error::Operand(text.into())),
                "{text}"
            );
        }
        assert_eq!(
            bind(&all, &["8/2"], "body"),
            Err(Error::Numbers("8/2".into()))
        );
        assert!(matches!(
            bind(&all[..2], &["1"], "body"),
            Err(Error::Count { .. })
        ));
        assert!(matches!(
            bind(&["width", "answer", "1"], &["1"], "body"),
            Err(Error::Argument { .. })
        ));
        assert_eq!(bind(&all, &[], "body"), Err(Error::Dimensions(0)));
        let mut piped = sobel();
        piped.arguments[0].qualifiers = "pipe".into();
        let call = Call {
            arguments: &all.map(String::from),
            global: &["1".to_string()],
            answer: "1",
            scalars: &[],
        };
        let error = Binding::new(&piped, &call).unwrap_err();
        assert!(error.to_string().contains("is a pipe"), "{error}");
        let mut grouped = sobel();
        grouped.required_work_group_size = Some([8, 8, 1]);
        let call = Call {
            arguments: &[],
            global: &["1".to_string()],
            answer: "1",
            scalars: &[],
        };
        assert!(matches!(
            Binding::new(&grouped, &call),
            Err(Error::Group(_))
        ));
    }
}
