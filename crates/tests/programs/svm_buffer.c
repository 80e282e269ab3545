/* A buffer over shared virtual memory uses that memory. */
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#undef CL_TARGET_OPENCL_VERSION
#include <stdlib.h>

#include "clu.h"

static void see(const char *what, cl_int value) { printf("%s %d\n", what, value); }

int main(void) {
  struct clu cl;
  cl_int code, value, out = -1;
  clu_open(&cl, NULL);
  cl_device_svm_capabilities able = 0;
  clGetDeviceInfo(cl.device, CL_DEVICE_SVM_CAPABILITIES, sizeof able, &able, NULL);
  if (!(able & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)) {
    printf("none\n");
    return 0;
  }
  cl_command_queue queue = clu_queue(&cl, 0);
  cl_int *shared = clSVMAlloc(cl.context, CL_MEM_READ_WRITE, 8192, 0);
  value = 3;
  CLU(clEnqueueSVMMemFill(queue, shared, &value, sizeof value, 8192, 0, NULL, NULL));
  CLU(clFinish(queue));
  clCreateBuffer(cl.context, CL_MEM_USE_HOST_PTR, 16384, shared, &code);
  see("larger", code);
  cl_mem whole = clCreateBuffer(cl.context, CL_MEM_USE_HOST_PTR, 8192, shared, &code);
  see("whole", code);
  cl_mem second = clCreateBuffer(cl.context, CL_MEM_USE_HOST_PTR, 4096, shared + 1024, &code);
  see("second", code);
  cl_bool svm = CL_FALSE;
  CLU(clGetMemObjectInfo(whole, CL_MEM_USES_SVM_POINTER, sizeof svm, &svm, NULL));
  see("uses", (cl_int)svm);
  CLU(clEnqueueReadBuffer(queue, whole, CL_TRUE, 0, 4, &out, 0, NULL, NULL));
  see("filled", out);
  value = 7;
  CLU(clEnqueueFillBuffer(queue, whole, &value, sizeof value, 0, 8192, 0, NULL, NULL));
  CLU(clFinish(queue));
  CLU(clEnqueueReadBuffer(queue, second, CL_TRUE, 4092, 4, &out, 0, NULL, NULL));
  see("through the second", out);
  CLU(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, shared, 8192, 0, NULL, NULL));
  see("mapped", shared[2047]);
  for (int i = 0; i < 2048; i++) shared[i] = i;
  CLU(clEnqueueSVMUnmap(queue, shared, 0, NULL, NULL));
  cl_int *mapped = clEnqueueMapBuffer(queue, second, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, 4096, 0, NULL, NULL, &code);
  clu_must(code, "clEnqueueMapBuffer");
  see("same place", mapped == shared + 1024);
  see("through the map", mapped[1]);
  mapped[1] = -5;
  CLU(clEnqueueUnmapMemObject(queue, second, mapped, 0, NULL, NULL));
  cl_buffer_region region = {4096, 4096};
  cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  see("part", code);
  CLU(clEnqueueReadBuffer(queue, part, CL_TRUE, 4, 4, &out, 0, NULL, NULL));
  see("through the part", out);
  cl_program program = clu_program(&cl, "kernel void half_(global int *a, global int *b) { size_t i = get_global_id(0); b[i] = a[i] * 2; }", "");
  cl_kernel kernel = clu_kernel(program, "half_");
  CLU(clSetKernelArgSVMPointer(kernel, 0, shared));
  clu_arg(kernel, 1, sizeof second, &second);
  size_t count = 1024;
  CLU(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
  CLU(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, shared, 8192, 0, NULL, NULL));
  see("by a kernel", shared[1024 + 100]);
  CLU(clEnqueueSVMUnmap(queue, shared, 0, NULL, NULL));
  CLU(clReleaseMemObject(part));
  CLU(clReleaseMemObject(second));
  CLU(clReleaseMemObject(whole));
  CLU(clFinish(queue));
  clSVMFree(cl.context, shared);
  printf("done\n");
  return 0;
}
