/* OpenCL C as C for the soft core: the names that kernels without barriers and vectors use. */
#include <humboldt.h>
#include <stdint.h>
#include <stdio.h>

#define kernel
#define global
#define constant const
typedef uint8_t uchar;
typedef uint32_t uint;

static uint global_ids[2];

static inline uint get_global_id(int d) { return global_ids[d]; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline int clamp(int x, int low, int high) { return min(max(x, low), high); }
static inline int abs(int x) { return x < 0 ? -x : x; }

/* FNV-1a. */
static uint hash(uint h, const void *bytes, uint count) {
  for (uint i = 0; i < count; i++) h = (h ^ ((const uchar *)bytes)[i]) * 16777619u;
  return h;
}
