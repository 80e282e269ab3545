/* An OpenCL driver for tests: PoCL, but loading a binary takes until the process receives SIGUSR1.
   Each signal lets one load end. */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 200
#include <errno.h>
#include <semaphore.h>
#include <signal.h>

#include "wrapped_pocl.h"

static sem_t gate;

static void open_gate(int number) {
  (void)number;
  sem_post(&gate);
}

static cl_program CL_API_CALL load(cl_context context, cl_uint count, const cl_device_id *devices,
                                   const size_t *sizes, const unsigned char **binaries,
                                   cl_int *status, cl_int *code) {
  /* LLVM, which PoCL loads, handles this signal from its first compilation on. */
  const struct sigaction action = {.sa_handler = open_gate};
  sigaction(SIGUSR1, &action, NULL);
  while (sem_wait(&gate) && errno == EINTR) continue;
  return pocl.clCreateProgramWithBinary(context, count, devices, sizes, binaries, status, code);
}

static void replace(void) {
  sem_init(&gate, 0, 0);
  own.clCreateProgramWithBinary = load;
}
