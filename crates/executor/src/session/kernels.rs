//! Describing a program's kernels, argument sizes included.
//!
//! OpenCL reports an argument's type by name only, and only if the driver keeps it. The library
//! needs the size to check `clSetKernelArg` as the specification requires, so the executor
//! determines it by setting the argument: first with the size that the type's name suggests, then
//! with every plausible one.

use crate::driver::emulate::PACKET_BYTES;
use crate::driver::{number, text, Code, Device, Kernel, Program};
use baltra_opencl::*;
use baltra_wire::{KernelArg, KernelDescription};

/// The longest argument tried: OpenCL requires devices to support 1,024 bytes of arguments only.
const ARG_BYTES_MAX: usize = 4096;
/// Structures are mostly multiples of four: all sizes up to this are tried, then multiples of four.
const ARG_BYTES_DENSE: usize = 64;
/// Kernels and arguments of a hostile program.
const KERNELS_MAX: usize = 16_384;
const ARGS_MAX: u64 = 4096;

/// Whether a program's text or binary calls `printf`: its kernels run alone, so that the output can
/// be attributed to them.
///
/// Every binary of PoCL contains the name of `printf`'s buffer; one that calls `printf` has more.
pub fn mentions_printf(program: &[u8]) -> bool {
    const WORD: &[u8] = b"printf";
    let words = program.windows(WORD.len()).enumerate();
    let mut words = words.filter(|(_, window)| window[0] == b'p' && *window == WORD);
    words.any(|(at, _)| {
        let (before, after) = (&program[..at], &program[at + WORD.len()..]);
        let pocl = after.starts_with(b"_buffer")
            || before.ends_with(b"__pocl_") && after.starts_with(b"_float_libc");
        !pocl
    })
}

/// All kernels of a built program.
pub fn describe(program: &Program, device: Device) -> Result<Vec<KernelDescription>, Code> {
    let names = text(&program.info(CL_PROGRAM_KERNEL_NAMES as u32)?);
    names
        .split(';')
        .filter(|name| !name.is_empty())
        .take(KERNELS_MAX)
        .map(|name| describe_kernel(program.kernel(name)?, name, device))
        .collect()
}

fn describe_kernel(
    mut kernel: Kernel,
    name: &str,
    device: Device,
) -> Result<KernelDescription, Code> {
    let count = number(&kernel.info(CL_KERNEL_NUM_ARGS as u32)?).min(ARGS_MAX) as u32;
    let args: Vec<KernelArg> = (0..count).map(|at| describe_arg(&mut kernel, at)).collect();
    let params = [
        CL_KERNEL_WORK_GROUP_SIZE,
        CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
        CL_KERNEL_LOCAL_MEM_SIZE,
        CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
        CL_KERNEL_PRIVATE_MEM_SIZE,
    ];
    Ok(KernelDescription {
        name: name.to_owned(),
        attributes: text(&kernel.info(CL_KERNEL_ATTRIBUTES as u32).unwrap_or_default()),
        arg_info: count == 0 || args.iter().all(|arg| arg.address != 0),
        args,
        work_group: params
            .into_iter()
            .filter_map(|param| {
                let value = kernel.work_group_info(device, param as u32).ok()?;
                Some((param as u32, value))
            })
            .collect(),
    })
}

fn describe_arg(kernel: &mut Kernel, at: u32) -> KernelArg {
    let ask = |param: i32| kernel.arg_info(at, param as u32).unwrap_or_default();
    let mut arg = KernelArg {
        address: 0,
        access: number(&ask(CL_KERNEL_ARG_ACCESS_QUALIFIER)) as u32,
        qualifier: number(&ask(CL_KERNEL_ARG_TYPE_QUALIFIER)),
        type_name: text(&ask(CL_KERNEL_ARG_TYPE_NAME)),
        name: text(&ask(CL_KERNEL_ARG_NAME)),
        size: 0,
    };
    let reply = number(&ask(CL_KERNEL_ARG_ADDRESS_QUALIFIER));
    arg.address = address(reply, &arg.type_name);
    arg.size = match arg.qualifier & CL_KERNEL_ARG_TYPE_PIPE as u64 {
        0 => arg_size(kernel, at, &arg) as u32,
        _ => number(&ask(PACKET_BYTES)) as u32,
    };
    arg
}

