#include "../common/opencl_c.h"

int32_t repeated_fibonacci(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  EXPECT(3)
  uint n = NUMBER(uint, 0);
  ulong repetitions = NUMBER(ulong, 1);
  ulong value = 0;
  for (ulong i = 0; i < repetitions; i++) {
    ulong following = 1;
    value = 0;
    for (uint step = 0; step < n; step++) {
      ulong sum = value + following;
      value = following;
      following = sum;
    }
    /* Makes the compiler keep the repetition. */
    __asm__ volatile("" : "+m"(value), "+r"(n));
  }
  ARRAY(ulong, 2)[0] = value;
  return 0;
}
