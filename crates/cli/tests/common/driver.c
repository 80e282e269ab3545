/* An OpenCL driver with COUNT devices and without further functions: all devices have the same
   name, which contains digits, and each has a UUID and a position on the PCI bus. Contexts can be
   created, because an executor creates one before it serves. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>
#include <string.h>

#ifndef BUS
#define BUS 0x10
#endif

static cl_icd_dispatch table;
struct _cl_platform_id { cl_icd_dispatch *dispatch; };
struct _cl_device_id { cl_icd_dispatch *dispatch; };
struct _cl_context { cl_icd_dispatch *dispatch; };
static struct _cl_platform_id platform = {&table};
static struct _cl_device_id devices[COUNT + 1];
static struct _cl_context context = {&table};

static cl_int answer(const void *value, size_t len, size_t size, void *out, size_t *needed) {
    if (needed) *needed = len;
    if (out && size < len) return CL_INVALID_VALUE;
    if (out) memcpy(out, value, len);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL platform_info(cl_platform_id p, cl_platform_info param, size_t size, void *out, size_t *needed) {
    const char *text = param == CL_PLATFORM_VERSION ? "OpenCL 3.0 shim" : param == CL_PLATFORM_NAME ? "Shim" : "";
    return answer(text, strlen(text) + 1, size, out, needed);
}

static cl_int CL_API_CALL device_ids(cl_platform_id p, cl_device_type type, cl_uint room, cl_device_id *out, cl_uint *count) {
    for (cl_uint i = 0; i < COUNT && i < room && out; i++) out[i] = &devices[i];
    if (count) *count = COUNT;
    return COUNT ? CL_SUCCESS : CL_DEVICE_NOT_FOUND;
}

static cl_int CL_API_CALL device_info(cl_device_id d, cl_device_info param, size_t size, void *out, size_t *needed) {
    unsigned n = d - devices;
    cl_device_type type = CL_DEVICE_TYPE_GPU;
    cl_ulong memory = 1 << 30;
    cl_uint units = 1;
    cl_device_pci_bus_info_khr place = {0, BUS + n, 0, 0};
    unsigned char uuid[16];
    memset(uuid, BUS + n, sizeof uuid);
    switch (param) {
    case CL_DEVICE_NAME: return answer("Shim H100 1", 12, size, out, needed);
    case CL_DEVICE_VERSION: return answer("OpenCL 3.0 shim", 16, size, out, needed);
    case CL_DEVICE_TYPE: return answer(&type, sizeof type, size, out, needed);
    case CL_DEVICE_GLOBAL_MEM_SIZE: return answer(&memory, sizeof memory, size, out, needed);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return answer(&units, sizeof units, size, out, needed);
    case CL_DEVICE_UUID_KHR: return answer(uuid, sizeof uuid, size, out, needed);
    case CL_DEVICE_PCI_BUS_INFO_KHR: return answer(&place, sizeof place, size, out, needed);
    default: return CL_INVALID_VALUE;
    }
}

static cl_context CL_API_CALL make_context(const cl_context_properties *properties, cl_uint count, const cl_device_id *list,
                                           void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *code) {
    if (code) *code = CL_SUCCESS;
    return &context;
}

static cl_int CL_API_CALL release_context(cl_context c) { return CL_SUCCESS; }

static cl_int CL_API_CALL platforms(cl_uint room, cl_platform_id *out, cl_uint *count) {
    if (out && room) *out = &platform;
    if (count) *count = 1;
    return CL_SUCCESS;
}

__attribute__((visibility("default"))) void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
    return strcmp(name, "clIcdGetPlatformIDsKHR") ? NULL : (void *)platforms;
}

__attribute__((constructor)) static void fill(void) {
    for (unsigned i = 0; i < COUNT; i++) devices[i].dispatch = &table;
    table.clGetPlatformInfo = platform_info;
    table.clGetDeviceIDs = device_ids;
    table.clGetDeviceInfo = device_info;
    table.clCreateContext = make_context;
    table.clReleaseContext = release_context;
}
