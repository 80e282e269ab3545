/* An OpenCL driver for tests: PoCL, until a kernel named "fault" is launched, or, once the process
 * has received SIGRTMIN, until the next transfer of more than 2 MiB, which is one of the executor's
 * own: a client's are divided. From then on its context is in error for the rest of the process, as
 * NVIDIA's driver is after a stray store: the next wait fails with CL_INVALID_COMMAND_QUEUE,
 * everything else on a queue with CL_OUT_OF_RESOURCES, builds and new contexts with -9999. */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "wrapped_pocl.h"

#define KERNELS_MAX 1024
#define LOST (-9999)
#define OWN_BYTES ((size_t)2 << 20)

static _Atomic(cl_kernel) faulty[KERNELS_MAX];
static atomic_int armed; /* the next large transfer is a fault */
static atomic_int state; /* 0: no fault; 1: a fault has happened; 2: a wait has reported it */

static int reported_code(void) {
  int first = 1;
  if (atomic_compare_exchange_strong(&state, &first, 2)) return CL_INVALID_COMMAND_QUEUE;
  return atomic_load(&state) ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

static void arm(int number) {
  (void)number;
  atomic_store(&armed, 1);
}

static int transfer_code(size_t size) {
  if (size > OWN_BYTES && atomic_exchange(&armed, 0)) atomic_store(&state, 1);
  return atomic_load(&state) ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                      size_t offset, size_t size, void *host, cl_uint count,
                                      const cl_event *waits, cl_event *event) {
  cl_int code = transfer_code(size);
  return code ? code
              : pocl.clEnqueueReadBuffer(queue, mem, blocking, offset, size, host, count, waits,
                                         event);
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                       size_t offset, size_t size, const void *host, cl_uint count,
                                       const cl_event *waits, cl_event *event) {
  cl_int code = transfer_code(size);
  return code ? code
              : pocl.clEnqueueWriteBuffer(queue, mem, blocking, offset, size, host, count, waits,
                                          event);
}

static cl_int CL_API_CALL finish(cl_command_queue queue) {
  cl_int code = reported_code();
  return code ? code : pocl.clFinish(queue);
}

static cl_int CL_API_CALL wait(cl_uint count, const cl_event *events) {
  cl_int code = reported_code();
  return code ? code : pocl.clWaitForEvents(count, events);
}

static cl_int CL_API_CALL flush(cl_command_queue queue) {
  return atomic_load(&state) ? CL_OUT_OF_RESOURCES : pocl.clFlush(queue);
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *code) {
  cl_kernel kernel = pocl.clCreateKernel(program, name, code);
  if (kernel && !strcmp(name, "fault")) {
    for (int i = 0; i < KERNELS_MAX; i++) {
      cl_kernel none = NULL;
      if (atomic_compare_exchange_strong(&faulty[i], &none, kernel)) break;
    }
  }
  return kernel;
}

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                 const size_t *global, const size_t *local, cl_uint count, const cl_event *waits,
                                 cl_event *event) {
  if (atomic_load(&state)) return CL_OUT_OF_RESOURCES;
  for (int i = 0; i < KERNELS_MAX; i++) {
    if (atomic_load(&faulty[i]) == kernel) {
      atomic_store(&state, 1);
      return event ? pocl.clEnqueueMarkerWithWaitList(queue, count, waits, event) : CL_SUCCESS;
    }
  }
  return pocl.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, count, waits, event);
}

static cl_int CL_API_CALL build(cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
                                void(CL_CALLBACK *notify)(cl_program, void *), void *data) {
  return atomic_load(&state) ? LOST : pocl.clBuildProgram(program, count, devices, options, notify, data);
}

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint count,
                                             const cl_device_id *devices,
                                             void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                             void *data, cl_int *code) {
  if (!atomic_load(&state)) return pocl.clCreateContext(properties, count, devices, notify, data, code);
  if (code) *code = LOST;
  return NULL;
}

static void replace(void) {
  const struct sigaction action = {.sa_handler = arm, .sa_flags = SA_RESTART};
  sigaction(SIGRTMIN, &action, NULL);
  own.clEnqueueReadBuffer = read_buffer;
  own.clEnqueueWriteBuffer = write_buffer;
  own.clFinish = finish;
  own.clFlush = flush;
  own.clWaitForEvents = wait;
  own.clCreateKernel = create_kernel;
  own.clEnqueueNDRangeKernel = launch;
  own.clBuildProgram = build;
  own.clCreateContext = create_context;
}
