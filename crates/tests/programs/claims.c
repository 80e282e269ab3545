/* Whether an accelerator keeps what it claims of itself: prints "wrong N", the number of claims that
 * it does not keep, after a line for each. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "clu.h"

static const char source[] =
    "#if __OPENCL_VERSION__ != 120 || __OPENCL_C_VERSION__ != 120\n"
    "#error another version\n"
    "#endif\n"
    "kernel void reverse(global uint *out, local uint *room, uint n) {\n"
    "  for (uint i = 0; i < n; i++) room[n - 1 - i] = i;\n"
    "  for (uint i = 0; i < n; i++) out[i] = room[i];\n"
    "}\n";

static int wrong;

static void claim(int kept, const char *what) {
  if (kept) return;
  printf("not kept: %s\n", what);
  wrong++;
}

/* Whether a kernel may have arguments of that many bytes, and not of one more. */
static int arguments_are_kept(struct clu *cl, cl_command_queue queue, size_t bytes) {
  size_t own = bytes - sizeof(cl_mem);
  char options[64];
  snprintf(options, sizeof options, "-DBYTES=%zu", own);
  static const char wide[] =
      "typedef struct { uchar bytes[BYTES]; } block;\n"
      "kernel void wide(global uchar *out, block in) {\n"
      "  size_t i = get_global_id(0);\n"
      "  out[i] = in.bytes[i];\n"
      "}\n";
  cl_kernel kernel = clu_kernel(clu_program(cl, wide, options), "wide");
  unsigned char *in = clu_alloc(own), *out = clu_alloc(own);
  for (size_t i = 0; i < own; i++) in[i] = (unsigned char)(i * 7 + i / 251);
  cl_mem buffer = clu_buffer(cl, CL_MEM_READ_WRITE, own);
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  int kept = clSetKernelArg(kernel, 1, own, in) == CL_SUCCESS &&
             clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &own, NULL, 0, NULL, NULL) == CL_SUCCESS &&
             clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, own, out, 0, NULL, NULL) == CL_SUCCESS &&
             !memcmp(in, out, own);
  const char *source_of_more = wide;
  cl_program more = clCreateProgramWithSource(cl->context, 1, &source_of_more, NULL, NULL);
  snprintf(options, sizeof options, "-DBYTES=%zu", own + 1);
  kept = kept && clBuildProgram(more, 1, &cl->device, options, NULL, NULL) == CL_BUILD_PROGRAM_FAILURE;
  clReleaseProgram(more);
  free(in);
  free(out);
  return kept;
}

/* Whether a kernel with a barrier may require a group of the device's largest size. */
static int largest_group_is_kept(struct clu *cl, cl_command_queue queue, size_t items) {
  char options[64];
  snprintf(options, sizeof options, "-DITEMS=%zu", items);
  static const char turning[] =
      "kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void turn(global uint *out) {\n"
      "  local uint room[ITEMS];\n"
      "  uint i = get_local_id(0);\n"
      "  room[ITEMS - 1 - i] = i;\n"
      "  barrier(CLK_LOCAL_MEM_FENCE);\n"
      "  out[get_global_id(0)] = room[i];\n"
      "}\n";
  cl_kernel kernel = clu_kernel(clu_program(cl, turning, options), "turn");
  size_t all = 2 * items, bytes = all * sizeof(cl_uint);
  cl_uint *out = clu_alloc(bytes);
  cl_mem buffer = clu_buffer(cl, CL_MEM_WRITE_ONLY, bytes);
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  int kept = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &all, &items, 0, NULL, NULL) == CL_SUCCESS &&
             clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, bytes, out, 0, NULL, NULL) == CL_SUCCESS;
  for (size_t i = 0; kept && i < all; i++) kept = out[i] == items - 1 - i % items;
  free(out);
  return kept;
}

/* Whether the device has no group of more work-items than it claims. */
static int larger_group_is_refused(struct clu *cl, cl_command_queue queue, size_t items) {
  static const char plain[] = "kernel void plain(global uint *out) { out[get_global_id(0)] = 1; }";
  cl_kernel kernel = clu_kernel(clu_program(cl, plain, ""), "plain");
  size_t all = 2 * items;
  cl_mem buffer = clu_buffer(cl, CL_MEM_WRITE_ONLY, all * sizeof(cl_uint));
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  cl_int code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &all, &all, 0, NULL, NULL);
  return code == CL_INVALID_WORK_GROUP_SIZE || code == CL_INVALID_WORK_ITEM_SIZE;
}

