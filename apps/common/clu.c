#define _POSIX_C_SOURCE 200809L
#include "clu.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
  cl_int code;
  const char *name;
  const char *advice;
} errors[] = {
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND", "the platform has no device; run clinfo to see what the loader finds"},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE", "the device or the service behind it went away; start the program again"},
    {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE", "this device takes binaries only; choose another one with --device"},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE", "the device has too little memory left; use a smaller size"},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES", "the device is out of resources; use a smaller size or fewer programs at once"},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY", "the host has too little memory left; use a smaller size"},
    {CL_PROFILING_INFO_NOT_AVAILABLE, "CL_PROFILING_INFO_NOT_AVAILABLE", "the queue does not profile"},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE", "the compiler's log above says where"},
    {CL_INVALID_VALUE, "CL_INVALID_VALUE", "an argument is outside what this device allows; clinfo shows its limits"},
    {CL_INVALID_DEVICE, "CL_INVALID_DEVICE", "the device is not one of this context"},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE", "larger than CL_DEVICE_MAX_MEM_ALLOC_SIZE; use a smaller size"},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE", "the device has smaller work-groups than this program uses"},
    {CL_INVALID_OPERATION, "CL_INVALID_OPERATION", "this device cannot do that"},
    {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS", "a kernel argument was not set"},
    {CL_INVALID_EVENT_WAIT_LIST, "CL_INVALID_EVENT_WAIT_LIST", "an event in the wait list does not belong to this context"},
    {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", "a command that this one waits for has failed"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR", "the loader finds no OpenCL driver; look into OCL_ICD_VENDORS and /etc/OpenCL/vendors"},
};

void clu_must(cl_int code, const char *call) {
  if (code == CL_SUCCESS) return;
  const char *name = "an OpenCL error";
  const char *advice = "cl.h names the code";
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code == code) {
      name = errors[i].name;
      advice = errors[i].advice;
    }
  }
  fflush(stdout);
  fprintf(stderr, "error: %.*s failed with %d (%s): %s\n", (int)strcspn(call, "("), call, code, name, advice);
  exit(EXIT_OPENCL);
}

static bool matches(const struct clu *c, const char *wanted) {
  return !wanted || strstr(c->device_name, wanted) || strstr(c->platform_name, wanted);
}

void clu_open(struct clu *c, const char *wanted) {
  cl_platform_id platforms[32];
  cl_uint platform_count = 0;
  CLU(clGetPlatformIDs(32, platforms, &platform_count));
  for (cl_uint p = 0; p < platform_count && p < 32; p++) {
    cl_device_id devices[64];
    cl_uint device_count = 0;
    cl_int code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 64, devices, &device_count);
    if (code == CL_DEVICE_NOT_FOUND) continue;
    clu_must(code, "clGetDeviceIDs");
    for (cl_uint d = 0; d < device_count && d < 64; d++) {
      c->platform = platforms[p];
      c->device = devices[d];
      CLU(clGetPlatformInfo(c->platform, CL_PLATFORM_NAME, sizeof c->platform_name, c->platform_name, NULL));
      CLU(clGetDeviceInfo(c->device, CL_DEVICE_NAME, sizeof c->device_name, c->device_name, NULL));
      if (!matches(c, wanted)) continue;
      cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)c->platform, 0};
      c->context = clCreateContext(properties, 1, &c->device, NULL, NULL, &code);
      clu_must(code, "clCreateContext");
      return;
    }
  }
  fprintf(stderr, "error: no OpenCL device%s%s%s among %u platforms (clinfo -l lists all devices)\n",
          wanted ? " named like '" : "", wanted ? wanted : "", wanted ? "'" : "", platform_count);
  exit(EXIT_OPENCL);
}

void clu_close(struct clu *c) { CLU(clReleaseContext(c->context)); }

cl_command_queue clu_queue(const struct clu *c, cl_command_queue_properties properties) {
  cl_int code;
  cl_command_queue queue = clCreateCommandQueue(c->context, c->device, properties, &code);
  clu_must(code, "clCreateCommandQueue");
  return queue;
}

cl_mem clu_buffer(const struct clu *c, cl_mem_flags flags, size_t bytes) {
  cl_int code;
  cl_mem buffer = clCreateBuffer(c->context, flags, bytes, NULL, &code);
  clu_must(code, "clCreateBuffer");
  return buffer;
}

