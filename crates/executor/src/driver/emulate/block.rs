//! Argument blocks: the sizes of a launch, the values of arguments, the buffers that they refer to.

use super::library::Buffer;
use crate::driver::builtin::memory::Piece;
use crate::driver::builtin::objects::Mem;
use crate::driver::builtin::transfer::Result;
use baltra_board::accelerator::manifest::{self, Address};
use baltra_opencl::*;
use std::sync::Arc;

/// A pointer's tag begins at this bit; below it is the offset in the buffer.
const TAG_SHIFT: u32 = 28;
/// Buffers of a launch: tags have four bits, and 0 is the null pointer's.
const BUFFERS_MAX: usize = 15;

/// The value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Not set.
    Nothing,
    /// A buffer's handle, which the launching code keeps alive; 0: none.
    Memory(usize),
    /// Bytes by value.
    Value(Vec<u8>),
    /// Local memory of that many bytes.
    Local(u64),
}

/// Local memory of the arguments.
pub fn local_bytes(args: &[Arg]) -> u64 {
    let sizes = args.iter().map(|arg| match arg {
        Arg::Local(bytes) => *bytes,
        _ => 0,
    });
    sizes.sum()
}

/// Sizes of a launch in all three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    dimensions: u32,
    global: [usize; 3],
    offset: [usize; 3],
    local: [usize; 3],
}

impl Range {
    /// Checks the sizes as `clEnqueueNDRangeKernel` of OpenCL 1.2 requires. `local`: zeros choose.
    /// `required`: the kernel's `reqd_work_group_size`; `items_max`: work-items of its largest group.
    pub fn new(
        dimensions: u32,
        global: [usize; 3],
        offset: [usize; 3],
        local: [usize; 3],
        required: Option<[usize; 3]>,
        items_max: usize,
    ) -> Result<Range> {
        let used = dimensions as usize;
        let items = global[..used]
            .iter()
            .try_fold(1usize, |all, n| all.checked_mul(*n));
        if items.is_none_or(|items| items == 0) {
            return Err(CL_INVALID_GLOBAL_WORK_SIZE);
        }
        let ends = global.iter().zip(&offset).take(used);
        if ends.into_iter().any(|(n, at)| n.checked_add(*at).is_none()) {
            return Err(CL_INVALID_GLOBAL_OFFSET);
        }
        let local = match (local[..used].contains(&0), required) {
            (true, None) => chosen(&global[..used], items_max),
            (true, Some(required)) => required,
            (false, _) => std::array::from_fn(|at| if at < used { local[at] } else { 1 }),
        };
        let group = local.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        if group.is_none_or(|group| group > items_max) {
            return Err(CL_INVALID_WORK_GROUP_SIZE);
        }
        let divides = |at: usize| global[at].is_multiple_of(local[at]);
        if !(0..used).all(divides) || required.is_some_and(|required| local != required) {
            return Err(CL_INVALID_WORK_GROUP_SIZE);
        }
        let rest = |values: [usize; 3], rest: usize| {
            std::array::from_fn(|at| if at < used { values[at] } else { rest })
        };
        Ok(Range {
            dimensions,
            global: rest(global, 1),
            offset: rest(offset, 0),
            local,
        })
    }

    /// All work-items.
    pub fn items(&self) -> usize {
        self.global.iter().product()
    }

    /// Whether the first item's number is another one than 0.
    pub fn has_offset(&self) -> bool {
        self.offset != [0; 3]
    }

    /// The first words of the argument block.
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let sizes = self.global.iter().chain(&self.offset).chain(&self.local);
        let sizes = sizes.map(|n| *n as u64);
        sizes.chain([u64::from(self.dimensions)])
    }
}

/// The largest group that divides the range, filled from the first dimension on.
fn chosen(global: &[usize], items_max: usize) -> [usize; 3] {
    let mut local = [1; 3];
    let mut left = items_max;
    for (at, n) in global.iter().enumerate() {
        let most = left.min(*n);
        let side = (1..=most).rev().find(|side| n.is_multiple_of(*side));
        local[at] = side.unwrap_or(1);
        left /= local[at];
    }
    local
}

