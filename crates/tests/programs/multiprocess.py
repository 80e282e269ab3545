"""pyopencl in the processes of Python's multiprocessing: forked ones inherit an open session."""

import multiprocessing
import sys

import numpy as np
import pyopencl as cl

SOURCE = "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }"


def work(seed):
    context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    queue = cl.CommandQueue(context)
    kernel = cl.Program(context, SOURCE).build().add
    values = np.full(1024, seed, np.int32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(context, flags, hostbuf=values)
    kernel(queue, values.shape, None, buffer, np.int32(1))
    cl.enqueue_copy(queue, values, buffer)
    return bool((values == seed + 1).all())


def main():
    # The parent's session is open and in use before, during and after.
    for method in ["fork", "spawn", "forkserver"]:
        print(method, "before", work(1))
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, "children", all(pool.map(work, range(12), chunksize=1)))
        print(method, "after", work(2))
    print("done")


if __name__ == "__main__":
    sys.exit(main())
