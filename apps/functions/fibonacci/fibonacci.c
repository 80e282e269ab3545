#include "../common/opencl_c.h"
#define fibonacci fibonacci_item
#include "fibonacci.cl"
#undef fibonacci

int32_t fibonacci(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  EXPECT(3)
  ulong numbers = NUMBER(ulong, 2);
  RUN(numbers, fibonacci_item(ARRAY(uint, 0), ARRAY(ulong, 1), numbers));
  return 0;
}
