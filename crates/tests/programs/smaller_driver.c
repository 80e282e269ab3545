/* An OpenCL driver for tests: PoCL as a smaller device: groups of at most 128 work-items and 64 in
 * the third dimension, 16 KiB of local memory, no images of RGBA with unsigned bytes. */
#define CL_TARGET_OPENCL_VERSION 120
#include "wrapped_pocl.h"

enum { GROUP_MAX = 128, DEPTH_MAX = 64, LOCAL_BYTES = 16 << 10 };

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info param, size_t size,
                                      void *out, size_t *needed) {
  cl_int code = pocl.clGetDeviceInfo(device, param, size, out, needed);
  if (code != CL_SUCCESS || !out) return code;
  if (param == CL_DEVICE_MAX_WORK_ITEM_SIZES) ((size_t *)out)[2] = DEPTH_MAX;
  if (param == CL_DEVICE_LOCAL_MEM_SIZE) *(cl_ulong *)out = LOCAL_BYTES;
  return code;
}

static cl_int CL_API_CALL kernel_info(cl_kernel kernel, cl_device_id device,
                                      cl_kernel_work_group_info param, size_t size, void *out,
                                      size_t *needed) {
  cl_int code = pocl.clGetKernelWorkGroupInfo(kernel, device, param, size, out, needed);
  if (code == CL_SUCCESS && out && param == CL_KERNEL_WORK_GROUP_SIZE) *(size_t *)out = GROUP_MAX;
  return code;
}

static cl_int CL_API_CALL formats(cl_context context, cl_mem_flags flags, cl_mem_object_type type,
                                  cl_uint count, cl_image_format *list, cl_uint *found) {
  cl_image_format all[256];
  cl_uint had = 0, kept = 0;
  cl_int code = pocl.clGetSupportedImageFormats(context, flags, type, 256, all, &had);
  if (code != CL_SUCCESS) return code;
  for (cl_uint i = 0; i < had && i < 256; i++) {
    if (all[i].image_channel_order == CL_RGBA && all[i].image_channel_data_type == CL_UNSIGNED_INT8)
      continue;
    if (list && kept < count) list[kept] = all[i];
    kept++;
  }
  if (found) *found = kept;
  return CL_SUCCESS;
}

static void replace(void) {
  own.clGetDeviceInfo = device_info;
  own.clGetKernelWorkGroupInfo = kernel_info;
  own.clGetSupportedImageFormats = formats;
}