/* Whether a buffer of that many bytes works to its last one. */
static int buffer_works(struct clu *cl, cl_command_queue queue, size_t bytes) {
  cl_int code;
  cl_mem buffer = clCreateBuffer(cl->context, CL_MEM_READ_WRITE, bytes, NULL, &code);
  if (code != CL_SUCCESS) return 0;
  cl_uint in = 0x5eed, out = 0;
  size_t last = bytes - sizeof in;
  code = clEnqueueWriteBuffer(queue, buffer, CL_TRUE, last, sizeof in, &in, 0, NULL, NULL);
  if (code == CL_SUCCESS) {
    code = clEnqueueReadBuffer(queue, buffer, CL_TRUE, last, sizeof out, &out, 0, NULL, NULL);
  }
  clReleaseMemObject(buffer);
  return code == CL_SUCCESS && out == in;
}

int main(void) {
  struct clu cl;
  clu_open(&cl, NULL);
  cl_command_queue queue = clu_queue(&cl, 0);
  char version[128], language[128];
  size_t items = 0, kernel_items = 0;
  cl_ulong local_bytes = 0;
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_VERSION, sizeof version, version, NULL));
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_OPENCL_C_VERSION, sizeof language, language, NULL));
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof items, &items, NULL));
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local_bytes, &local_bytes, NULL));
  claim(!strncmp(version, "OpenCL 1.2 ", 11), "a version with the vendor's part");
  claim(!strncmp(language, "OpenCL C 1.2 ", 13), "a version of the language with the vendor's part");
  claim(local_bytes >= 32 << 10, "the full profile's 32 KiB of local memory");

  cl_kernel kernel = clu_kernel(clu_program(&cl, source, ""), "reverse");
  CLU(clGetKernelWorkGroupInfo(kernel, cl.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof kernel_items, &kernel_items, NULL));
  claim(kernel_items > 0 && kernel_items <= items, "no kernel's groups are larger than the device's");

  claim(largest_group_is_kept(&cl, queue, items), "groups of the largest size");
  claim(larger_group_is_refused(&cl, queue, items), "no larger groups");

  cl_ulong buffer_bytes = 0;
  cl_device_info bytes_max = CL_DEVICE_MAX_MEM_ALLOC_SIZE;
  CLU(clGetDeviceInfo(cl.device, bytes_max, sizeof buffer_bytes, &buffer_bytes, NULL));
  claim(buffer_works(&cl, queue, (size_t)buffer_bytes), "buffers of the largest size");
  claim(!buffer_works(&cl, queue, (size_t)buffer_bytes + sizeof(cl_uint)), "no larger buffers");

  cl_uint n = (cl_uint)(local_bytes / sizeof(cl_uint));
  cl_uint *out = clu_alloc((size_t)local_bytes);
  cl_mem buffer = clu_buffer(&cl, CL_MEM_WRITE_ONLY, (size_t)local_bytes);
  clu_arg(kernel, 0, sizeof buffer, &buffer);
  clu_arg(kernel, 2, sizeof n, &n);
  size_t one = 1;
  claim(clSetKernelArg(kernel, 1, (size_t)local_bytes, NULL) == CL_SUCCESS &&
            clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL) == CL_SUCCESS &&
            clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, (size_t)local_bytes, out, 0, NULL, NULL) == CL_SUCCESS,
        "an argument in local memory may have all of it");
  cl_uint right = 0;
  for (cl_uint i = 0; i < n; i++) right += out[i] == n - 1 - i;
  claim(right == n, "all of the local memory holds what is stored there");

  size_t argument_bytes = 0;
  CLU(clGetDeviceInfo(cl.device, CL_DEVICE_MAX_PARAMETER_SIZE, sizeof argument_bytes, &argument_bytes, NULL));
  claim(arguments_are_kept(&cl, queue, argument_bytes), "arguments of the largest size");
  printf("wrong %d\n", wrong);
  free(out);
  clu_close(&cl);
  return 0;
}
