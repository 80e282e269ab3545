/* An OpenCL driver for tests: PoCL as a GPU's driver that keeps memory of the device for each byte of
 * the host that it pins, as NVIDIA's does. Kernels need all of it: launches fail until
 * something has been pinned and nothing is any more. Ends the process if memory is unpinned
 * before a transfer that uses it is complete. */
#define CL_TARGET_OPENCL_VERSION 120
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wrapped_pocl.h"

#define PINS_MAX 256
#define TRANSFERS_MAX 1024

struct pin {
  cl_mem mem;
  const char *start;
  size_t len;
  cl_event transfers[TRANSFERS_MAX]; /* not known to be complete; NULL: a free place */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pin pins[PINS_MAX];
static int pinned_now, pinned_ever;

static void fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  abort();
}

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info param, size_t size, void *out, size_t *needed) {
  cl_device_type type = CL_DEVICE_TYPE_GPU;
  if (param != CL_DEVICE_TYPE) return pocl.clGetDeviceInfo(device, param, size, out, needed);
  if (needed) *needed = sizeof type;
  if (out && size < sizeof type) return CL_INVALID_VALUE;
  if (out) memcpy(out, &type, sizeof type);
  return CL_SUCCESS;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code) {
  cl_mem mem = pocl.clCreateBuffer(context, flags, size, host, code);
  if (!mem || !(flags & CL_MEM_USE_HOST_PTR)) return mem;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < PINS_MAX; i++) {
    if (pins[i].mem) continue;
    pins[i] = (struct pin){mem, host, size, {NULL}};
    pinned_now++;
    pinned_ever++;
    break;
  }
  pthread_mutex_unlock(&lock);
  return mem;
}

static int is_complete(cl_event event) {
  cl_int status = CL_QUEUED;
  pocl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
  return status <= CL_COMPLETE;
}

static cl_int CL_API_CALL release(cl_mem mem) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < PINS_MAX; i++) {
    if (pins[i].mem != mem) continue;
    for (int t = 0; t < TRANSFERS_MAX; t++) {
      cl_event transfer = pins[i].transfers[t];
      if (!transfer) continue;
      if (!is_complete(transfer)) fail("unpinned during a transfer");
      pocl.clReleaseEvent(transfer);
    }
    pins[i].mem = NULL;
    pinned_now--;
  }
  pthread_mutex_unlock(&lock);
  return pocl.clReleaseMemObject(mem);
}

/* Keeps a transfer's event with the pin of its memory; hands it on if the caller wants it. */
static void record(const void *host, cl_event transfer, cl_event *event) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < PINS_MAX; i++) {
    struct pin *pin = &pins[i];
    if (!pin->mem || (const char *)host < pin->start || (const char *)host >= pin->start + pin->len) continue;
    int place = 0;
    while (place < TRANSFERS_MAX && pin->transfers[place] && !is_complete(pin->transfers[place])) place++;
    if (place == TRANSFERS_MAX) fail("too many transfers");
    if (pin->transfers[place]) pocl.clReleaseEvent(pin->transfers[place]);
    pocl.clRetainEvent(transfer);
    pin->transfers[place] = transfer;
    break;
  }
  pthread_mutex_unlock(&lock);
  if (event) *event = transfer;
  else pocl.clReleaseEvent(transfer);
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t size,
                                      void *host, cl_uint count, const cl_event *waits, cl_event *event) {
  cl_event own = NULL;
  cl_int code = pocl.clEnqueueReadBuffer(queue, mem, blocking, offset, size, host, count, waits, &own);
  if (code == CL_SUCCESS) record(host, own, event);
  return code;
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset, size_t size,
                                       const void *host, cl_uint count, const cl_event *waits, cl_event *event) {
  cl_event own = NULL;
  cl_int code = pocl.clEnqueueWriteBuffer(queue, mem, blocking, offset, size, host, count, waits, &own);
  if (code == CL_SUCCESS) record(host, own, event);
  return code;
}

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                 const size_t *global, const size_t *local, cl_uint count, const cl_event *waits,
                                 cl_event *event) {
  pthread_mutex_lock(&lock);
  int fits = pinned_ever && !pinned_now;
  pthread_mutex_unlock(&lock);

  if (!fits) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return pocl.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count, waits, event);
}

static void replace(void) {
  own.clGetDeviceInfo = device_info;
  own.clCreateBuffer = create_buffer;
  own.clReleaseMemObject = release;
  own.clEnqueueReadBuffer = read_buffer;
  own.clEnqueueWriteBuffer = write_buffer;
  own.clEnqueueNDRangeKernel = launch;
}
