/* Allocates shared virtual memory again and again; prints how often that failed. */
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#undef CL_TARGET_OPENCL_VERSION

#include "clu.h"

#define ROUNDS 2000

int main(void) {
  struct clu cl;
  clu_open(&cl, NULL);
  int failures = 0;
  for (int round = 0; round < ROUNDS; round++) {
    void *address = clSVMAlloc(cl.context, CL_MEM_READ_WRITE, 65536, 0);
    if (!address) failures++;
    clSVMFree(cl.context, address);
  }
  printf("failures %d\n", failures);
  return 0;
}