/// The address space of an argument with a type's name in a driver's reply, which is 0 if the driver
/// has none. Xilinx XRT returns the number in its image; it crashes if a memory argument is
/// set to a zero value.
fn address(reply: u64, type_name: &str) -> u32 {
    let known = match reply {
        0 if type_name.is_empty() => return 0,
        0 => CL_KERNEL_ARG_ADDRESS_PRIVATE,
        1 => CL_KERNEL_ARG_ADDRESS_GLOBAL,
        2 => CL_KERNEL_ARG_ADDRESS_CONSTANT,
        3 => CL_KERNEL_ARG_ADDRESS_LOCAL,
        other => return other as u32,
    };
    known as u32
}

fn arg_size(kernel: &mut Kernel, at: u32, arg: &KernelArg) -> usize {
    let pointer = size_of::<usize>();
    match arg.address as i32 {
        CL_KERNEL_ARG_ADDRESS_LOCAL => return 0,
        CL_KERNEL_ARG_ADDRESS_GLOBAL | CL_KERNEL_ARG_ADDRESS_CONSTANT => return pointer,
        // Some drivers report images in global memory, others in private memory.
        _ if arg.access != 0 && arg.access != CL_KERNEL_ARG_ACCESS_NONE as u32 => return pointer,
        _ if arg.type_name == "sampler_t" => return pointer,
        _ => {}
    }
    let zeros = [0u8; ARG_BYTES_MAX];
    let mut fits = |size: usize| kernel.set_value(at, &zeros[..size]).is_ok();
    if let Some(size) = type_bytes(&arg.type_name) {
        if fits(size) {
            return size;
        }
    }
    let plain = [4, 8, 16, 1, 2, 32, 64, 128];
    let dense = 1..=ARG_BYTES_DENSE;
    let sparse = (ARG_BYTES_DENSE..=ARG_BYTES_MAX).step_by(4);
    // A driver that accepts an impossible size checks none: then the size is unknown.
    if fits(3) && fits(5) {
        return 0;
    }
    plain
        .into_iter()
        .chain(dense)
        .chain(sparse)
        .find(|size| fits(*size))
        .unwrap_or(0)
}

/// The size of a scalar or vector type by its name.
fn type_bytes(name: &str) -> Option<usize> {
    let name = name.trim();
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let count = match &name[base.len()..] {
        "" => 1,
        // A vector of three takes the room of four.
        "3" => 4,
        digits => digits
            .parse()
            .ok()
            .filter(|n| matches!(n, 2 | 4 | 8 | 16))?,
    };
    let scalar = match base {
        "char" | "uchar" | "unsigned char" => 1,
        "short" | "ushort" | "unsigned short" | "half" => 2,
        "int" | "uint" | "unsigned int" | "float" => 4,
        "long" | "ulong" | "unsigned long" | "double" | "size_t" | "ptrdiff_t" | "intptr_t"
        | "uintptr_t" => 8,
        _ => return None,
    };
    Some(scalar * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_sizes_of_the_specification() {
        assert_eq!(type_bytes("float"), Some(4));
        assert_eq!(type_bytes("uchar3"), Some(4));
        assert_eq!(type_bytes("double16"), Some(128));
        assert_eq!(type_bytes("struct point"), None);
        assert_eq!(type_bytes("int5"), None);
        assert_eq!(type_bytes(""), None);
    }

    #[test]
    fn address_spaces_of_every_driver_are_those_of_the_specification() {
        let of = |value: i32| address(value as u64, "int") as i32;
        assert_eq!(
            of(CL_KERNEL_ARG_ADDRESS_GLOBAL),
            CL_KERNEL_ARG_ADDRESS_GLOBAL
        );
        assert_eq!(
            of(CL_KERNEL_ARG_ADDRESS_PRIVATE),
            CL_KERNEL_ARG_ADDRESS_PRIVATE
        );
        assert_eq!(of(1), CL_KERNEL_ARG_ADDRESS_GLOBAL);
        assert_eq!(of(0), CL_KERNEL_ARG_ADDRESS_PRIVATE);
        assert_eq!(address(0, ""), 0);
    }

    #[test]
    fn printf_is_found_anywhere() {
        assert!(mentions_printf(b"kernel void f() { printf(\"x\"); }"));
        assert!(!mentions_printf(b"kernel void print() {}"));
        assert!(!mentions_printf(b"prin"));
        let pocl = b"\0_printf_buffer_printf_buffer_capacity__const.__pocl_printf_float_libc.str";
        assert!(!mentions_printf(pocl));
        assert!(mentions_printf(
            &[pocl, &b"kernel_nameprintfllvm"[..]].concat()
        ));
    }
}
