#include "../common/opencl_c.h"
#define factorial factorial_item
#include "factorial.cl"
#undef factorial

int32_t factorial(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  EXPECT(3)
  ulong numbers = NUMBER(ulong, 2);
  RUN(numbers, factorial_item(ARRAY(uint, 0), ARRAY(ulong, 1), numbers));
  return 0;
}
