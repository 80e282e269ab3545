/* OpenCL C as plain C, for kernels of one dimension without local memory: the kernel and the native
 * function have the same source, so that both give the same bytes. Include the kernel's file after
 * this one and run it over its work-items with RUN. */
#ifndef OPENCL_C_H
#define OPENCL_C_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "baltra_function.h"

typedef uint8_t uchar;
typedef uint16_t ushort;
typedef uint32_t uint;
/* `unsigned long` is 64 bits wide in OpenCL C and here. */
typedef unsigned long ulong;
_Static_assert(sizeof(ulong) == 8, "a 64-bit target");

#define kernel static inline
#define global
#define constant static const
#define get_global_id(dimension) work_item
static _Thread_local size_t work_item __attribute__((unused));

#define RUN(items, call) \
  for (work_item = 0; work_item < (items); work_item++) call

/* The argument of an index as an array, or as a number. */
#define ARRAY(type, index) ((type *)arguments[index].data)
#define NUMBER(type, index) (*(const type *)arguments[index].data)

/* Refuses a call whose number of arguments differs from the manifest. */
#define EXPECT(expected)                                                                    \
  if (count != (expected)) {                                                                \
    snprintf(error, error_bytes, "got %u arguments, expected %u", count, (unsigned)(expected)); \
    return 1;                                                                               \
  }

#endif
