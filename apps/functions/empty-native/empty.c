#include "../common/opencl_c.h"

int32_t empty(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  (void)arguments;
  EXPECT(0)
  return 0;
}
