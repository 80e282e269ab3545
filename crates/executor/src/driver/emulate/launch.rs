//! Launches.

use super::kernel::{local_bytes, Arg, Kernel};
use super::library::{Buffer, State};
use super::{may_log, CLOCK_HZ, LOCAL_BYTES};
use crate::driver::builtin::memory::Piece;
use crate::driver::builtin::object;
use crate::driver::builtin::objects::Mem;
use crate::driver::builtin::transfer::{done, Result};
use crate::driver::cancel;
use baltra_board::accelerator::manifest::{self, Address};
use baltra_opencl::*;
use std::sync::Arc;

/// Cycles between two checks whether the session has ended, about ten milliseconds.
const SLICE_CYCLES: u64 = 20_000;
/// A pointer's tag begins at this bit; below it is the offset in the buffer.
const TAG_SHIFT: u32 = 28;
/// Buffers of a launch: tags have four bits, and 0 is the null pointer's.
const BUFFERS_MAX: usize = 15;
/// Text that a kernel may hold back before it is written.
const PRINT_BYTES: usize = 1 << 16;

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
    api.clEnqueueNDRangeKernel = Some(launch);
}

/// Sizes of a launch in all three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    dimensions: u32,
    global: [usize; 3],
    offset: [usize; 3],
    local: [usize; 3],
}

