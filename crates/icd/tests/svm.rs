//! Shared virtual memory has one address here and on the device.

mod common;

use baltra_opencl::*;
use common::compare;
use std::ptr::{null, null_mut};

const SOURCE: &str = "
kernel void chain(global ulong *head, ulong steps) {
    global ulong *at = head;
    for (ulong i = 0; i < steps; i++) at = (global ulong *)at[0];
    at[1] += 7;
}
";

#[test]
fn pointers_mean_the_same_on_both_sides() {
    compare(|d| {
        let mut caps = 0u64;
        let pointer = (&mut caps as *mut u64).cast();
        let param = CL_DEVICE_SVM_CAPABILITIES as u32;
        cl!(d, clGetDeviceInfo(d.device, param, 8, pointer, null_mut()));
        let coarse = caps & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER as u64 != 0;
        note!(d, "coarse {coarse}");
        if !coarse {
            return;
        }
        let program = d.build(SOURCE, "");
        let chain = d.kernel(program, "chain");
        let region = cl!(
            d,
            clSVMAlloc(d.context, CL_MEM_READ_WRITE as u64, 1 << 16, 64)
        );
        note!(
            d,
            "allocated {} aligned {}",
            !region.is_null(),
            region as usize % 64
        );
        assert!(!region.is_null());
        let words: *mut u64 = region.cast();
        let flags = (CL_MAP_READ | CL_MAP_WRITE) as u64;
        let map = |d: &mut common::Driver| {
            let code = cl!(
                d,
                clEnqueueSVMMap(d.queue, 1, flags, region, 1 << 16, 0, null(), null_mut())
            );
            note!(d, "map {code}");
        };
        let unmap = |d: &mut common::Driver| {
            let code = cl!(d, clEnqueueSVMUnmap(d.queue, region, 0, null(), null_mut()));
            note!(d, "unmap {code}");
        };
        let pattern = 0u32;
        let code = cl!(
            d,
            clEnqueueSVMMemFill(
                d.queue,
                region,
                (&pattern as *const u32).cast(),
                4,
                1 << 16,
                0,
                null(),
                null_mut()
            )
        );
        note!(d, "fill {code}");
        map(d);
        for i in 0..100usize {
            // SAFETY: inside the mapped region.
            unsafe { *words.add(i * 8) = words.add((i + 1) * 8) as u64 };
        }
        unmap(d);
        let code = cl!(d, clSetKernelArgSVMPointer(chain, 0, region));
        note!(d, "set {code} {}", d.set(chain, 1, &100u64));
        note!(d, "launch {}", d.launch(chain, &[1], &[1]));
        note!(d, "launch {}", d.launch(chain, &[1], &[1]));
        map(d);
        // SAFETY: as above.
        note!(d, "{}", unsafe { *words.add(100 * 8 + 1) });
        unmap(d);
        let mut out = [0u64; 2];
        // SAFETY: as above.
        let from = unsafe { words.add(100 * 8 + 1) };
        let code = cl!(
            d,
            clEnqueueSVMMemcpy(
                d.queue,
                1,
                out.as_mut_ptr().cast(),
                from.cast(),
                8,
                0,
                null(),
                null_mut()
            )
        );
        note!(d, "copy {code} {out:?}");
        let nothing = cl!(d, clSVMAlloc(d.context, CL_MEM_READ_WRITE as u64, 0, 0));
        note!(d, "nothing {}", nothing.is_null());
        let mut list = [region];
        let code = cl!(
            d,
            clEnqueueSVMFree(
                d.queue,
                1,
                list.as_mut_ptr(),
                None,
                null_mut(),
                0,
                null(),
                null_mut()
            )
        );
        note!(d, "free {code}");
        d.finish();
    });
}
