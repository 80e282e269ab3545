#include "../common/opencl_c.h"

int32_t repeated_factorial(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  EXPECT(3)
  uint n = NUMBER(uint, 0);
  ulong repetitions = NUMBER(ulong, 1);
  double value = 1;
  for (ulong i = 0; i < repetitions; i++) {
    value = 1;
    for (uint factor = 2; factor <= n; factor++) value *= factor;
    /* Makes the compiler keep the repetition. */
    __asm__ volatile("" : "+m"(value), "+r"(n));
  }
  ARRAY(double, 2)[0] = value;
  return 0;
}