cl_program clu_program(const struct clu *c, const char *source, const char *options) {
  cl_int code;
  cl_program program = clCreateProgramWithSource(c->context, 1, &source, NULL, &code);
  clu_must(code, "clCreateProgramWithSource");
  code = clBuildProgram(program, 1, &c->device, options, NULL, NULL);
  if (code != CL_SUCCESS) {
    size_t size = 0;
    clGetProgramBuildInfo(program, c->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *log = calloc(1, size + 1);
    if (log && clGetProgramBuildInfo(program, c->device, CL_PROGRAM_BUILD_LOG, size, log, NULL) == CL_SUCCESS)
      fprintf(stderr, "%s\n", log);
    free(log);
  }
  clu_must(code, "clBuildProgram");
  return program;
}

cl_kernel clu_kernel(cl_program program, const char *name) {
  cl_int code;
  cl_kernel kernel = clCreateKernel(program, name, &code);
  clu_must(code, "clCreateKernel");
  return kernel;
}

void clu_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
  CLU(clSetKernelArg(kernel, index, size, value));
}

double clu_event_ms(cl_event event) {
  cl_ulong start = 0, end = 0;
  CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL));
  CLU(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL));
  return (double)(end - start) / 1e6;
}

double clu_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

void clu_sleep_ms(double ms) {
  if (ms <= 0) return;
  struct timespec t = {.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(fmod(ms, 1e3) * 1e6)};
  while (nanosleep(&t, &t) == -1 && errno == EINTR) {
  }
}

void *clu_alloc(size_t bytes) {
  void *memory = NULL;
  /* Drivers need page alignment to pin host memory or to use it in place. */
  if (posix_memalign(&memory, 4096, bytes ? bytes : 1)) {
    fprintf(stderr, "error: out of memory for %zu bytes (use a smaller size)\n", bytes);
    exit(EXIT_FILE);
  }
  return memory;
}

uint64_t clu_checksum(const void *data, size_t bytes) {
  const unsigned char *p = data;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

void samples_add(struct samples *s, double value) {
  if (s->count == s->capacity) {
    s->capacity = s->capacity ? s->capacity * 2 : 256;
    s->value = realloc(s->value, s->capacity * sizeof *s->value);
    if (!s->value) {
      fprintf(stderr, "error: out of memory for %zu samples (measure for a shorter time)\n", s->capacity);
      exit(EXIT_FILE);
    }
  }
  s->value[s->count++] = value;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double samples_percentile(struct samples *s, double p) {
  if (!s->count) return 0;
  qsort(s->value, s->count, sizeof *s->value, ascending);
  double at = p / 100 * (double)(s->count - 1);
  size_t low = (size_t)at;
  size_t high = low + 1 < s->count ? low + 1 : low;
  return s->value[low] + (s->value[high] - s->value[low]) * (at - (double)low);
}

static double mean(const struct samples *s) {
  double sum = 0;
  for (size_t i = 0; i < s->count; i++) sum += s->value[i];
  return s->count ? sum / (double)s->count : 0;
}

void samples_json(FILE *to, struct samples *s) {
  fprintf(to, "{\"n\":%zu,\"min\":%.6g,\"mean\":%.6g,\"median\":%.6g,\"p95\":%.6g,\"p99\":%.6g,\"max\":%.6g}", s->count,
          samples_percentile(s, 0), mean(s), samples_percentile(s, 50), samples_percentile(s, 95),
          samples_percentile(s, 99), samples_percentile(s, 100));
}

void samples_print(FILE *to, const char *label, struct samples *s, const char *unit) {
  fprintf(to, "%-18s median %10.4g %s   p95 %10.4g   p99 %10.4g   of %zu\n", label, samples_percentile(s, 50), unit,
          samples_percentile(s, 95), samples_percentile(s, 99), s->count);
}

void samples_free(struct samples *s) {
  free(s->value);
  *s = (struct samples){0};
}

void json_string(FILE *to, const char *text) {
  fputc('"', to);
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    if (*p == '"' || *p == '\\') fputc('\\', to);
    if (*p < 0x20)
      fprintf(to, "\\u%04x", *p);
    else
      fputc(*p, to);
  }
  fputc('"', to);
}

size_t parse_bytes(const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || end == text || *text == '-') return 0;
  unsigned shift = 0;
  if (*end == 'K' || *end == 'k') shift = 10;
  if (*end == 'M' || *end == 'm') shift = 20;
  if (*end == 'G' || *end == 'g') shift = 30;
  if (shift) end++;
  if (*end == 'B') end++;
  if (*end || (value << shift) >> shift != value) return 0;
  return (size_t)(value << shift);
}

long parse_long(const char *option, const char *text, long low, long high) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < low || value > high) {
    fprintf(stderr, "error: invalid value '%s' of %s: expected a number from %ld to %ld (--help has an example)\n", text, option, low, high);
    exit(EXIT_USAGE);
  }
  return value;
}
