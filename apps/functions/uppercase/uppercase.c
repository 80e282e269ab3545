#include "../common/opencl_c.h"
#define uppercase uppercase_item
#include "uppercase.cl"
#undef uppercase

int32_t uppercase(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  EXPECT(3)
  ulong length = NUMBER(ulong, 2);
  RUN((length + 63) / 64, uppercase_item(ARRAY(uchar, 0), ARRAY(uchar, 1), length));
  return 0;
}