/// The sizes that `clEnqueueNDRangeKernel` receives: each list is null or has an entry per dimension.
pub struct Sizes {
    /// 1 to 3.
    pub dimensions: u32,
    /// Offsets.
    pub offset: *const usize,
    /// Work-items.
    pub global: *const usize,
    /// Those of a group.
    pub local: *const usize,
}

impl Sizes {
    /// Checks them for a kernel.
    ///
    /// # Safety
    /// The fields hold the lengths of the lists.
    pub unsafe fn range(&self, required: Option<[usize; 3]>, items_max: usize) -> Result<Range> {
        let dimensions = self.dimensions;
        let list = |list: *const usize| -> [usize; 3] {
            std::array::from_fn(|at| {
                if list.is_null() || at >= dimensions as usize {
                    0
                } else {
                    // SAFETY: the caller's promise.
                    unsafe { *list.add(at) }
                }
            })
        };
        Range::new(
            dimensions,
            list(self.global),
            list(self.offset),
            list(self.local),
            required,
            items_max,
        )
    }
}

/// A buffer of a launch; its memory stays until the launch has ended.
pub struct Bound {
    /// The argument's number.
    pub at: usize,
    /// Its memory with the part that the kernel may reach: origin and length.
    pub place: Option<(Arc<Piece>, usize, usize)>,
    /// Whether stores are allowed.
    pub is_writable: bool,
}

impl Bound {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.2 as u64)
    }
}

/// The argument block and the buffers that it refers to.
pub struct Block {
    /// The block.
    pub words: Vec<u64>,
    /// In the order of their tags.
    pub buffers: Vec<Bound>,
}

impl Block {
    /// The block of a launch with these arguments.
    ///
    /// # Safety
    /// The arguments' buffers are live.
    pub unsafe fn new(about: &manifest::Kernel, args: &[Arg], range: &Range) -> Result<Block> {
        let mut block = Block {
            words: range.words().collect(),
            buffers: Vec::new(),
        };
        let mut pipes = Vec::new();
        for (at, (arg, argument)) in args.iter().zip(&about.arguments).enumerate() {
            match arg {
                Arg::Nothing => return Err(CL_INVALID_KERNEL_ARGS),
                Arg::Local(bytes) => block.words.push(*bytes),
                Arg::Value(bytes) => block.words.extend(words(bytes, argument.words as usize)),
                Arg::Memory(raw) => {
                    if block.buffers.len() == BUFFERS_MAX {
                        return Err(CL_OUT_OF_RESOURCES);
                    }
                    let is_constant = argument.address == Address::Constant;
                    // SAFETY: the caller's promise.
                    let mem = (*raw != 0).then(|| unsafe { &*(*raw as *const Mem) });
                    check_pipe(argument, mem)?;
                    if argument.is_pipe() {
                        pipes.push((*raw, &argument.access));
                    }
                    block.push_buffer(at, mem, is_constant);
                }
            }
        }
        // "A kernel cannot read from and write to the same pipe object" (OpenCL C 2.0, 6.13.16.8).
        let has_both = |(raw, access): &(usize, &String)| {
            let mut others = pipes.iter();
            others.any(|(other, its)| other == raw && its != access)
        };
        if pipes.iter().any(has_both) {
            return Err(CL_INVALID_KERNEL_ARGS);
        }
        Ok(block)
    }

    fn push_buffer(&mut self, at: usize, mem: Option<&Mem>, is_constant: bool) {
        let tag = self.buffers.len() as u64 + 1;
        self.words.push(match mem {
            Some(_) => tag << TAG_SHIFT,
            None => 0,
        });
        self.buffers.push(Bound {
            at,
            place: mem.map(|mem| (mem.piece.clone(), mem.origin, mem.bytes)),
            is_writable: mem.is_some_and(|mem| !mem.is_read_only) && !is_constant,
        });
    }

