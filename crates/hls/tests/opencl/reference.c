/* Executes a kernel of a program in OpenCL C (argv[1]: its file, argv[2]: the kernel) on the first device: reads a launch of
 * two dimensions from stdin, and writes the buffers to stdout. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void check(cl_int code, const char *what)
{
    if (code == CL_SUCCESS) return;
    fprintf(stderr, "reference: %s: error %d\n", what, code);
    exit(1);
}

static void get(void *to, size_t bytes)
{
    if (fread(to, 1, bytes, stdin) != bytes) check(-1, "the launch is incomplete");
}

int main(int argc, char **argv)
{
    static char source[1 << 20];
    FILE *file = argc < 3 ? NULL : fopen(argv[1], "r");
    if (file == NULL) check(-1, "no source");
    source[fread(source, 1, sizeof source - 1, file)] = 0;
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    check(clGetPlatformIDs(1, &platform, NULL), "platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "context");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "queue");
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    check(code, "program");
    code = clBuildProgram(program, 1, &device, "-cl-std=CL1.2", NULL, NULL);
    if (code != CL_SUCCESS) {
        static char log[1 << 16];
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fputs(log, stderr);
    }
    check(code, "build");
    cl_kernel kernel = clCreateKernel(program, argv[2], &code);
    check(code, "kernel");
    uint64_t global[2], local[2];
    uint32_t count;
    get(global, sizeof global);
    get(local, sizeof local);
    get(&count, sizeof count);
    cl_mem *buffers = calloc(count + 1, sizeof *buffers);
    uint64_t *sizes = calloc(count + 1, sizeof *sizes);
    for (uint32_t i = 0; i < count; i++) {
        /* 0: a value; 1: a buffer; 2: local memory. */
        uint32_t kind;
        get(&kind, sizeof kind);
        get(&sizes[i], sizeof sizes[i]);
        void *bytes = malloc(sizes[i] + 1);
        if (kind != 2) get(bytes, sizes[i]);
        if (kind == 1) {
            buffers[i] = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizes[i], bytes, &code);
            check(code, "buffer");
            code = clSetKernelArg(kernel, i, sizeof buffers[i], &buffers[i]);
        } else {
            code = clSetKernelArg(kernel, i, sizes[i], kind == 2 ? NULL : bytes);
        }
        check(code, "argument");
        free(bytes);
    }
    size_t all[2] = {global[0], global[1]}, group[2] = {local[0], local[1]};
    check(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, all, group, 0, NULL, NULL), "launch");
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i] == NULL) continue;
        void *bytes = malloc(sizes[i] + 1);
        check(clEnqueueReadBuffer(queue, buffers[i], CL_TRUE, 0, sizes[i], bytes, 0, NULL, NULL), "read");
        fwrite(bytes, 1, sizes[i], stdout);
        free(bytes);
    }
    return 0;
}