impl Range {
    /// Checks the sizes as `clEnqueueNDRangeKernel` of OpenCL 1.2 requires. `local`: zeros choose.
    /// `required`: the kernel's `reqd_work_group_size`; `items_max`: work-items of its largest group.
    fn new(
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

unsafe extern "C" fn launch(
    _: cl_command_queue,
    kernel: cl_kernel,
    dimensions: cl_uint,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    if !(1..=3).contains(&dimensions) {
        return CL_INVALID_WORK_DIMENSION;
    }
    // SAFETY: live objects; each list is null or has one entry per dimension.
    unsafe {
        let list = |list: *const usize| -> [usize; 3] {
            std::array::from_fn(|at| match list.is_null() || at >= dimensions as usize {
                true => 0,
                false => *list.add(at),
            })
        };
        let kernel: &Kernel = object(kernel);
        let about = kernel.about();
        let required = about.required_work_group_size;
        let required = required.map(|sides| sides.map(|n| n as usize));
        let range = Range::new(
            dimensions,
            list(global),
            list(offset),
            list(local),
            required,
            about.work_group_size_max as usize,
        );
        done(range.and_then(|range| run(kernel, range)), event)
    }
}

/// The argument block and the buffers that it refers to.
struct Block {
    words: Vec<u64>,
    buffers: Vec<Buffer>,
    /// The buffers' arguments, and the memory of each until the launch has ended.
    arguments: Vec<usize>,
    _pieces: Vec<Arc<Piece>>,
}

impl Block {
    /// # Safety
    /// The arguments' buffers are live.
    unsafe fn new(about: &manifest::Kernel, args: &[Arg], range: &Range) -> Result<Block> {
        let mut block = Block {
            words: range.words().collect(),
            buffers: Vec::new(),
            arguments: Vec::new(),
            _pieces: Vec::new(),
        };
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
                    block.push_buffer(at, mem, is_constant);
                }
            }
        }
        Ok(block)
    }

    fn push_buffer(&mut self, at: usize, mem: Option<&Mem>, is_constant: bool) {
        let whole = mem.and_then(|mem| Some((mem, mem.part(0, mem.bytes)?)));
        let tag = self.buffers.len() as u64 + 1;
        let (bytes, size, read_only) = match &whole {
            Some((mem, part)) => (part.ptr(), part.len() as u64, mem.is_read_only),
            None => (std::ptr::null_mut(), 0, true),
        };
        self.buffers.push(Buffer {
            bytes,
            size,
            read_only: u32::from(read_only || is_constant),
            pad: 0,
        });
        self.words.push(match whole {
            Some(_) => tag << TAG_SHIFT,
            None => 0,
        });
        self.arguments.push(at);
        self._pieces.extend(mem.map(|mem| mem.piece.clone()));
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

/// Runs a kernel to its end; the result is its duration at the assumed clock rate, twice.
///
/// # Safety
/// The kernel's buffers are live.
unsafe fn run(kernel: &Kernel, range: Range) -> Result<(u64, u64)> {
    let about = kernel.about();
    let args = kernel
        .args
        .lock()
        .expect("no panic under this lock")
        .clone();
    if about.local_bytes + local_bytes(&args) > LOCAL_BYTES {
        return Err(CL_OUT_OF_RESOURCES);
    }
    // SAFETY: the caller's promise.
    let block = unsafe { Block::new(about, &args, &range)? };
    let library = &kernel.executable.library;
    let run = library.start(&kernel.name, &block.words, &block.buffers);
    let mut run = run.ok_or(CL_OUT_OF_RESOURCES)?;
    let mut printed = Vec::new();
    let state = loop {
        let state = run.advance(SLICE_CYCLES);
        printed.append(&mut run.take_printed());
        if state != State::Running || printed.len() > PRINT_BYTES {
            print(&mut printed);
        }
        if state != State::Running {
            break state;
        }
        if cancel::is_requested() {
            return Err(CL_OUT_OF_RESOURCES);
        }
    };
    match state {
        State::Done => {
            let ns = run.cycles() * (1_000_000_000 / CLOCK_HZ);
            Ok((ns, ns))
        }
        State::Fault {
            argument,
            is_store,
            offset,
        } => {
            let at = block.arguments.get(argument as usize);
            let name = at.map_or("(none)", |at| about.arguments[*at].name.as_str());
            let bytes = block.buffers.get(argument as usize).map_or(0, |b| b.size);
            let access = if is_store { "store" } else { "load" };
            if may_log() {
                tracing::warn!(
                    kernel = kernel.name,
                    argument = name,
                    offset,
                    bytes,
                    "a kernel was ended by the memory guard: invalid {access}"
                );
            }
            Err(CL_OUT_OF_RESOURCES)
        }
        State::Status(status) => {
            if may_log() {
                tracing::warn!(kernel = kernel.name, status, "a kernel has failed");
            }
            Err(CL_OUT_OF_RESOURCES)
        }
        State::Running => Err(CL_OUT_OF_RESOURCES),
    }
}

/// Writes to the process's standard output, which the executor captures. One write keeps lines
/// intact.
fn print(text: &mut Vec<u8>) {
    let stdout = rustix::stdio::stdout();
    let mut rest = &text[..];
    while !rest.is_empty() {
        match rustix::io::write(stdout, rest) {
            Ok(n) => rest = &rest[n..],
            Err(rustix::io::Errno::INTR) => {}
            // The output's limit is reached: the rest is lost, as with any driver.
            Err(_) => break,
        }
    }
    text.clear();
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
    fn test_unused_dimensions_have_one_item_and_no_offset() {
        let range = range(2, [12, 8, 0], [4, 2, 0]).unwrap();
        let words: Vec<u64> = range.words().collect();
        assert_eq!(words, [12, 8, 1, 5, 6, 0, 4, 2, 1, 2]);
    }

    #[test]
    fn test_a_chosen_group_divides_the_range() {
        for global in [[640, 480, 0], [7, 13, 0], [1021, 3, 0], [1, 1, 0]] {
            let range = range(2, global, NONE).unwrap();
            assert!(range.local.iter().product::<usize>() <= ITEMS);
            assert!((0..2).all(|at| global[at] % range.local[at] == 0));
        }
        assert_eq!(range(1, [1024, 0, 0], NONE).unwrap().local, [256, 1, 1]);
    }

    #[test]
    fn test_sizes_are_refused_as_the_specification_requires() {
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
    fn test_values_fill_as_many_words_as_they_need() {
        let bytes: Vec<u8> = (1..=12).collect();
        let words: Vec<u64> = words(&bytes, 2).collect();
        assert_eq!(words, [0x0807_0605_0403_0201, 0x0C0B_0A09]);
    }
}