    /// The buffers as the library receives them.
    pub fn in_memory(&self) -> Vec<Buffer> {
        let buffers = self.buffers.iter().map(|bound| {
            let part = bound.place.as_ref().and_then(|(piece, origin, bytes)| {
                piece.range.slice(*origin as u64, *bytes as u64)
            });
            let (bytes, size) = part.map_or((std::ptr::null_mut(), 0), |part| {
                (part.ptr(), part.len() as u64)
            });
            Buffer {
                bytes,
                size,
                read_only: u32::from(!bound.is_writable),
                pad: 0,
            }
        });
        buffers.collect()
    }
}

/// Checks that a pipe is passed for a pipe, of the packets that the kernel uses.
fn check_pipe(argument: &manifest::Argument, mem: Option<&Mem>) -> Result<()> {
    let packet_bytes = mem.and_then(|mem| mem.packet_bytes).map(u64::from);
    match (argument.is_pipe(), packet_bytes) {
        (false, None) => Ok(()),
        (false, Some(_)) => Err(CL_INVALID_ARG_VALUE),
        (true, None) => Err(CL_INVALID_MEM_OBJECT),
        (true, Some(bytes)) if [0, bytes].contains(&argument.packet_bytes) => Ok(()),
        (true, Some(_)) => Err(CL_INVALID_ARG_VALUE),
    }
}

/// A value as words of the argument block.
fn words(bytes: &[u8], count: usize) -> impl Iterator<Item = u64> + '_ {
    (0..count).map(|at| {
        let mut word = [0; 8];
        let rest = bytes.get(8 * at..).unwrap_or_default();
        let len = rest.len().min(8);
        word[..len].copy_from_slice(&rest[..len]);
        u64::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 3] = [0; 3];
    const ITEMS: usize = 256;

    fn range(dimensions: u32, global: [usize; 3], local: [usize; 3]) -> Result<Range> {
        Range::new(dimensions, global, [5, 6, 7], local, None, ITEMS)
    }

    #[test]
    fn unused_dimensions_have_one_item_and_no_offset() {
        let range = range(2, [12, 8, 0], [4, 2, 0]).unwrap();
        let words: Vec<u64> = range.words().collect();
        assert_eq!(words, [12, 8, 1, 5, 6, 0, 4, 2, 1, 2]);
    }

    #[test]
    fn a_chosen_group_divides_the_range() {
        for global in [[640, 480, 0], [7, 13, 0], [1021, 3, 0], [1, 1, 0]] {
            let range = range(2, global, NONE).unwrap();
            assert!(range.local.iter().product::<usize>() <= ITEMS);
            assert!((0..2).all(|at| global[at] % range.local[at] == 0));
        }
        assert_eq!(range(1, [1024, 0, 0], NONE).unwrap().local, [256, 1, 1]);
    }

    #[test]
    fn sizes_are_refused_as_the_specification_requires() {
        let refused = [
            (range(1, [0, 0, 0], NONE), CL_INVALID_GLOBAL_WORK_SIZE),
            (
                range(2, [usize::MAX, 2, 0], NONE),
                CL_INVALID_GLOBAL_WORK_SIZE,
            ),
            (range(1, [usize::MAX, 0, 0], NONE), CL_INVALID_GLOBAL_OFFSET),
            (range(1, [10, 0, 0], [4, 0, 0]), CL_INVALID_WORK_GROUP_SIZE),
            (
                range(1, [1024, 0, 0], [512, 0, 0]),
                CL_INVALID_WORK_GROUP_SIZE,
            ),
            (
                Range::new(2, [32, 32, 0], NONE, [8, 8, 0], Some([16, 16, 1]), ITEMS),
                CL_INVALID_WORK_GROUP_SIZE,
            ),
        ];
        for (result, code) in refused {
            assert_eq!(result, Err(code));
        }
        let fits = Range::new(2, [32, 32, 0], NONE, NONE, Some([16, 16, 1]), ITEMS).unwrap();
        assert_eq!(fits.local, [16, 16, 1]);
    }

    #[test]
    fn values_fill_as_many_words_as_they_need() {
        let bytes: Vec<u8> = (1..=12).collect();
        let words: Vec<u64> = words(&bytes, 2).collect();
        assert_eq!(words, [0x0807_0605_0403_0201, 0x0C0B_0A09]);
    }
}
